"""The verdict on a target: ratios to the present, the error around them, and what flips it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from chipshift.estimate import ErrorBand, Estimate
from chipshift.units import duration
from chipshift.worked import formula, plain

Number = Any

UNVALIDATED_P50 = 0.30
"""Half-width assumed for a chip and stack on which nothing was measured: twice what the widest
validated group shows; printed as an assumption wherever it is used."""

FEWEST_RUNS = 3
"""Measured runs from which an error band is taken at its word."""


@dataclass(frozen=True)
class Ratio:
    """Target over present; memory_headroom is the target's own free share.

    ``time_per_token`` is ``step_time`` unless the target's step has other tokens than the
    present's; the verdict is of it.
    """

    step_time: float
    time_per_token: float
    tokens_per_s_per_chip: float
    cost_per_token: float | None
    memory_headroom: float


@dataclass(frozen=True)
class Band:
    """The step time's interval from the error shown on measured runs (median, both ways)."""

    step_time_low_s: float
    step_time_high_s: float


@dataclass(frozen=True)
class Verdict:
    """The answer in a word, with the numbers behind it.

    Attributes:
        word: cheaper, faster, both, neither, within_the_error or does_not_fit.
        flips_at_usd_per_chip_hour: target price at which the cost of a token equals the present's.
        deciding: the assumption whose change would flip the word.
    """

    word: str
    ratio: Ratio
    band: Band
    flips_at_usd_per_chip_hour: float | None
    deciding: str


@formula(unit="1", source="target over present")
def ratio_of(target: Number, present: Number) -> Number:
    """How many times the present's figure the target's is."""
    return target / present


@formula(unit="USD/chip-hour", source="the target's price over its cost ratio")
def flip_price(price: Number, cost_ratio: Number) -> Number:
    """The target's price at which a token costs the same on both machines."""
    return price / cost_ratio


@formula(unit="1", source="free share of what a device can allocate")
def headroom(total_bytes: Number, available_bytes: Number) -> Number:
    """1 − total/available: below 0 where the plan does not fit."""
    return 1 - total_bytes / available_bytes


@formula(unit="s", source="the step time, less or more by the median error shown")
def band_edge(step_time_s: Number, error: Number) -> Number:
    """One end of the step time's interval."""
    return step_time_s * (1 + error)


def believed(median_abs_rel: float | None, runs: int) -> float:
    """Relative half-width of an estimate: its median error, or the wide one for the unmeasured.

    One or two runs are no measure of an error, however near they came.
    """
    shown = median_abs_rel or 0.0
    return shown if runs >= FEWEST_RUNS else max(shown, UNVALIDATED_P50)


def half_width(band: ErrorBand) -> float:
    """Relative half-width of an estimate, by the runs that its chip and stack have shown."""
    return believed(band.median_abs_rel, band.n)


WORDS = {
    "both": "faster and cheaper", "faster": "faster only", "cheaper": "cheaper only",
    "neither": "neither faster nor cheaper", "within_the_error": "no different beyond the error",
}  # fmt: skip


def verdict(present: Estimate, target: Estimate, replanned: Estimate | None = None) -> Verdict:
    """Compare the best plan of a target with the present run.

    Args:
        replanned: a better plan on the present machine: where the word would be another against
            it, planning decides rather than the machine.
    """
    now, then = float(plain(present.step_time_s)), float(plain(target.step_time_s))
    time_ratio = float(ratio_of(then / tokens_of(target), now / tokens_of(present)))
    cost_ratio = _cost_ratio(present, target)
    error = math.hypot(half_width(present.error_band), half_width(target.error_band))
    faster, slower = time_ratio * (1 + error) < 1, time_ratio / (1 + error) > 1
    cheaper = cost_ratio is not None and cost_ratio * (1 + error) < 1
    dearer = cost_ratio is not None and cost_ratio / (1 + error) > 1
    if faster and cheaper:
        word = "both"
    elif faster:
        word = "faster"
    elif cheaper:
        word = "cheaper"
    elif slower and (dearer or cost_ratio is None):
        word = "neither"
    elif slower or dearer:
        word = "neither" if slower and dearer else "within_the_error"
    else:
        word = "within_the_error"
    flips = None
    if cost_ratio and target.price.usd_per_chip_hour is not None:
        flips = flip_price(target.price.usd_per_chip_hour, cost_ratio)
    total, room = float(plain(target.memory["total"])), float(plain(target.available))
    own = half_width(target.error_band)
    return Verdict(
        word,
        Ratio(
            ratio_of(then, now),
            time_ratio,
            ratio_of(float(plain(target.tokens_per_s_per_chip)),
                     float(plain(present.tokens_per_s_per_chip))),
            cost_ratio,
            headroom(total, room),
        ),
        Band(band_edge(then, -own), band_edge(then, own)),
        flips,
        _planning(word, replanned, target)
        or _deciding(word, time_ratio, cost_ratio, error, target, flips),
    )  # fmt: skip


def _planning(word: str, replanned: Estimate | None, target: Estimate) -> str:
    """That the present plan decides, in a sentence; "" where another one changes nothing."""
    other = word if replanned is None else verdict(replanned, target).word
    if replanned is None or other == word:
        return ""
    seconds = duration(float(plain(replanned.step_time_s)))
    return (
        f"the present plan: the best one on {replanned.machine.name} takes {seconds} a step, and "
        f"against that the target is {WORDS[other]}"
    )


def tokens_of(e: Estimate) -> float:
    """Tokens a step."""
    return float(e.job.sequences_per_step.value * e.job.seq_len.value)


def _cost_ratio(present: Estimate, target: Estimate) -> float | None:
    if present.usd_per_1e12_tokens is None or target.usd_per_1e12_tokens is None:
        return None
    now, then = present.usd_per_1e12_tokens, target.usd_per_1e12_tokens
    return float(ratio_of(float(plain(then)), float(plain(now))))


def _deciding(word: str, time_ratio: float, cost_ratio: float | None, error: float,
              target: Estimate, flips: float | None) -> str:  # fmt: skip
    """The single assumption that is nearest to changing the verdict, in a sentence."""
    if cost_ratio is None:
        return f"the price of a {target.machine.chip.key} chip-hour: none is sourced or given"
    price_gap = abs(math.log(cost_ratio))
    speed_gap = abs(math.log(time_ratio))
    key = target.machine.chip.key
    if price_gap <= speed_gap and flips is not None:
        now = target.price.usd_per_chip_hour
        return f"the price: ${flips:.2f} a {key} chip-hour costs the same a token (now ${now:.2f})"
    if word == "within_the_error" or speed_gap < math.log(1 + error):
        return f"the estimate's own error, ±{error:.0%} on the ratio: one measured step settles it"
    return f"the step time: at {1 / time_ratio:.2f} times the estimate it equals the present's"
