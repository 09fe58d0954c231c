"""What a token's ops leave out of a model is named, and what cannot be timed is refused."""

from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params
from chipshift.models.hf import read_config
from chipshift.models.preset import preset
from chipshift.models.scope import further_tokens, left_out, refuse_untimed


def test_a_decoder_leaves_nothing_out() -> None:
    for name in ("llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt2"):
        assert left_out(preset(name)) == []
        refuse_untimed(preset(name))


def test_a_tower_is_named_with_its_parameters() -> None:
    llama = {"model_type": "llama", "vocab_size": 32_064}
    eye = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
           "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336,
           "patch_size": 14}  # fmt: skip
    model = read_config({"model_type": "llava", "text_config": llama, "vision_config": eye})
    ((name, size),) = left_out(model)
    assert name == "vision tower"
    # LLaVA-1.5-7B: CLIP ViT-L/14-336 with 303.5 M and a projector of 1024 → 4096 → 4096
    projector = 1024 * 4096 + 4096 + 4096 * 4096 + 4096
    assert size - projector == pytest.approx(303.5e6, rel=1e-3)
    assert round(params(model) / 1e6) == 7063  # its checkpoint's 7.06 B


def test_a_block_that_predicts_further_tokens_is_sized() -> None:
    # DeepSeek-V3's notes on its weights: 11.5 billion parameters beside embedding and head
    found = further_tokens(preset("deepseek-v3"), 4096)
    assert found is not None and found.blocks == 1
    assert found.params == pytest.approx(11.5e9, rel=1e-2)
    assert further_tokens(preset("llama-3.1-8b"), 4096) is None


SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 50,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
}


def test_a_block_that_predicts_further_tokens_costs_a_layer_a_map_and_the_head() -> None:
    # maps of a layer: q and o of 64 × 64, k and v of 64 × 8, three of 64 × 32: 15,360; of the
    # head 50 × 64 = 3,200; attention meets 16 of 32 keys: 4 · 16 · 64 = 4,096 FLOP
    layer, head, attention = 15_360, 3_200, 4_096
    whole = 2 * (2 * layer + head) + 2 * attention
    block = 2 * (layer + head) + attention + 2 * (2 * 64 * 64)
    model = read_config({**SMALL, "model_type": "mimo", "num_nextn_predict_layers": 2})
    found = further_tokens(model, 32)
    assert found is not None and found.share == pytest.approx(2 * block / whole)
    # biases of q, k, v: 80; norms 2 · 64; the map and three norms more
    assert found.params == layer + 80 + 128 + 2 * 64 * 64 + 3 * 64


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("glm4_moe", "num_nextn_predict_layers"),
        ("qwen3_next", "mtp_num_hidden_layers"),
        ("minimax_m2", "num_mtp_modules"),
        ("exaone_moe", "num_nextn_predict_layers"),
    ],
)
def test_each_family_says_how_many(kind: str, key: str) -> None:
    keys = {**SMALL, "model_type": kind}
    assert read_config({**keys, key: 3}).mtp_layers == 3
    assert params(read_config({**keys, key: 3})) == params(read_config(keys))


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        ({"model_type": "resnet"}, "no transformer layers"),
        ({"model_type": "clip"}, "no head over a vocabulary"),
        ({"_class_name": "DiTTransformer2DModel"}, "no head over a vocabulary"),
    ],
)
def test_models_that_are_counted_and_not_timed(config: dict[str, str], lacks: str) -> None:
    model = read_config(config)
    assert params(model) > 0
    with pytest.raises(InputError, match=f"{lacks}.*expected a language model"):
        refuse_untimed(model)
