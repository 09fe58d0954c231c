"""The one factor of speed of the stack ``neuron``: Trainium1's four public runs, each left out too.

usage: fit_neuron.py

Nothing of Trainium's kernels is measured in public, so that their shares of peak are v6e's; AWS's
own tables of four training runs say how far a step is from that. The factor is of matmuls and
attention, the one that makes the mean log error nil.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from unittest import mock

from chipshift.estimate import setting
from chipshift.estimate.stack import Stack, stack
from chipshift.validate.case import Case
from chipshift.validate.records import read_records
from chipshift.validate.run import carried, predict_case, predict_plan

SCALES = ("matmul_scale", "attention_scale")


def at(factor: float, name: str, chip: str) -> Stack:
    """The stack's own constants, its speed as maxtext's times the factor."""
    made = stack("maxtext", chip)
    changed = {key: getattr(made, key) * factor for key in SCALES}
    return replace(stack("neuron", chip), name=name, **changed)  # type: ignore[arg-type]


def log_error(case: Case, factor: float) -> float:
    """Log of predicted over measured step time under a factor."""
    with mock.patch.object(setting, "stack", functools.partial(at, factor)):
        predicted = predict_case(case, predict_plan)
    assert predicted.step_error is not None
    return math.log1p(predicted.step_error)


def fitted(cases: list[Case]) -> float:
    """The factor of some runs, by bisection: time falls as it grows."""
    low, high = 0.1, 2.0
    for _ in range(30):
        middle = math.sqrt(low * high)
        if sum(log_error(case, middle) for case in cases) > 0:
            low = middle
        else:
            high = middle
    return low


def main() -> None:
    rows = read_records(carried("measured_training.jsonl"))
    runs = [row for row in rows if isinstance(row, Case) and row.chip == "trn1"]
    whole = fitted(runs)
    print(f"{len(runs)} runs of {len({r.model for r in runs})} models: factor {whole:.3f}")
    for run in runs:
        without = fitted([other for other in runs if other is not run])
        ours, unseen = (math.expm1(log_error(run, f)) for f in (whole, without))
        print(f"{run.id:36} {ours:+7.1%}   left out {unseen:+7.1%} (factor {without:.3f})")


if __name__ == "__main__":
    main()
