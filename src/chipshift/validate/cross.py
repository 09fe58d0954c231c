"""Cross-validation: the error on a model of a publisher that the constants were fitted without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np

from chipshift.validate.baseline import group
from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, keys_of, usable
from chipshift.validate.free import free_of
from chipshift.validate.score import Summary, summary


def cross_validate(cases: list[Case]) -> dict[str, Summary]:
    """Summaries by chip of grade A pretraining runs, each timed under constants fitted without it.

    Stack by stack, for each model of a publisher on a chip: a Gauss-Newton step from the carried
    fit to the constants that the other runs alone would give. A factor that only the runs left out
    could speak for (``free.MIN_RUNS``) is not used.
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
        if runs:
            fit = Fit(runs)
            for run, error in zip(runs, left_out_errors(fit), strict=True):
                out[run.case.chip, stack].append(error)
    return dict(out)


def left_out_errors(fit: Fit, group: Callable[[Case], Hashable] = group) -> list[float]:
    """Signed relative error of each run, timed under constants fitted without its own group."""
    x = fit.stored()
    fit.choose(x)
    near = fit.linear(x)
    cases = [run.case for run in fit.runs]
    out = np.zeros(len(cases))
    for name in {group(case) for case in cases}:
        keep = np.array([group(case) != name for case in cases])
        rest = [case for case, kept in zip(cases, keep, strict=True) if kept]
        known = {key.label for key in keys_of(rest, free_of(fit.stack))} if rest else set()
        allowed = np.array([key.label in known for key in fit.keys])
        without = near.solved(x, keep.astype(float), allowed)
        rows = [int(j) for j in np.flatnonzero(~keep)]
        out[rows] = np.expm1(fit.log_times(without, rows) - fit.truth[rows])
    return [float(one) for one in out]
