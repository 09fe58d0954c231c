"""Pipeline schedules, on the papers' own formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.parallel import schedule


def test_the_bubble_of_1f1b() -> None:
    # 8 stages, 3 s a microbatch: 7 × 3 s idle
    assert schedule.bubble("1f1b", 8.0, 1.0, 1.0, 1.0, 1.0) == 21


def test_interleaving_divides_it_by_the_chunks() -> None:
    assert schedule.bubble("interleaved", 8.0, 4.0, 1.0, 1.0, 1.0) == 21 / 4


def test_zero_bubble_hides_weight_gradients() -> None:
    # ZB-H1 with equal thirds: (8 − 1)(1 + 1 − 1) = 7
    assert schedule.bubble("zero_bubble", 8.0, 1.0, 1.0, 1.0, 1.0) == 7


def test_no_stages_no_bubble() -> None:
    for name in ("1f1b", "interleaved", "zero_bubble", "gpipe"):
        assert schedule.bubble(name, 1.0, 1.0, 1.0, 1.0, 1.0) == 0


def test_microbatches_in_flight() -> None:
    assert schedule.in_flight("1f1b", 8.0, 1.0, 32.0) == 8
    assert schedule.in_flight("1f1b", 8.0, 1.0, 4.0) == 4
    assert schedule.in_flight("gpipe", 8.0, 1.0, 32.0) == 32
    assert schedule.in_flight("gpipe", 1.0, 1.0, 32.0) == 1  # no stages: one after the other
    # Korthikanti 2022: p(1 + (p − 1)/(pv)) = 8(1 + 7/16) = 11.5
    assert schedule.in_flight("interleaved", 8.0, 2.0, 32.0) == 11.5


def test_layers_spread_over_stages() -> None:
    # Llama-405B: 126 layers on 16 stages with 8 chunks each: one layer a chunk, two places empty
    assert schedule.layers_per_stage(126.0, 16.0, 8.0) == 8
    assert schedule.spare_places(126.0, 16.0, 8.0) == 1
    assert schedule.layers_per_stage(80.0, 8.0, 1.0) == 10
    assert schedule.spare_places(80.0, 8.0, 1.0) == 0


@given(st.integers(1, 128), st.integers(1, 16), st.integers(1, 4))
def test_stages_hold_every_layer(layers: int, pp: int, vpp: int) -> None:
    held = schedule.layers_per_stage(float(layers), float(pp), float(vpp))
    assert held * pp >= layers
    assert held == pytest.approx(round(held))
