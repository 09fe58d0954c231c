"""Families beyond the common ones: counts and FLOPs equal the reference's."""

from typing import Any

import pytest

from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.items import backward_flops, item_flops
from chipshift.models.model import Model

from .reference import built_config, count
from .test_item_flops import WITHIN, counted, seeing_all
from .wider_configs import DENSE, ENCODERS, HEADS, PAIRS, SIGHT, WIDER

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.parametrize(
    ("config", "auto"), [(c, auto) for _, c, auto in WIDER], ids=[name for name, _, _ in WIDER]
)
def test_counts(config: dict[str, Any], auto: str) -> None:
    expected = count(config, auto)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active


TOKENS = 32
# Without an encoder's output the reference skips cross-attention; a choice has four texts.
SKIPPED = ("bert, a decoder with cross-attention",)
TEXTS = [
    (name, c, auto)
    for name, c, auto in [*DENSE, *ENCODERS, *HEADS, *PAIRS]
    if auto != "AutoModelForMultipleChoice" and name not in SKIPPED
]


def taken(config: dict[str, Any], built: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """Inputs of one item, and the positions that its config does not fix."""
    import torch

    if "image_size" in config or config["model_type"] == "swin":
        side = getattr(built, "image_size", 224)
        return {"pixel_values": torch.randn(1, 3, side, side)}, {}
    ids = torch.randint(5, 90, (1, TOKENS))
    if "encoder_layers" in config:
        both = {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
        return both, {"tokens": TOKENS, "encoder": TOKENS}
    return {"input_ids": ids}, {"tokens": TOKENS}


def opened(model: Model) -> Model:
    """Attention over all pairs, as eager attention computes it; Swin's windows are cut out."""
    return model if model.architecture == "swin" else seeing_all(model)


SEEN = [one for one in SIGHT if one[1]["model_type"] in ("deit", "beit", "dinov3_vit", "swin")]


@pytest.mark.parametrize(
    ("config", "auto"),
    [(c, auto) for _, c, auto in [*TEXTS, *SEEN]],
    ids=[name for name, _, _ in [*TEXTS, *SEEN]],
)
def test_flops(config: dict[str, Any], auto: str) -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    built = built_config(config)
    built._attn_implementation = "eager"  # so that attention is matmuls, and counted as such
    built._experts_implementation = "eager"  # so that only the experts visited run
    inputs, lengths = taken(config, built)
    module = getattr(transformers, auto).from_config(built)
    forward, backward = counted(module, inputs)
    model = opened(read_config(config))
    assert item_flops(model, lengths) == pytest.approx(forward, rel=WITHIN)
    assert backward_flops(model, lengths) == pytest.approx(backward, rel=WITHIN)
