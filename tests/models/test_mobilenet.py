"""MobileNet V5: Gemma 3n's eye by its block table, against timm's own model."""

from __future__ import annotations

import pytest

from chipshift.models.count import tower_params
from chipshift.models.families.mobilenet import mobilenet_v5
from chipshift.models.hf import read_config
from chipshift.models.items import item_work
from chipshift.models.model import Conv

from .reference_configs import GEMMA_3N


def flops(side: int) -> tuple[float, float]:
    """Of convolutions and of attention's matmuls on one image."""
    tower = mobilenet_v5(side)
    convs, mixing = 0.0, 0.0
    for layer, count in tower.layers:
        for c in layer.convs:
            each = 2 * c.positions * c.outputs * (c.inputs // c.groups) * c.kernel
            convs += each * count
        mixing += layer.mixing_flops * count
    return convs, mixing


def test_parameters_are_timms() -> None:
    # mobilenetv5_300m_enc of timm 1.0.31, counted on the meta device
    assert tower_params(mobilenet_v5()) == 294_126_912


@pytest.mark.parametrize(
    ("side", "total"),
    [
        # what PyTorch's counter counts of timm 1.0.31's model: convolutions, and attention as bmm
        (768, 775_676_657_664 + 95_806_291_968),
        (256, 87_369_089_024),
    ],
)
def test_flops_are_what_pytorchs_counter_counts(side: int, total: int) -> None:
    convs, mixing = flops(side)
    assert convs + mixing == total
    if side == 768:
        # 14 blocks of 12 heads of 64 over 48² positions and 24² keys, 19 of 16 heads of 96 over 24²
        own = 14 * 12 * 64 * 48**2 * 24**2 + 19 * 16 * 96 * 24**2 * 24**2
        assert mixing == 2 * 2 * own == 95_806_291_968


def test_blocks_of_the_table_by_hand() -> None:
    stem, first = (layer.convs for layer, _ in mobilenet_v5().layers[:2])
    # 768 pixels by two are 384, by two again 192: 3 × 3 from 64 channels to 4 · 64, and to 128
    assert stem == (Conv("stem", 3, 64, 9, 384**2, bias_params=64),)
    assert first == (Conv("expand", 64, 256, 9, 192**2), Conv("project", 256, 128, 1, 192**2))


def test_an_image_of_gemma_3n_costs_its_eye_and_its_map() -> None:
    work = item_work(read_config(GEMMA_3N), {"tokens": 8, "audio": 8})
    eye = sum(one.flops for one in work if one.part == "vision")
    # and 256 positions of 2,048 channels to the text's 96
    assert eye == 871_482_949_632 + 2 * 256 * 2048 * 96
