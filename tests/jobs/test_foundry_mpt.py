"""llm-foundry's MPT: heads, biases, norms, feed-forwards and experts, counted by hand."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params, params_active

from .test_formats import value_of

HEAD = "max_seq_len: 128\nglobal_train_batch_size: 16\ndevice_train_microbatch_size: 2\n"
MODEL = """model:
  name: mpt_causal_lm
  d_model: 64
  n_heads: 8
  n_layers: 3
  expansion_ratio: 4
  max_seq_len: 128
  vocab_size: 512
"""
D, L, V, S = 64, 3, 512, 128


def read(folder: Path, more: str = "") -> TrainJob:
    (folder / "mpt.yaml").write_text(HEAD + MODEL + more)
    return read_job([str(folder / "mpt.yaml")])


def size(folder: Path, more: str = "") -> int:
    return params(value_of(read(folder, more), "model"))


def test_biases_and_learned_positions_are_the_default(tmp_path: Path) -> None:
    # a layer: q, k, v, o with biases, up and down with biases, two norms with weight and bias
    layer = 4 * (D * D + D) + (D * 4 * D + 4 * D) + (4 * D * D + D) + 2 * 2 * D
    assert size(tmp_path) == L * layer + V * D + S * D + 2 * D


def test_without_biases_norms_have_none_either_and_alibi_takes_the_positions(
    tmp_path: Path,
) -> None:
    layer = 4 * D * D + 8 * D * D + 2 * D
    found = size(tmp_path, "  no_bias: true\n  attn_config:\n    alibi: true\n")
    assert found == L * layer + V * D + D


def test_grouped_and_single_heads(tmp_path: Path) -> None:
    plain = "  no_bias: true\n  attn_config:\n    rope: true\n    attn_type: {}\n"
    base = L * (2 * D * D + 8 * D * D + 2 * D) + V * D + D
    # a head is 8 wide: two key/value heads of 8 are 2·64·16 parameters a layer, one 2·64·8
    grouped = plain.format("grouped_query_attention") + "    kv_n_heads: 2\n"
    assert size(tmp_path, grouped) == base + L * 2 * D * 16
    assert size(tmp_path, plain.format("multiquery_attention")) == base + L * 2 * D * 8
    # norms of all queries (64 wide) and all keys (16 wide), or of one head (8 wide) of each
    assert size(tmp_path, grouped + "    qk_ln: true\n") == base + L * (2 * D * 16 + 64 + 16)
    assert size(tmp_path, grouped + "    qk_gn: true\n") == base + L * (2 * D * 16 + 8 + 8)


def test_queries_keys_and_values_may_have_biases_alone(tmp_path: Path) -> None:
    plain = size(tmp_path, "  no_bias: true\n")
    assert size(tmp_path, "  no_bias: true\n  attention_bias: true\n") == plain + L * 3 * D


def test_gated_and_stated_widths(tmp_path: Path) -> None:
    plain = size(tmp_path, "  no_bias: true\n")
    gated = "  no_bias: true\n  ffn_config:\n    ffn_type: mptglu\n    ffn_hidden_size: 96\n"
    assert size(tmp_path, gated) == plain + L * (3 * D * 96 - 2 * D * 4 * D)


def test_an_untied_head_and_rms_norms(tmp_path: Path) -> None:
    plain = size(tmp_path)
    assert size(tmp_path, "  tie_word_embeddings: false\n") == plain + V * D
    assert size(tmp_path, "  norm_type: low_precision_rmsnorm\n") == plain - (2 * L + 1) * D


def test_experts_of_megablocks(tmp_path: Path) -> None:
    experts = (
        "  ffn_config:\n    ffn_type: mb_dmoe\n    moe_num_experts: 4\n    moe_top_k: 2\n"
        "    mlp_type: glu\n    mlp_impl: grouped\n    moe_world_size: 2\n"
    )
    job = read(tmp_path, "  no_bias: true\n" + experts)
    router = 4 * D
    attention = 4 * D * D + 2 * D
    rest = V * D + S * D + D
    one = 3 * D * 4 * D
    model = value_of(job, "model")
    assert params(model) == L * (attention + router + 4 * one) + rest
    assert params_active(model) == L * (attention + router + 2 * one) + rest
    assert value_of(job, "plan.ep") == 2
    # with biases MegaBlocks adds one vector to what the experts give, and none inside of them
    biased = params(value_of(read(tmp_path, experts), "model"))
    norms, o = 2 * D * L + D, D * L
    assert biased == params(model) + L * 3 * D + o + norms + L * D


def test_a_shared_expert(tmp_path: Path) -> None:
    experts = (
        "  no_bias: true\n  ffn_config:\n    ffn_type: mb_dmoe\n    moe_num_experts: 4\n"
        "    shared_expert: true\n    shared_expert_hidden_size: 32\n"
    )
    routed = 4 * 2 * D * 4 * D
    layer = 4 * D * D + 2 * D + 4 * D + routed + 2 * D * 32
    assert size(tmp_path, experts) == L * layer + V * D + S * D + D


def test_a_window_counts_the_keys_that_it_sees(tmp_path: Path) -> None:
    job = read(tmp_path, "  attn_config:\n    sliding_window_size: 31\n")
    assert value_of(job, "model").layers[0][0].attention.window == 32
    assert value_of(read(tmp_path), "model").layers[0][0].attention.window is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("  attn_config:\n    attn_type: grouped_query_attention\n", "no kv_n_heads is given"),
        (
            "  attn_config:\n    attn_type: grouped_query_attention\n    kv_n_heads: 3\n",
            "kv_n_heads is 3; expected a number that divides model.n_heads 8",
        ),
        ("  ffn_config:\n    ffn_type: mptgluu\n", "ffn_type is mptgluu; expected one of"),
        (
            "  ffn_config:\n    ffn_type: mb_moe\n    moe_num_experts: 2\n    moe_top_k: 3\n",
            "moe_top_k is 3; expected at most 2 experts",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, more)


def test_layers_of_their_own_are_said_to_matter(tmp_path: Path) -> None:
    job = read(tmp_path, "  block_overrides:\n    overrides: {a: {b: 1}}\n    order: [a]\n")
    assert any(one.key.startswith("model.block_overrides") and one.matters for one in job.ignored)
