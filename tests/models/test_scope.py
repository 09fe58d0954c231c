"""What a token's ops leave out of a model is named, and what cannot be timed is refused."""

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params
from chipshift.models.hf import read_config
from chipshift.models.preset import preset
from chipshift.models.scope import left_out, refuse_untimed


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
