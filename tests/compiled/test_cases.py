"""The kept compilations: what the analytic memory and the sharding arithmetic say of each."""

from __future__ import annotations

import importlib
import tomllib
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DIFFERENCES = tomllib.loads((BENCHMARKS / "data" / "compile_differences.toml").read_text("utf8"))


@pytest.fixture(scope="module")
def compare() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("compare_compile")


@pytest.fixture(scope="module")
def held(compare: ModuleType) -> list[Any]:
    return [compare.held(row) for row in compare.rows()]


def test_there_are_cases_enough_near_the_limit_and_on_every_chip(held: list[Any]) -> None:
    assert len(held) >= 60
    assert sum(one.near for one in held) >= 15
    chips = [one.id.split()[1].partition(":")[0] for one in held]
    assert all(chips.count(chip) >= 15 for chip in ("v5e", "v5p", "v6e", "v7x"))
    assert len({one.model for one in held}) >= 20


def test_memory_is_near_the_compilers_peak(compare: ModuleType, held: list[Any]) -> None:
    errors = [one.error for one in held if one.error is not None]
    assert compare.percentile(errors, 0.5) <= 0.02
    assert compare.percentile(errors, 0.9) <= 0.06


def test_nothing_is_said_to_fit_that_the_compiler_refuses(held: list[Any]) -> None:
    assert [one.id for one in held if one.we_say_fits and not one.fits] == []


def test_little_is_refused_that_the_compiler_fits(held: list[Any]) -> None:
    fitting = [one for one in held if one.fits]
    assert sum(not one.we_say_fits for one in fitting) <= 0.03 * len(fitting)


@pytest.fixture(scope="module")
def compared(compare: ModuleType) -> list[Any]:
    """Every kept program at the compiler's own effort beside the arithmetic."""
    one = importlib.import_module("compare_collectives")
    return [one.compare(row) for row in one.rows()]


def test_collectives_of_nearly_all_programs_are_those_the_sharding_asks_for(
    compared: list[Any],
) -> None:
    """By kind and axis within 1 %, what the compiler put in by itself left out."""
    assert len(compared) >= 72
    assert sum(not one.asked for one in compared) >= 0.9 * len(compared)


def test_collectives_of_most_hard_plans_are_those_the_sharding_asks_for(
    compared: list[Any],
) -> None:
    """tp and cp together, sharded optimizers, two slices, latent attention, drawn plans."""
    one = importlib.import_module("compare_collectives")
    hard = [one.compare(row) for row in one.rows(one.HARD)]
    assert {one.id for one in hard}.isdisjoint({one.id for one in compared})
    assert len(hard) >= 120
    assert sum(not one.asked for one in hard) >= 0.6 * len(hard)


def test_other_collectives_than_asked_for_have_a_cause(compared: list[Any]) -> None:
    assert {one.id for one in compared if one.asked} == set(DIFFERENCES["cases"])
    assert set(DIFFERENCES["cases"].values()) == set(DIFFERENCES["causes"])


def test_all_reduces_that_no_rule_foretells_have_a_layout(compared: list[Any]) -> None:
    by_layout = {one.id for one in compared if one.lowered and not one.asked}
    assert by_layout == set(DIFFERENCES["by_layout"])
    assert set(DIFFERENCES["by_layout"].values()) == set(DIFFERENCES["layouts"])


def test_rules_of_the_slice_never_make_the_prediction_worse(compared: list[Any]) -> None:
    assert [one.id for one in compared if one.lowered and not one.plain] == []
    assert sum(not one.lowered for one in compared) > sum(not one.plain for one in compared)


def test_percentiles_are_nearest_ranks(compare: ModuleType) -> None:
    # of ten errors the ninth largest and the fifth, signs apart
    errors = [-0.01, 0.02, -0.03, 0.04, 0.05, 0.06, 0.07, -0.08, 0.09, 0.10]
    assert compare.percentile(errors, 0.9) == 0.09
    assert compare.percentile(errors, 0.5) == 0.05


def test_two_depths_foretell_memory_and_collectives_of_the_whole_model(compare: Any) -> None:
    depth = importlib.import_module("compile_depth")
    assert len(depth.CASES) >= 5
    for line in depth.CASES:
        peak, sent = depth.deviations(line)
        assert abs(peak) <= 0.01, line
        assert abs(sent) <= 0.01, line


def test_time_is_near_measured_runs_of_models_that_the_clock_has_not_seen(compare: Any) -> None:
    times = importlib.import_module("time_compile")
    rows = times.scored(times.timed())
    same = [row.left_out for row in rows if row.timed.same]
    assert len(same) >= 20
    assert times.middle(same) <= 0.10
    # experts that drop no token, which the step does not compute so, counted with the others
    assert times.middle([row.left_out for row in rows]) <= 0.15


def test_clocks_are_those_that_measured_runs_give(compare: Any) -> None:
    times = importlib.import_module("time_compile")
    file = resources.files("chipshift.compiled") / "data" / "cycles.toml"
    for chip, clock in tomllib.loads(file.read_text("utf8")).items():
        on_chip = [row for row in times.timed() if row.case.chip == chip and row.same]
        assert len(on_chip) >= 3
        assert len({row.case.model for row in on_chip}) >= 2
        assert times.fitted(on_chip) == pytest.approx(clock["clock_hz"], rel=0.01)
