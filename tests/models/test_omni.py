"""Qwen3-Omni's thinker against the reference: every parameter of its three parts."""

from typing import Any

import pytest

from chipshift.models.count import params, params_active, params_embedding, tower_params
from chipshift.models.hf import read_config
from chipshift.models.preset import preset

from .reference import _counted, built_config

reference = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TEXT: dict[str, Any] = {
    "model_type": "qwen3_omni_moe_text", "vocab_size": 1003, "hidden_size": 96,
    "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 24, "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
}  # fmt: skip
EYE: dict[str, Any] = {
    "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 4, "out_hidden_size": 96,
    "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1],
}  # fmt: skip
EAR: dict[str, Any] = {
    "d_model": 60, "encoder_layers": 3, "encoder_attention_heads": 5, "encoder_ffn_dim": 88,
    "num_mel_bins": 50, "downsample_hidden_size": 12, "output_dim": 96,
}  # fmt: skip
THINKER = {
    "model_type": "qwen3_omni_moe_thinker",
    "text_config": TEXT,
    "vision_config": EYE,
    "audio_config": EAR,
}


def marked(test: Any) -> Any:
    """The test under the marks of those that build the reference."""
    for mark in reference:
        test = mark(test)
    return test


@marked
def test_every_parameter_of_the_thinker() -> None:
    import torch
    import transformers

    built = built_config(THINKER)
    with torch.device("meta"):
        module = transformers.Qwen3OmniMoeThinkerForConditionalGeneration(built)
    expected, model = _counted(module, built), read_config(THINKER)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active
    inner = module.model
    parts = [sum(p.numel() for p in m.parameters()) for m in (inner.visual, inner.audio_tower)]
    assert [tower_params(tower) for tower in model.towers] == parts


def test_the_talker_is_said_not_counted() -> None:
    whole = read_config(
        {"model_type": "qwen3_omni_moe", "thinker_config": THINKER, "talker_config": {}}
    )
    assert params(whole) == params(read_config(THINKER))
    assert ("talker_config", "not counted: the thinker alone, with its towers") in whole.defaults


def test_the_published_towers() -> None:
    # Qwen3-Omni's report, 2025: an encoder of images of 540 million, one of sound of 650
    sizes = [tower_params(tower) / 1e6 for tower in preset("Qwen3-Omni-30B-A3B-Instruct").towers]
    assert sizes == pytest.approx([540, 650], rel=5e-3)
