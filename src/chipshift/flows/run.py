"""A whole run: days, dollars and chip-hours for a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.said import stated
from chipshift.flows.options import Options
from chipshift.worked import Worked, formula, leaf, plain, rename

Number = Any


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
def run_seconds(tokens: Number, tokens_per_step: Number, step_time_s: Number, goodput: Number
                ) -> Number:  # fmt: skip
    """Seconds of a run; goodput is the share of the time that makes progress."""
    return tokens / tokens_per_step * step_time_s / goodput


@formula(unit="chip-hours", source="seconds of the run × chips")
def run_chip_hours(seconds: Number, chips: Number) -> Number:
    """Chip-hours that a run is billed for."""
    return seconds / 3600 * chips


@formula(unit="USD", source="chip-hours × price")
def run_cost(chip_hours: Number, usd_per_chip_hour: Number) -> Number:
    """Dollars of a run."""
    return chip_hours * usd_per_chip_hour


def run_of(e: Estimate, options: Options) -> Run | None:
    """The run that the options ask about; None when they give no tokens."""
    if options.tokens is None:
        return None
    per_step = e.job.sequences_per_step.value * e.job.seq_len.value
    step_s = float(plain(e.step_time_s))
    seconds = run_seconds(options.tokens, float(per_step), step_s, options.goodput)
    chip_hours = run_chip_hours(seconds, e.machine.chips)
    price = e.price.usd_per_chip_hour
    return Run(
        tokens=options.tokens,
        goodput=options.goodput,
        days=seconds / 86400,
        chip_hours=chip_hours,
        usd=None if price is None else run_cost(chip_hours, price),
        meets_deadline=None if options.deadline_s is None else seconds <= options.deadline_s,
    )


def explained_run(e: Estimate, options: Options) -> dict[str, Worked | None] | None:
    """The same figures of an explained estimate, with their working."""
    if options.tokens is None:
        return None
    sequences = leaf(e.job.sequences_per_step.value, "sequences", "global_batch",
                     stated(e.job.sequences_per_step))  # fmt: skip
    seq_len = leaf(e.job.seq_len.value, "tokens", "seq_len", stated(e.job.seq_len))
    tokens = leaf(options.tokens, "tokens", "tokens", "given: --tokens")
    goodput = leaf(options.goodput, "1", "goodput", "--goodput, a stated assumption")
    seconds = run_seconds(tokens, sequences * seq_len, e.step_time_s, goodput)
    hours = run_chip_hours(seconds, leaf(e.machine.chips, "chips", "chips", e.machine.name))
    price = e.price.usd_per_chip_hour
    usd = None
    if price is not None:
        usd = run_cost(hours, leaf(price, "USD/chip-hour", "usd_per_chip_hour", e.price.source))
    return {"tokens": tokens, "goodput": goodput, "days": rename(seconds / 86400, "days"),
            "chip_hours": hours, "usd": usd}  # fmt: skip
