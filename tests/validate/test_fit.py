"""The fit of a stack's constants: it finds what made the times, and leaves runs out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chipshift.validate.case import Case, Measured
from chipshift.validate.fit import Fit, prepared
from chipshift.validate.free import era, scope_of

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


def test_leaving_runs_out_comes_near_a_fit_without_them() -> None:
    cases = runs(0.6)
    slow = replace(cases[0], measured=Measured(1.2 * (cases[0].measured.step_time_s or 0)))
    fit = Fit([prepared(one) for one in (slow, *cases[1:])])
    x = fit.solve()
    fit.normal(x, np.ones(len(fit.runs)))
    rest = range(1, len(cases))
    quick = fit.log_times(fit.without(x, [0]), rest)
    alone = Fit([prepared(one) for one in cases[1:]])
    assert np.abs(quick - alone.log_times(alone.solve())).max() < 0.05


@pytest.mark.parametrize(
    ("release", "expected"),
    [("23.04", "00"), ("24.11", "24.04"), ("26.08", "26.06"), ("", "26.06")],
)
def test_a_run_belongs_to_the_last_era_its_release_reached(release: str, expected: str) -> None:
    run = replace(case(), release=release)
    assert era(run) == expected
    assert scope_of(run, "chip_era") == f"h100@{expected}"
