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


def test_stages_cut_by_cost_count_the_head() -> None:
    # 28 layers and a head of 3.5 on 2 stages: 31.5 / 2 = 15.75, so 16 layers, then 12 and the head
    assert schedule.balanced_layers_per_stage(28.0, 3.5, 2.0) == 16
    assert schedule.balanced_last_layers(28.0, 3.5, 2.0) == 12
    # on 16 stages of 1.97 each: 2 layers a stage, 14 stages hold all of them, the head is alone
    assert schedule.balanced_layers_per_stage(28.0, 3.5, 16.0) == 2
    assert schedule.balanced_last_layers(28.0, 3.5, 16.0) == 0
    # one stage holds everything
    assert schedule.balanced_layers_per_stage(28.0, 3.5, 1.0) == 28
    assert schedule.balanced_last_layers(28.0, 3.5, 1.0) == 28


def test_uneven_stages_fill_like_fewer_of_the_slowest() -> None:
    # 31.5 of cost, the slowest stage 16 layers (12 and the head are 15.5): 1.97 stages
    assert schedule.stages_in_effect(28.0, 3.5, 16.0, 12.0) == pytest.approx(31.5 / 16)
    # the head alone is the slowest of 16 stages
    assert schedule.stages_in_effect(28.0, 3.5, 2.0, 0.0) == 9


@given(st.integers(1, 128), st.floats(0, 8), st.integers(1, 64))
def test_stages_cut_by_cost_hold_every_layer(layers: int, head: float, pp: int) -> None:
    fullest = schedule.balanced_layers_per_stage(float(layers), head, float(pp))
    last = schedule.balanced_last_layers(float(layers), head, float(pp))
    assert 0 <= last <= fullest <= layers
    assert fullest * (pp - 1) + last >= layers
