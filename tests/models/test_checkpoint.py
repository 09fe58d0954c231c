"""A checkpoint's folder: its tensors' shapes are the truth about the model's size."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from chipshift.models.checkpoint import read_checkpoint
from chipshift.models.count import params, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.ops import forward_flops_per_token

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 100,
}
LAYER = {
    "model.layers.0.self_attn.q_proj.weight": [8, 8],
    "model.layers.0.self_attn.k_proj.weight": [8, 8],
    "model.layers.0.self_attn.v_proj.weight": [8, 8],
    "model.layers.0.self_attn.o_proj.weight": [8, 8],
    "model.layers.0.mlp.gate_proj.weight": [16, 8],
    "model.layers.0.mlp.up_proj.weight": [16, 8],
    "model.layers.0.mlp.down_proj.weight": [8, 16],
    "model.layers.0.input_layernorm.weight": [8],
    "model.layers.0.post_attention_layernorm.weight": [8],
}
ENDS = {"model.embed_tokens.weight": [100, 8], "model.norm.weight": [8]}
BLOCK = 4 * 64 + 3 * 128 + 16  # one layer's parameters: 656


def shard(path: Path, tensors: dict[str, list[int]], dtype: str = "BF16") -> None:
    """A shard with a header and no data (nobody reads it)."""
    header = {n: {"dtype": dtype, "shape": s, "data_offsets": [0, 0]} for n, s in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def folder(path: Path, *shards: dict[str, list[int]], **keys: Any) -> Path:
    """A checkpoint of these shards with its index and config."""
    (path / "config.json").write_text(json.dumps({**CONFIG, **keys}))
    weight_map = {}
    for i, tensors in enumerate(shards):
        shard(path / f"model-{i}.safetensors", tensors)
        weight_map.update(dict.fromkeys(tensors, f"model-{i}.safetensors"))
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def block(number: int, **changed: list[int]) -> dict[str, list[int]]:
    """A block's tensors, some of other shapes, by the last part but one of their names."""
    named = {key.replace(".0.", f".{number}."): shape for key, shape in LAYER.items()}
    return {key: changed.get(key.split(".")[-2], shape) for key, shape in named.items()}


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([block(0)], "num_hidden_layers of 1 for 2"),
        (
            [block(i, gate_proj=[24, 8], up_proj=[24, 8], down_proj=[8, 24]) for i in (0, 1)],
            "intermediate_size of 24 for 16",
        ),
        (
            [block(i, k_proj=[4, 8], v_proj=[4, 8]) for i in (0, 1)],
            "num_key_value_heads of 1 for 2",
        ),
        (
            [
                block(i, q_proj=[12, 8], k_proj=[12, 8], v_proj=[12, 8], o_proj=[8, 12])
                for i in (0, 1)
            ],
            "head_dim of 6 for 4",
        ),
    ],
)
def test_blocks_are_what_their_tensors_are(
    tmp_path: Path, blocks: list[dict[str, list[int]]], said: str
) -> None:
    """A config that a pruned checkpoint kept: time follows the tensors too, not the total alone."""
    tensors: dict[str, list[int]] = {**ENDS, "lm_head.weight": [100, 8]}
    for one in blocks:
        tensors |= one
    model = read_config(folder(tmp_path, tensors, num_hidden_layers=2))
    assert params(model) == sum(_size(shape) for shape in tensors.values())
    assert model.other_params == 0 and dict(model.defaults)["checkpoint"] == said
    maps = sum(_size(shape) for shape in tensors.values() if len(shape) == 2) - 800
    attention = 4 * sum(n * (ly.attention.heads * ly.attention.head_dim if ly.attention else 0)
                        for ly, n in model.layers)  # fmt: skip
    assert forward_flops_per_token(model, 2) == 2 * maps + attention  # one key of two on average


def test_blocks_that_differ_are_a_total_alone(tmp_path: Path) -> None:
    wide = block(1, gate_proj=[24, 8], up_proj=[24, 8], down_proj=[8, 24])
    tensors = {**ENDS, "lm_head.weight": [100, 8], **block(0), **wide}
    model = read_config(folder(tmp_path, tensors, num_hidden_layers=2))
    assert model.other_params == 3 * 8 * 8
    assert "+192 parameters that its layers do not explain" in str(model.defaults)


def test_a_checkpoint_that_agrees_changes_nothing(tmp_path: Path) -> None:
    whole = {**LAYER, **ENDS, "lm_head.weight": [100, 8]}
    model = read_config(folder(tmp_path, LAYER, {**ENDS, "lm_head.weight": [100, 8]}))
    assert params(model) == BLOCK + 8 + 2 * 800 == sum(_size(s) for s in whole.values())
    assert model.other_params == 0


def test_no_head_among_the_tensors_means_that_it_is_tied(tmp_path: Path) -> None:
    model = read_config(folder(tmp_path, {**LAYER, **ENDS}, tie_word_embeddings=False))
    assert model.tied
    assert params(model) == BLOCK + 8 + 800


def test_a_padded_vocabulary_is_counted_as_it_is_stored(tmp_path: Path) -> None:
    padded = {**ENDS, "model.embed_tokens.weight": [128, 8], "lm_head.weight": [128, 8]}
    model = read_config(folder(tmp_path, LAYER, padded))
    assert model.vocab == 128
    assert params_embedding(model) == 1024
    assert params(model) == BLOCK + 8 + 2 * 1024


def test_what_the_config_does_not_explain_is_still_counted(tmp_path: Path) -> None:
    head = {"lm_head.weight": [100, 8], "value_head.weight": [1, 8]}
    model = read_config(folder(tmp_path, LAYER, {**ENDS, **head}))
    assert model.other_params == 8
    assert params(model) == BLOCK + 8 + 1600 + 8


def test_buffers_scales_and_prediction_blocks_are_not_parameters(tmp_path: Path) -> None:
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": [2],
        "model.layers.0.mlp.gate_proj.weight_scale_inv": [1, 1],
        "model.layers.1.self_attn.q_proj.weight": [8, 8],  # above the config's one layer
    }
    model = read_config(folder(tmp_path, LAYER, {**ENDS, "lm_head.weight": [100, 8], **extra}))
    assert params(model) == BLOCK + 8 + 1600


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"lm_head.weight": [100, 8]}, None),
        ({}, "a tied head"),
        ({"lm_head.weight": [100, 8], "value_head.weight": [1, 8]}, "+8 parameters"),
        (
            {"lm_head.weight": [128, 8], "model.embed_tokens.weight": [128, 8]},
            "a vocabulary of 128 for 100",
        ),
        # one of a feed-forward's maps half as wide as the others: 8 · 8 parameters fewer
        (
            {"lm_head.weight": [100, 8], "model.layers.0.mlp.gate_proj.weight": [8, 8]},
            "-64 parameters that its layers do not explain",
        ),
        # all of them
        (
            {
                "lm_head.weight": [100, 8],
                "model.layers.0.mlp.gate_proj.weight": [8, 8],
                "model.layers.0.mlp.up_proj.weight": [8, 8],
                "model.layers.0.mlp.down_proj.weight": [8, 8],
            },
            "intermediate_size of 8 for 16",
        ),
    ],
)
def test_what_the_tensors_have_otherwise_than_the_config_is_said(
    tmp_path: Path, tensors: dict[str, list[int]], said: str | None
) -> None:
    model = read_config(folder(tmp_path, {**LAYER, **ENDS, **tensors}))
    noted = dict(model.defaults).get("checkpoint")
    assert noted is None if said is None else str(noted).startswith(said)
    (tmp_path / "sft.yaml").write_text("max_length: 64\nper_device_train_batch_size: 1\n")
    job = read_job([str(tmp_path / "sft.yaml")], model=str(tmp_path))
    shown = [value for what, value, _ in job.assumed if what == "checkpoint"]
    assert shown == ([] if said is None else [noted])


def test_a_single_file_is_a_checkpoint_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shard(tmp_path / "model.safetensors", {**LAYER, **ENDS})
    assert read_config(tmp_path).tied
    # the config by itself says otherwise, and by itself it is believed
    assert not read_config(tmp_path / "config.json").tied


def test_packed_weights_do_not_show_the_models_shapes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    packed = {**LAYER, "model.layers.0.mlp.gate_proj.weight": [16, 1]}
    shard(tmp_path / "model.safetensors", {**packed, **ENDS, "lm_head.weight": [100, 8]}, "I32")
    assert params(read_config(tmp_path)) == BLOCK + 8 + 1600


def test_an_index_without_its_shards_still_tells_the_names(tmp_path: Path) -> None:
    model_folder = folder(tmp_path, {**LAYER, **ENDS})
    (model_folder / "model-0.safetensors").unlink()
    assert read_config(model_folder).tied


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "gives a header of 0 bytes"),
        (b"\xff" * 16, "bytes in 16; expected the safetensors format"),
        ((2).to_bytes(8, "little") + b"[]", "its header is not an object"),
        ((3).to_bytes(8, "little") + b"{{{", "its header is not JSON"),
        ((14).to_bytes(8, "little") + b'{"a":{"b": 1}}', "the shape of 'a' is not a list"),
    ],
)
def test_a_file_that_is_no_safetensors(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "..", "a/b"])
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    index = {"weight_map": {"model.norm.weight": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="is not the name of a file in that folder"):
        read_config(tmp_path)


def _size(shape: list[int]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def test_gpt_2s_fused_biases_are_parameters_and_its_mask_is_not(tmp_path: Path) -> None:
    # 12·8² + 13·8 a block (its four maps, four biases of 24 + 8 + 32 + 8, two norms of 16) = 872;
    # tables of 100·8 and 20·8, a last norm of 16: 1,848
    block = {
        "h.0.ln_1.weight": [8], "h.0.ln_1.bias": [8], "h.0.ln_2.weight": [8], "h.0.ln_2.bias": [8],
        "h.0.attn.bias": [1, 1, 20, 20], "h.0.attn.masked_bias": [],
        "h.0.attn.c_attn.weight": [8, 24], "h.0.attn.c_attn.bias": [24],
        "h.0.attn.c_proj.weight": [8, 8], "h.0.attn.c_proj.bias": [8],
        "h.0.mlp.c_fc.weight": [8, 32], "h.0.mlp.c_fc.bias": [32],
        "h.0.mlp.c_proj.weight": [32, 8], "h.0.mlp.c_proj.bias": [8],
    }  # fmt: skip
    ends = {"wte.weight": [100, 8], "wpe.weight": [20, 8], "ln_f.weight": [8], "ln_f.bias": [8]}
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 100}
    shard(tmp_path / "model.safetensors", {**block, **ends})
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_positions": 20}))
    model = read_config(tmp_path)
    assert params(model) == 1848
    assert "checkpoint" not in dict(model.defaults)


def test_a_convolutional_networks_blocks_are_counted(tmp_path: Path) -> None:
    # a stem of 3·49·4, its norm of 8; one block of two 4·9·4 with norms of 8; classes of 4·2 + 2:
    # 588 + 8 + 288 + 16 + 10 = 910
    conv = {"convolution.weight": [4, 4, 3, 3], "normalization.weight": [4],
            "normalization.bias": [4], "normalization.running_mean": [4]}  # fmt: skip
    stem = {**conv, "convolution.weight": [4, 3, 7, 7]}
    at = "resnet.encoder.stages.0.layers.0.layer"
    tensors = {f"resnet.embedder.embedder.{name}": shape for name, shape in stem.items()}
    for i in (0, 1):
        tensors |= {f"{at}.{i}.{name}": shape for name, shape in conv.items()}
    tensors |= {"classifier.1.weight": [2, 4], "classifier.1.bias": [2]}
    shard(tmp_path / "model.safetensors", tensors)
    keys = {"model_type": "resnet", "embedding_size": 4, "hidden_sizes": [4], "depths": [1]}
    (tmp_path / "config.json").write_text(json.dumps({**keys, "layer_type": "basic"}))
    model = read_config(tmp_path)
    assert params(model) == 910
    assert "checkpoint" not in dict(model.defaults)


def said(model_folder: Path) -> str:
    """What the reading says of the tensors."""
    return str(dict(read_config(model_folder).defaults).get("checkpoint", ""))


def test_of_packed_weights_the_table_of_words_still_counts(tmp_path: Path) -> None:
    # a table of 120 rows for the config's 100, its layers packed: 656 + 8 + 2·120·8 = 2,584
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    packed = {"model.layers.0.mlp.gate_proj.qweight": [1, 16], "model.norm.weight": [8]}
    tables = {"model.embed_tokens.weight": [120, 8], "lm_head.weight": [120, 8]}
    shard(tmp_path / "model.safetensors", {**packed, **tables}, "I32")
    assert params(read_config(tmp_path)) == 2584
    assert "a vocabulary of 120 for 100" in said(tmp_path)
    assert "weights are packed" in said(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    model_folder = folder(tmp_path, {**LAYER, **ENDS}, {"lm_head.weight": [100, 8]})
    (model_folder / "model-1.safetensors").unlink()
    assert "model-1.safetensors is missing" in said(model_folder)


def test_shards_without_an_index_are_read_when_all_are_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shard(tmp_path / "model-00001-of-00002.safetensors", LAYER)
    shard(tmp_path / "model-00002-of-00002.safetensors", {**ENDS, "more.weight": [3]})
    assert "+3 parameters" in said(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    assert said(tmp_path) == ""


def test_a_pipelines_own_name_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tensors = {**LAYER, **ENDS, "more.weight": [3]}
    shard(tmp_path / "diffusion_pytorch_model.safetensors", tensors)
    assert "+3 parameters" in said(tmp_path)


def test_an_adapters_folder_asks_for_its_model(tmp_path: Path) -> None:
    keys = {"peft_type": "LORA", "base_model_name_or_path": "a/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(keys))
    with pytest.raises(InputError, match=r"holds an adapter: .* \(a/base\)"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "name", ["consolidated.safetensors", "model.fp16.safetensors", "model.bf16.safetensors"]
)
def test_files_under_other_names_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 64}))
    shard(tmp_path / name, {**LAYER, **ENDS, "lm_head.weight": [100, 8]})
    # 100 rows of words and a head of their own, 8 of the last norm, one layer
    assert params(read_config(tmp_path)) == 2 * 800 + 8 + BLOCK


def test_an_index_of_a_variant_is_read(tmp_path: Path) -> None:
    made = folder(tmp_path, {**LAYER, **ENDS}, vocab_size=64)
    index = made / "model.safetensors.index.json"
    index.rename(made / "model.safetensors.index.fp16.json")
    assert params(read_config(made)) == 800 + 8 + BLOCK


def test_the_usual_file_goes_before_a_variants_index(tmp_path: Path) -> None:
    made = folder(tmp_path, {**LAYER, **ENDS, "variant.weight": [5]})
    (made / "model.safetensors.index.json").rename(made / "model.safetensors.index.fp16.json")
    assert "+5 parameters" in said(made)
    shard(made / "model.safetensors", {**LAYER, **ENDS, "usual.weight": [3]})
    assert "+3 parameters" in said(made)


def test_a_variant_that_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.bf16.safetensors").symlink_to("nowhere")
    (tmp_path / "model.fp16.safetensors").mkdir()
    assert said(tmp_path) == ""


def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "read_bytes", refused)
    for name in ("model.fp16.safetensors", "model.safetensors.index.json"):
        os.close(os.open(tmp_path / name, os.O_CREAT))
        with pytest.raises(InputError, match=rf"{name}: cannot be read \(Permission denied\)"):
            read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "q4.gguf"]
)
def test_weights_that_are_not_opened_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "training_args.bin").write_bytes(b"")
    assert "checkpoint, not opened" not in dict(read_config(tmp_path).defaults)
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    assert dict(read_config(tmp_path).defaults)["checkpoint, not opened"] == name


def test_a_class_of_its_own_code_is_said() -> None:
    own = {"AutoModelForCausalLM": "modeling.MyLlamaForCausalLM"}
    kept = {**CONFIG, "architectures": ["LlamaForCausalLM"], "auto_map": own}
    assert "own code" not in dict(read_config(kept).defaults)
    changed = {**kept, "architectures": ["MyLlamaForCausalLM"]}
    said = dict(read_config(changed).defaults)["own code"]
    assert said == "MyLlamaForCausalLM, counted as llama"
