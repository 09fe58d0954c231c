"""Cross-validation: the error on a model of a publisher that the constants were fitted without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np

from chipshift.validate.baseline import group
from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, stored_fits, usable
from chipshift.validate.score import Summary, summary


def cross_validate(cases: list[Case]) -> dict[str, Summary]:
    """Summaries by chip of grade A pretraining runs, each timed under constants fitted without it.

    Stack by stack, for each model of a publisher on a chip: a Gauss-Newton step from the carried
    fit to the constants that the other runs alone would give; one that only the runs left out
    speak for falls back to its prior.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for (chip, _), found in left_out(cases).items():
        errors[chip] += found
    return {chip: summary(found) for chip, found in sorted(errors.items())}


def left_out(cases: list[Case]) -> dict[tuple[str, str], list[float]]:
    """Signed relative errors of runs left out with their model, by chip and stack."""
    stacks: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if case.task == "pretrain":
            stacks[case.stack].append(case)
    out: dict[tuple[str, str], list[float]] = defaultdict(list)
    for stack, members in stacks.items():
        runs = usable(members)
        if not runs:
            continue
        fit = Fit(runs)
        found = left_out_errors(fit) if stack in stored_fits() else taken_over(fit)
        for run, error in zip(runs, found, strict=True):
            out[run.case.chip, stack].append(error)
    return dict(out)


def taken_over(fit: Fit) -> list[float]:
    """Errors of a stack without a fit of its own: no run of it made the constants that it takes."""
    errors = []
    for run, truth in zip(fit.runs, fit.truth, strict=True):
        run.choose({})
        errors.append(float(np.expm1(np.log(run.step_time_s({})) - truth)))
    return errors


def left_out_errors(fit: Fit, group: Callable[[Case], Hashable] = group) -> list[float]:
    """Signed relative error of each run, timed under constants fitted without its own group."""
    x = fit.stored()
    fit.choose(x)
    near = fit.linear(x)
    cases = [run.case for run in fit.runs]
    out = np.zeros(len(cases))
    for name in {group(case) for case in cases}:
        keep = np.array([group(case) != name for case in cases])
        without = near.solved(x, keep.astype(float))
        rows = [int(j) for j in np.flatnonzero(~keep)]
        out[rows] = np.expm1(fit.log_times(without, rows) - fit.truth[rows])
    return [float(one) for one in out]
