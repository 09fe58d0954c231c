"""Decoders whose code comes with their checkpoints: published sizes, odd configs, adapters."""

import json
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params, params_active
from chipshift.models.hf import read_config
from chipshift.models.lora import ALL_LINEAR, Lora, trainable_params
from chipshift.models.ops import forward_flops_per_token
from chipshift.models.preset import FOLDER, preset

# Tensor totals of the checkpoints' indices, as their hub pages print them, 2023 to 2025.
PUBLISHED = {
    "qwen-7b": 7_721_324_544,
    "qwen-14b": 14_167_290_880,
    "qwen-72b": 72_287_920_128,
    "baichuan2-7b": 7_505_973_248,
    "baichuan2-13b": 13_896_668_160,
    "chatglm3-6b": 6_243_584_000,
    "glm-4-9b": 9_399_951_360,
    "internlm2-7b": 7_737_708_544,
    "internlm2-20b": 19_861_149_696,
    "deepseek-moe-16b": 16_375_728_128,
    "nemotron-super-49b": 49_867_145_216,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_checkpoint_s_size(name: str) -> None:
    assert params(preset(name)) == PUBLISHED[name]


def test_the_first_chatglm_ties_its_head() -> None:
    # 130,528 and, as first released, 150,528 tokens: 6,173,286,400 and 6,255,206,400 parameters
    keys = {
        "model_type": "chatglm",
        "hidden_size": 4096,
        "inner_hidden_size": 16_384,
        "num_attention_heads": 32,
        "num_layers": 28,
        "position_encoding_2d": True,
    }
    assert params(read_config({**keys, "vocab_size": 130_528})) == 6_173_286_400
    assert params(read_config({**keys, "vocab_size": 150_528})) == 6_255_206_400


BAICHUAN = {
    "architectures": ["BaiChuanForCausalLM"],  # the 7B's own spelling
    "model_type": "baichuan",
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 64_000,
}


def test_phi_3_small() -> None:
    keys = {
        "architectures": ["Phi3SmallForCausalLM"],
        "model_type": "phi3small",
        "hidden_size": 4096,
        "ff_intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 100_352,
        "dense_attention_every_n_layers": 2,
    }
    model = read_config(keys)
    assert params(model) == 7_392_272_384  # the hub's page
    assert ("blocksparse attention", "counted whole") in model.defaults


MINIMAX = {
    "model_type": "minimax_text_01",
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "vocab_size": 200_064,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
}


def test_minimax_s_own_config_says_which_layers_attend_to_all() -> None:
    model = read_config(MINIMAX)
    assert params(model) == 456_089_655_296  # the hub's page
    # its report's 45.9 billion are those beside embedding and head
    assert round((params_active(model) - 2 * 200_064 * 6144) / 1e9, 1) == 45.9
    seen = [model.layers[i][0].attention is not None for i in model.layer_order]
    assert seen == [one == 1 for one in MINIMAX["attn_type_list"]]  # type: ignore[attr-defined]


def test_minimax_m2_was_published_under_the_older_model_s_type() -> None:
    keys = json.loads((FOLDER / "minimax-m2.json").read_text())
    older = {**keys, "model_type": "minimax", "architectures": ["MiniMaxM2ForCausalLM"]}
    assert params(read_config(older)) == params(preset("minimax-m2"))


def test_the_first_baichuan() -> None:
    assert params(read_config(BAICHUAN)) == 7_000_559_616


def test_internlm_is_baichuan_with_four_biases() -> None:
    keys = {**BAICHUAN, "architectures": None, "model_type": "internlm"}
    # 32 layers × (q, k, v and o) × 4,096 of them
    assert params(read_config(keys)) - params(read_config(BAICHUAN)) == 32 * 4 * 4096
    assert params(read_config({**keys, "bias": False})) == params(read_config(BAICHUAN))


def test_decilm_has_keys_of_its_own_in_each_layer() -> None:
    # DeciLM-7B is Mistral's block with 67 key heads in 32 layers where Mistral 7B has 256: a head
    # less saves 2 maps of 4,096 × 128, and both have Llama 2's 32,000 tokens
    heads = [4] * 5 + [2] * 20 + [1] * 7
    keys = {
        "model_type": "deci",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads_per_layer": heads,
        "vocab_size": 32_000,
    }
    saved = (256 - 67) * 2 * 4096 * 128
    assert params(read_config(keys)) == params(preset("mistral-7b-v0.1")) - saved


NAS: dict[str, Any] = {
    "architectures": ["DeciLMForCausalLM"],
    "model_type": "nemotron-nas",
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": None,
    "intermediate_size": None,
    "vocab_size": 100,
    "block_configs": [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 8, "window_length": 16}, "ffn": {"no_op": True}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ],
}


def test_a_searched_network_block_by_block() -> None:
    # widths of the feed-forwards: 2·5.25·64/3 = 224 and 2·64/3 = 42, each up to a multiple of 256
    mlp = 3 * 64 * 256
    blocks = [
        2 * 64 * 64 + 2 * 64 * 16 + mlp + 2 * 64,  # q, o; k, v of 2 heads of 8; both norms
        mlp + 64,
        2 * 64 * 64 + 2 * 64,  # a map in place of each half
        2 * 64 * 64 + 2 * 64 * 8 + 64,  # one key head, no feed-forward
        0,
    ]
    model = read_config(NAS)
    assert params(model) == 2 * 100 * 64 + sum(blocks) + 64
    windows = [layer.attention and layer.attention.window for layer, _ in model.layers]
    assert windows == [None, None, None, 16, None]
    # of a token whose sequence is 32 long: two FLOP a weight of the maps and of the head, and
    # attention over 16 keys on average, or over 16 − 16²/(2·32) = 12 of a window
    maps = sum(blocks) - (2 + 1 + 2 + 1) * 64 + 100 * 64
    assert forward_flops_per_token(model, 32) == 2 * maps + 4 * 64 * (16 + 12)


def test_a_block_may_state_its_numbers_outright() -> None:
    block = {"attention": {"num_key_value_heads": 2}, "ffn": {"intermediate_size": 200}}
    model = read_config({**NAS, "num_hidden_layers": 1, "block_configs": [block]})
    layer = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 200 + 2 * 64
    assert params(model) == 2 * 100 * 64 + layer + 64


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_configs": None}, r"block_configs is None; expected a list of 5 objects"),
        ({"num_hidden_layers": 6}, r"expected a list of 6 objects with attention and ffn"),
        ({"block_configs": [3] * 5}, r"expected a list of 5 objects"),
        (
            {"block_configs": [{"attention": {"no_op": True}, "ffn": {"ffn_mult": "wide"}}] * 5},
            r"block_configs.0.ffn.ffn_mult is 'wide'; expected a number above 0",
        ),
        (
            {"block_configs": [{"attention": {}, "ffn": {"no_op": True}}] * 5},
            r"block_configs.0.attention.n_heads_in_group is missing",
        ),
    ],
)
def test_a_searched_network_that_cannot_be_read(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config({**NAS, **changes})


def test_an_odd_width_that_two_maps_cannot_share() -> None:
    keys = {**BAICHUAN, "architectures": None, "model_type": "qwen", "intermediate_size": 11_007}
    with pytest.raises(InputError, match="intermediate_size is 11007; expected an even number"):
        read_config(keys)


def test_deepseek_s_first_mixture_visits_few_experts() -> None:
    # 27 layers leave 64 − 6 experts of 3 matrices of 2,048 × 1,408 aside; DeepSeek says 2.8B
    idle = 27 * 58 * 3 * 2048 * 1408
    model = preset("deepseek-moe-16b")
    assert params_active(model) == 16_375_728_128 - idle
    dense = {"n_routed_experts": None, "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 10}
    plain = read_config(
        {**dense, "model_type": "deepseek", "num_attention_heads": 4, "intermediate_size": 96}
    )
    assert params(plain) == 2 * 640 + 2 * (4 * 64 * 64 + 3 * 64 * 96 + 128) + 64


@pytest.mark.parametrize(
    ("name", "targets", "each"),
    [
        # rank 8 on the fused q, k, v: 4,096 in; 4,608, 3 × 4,096 or 6,144 out; layers
        ("chatglm3-6b", ("query_key_value",), 28 * (4096 + 4608)),
        ("baichuan2-7b", ("W_pack",), 32 * (4096 + 3 * 4096)),
        ("qwen-7b", ("c_attn",), 32 * (4096 + 3 * 4096)),
        ("internlm2-7b", ("wqkv",), 32 * (4096 + 6144)),
        # every map of the layers: q, k, v fused; back; up, or gate and up fused; down
        (
            "chatglm3-6b",
            (ALL_LINEAR,),
            28 * ((4096 + 4608) + (4096 + 4096) + (4096 + 2 * 13_696) + (13_696 + 4096)),
        ),
    ],
)
def test_adapters_by_their_own_names(name: str, targets: tuple[str, ...], each: int) -> None:
    assert trainable_params(preset(name), Lora(rank=8, targets=targets)) == 8 * each
