"""Diffusion networks beyond the first: counts and an item's FLOPs equal the reference's."""

from typing import Any

import pytest

from chipshift.models.count import params, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.items import backward_flops, item_flops

from .diffusion_configs import COUNTED
from .reference import count_diffusers
from .test_item_flops import WITHIN, counted, depthwise_as_dense

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
RUN = ("Wan", "LTX", "Sana", "HunyuanDiT", "Chroma", "Qwen-Image", "HunyuanVideo", "Flux 2",
       "AuraFlow", "CogVideoX", "CogVideoX 1.5", "CogView 4", "Lumina 2", "Z-Image",
       "autoencoder", "DDPM", "upscaler", "distilled", "ControlNet")  # fmt: skip
# What the last block makes of a text of 32 is not read and has no gradient; of 30 or 60 blocks it
# is below half a percent. Its feed-forward of 64 × 256, there and back; Qwen-Image's way out too.
FEED = 2 * (2 * 32 * 2 * 64 * 256)
LEADS_NOWHERE = {"CogView 4": FEED, "Qwen-Image": FEED + 2 * (2 * 32 * 64 * 64)}


@pytest.mark.parametrize("config", [c for _, c in COUNTED], ids=[name for name, _ in COUNTED])
def test_counts(config: dict[str, Any]) -> None:
    expected = count_diffusers(config)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


@pytest.mark.parametrize("name", RUN)
def test_flops(name: str) -> None:
    import diffusers
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from .diffusion_configs import cases

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config, inputs, lengths = next(case[1:] for case in cases() if case[0] == name)
    module = getattr(diffusers, config["_class_name"]).from_config(config)
    with sdpa_kernel(SDPBackend.MATH):  # so that attention is matmuls, and counted as such
        forward, backward = counted(module, inputs())
    model = read_config(config)
    assert item_flops(model, lengths) == pytest.approx(forward, rel=WITHIN)
    ours = backward_flops(model, lengths) + depthwise_as_dense(model, lengths)
    assert ours - LEADS_NOWHERE.get(name, 0) == pytest.approx(backward, rel=WITHIN)
