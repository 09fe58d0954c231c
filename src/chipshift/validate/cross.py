"""Cross-validation: the error on a model of a publisher that the constants were fitted without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from chipshift.validate.baseline import group
from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, Run, stored_fits, supported, usable
from chipshift.validate.score import Summary, summary

STEPS = 4
"""Gauss-Newton steps of a refit: the constants of a fit with a model left out stand still by then
(docs/validation.md)."""
REACH = 0.5
"""How far a later step may go from where the problem was taken as linear: a spread in the keys."""


def cross_validate(cases: list[Case], carried: list[Case]) -> dict[str, Summary]:
    """Summaries by chip of grade A pretraining runs, each timed under constants fitted without it.

    Stack by stack, for each model of a publisher on a chip, the constants are fitted anew on the
    other carried runs; one that too few of them speak for falls back to its prior. A run of which
    none is carried is timed under the constants as they stand.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for (chip, _), found in left_out(cases, carried).items():
        errors[chip] += found
    return {chip: summary(found) for chip, found in sorted(errors.items())}


def left_out(cases: list[Case], carried: list[Case]) -> dict[tuple[str, str], list[float]]:
    """Signed relative errors of runs left out with their model, by chip and stack."""
    known = _by_stack(carried)
    out: dict[tuple[str, str], list[float]] = defaultdict(list)
    for stack, members in _by_stack(cases).items():
        runs = usable(members)
        if not runs:
            continue
        found = (
            others_errors(Fit(usable(known[stack])), runs)
            if stack in stored_fits()
            else taken_over(Fit(runs))
        )
        for run, error in zip(runs, found, strict=True):
            out[run.case.chip, stack].append(error)
    return dict(out)


def _by_stack(cases: list[Case]) -> dict[str, list[Case]]:
    stacks: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if case.task == "pretrain":
            stacks[case.stack].append(case)
    return stacks


def others_errors(fit: Fit, runs: list[Run], steps: int = STEPS) -> list[float]:
    """Signed relative errors of any runs of a fit's stack, each under a fit without its group."""
    x = fit.stored()
    fit.choose(x)
    timed = Fit(runs, fit.keys)
    timed.choose(x)
    of, mine = [group(run.case) for run in fit.runs], [group(run.case) for run in runs]
    names = [name for name in dict.fromkeys(mine) if name in set(of)]
    points = dict.fromkeys(mine, x)
    if names:
        keep = np.array([[other != name for other in of] for name in names])
        points |= dict(zip(names, refits(fit, x, keep, steps), strict=True))
    return [
        float(np.expm1(timed.log_times(points[name], [j])[0] - timed.truth[j]))
        for j, name in enumerate(mine)
    ]


def taken_over(fit: Fit) -> list[float]:
    """Errors of a stack without a fit of its own: no run of it made the constants that it takes."""
    errors = []
    for run, truth in zip(fit.runs, fit.truth, strict=True):
        run.choose({})
        errors.append(float(np.expm1(np.log(run.step_time_s({})) - truth)))
    return errors


def left_out_errors(
    fit: Fit, group: Callable[[Case], Hashable] = group, steps: int = STEPS
) -> list[float]:
    """Signed relative error of each run, timed under constants fitted without its own group."""
    x = fit.stored()
    fit.choose(x)
    of = [group(run.case) for run in fit.runs]
    names = list(dict.fromkeys(of))
    keep = np.array([[other != name for other in of] for name in names])
    points = refits(fit, x, keep, steps)
    out = np.zeros(len(of))
    for name, point in zip(names, points, strict=True):
        rows = [j for j, other in enumerate(of) if other == name]
        out[rows] = np.expm1(fit.log_times(point, rows) - fit.truth[rows])
    return [float(one) for one in out]


def refits(fit: Fit, start: Any, keep: Any, steps: int = STEPS) -> Any:
    """The fit again for each line of ``keep``, on its runs alone: keys, a line each.

    The first step is from ``start``, where one evaluation serves every line; each further one
    evaluates every run at each line's own point. Which rematerialisation an unstated run takes
    stays, since no fitted constant moves memory.

    Args:
        start: keys of the fit on all runs.
        keep: which runs each fit has (fits, runs).
    """
    allowed = np.array([[_supported(fit, kept, k) for k in range(len(fit.keys))] for kept in keep])
    near = [fit.linear(start)] * len(keep)
    points = np.tile(start, (len(keep), 1))
    for step in range(steps):
        if step:
            near = fit.linears(points)
        reach = np.inf if step == 0 else REACH
        points = np.array(
            [
                one.solved(x, kept.astype(float), may, reach=reach)
                for one, x, kept, may in zip(near, points, keep, allowed, strict=True)
            ]
        )
    return points


def _supported(fit: Fit, kept: Any, key: int) -> bool:
    """Whether the runs that are left still may have this constant of their own."""
    rows = np.flatnonzero(kept & fit.rests_on[:, key])
    return supported([fit.runs[int(j)].case for j in rows])
