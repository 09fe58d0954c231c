"""Counts from the config equal those of the reference implementation, to the last parameter."""

import json
from typing import Any

import pytest

from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.preset import FOLDER, names, preset

from .reference import built_config, count, count_diffusers
from .reference_configs import (
    DECODERS,
    DEEPSEEK,
    DIFFUSION,
    GEMMA_3N,
    GEMMA_3N_TEXT,
    GEMMA_EAR,
    HEARING,
    HYBRIDS,
    KIMI,
    MULTIMODAL,
    OTHERS,
    small,
)

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


CAUSAL = [*DECODERS, *HYBRIDS]


@pytest.mark.parametrize("config", [c for _, c in CAUSAL], ids=[name for name, _ in CAUSAL])
def test_small_and_odd_decoders(config: dict[str, Any]) -> None:
    expected = count(config)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active


SEEING = [*OTHERS, *MULTIMODAL, *HEARING]


@pytest.mark.parametrize(
    ("config", "auto"), [(c, auto) for _, c, auto in SEEING], ids=[name for name, _, _ in SEEING]
)
def test_encoders_pairs_and_vision(config: dict[str, Any], auto: str) -> None:
    expected = count(config, auto)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active


@pytest.mark.parametrize("config", [c for _, c in DIFFUSION], ids=[name for name, _ in DIFFUSION])
def test_diffusion_transformers_and_unets(config: dict[str, Any]) -> None:
    expected = count_diffusers(config)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


ABSENT = ("baichuan", "chatglm", "deepseek", "internlm2", "nemotron-nas", "qwen", "step3p5")
"""Model types that transformers has no class for: ``test_own_code.py`` has their sizes. Step-3.5 is
built behind Step-3.7's tower in ``test_newer_reference.py``."""
BUILT = [one for one in names() if preset(one).architecture not in ABSENT]


@pytest.mark.parametrize("name", BUILT)
def test_every_preset(name: str) -> None:
    config = json.loads((FOLDER / f"{name}.json").read_text())
    built = config["architectures"][0]
    kinds = {"ForMaskedLM": "MaskedLM", "ForConditionalGeneration": "ImageTextToText"}
    kind = next((one for end, one in kinds.items() if built.endswith(end)), "CausalLM")
    expected = count(config, f"AutoModelFor{kind}")
    model = preset(name)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active


@pytest.mark.parametrize("config", [c for _, c in DECODERS], ids=[name for name, _ in DECODERS])
def test_the_same_layers_slide(config: dict[str, Any]) -> None:
    built = built_config(config)
    kinds = getattr(built, "layer_types", None)
    if kinds is None or not set(kinds) <= {"full_attention", "sliding_attention"}:
        return
    model = read_config(config)
    attention = [model.layers[i][0].attention for i in model.layer_order]
    expected = [built.sliding_window if kind == "sliding_attention" else None for kind in kinds]
    assert [a.window for a in attention if a] == expected


def test_kimi_vl_is_kimi_k25s_modules_under_its_own_names() -> None:
    eye = {"model_type": "moonvit", **KIMI["vision_config"]}
    own = {"pos_emb_height": "init_pos_emb_height", "pos_emb_width": "init_pos_emb_width"}
    eye = {own.get(key, key): value for key, value in eye.items()}
    config = {"model_type": "kimi_vl", "text_config": KIMI["text_config"], "vision_config": eye}
    expected = count({**KIMI, "tie_word_embeddings": False}, "AutoModelForImageTextToText")
    assert params(read_config(config)) == expected.total


@pytest.mark.parametrize("ear", [GEMMA_EAR, {}], ids=["small", "as it comes"])
def test_gemma3n_is_its_text_its_ear_its_embedders_and_a_mobilenet(ear: dict[str, Any]) -> None:
    # the reference builds the whole only with timm; its parts without
    text = count({"model_type": "gemma3n_text", **GEMMA_3N_TEXT})
    hears = count({"model_type": "gemma3n_audio", **ear}, "AutoModel").total
    widths = {"audio": ear.get("hidden_size", 1536), "vision": 2048}
    # each embedder: a table of 128 rows, two norms, a map to the text's 96
    tables = sum(128 * w for w in widths.values())
    others = sum(2 * w + w * 96 for w in widths.values())
    model = read_config({**GEMMA_3N, "audio_config": ear})
    assert params_embedding(model) == text.embedding + tables
    # 294,126,912: mobilenetv5_300m_enc of timm 1.0.31, counted on the meta device
    assert params(model) == text.total + tables + others + hears + 294_126_912


SPARSE = {
    **small("glm_moe_dsa", **DEEPSEEK),
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 8,
}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"model_type": "deepseek_v32"},
        {"index_topk_freq": 2, "index_skip_topk_offset": 1},
        {"indexer_types": ["full", "shared", "shared"]},
        {"mlp_layer_types": ["dense", "dense", "sparse"]},
    ],
)
def test_sparse_attention_and_its_scorers(keys: dict[str, Any]) -> None:
    config = {**SPARSE, "num_hidden_layers": 3, **keys}
    expected, model = count(config), read_config(config)
    assert (params(model), params_active(model)) == (expected.total, expected.active)
    assert {layer.attention.window for layer, _ in model.layers if layer.attention} == {8}


K_EXAONE = small(
    "exaone_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48, head_dim=16,
    num_key_value_heads=2, sliding_window=32,
)  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"num_shared_experts": 2, "first_k_dense_replace": 0},
        {"sliding_window_pattern": 2},
        {"mlp_layer_types": ["dense", "sparse", "dense"]},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ],
)
def test_exaone_s_experts(keys: dict[str, Any]) -> None:
    config = {**K_EXAONE, "num_hidden_layers": 3, **keys}
    expected, model = count(config), read_config(config)
    assert (params(model), params_active(model)) == (expected.total, expected.active)
    kinds = built_config(config).layer_types
    attention = [model.layers[i][0].attention for i in model.layer_order]
    assert [one is not None and one.window is not None for one in attention] == [
        kind == "sliding_attention" for kind in kinds
    ]


GLM_EYE = {"depth": 2, "hidden_size": 48, "num_heads": 4, "image_size": 28, "patch_size": 7,
           "out_hidden_size": 96, "intermediate_size": 40}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "eye"),
    [
        ({}, {}),
        ({"attention_bias": False, "first_k_dense_replace": 0}, {"attention_bias": True}),
        ({"n_shared_experts": 2}, {"spatial_merge_size": 1, "temporal_patch_size": 1}),
    ],
)
def test_glm_s_tower_before_its_experts(text: dict[str, Any], eye: dict[str, Any]) -> None:
    own = small("glm4v_moe_text", hidden_size=96, moe_intermediate_size=24, n_routed_experts=4,
                num_experts_per_tok=2, num_key_value_heads=2)  # fmt: skip
    config = {"model_type": "glm4v_moe", "text_config": {**own, **text},
              "vision_config": {**GLM_EYE, **eye}}  # fmt: skip
    expected, model = count(config, "AutoModelForImageTextToText"), read_config(config)
    assert (params(model), params_active(model)) == (expected.total, expected.active)
