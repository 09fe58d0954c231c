"""The naive estimate to beat: one MFU per chip, stack and precision, the median of other runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

from chipshift.validate.case import Case
from chipshift.validate.convention import Convention, flops_per_token

Key = tuple[str, ...]


NAIVE = Convention(attention=0.5)
"""What the naive estimate counts: every matmul, the LM head, half the square of attention in each
layer whatever its window, no recomputation."""


def model_flops(case: Case) -> float:
    """Model FLOPs of a step as the naive estimate counts them."""
    return flops_per_token(case.job.model, case.job.seq_len.value, NAIVE) * case.tokens_per_step


def keys(case: Case) -> tuple[Key, ...]:
    """What a constant is kept for, the most particular first."""
    return (
        (case.chip, case.stack, case.precision),
        (case.chip, case.precision),
        (case.chip,),
    )


def group(case: Case) -> Key:
    """What is left out together: one model of one publisher on one chip."""
    return (case.publisher, case.model, case.chip)


def scored(case: Case) -> bool:
    """Grade A pretraining with a step time: what the baseline is fitted on."""
    return case.quality == "A" and case.task == "pretrain" and case.measured.step_time_s is not None


class Baseline:
    """Achieved model FLOP/s a chip of carried runs, by group, so that any group can be left out."""

    def __init__(self, carried: Iterable[Case]) -> None:
        self._rates: Mapping[Key, list[tuple[Key, float]]] = defaultdict(list)
        for case in carried:
            if not scored(case) or not case.measured.step_time_s:
                continue
            rate = model_flops(case) / case.measured.step_time_s / case.chips
            for key in keys(case):
                self._rates[key].append((group(case), rate))

    def step_time_s(self, case: Case) -> float | None:
        """Step time at the median rate of the other groups; None where the chip has no other."""
        for key in keys(case):
            rates = [rate for other, rate in self._rates.get(key, []) if other != group(case)]
            if rates:
                return model_flops(case) / (statistics.median(rates) * case.chips)
        return None
