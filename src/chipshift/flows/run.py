"""A whole run: days, dollars and chip-hours for a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.estimate import Estimate
from chipshift.flows.options import Options
from chipshift.worked import formula, plain


@dataclass(frozen=True)
class Run:
    """What a run of ``tokens`` takes at the assumed goodput; dollars None without a price."""

    tokens: float
    goodput: float
    days: float
    chip_hours: float
    usd: float | None
    meets_deadline: bool | None


@formula(unit="s", source="steps × step time / goodput")
def run_seconds(tokens: float, tokens_per_step: float, step_time_s: float, goodput: float) -> float:
    """Seconds of a run; goodput is the share of the time that makes progress."""
    return tokens / tokens_per_step * step_time_s / goodput


def run_of(e: Estimate, options: Options) -> Run | None:
    """The run that the options ask about; None when they give no tokens."""
    if options.tokens is None:
        return None
    per_step = e.job.sequences_per_step.value * e.job.seq_len.value
    step_s = float(plain(e.step_time_s))
    seconds = run_seconds(options.tokens, float(per_step), step_s, options.goodput)
    chip_hours = seconds / 3600 * e.machine.chips
    price = e.price.usd_per_chip_hour
    return Run(
        tokens=options.tokens,
        goodput=options.goodput,
        days=seconds / 86400,
        chip_hours=chip_hours,
        usd=None if price is None else chip_hours * price,
        meets_deadline=None if options.deadline_s is None else seconds <= options.deadline_s,
    )
