"""The fit of a stack's constants: it finds what made the times, and leaves runs out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chipshift.validate.case import Case, Measured
from chipshift.validate.cross import cross_validate, left_out_errors, others_errors, refits
from chipshift.validate.fit import Fit, keys_of, prepared, weights
from chipshift.validate.free import MIN_MODELS, MIN_RUNS, Free, era, scopes_of
from chipshift.validate.run import carried_cases

from .test_records import case


def runs(matmul_scale: float) -> list[Case]:
    """Runs of several sizes whose times the estimate itself made with this matmul_scale."""
    out = []
    for layers in (8, 16, 32):
        for width in (2048, 4096):
            one = case(
                stack="fms-fsdp",
                model={"name": f"m{layers}x{width}", "layers": layers, "d_model": width,
                       "heads": 16, "d_ff": 4 * width, "vocab": 32000},
                parallelism={"dp": 1, "fsdp": 16, "tp": 1, "pp": 1, "zero": 3},
            )  # fmt: skip
            time = prepared(one).step_time_s({"matmul_scale": matmul_scale})
            out.append(replace(one, measured=Measured(step_time_s=time)))
    return out


def test_the_fit_explains_times_that_the_estimate_made() -> None:
    fit = Fit([prepared(one) for one in runs(0.6)])
    x = fit.solve()
    assert np.abs(np.expm1(fit.log_times(x) - fit.truth)).max() < 0.05


def test_leaving_runs_out_is_a_fit_without_them() -> None:
    cases = runs(0.6)
    slow = replace(cases[0], measured=Measured(1.2 * (cases[0].measured.step_time_s or 0)))
    fit = Fit([prepared(one) for one in (slow, *cases[1:])])
    keep = np.array([[False] + [True] * (len(cases) - 1)])
    (without,) = refits(fit, fit.solve(), keep)
    alone = Fit([prepared(one) for one in cases[1:]])
    rest = range(1, len(cases))
    here, there = fit.log_times(without, rest), alone.log_times(alone.solve(most=30))
    assert np.abs(here - there).max() < 0.002


def test_repeats_weigh_as_one_run_and_those_of_r_releases_as_root_r() -> None:
    # Megatron: one run alone, and four runs of another model, one a release: 1 and √4 = 2 in all,
    # scaled to the two configurations: 2/3 and four times 1/3
    one = case(stack="megatron", dtype_class="bf16")
    again = [replace(one, model="other", release=r) for r in ("25.09", "25.11", "26.02", "26.06")]
    assert weights([one, *again]) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3])
    # on a stack without releases, and of one release, the four are one run repeated
    repeated = [replace(each, release="25.09") for each in again]
    assert weights([one, *repeated]) == pytest.approx([1, 0.25, 0.25, 0.25, 0.25])
    elsewhere = [replace(each, stack="maxtext") for each in (one, *again)]
    assert weights(elsewhere) == pytest.approx([1, 0.25, 0.25, 0.25, 0.25])


def test_a_run_that_is_not_carried_is_timed_under_a_fit_without_its_group() -> None:
    carried = runs(0.6)
    fit = Fit([prepared(one) for one in carried])
    known = left_out_errors(fit)
    mine = replace(carried[2], id="mine", measured=Measured(9.0))
    stranger = replace(carried[2], id="stranger", model="another")
    found = others_errors(fit, [prepared(mine), prepared(stranger)])
    # mine is of a carried model: under the same constants as the carried run that it repeats
    carried_time, stored = carried[2].measured.step_time_s or 0.0, fit.relative_errors(fit.stored())
    assert found[0] == pytest.approx((1 + known[2]) * carried_time / 9.0 - 1)
    # the stranger's group is not carried: under the constants as they stand
    assert found[1] == pytest.approx(stored[2])


def test_cross_validation_takes_a_file_of_one_run() -> None:
    carried = list(carried_cases())
    one = next(row for row in carried if row.stack == "fms-fsdp")
    found = cross_validate([one], carried)
    assert [(chip, summary.n) for chip, summary in found.items()] == [(one.chip, 1)]


def test_a_constant_without_enough_runs_left_stands_at_its_prior() -> None:
    # 6 runs; 2 are left: too few for any constant
    fit = Fit([prepared(one) for one in runs(0.6)])
    keep = np.array([[True, True, False, False, False, False]])
    (without,) = refits(fit, fit.solve(), keep)
    assert np.abs(without).max() < 1e-6


def test_many_points_give_what_each_gives_alone() -> None:
    fit = Fit([prepared(one) for one in runs(0.6)])
    points = np.array([np.zeros(len(fit.keys)), np.full(len(fit.keys), 0.1)])
    logs, slopes = fit.slopes(points)
    for i, point in enumerate(points):
        assert logs[i] == pytest.approx(fit.log_times(point), rel=1e-12)
        alone = fit.linear(point)
        assert slopes[i] == pytest.approx(alone.slope, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("release", "expected"),
    [("23.04", "00"), ("24.11", "00"), ("26.02.01", "26.02.01"), ("26.08", "26.06"),
     ("", "26.06")],
)  # fmt: skip
def test_a_run_belongs_to_the_last_era_its_release_reached(release: str, expected: str) -> None:
    assert era(replace(case(), release=release)) == expected


def test_a_release_stands_on_those_before_it() -> None:
    shared = scopes_of(replace(case(), chip="gb200", release="25.09"))
    assert shared["release"] == ("25.04", "25.09")
    assert shared["family"] == ("blackwell",)
    assert shared["kind"] == ("gpu",)
    assert shared["chip"] == ("gb200",)


def factors(members: list[Case]) -> set[str]:
    free = Free("matmul_scale", 0.9, 0.1, spread={"chip": 0.1, "release": 0.1})
    return {key.label for key in keys_of(members, [free])}


def test_a_chip_has_a_constant_only_from_three_runs_of_two_models() -> None:
    assert (MIN_RUNS, MIN_MODELS) == (3, 2)
    one = replace(case(), chip="h100", model="a", release="24.04")
    many = [replace(one, chip="a100", model=model) for model in "abcd"]
    chip = "matmul_scale@chip:h100"
    assert chip not in factors([*many, one, replace(one, model="b")])  # two runs
    assert chip not in factors([*many, one, one, one])  # one model
    assert chip in factors([*many, one, one, replace(one, model="b")])


def test_a_run_without_experts_says_nothing_of_theirs() -> None:
    dense = [replace(case(), model=model, groups=("dense",)) for model in "abc"]
    routed = [replace(one, groups=("moe",)) for one in dense]
    experts = Free("grouped_scale", 0.9, 0.1)
    assert keys_of(dense, [experts]) == []
    assert keys_of([*dense, *routed[:2]], [experts]) == []  # two runs of experts
    (key,) = keys_of([*dense, *routed], [experts])
    assert (key.runs, key.models) == (3, 3)


def test_a_release_is_spoken_for_by_its_own_runs_alone() -> None:
    # the later release stands on 25.04 but says nothing of it by itself
    old = [replace(case(), model=model, release="24.04") for model in "abc"]
    new = [replace(case(), model=model, release="25.09") for model in "abc"]
    assert "matmul_scale@release:25.04" not in factors([*old, *new])
    assert "matmul_scale@release:25.09" in factors([*old, *new])
