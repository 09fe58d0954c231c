"""Cross-validation: the error on a model of a publisher that the constants were fitted without."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from chipshift.validate.baseline import group
from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, usable
from chipshift.validate.score import Summary, summary


def cross_validate(cases: list[Case]) -> dict[str, Summary]:
    """Summaries by chip of grade A pretraining runs, each timed under constants fitted without it.

    Stack by stack, for each model of a publisher on a chip: one Gauss-Newton step from the carried
    fit to the constants that the other runs alone would give; the priors keep the step small.
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
    out: dict[tuple[str, str], list[float]] = {}
    for stack, members in stacks.items():
        runs = usable(members)
        if runs:
            for chip, found in left_out_errors(Fit(runs)).items():
                out[chip, stack] = found
    return out


def left_out_errors(fit: Fit) -> dict[str, list[float]]:
    """Signed relative errors by chip, each run timed without its own group."""
    x = fit.stored()
    fit.choose(x)
    fit.normal(x, np.ones(len(fit.runs)))
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for j, run in enumerate(fit.runs):
        groups[group(run.case)].append(j)
    out: dict[str, list[float]] = defaultdict(list)
    for rows in groups.values():
        without = fit.without(x, rows)
        times = np.exp(fit.log_times(without, rows) - fit.truth[rows])
        for j, ratio in zip(rows, times, strict=True):
            out[fit.runs[j].case.chip].append(float(ratio) - 1)
    return out
