"""Which runs the constants were fitted on, so that a file's other runs can be told apart."""

from __future__ import annotations

from collections.abc import Iterable

from chipshift.validate.baseline import scored
from chipshift.validate.case import Case
from chipshift.validate.fit import stored_fits

Mark = tuple[object, ...]


class Seen:
    """The carried runs that a constant was fitted on, told by what ran and not by their names.

    Those are grade A pretraining under a stack with a fit, Trainium1's runs (they share a factor),
    and the sweep's, of which those that went out of memory gave the guard band.
    """

    def __init__(self, carried: Iterable[Case]) -> None:
        self._marks = {mark(case) for case in carried if _fitted(case)}

    def __contains__(self, case: Case) -> bool:
        return mark(case) in self._marks


def _fitted(case: Case) -> bool:
    if case.task == "sweep" or case.chip == "trn1":
        return True
    return scored(case) and case.stack in stored_fits()


def mark(case: Case) -> Mark:
    """What tells a run from others: model, machine, batch and measured time (4 digits); the plan
    as well in the sweep, where runs that went out of memory have no time."""
    time = case.measured.step_time_s
    what = (case.chip, case.model, case.precision, case.chips, case.job.seq_len.value)
    plan = case.plan if case.task == "sweep" else None
    return (*what, round(case.tokens_per_step), time and f"{time:.3e}", plan)
