"""Charts: what they draw is what the figures say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.machines.names import parse_machine
from chipshift.report.charts.bars import Bar, Part
from chipshift.report.charts.breakdown import step_parts
from chipshift.report.charts.fabric import Physical, fabric, layout, placed_axes
from chipshift.report.charts.frontier import Point, unbeaten
from chipshift.report.charts.svg import Scale, decade_ticks, picture, round_ticks, text
from tests.report.answers import answer


def test_a_linear_scale_maps_ends_and_middle() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(0), scale(5), scale(10)] == [100, 150, 200]


def test_a_logarithmic_scale_gives_equal_ratios_equal_lengths() -> None:
    scale = Scale(1, 100, 0, 80, log=True)
    assert scale(10) == pytest.approx(40)


def test_ticks_are_round_and_reach_the_end() -> None:
    assert round_ticks(1.0, 5) == [0, 0.2, 0.4, pytest.approx(0.6), 0.8, 1.0]
    assert decade_ticks(5, 2000) == [10, 100, 1000]


@given(st.floats(1e-6, 1e15))
def test_ticks_never_exceed_what_they_measure(high: float) -> None:
    ticks = round_ticks(high)
    assert ticks[0] == 0
    assert ticks[-1] <= high * (1 + 1e-9)
    assert 2 <= len(ticks) <= 8


def test_words_are_escaped() -> None:
    assert "<b>" not in text(0, 0, "<b>")
    assert "<b>" not in picture(10, 10, "<b>", "<b>", "")


def test_the_parts_of_a_bar_add_up_to_the_step_time() -> None:
    for estimate in (answer()["from"], *answer()["targets"]):
        total = sum(part.value for part in step_parts(estimate))
        assert total == pytest.approx(estimate["step_time_s"], rel=1e-9)


def test_a_bar_reaches_as_far_as_its_interval_or_capacity() -> None:
    parts = (Part("a", "a", 1.0), Part("b", "b", 2.0))
    assert Bar("x", "", parts).reach == 3.0
    assert Bar("x", "", parts, interval=(2.0, 4.5)).reach == 4.5
    assert Bar("x", "", parts, limit=9.0).reach == 9.0


def point(letter: str, seconds: float, usd: float, kind: str = "other") -> Point:
    return Point(letter, letter, seconds, usd, kind, 1)


def test_the_frontier_keeps_what_nothing_beats_on_both_and_nothing_unfit() -> None:
    points = [point("a", 1, 9), point("b", 2, 5), point("c", 3, 7), point("d", 4, 4),
              point("e", 0.5, 1, "unfit")]  # fmt: skip
    assert [p.letter for p in unbeaten(points)] == ["a", "b", "d"]


ALONE = {"dp": 1, "fsdp": 1, "tp": 1, "cp": 1, "pp": 1}


def axes_of(name: str, degrees: dict[str, int], order: tuple[str, ...] = ()
            ) -> tuple[Physical, ...]:  # fmt: skip
    machine = parse_machine(name)
    return layout(machine, placed_axes(machine, degrees, order))


def test_a_gpu_machine_has_a_switched_domain_and_a_network() -> None:
    axes = axes_of("h100:8x4", {**ALONE, "tp": 8, "fsdp": 4})
    assert [(a.name, a.size, a.switched) for a in axes] == [("nvlink", 8, True), ("net", 4, True)]
    assert [s.mesh for s in axes[0].shares] == ["tp"]
    assert [s.mesh for s in axes[1].shares] == ["fsdp"]


def test_links_of_a_shared_torus_axis_belong_to_who_crosses_them() -> None:
    """cp 2 are neighbours on x, fsdp takes every 2nd: links alternate, and fsdp has the wrap."""
    axes = axes_of("v6e:16x16", {**ALONE, "fsdp": 128, "cp": 2})
    shared = next(a for a in axes if len(a.shares) == 2)
    assert [shared.owner(i) for i in range(4)] == ["cp", "fsdp", "cp", "fsdp"]
    assert shared.owner(15) == "fsdp"


def test_another_order_of_the_mesh_puts_another_axis_innermost() -> None:
    """With fsdp last it takes whole axes first, and cp is what is left over: every nth chip."""
    degrees = {**ALONE, "fsdp": 128, "cp": 2}
    axes = axes_of("v6e:16x16", degrees, ("pp", "dp", "cp", "tp", "fsdp"))
    shared = next(a for a in axes if len(a.shares) == 2)
    assert shared.shares[0].mesh == "fsdp"
    assert shared.shares[1].mesh == "cp"


def test_every_chart_of_the_torus_has_all_its_chips() -> None:
    machine = parse_machine("v7x:4x4x4")
    drawn = fabric(machine, placed_axes(machine, {**ALONE, "fsdp": 128}), "Fabric")
    wide = str(drawn).split('class="narrow"')[0]
    # a path for each kind of chip, a closed square for each chip: 4 × 4 × 4
    chips = re.findall(r'<path d="([^"]*)" class="chip[^"]*"/>', wide)
    assert sum(path.count("z") for path in chips) == 64
    # along each of 3 axes 16 rings of 4: 3 links drawn and 2 stubs of the one that wraps
    links = dict(re.findall(r'<path d="([^"]*)" class="(link[^"]*)"/>', wide))
    assert sum(p.count("M") for p, kind in links.items() if "stub" not in kind) == 3 * 16 * 3
    assert sum(p.count("M") for p, kind in links.items() if "stub" in kind) == 3 * 16 * 2
