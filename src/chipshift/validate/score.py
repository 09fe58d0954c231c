"""Errors of the estimate against measured runs: by row, by group, between chips."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chipshift.validate.case import Case, Prediction

MEASURES = ("step_time_s", "state_memory_bytes", "memory_bytes")


@dataclass(frozen=True)
class Scored:
    """One run with its prediction and its signed relative errors (predicted / measured − 1)."""

    case: Case
    predicted: Prediction
    remat: str
    error: dict[str, float]

    @property
    def step_error(self) -> float | None:
        return self.error.get("step_time_s")


@dataclass(frozen=True)
class Summary:
    """Errors of a group: nearest-rank percentiles of the absolute ones, median of the signed."""

    n: int
    median_abs_rel: float
    p90_abs_rel: float
    bias: float


def nearest_rank(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least ``fraction`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summary(errors: Sequence[float]) -> Summary:
    """Summary of signed relative errors.

    Raises:
        ValueError: there is none.
    """
    if not errors:
        raise ValueError("a group without errors has no summary")
    sizes = [abs(e) for e in errors]
    return Summary(len(errors), nearest_rank(sizes, 0.5), nearest_rank(sizes, 0.9), _middle(errors))


def _middle(values: Sequence[float]) -> float:
    """The usual median (the mean of the two middle values where their number is even)."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def compare(case: Case, predicted: Prediction, remat: str) -> Scored:
    """Errors of one prediction, for what was measured."""
    errors = {}
    for name in MEASURES:
        truth = getattr(case.measured, name)
        if truth:
            errors[name] = getattr(predicted, name) / truth - 1
    rate, stated = case.tflops_per_chip(predicted.step_time_s), case.measured.tflops_per_chip
    if rate and stated:
        errors["tflops_per_chip"] = rate / stated - 1
    return Scored(case, predicted, remat, errors)


def by(
    rows: Iterable[Scored],
    key: Callable[[Case], Iterable[str]],
    measure: str = "step_time_s",
) -> dict[str, Summary]:
    """Summaries of a measure's errors in each group that ``key`` names, largest group first."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        error = row.error.get(measure)
        if error is not None:
            for name in key(row.case):
                groups[name].append(error)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: summary(errors) for name, errors in ordered}


GROUPINGS: dict[str, Callable[[Case], Iterable[str]]] = {
    "chip": lambda c: (c.chip,),
    "framework": lambda c: (c.stack,),
    "chip_framework": lambda c: (f"{c.chip} {c.stack}",),
    "source": lambda c: (c.publisher,),
    "task": lambda c: (c.task,),
    "model": lambda c: (f"{c.chip} {c.model}",),
}


def headline(rows: Iterable[Scored], *, everything: bool = False) -> list[Scored]:
    """The rows that count for a chip: grade A pretraining, or ``everything``.

    Sweep rows count only where there are no others: they stress bad plans on purpose.
    """
    found = list(rows)
    if everything:
        return found
    records = [row for row in found if row.case.task != "sweep"]
    return [r for r in records if r.case.quality == "A" and r.case.task == "pretrain"] or [
        row for row in found if row.case.task == "sweep"
    ]


def groupings(rows: list[Scored], *, everything: bool = False) -> dict[str, dict[str, Summary]]:
    """Every grouping; the chip's is of the headline rows.

    All are of step times but ``chip_tflops``: TFLOP/s in each source's own FLOP convention.
    """
    counted = headline(rows, everything=everything)
    found = {
        name: by(rows if name in ("task", "source") else counted, key)
        for name, key in GROUPINGS.items()
    }
    apart = special(rows, everything=everything)
    found["group"] = {name: summary([_error(row) for row in of]) for name, of in apart.items()}
    return found | {"chip_tflops": by(counted, GROUPINGS["chip"], "tflops_per_chip")}


def _error(row: Scored) -> float:
    return row.error["step_time_s"]


BAD = 1.5
"""A plan is called bad where a token takes at least so many times the chip-seconds of the best
measured run of its model, chip, precision, length and number of chips."""


def special(rows: Iterable[Scored], *, everything: bool = False) -> dict[str, list[Scored]]:
    """The timed runs of each special group (MoE, 8 bits, long sequences, bad plans ...).

    Of the headline rows, and of the sweep's beside them; the largest group first.
    """
    found = list(rows)
    swept = [row for row in found if row.case.task == "sweep"]
    counted = dict.fromkeys(map(id, headline(found, everything=everything) + swept))
    timed = [row for row in found if id(row) in counted and row.step_error is not None]
    groups: dict[str, list[Scored]] = defaultdict(list)
    for row in timed:
        for name in row.case.groups:
            groups[name].append(row)
    for members in _alike(timed).values():
        least = min(map(_measured_cost, members))
        slow = [row for row in members if _measured_cost(row) >= BAD * least]
        for row in slow:
            groups["sweep_bad_plan" if row.case.task == "sweep" else "bad_plan"].append(row)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _alike(rows: Iterable[Scored]) -> dict[tuple[Any, ...], list[Scored]]:
    """Timed runs of one model, chip, stack, precision, number of chips and length."""
    groups: dict[tuple[Any, ...], list[Scored]] = defaultdict(list)
    for row in rows:
        if row.case.measured.step_time_s:
            c = row.case
            key = (c.model, c.chip, c.stack, c.precision, c.chips, c.job.seq_len.value)
            groups[key].append(row)
    return groups


def ratios(rows: Iterable[Scored]) -> list[dict[str, Any]]:
    """Time a token a chip of one chip over another's: each chip's best measured row, all pairs.

    Rows compare where model, sequence length and precision are the same.
    """
    best: dict[tuple[str, int, str], dict[str, Scored]] = defaultdict(dict)
    for row in headline(rows):
        if row.case.task != "pretrain" or not row.case.measured.step_time_s:
            continue
        key = (row.case.model, row.case.job.seq_len.value, row.case.precision)
        held = best[key].get(row.case.chip)
        if held is None or _measured_cost(row) < _measured_cost(held):
            best[key][row.case.chip] = row
    out = []
    for (model, seq_len, precision), chips in sorted(best.items()):
        for a in sorted(chips):
            for b in sorted(chips):
                if a < b:
                    predicted = _predicted_cost(chips[b]) / _predicted_cost(chips[a])
                    measured = _measured_cost(chips[b]) / _measured_cost(chips[a])
                    out.append(
                        {"model": model, "seq_len": seq_len, "precision": precision, "from": a,
                         "to": b, "predicted": predicted, "measured": measured}
                    )  # fmt: skip
    return out


def _measured_cost(row: Scored) -> float:
    """Chip-seconds a token, measured."""
    time = row.case.measured.step_time_s
    assert time is not None
    return time * row.case.chips / row.case.tokens_per_step


def _predicted_cost(row: Scored) -> float:
    return row.predicted.step_time_s * row.case.chips / row.case.tokens_per_step


@dataclass(frozen=True)
class Verdicts:
    """Fits against went out of memory, over the runs that say which.

    Attributes:
        false_fits: share of the runs called "fits" that ran out.
        balanced_accuracy: mean of the shares of each truth that was called rightly.
    """

    n: int
    ran: int
    out_of_memory: int
    balanced_accuracy: float
    false_fits: float


def verdicts(rows: Iterable[Scored]) -> Verdicts | None:
    """Verdicts on fitting, or None where no row went out of memory or none ran."""
    ran = [r for r in rows if r.case.task == "sweep" and not r.case.measured.oom]
    out = [r for r in rows if r.case.measured.oom]
    if not ran or not out:
        return None
    right_ran = sum(r.predicted.fits for r in ran)
    right_out = sum(not r.predicted.fits for r in out)
    called = right_ran + len(out) - right_out
    return Verdicts(
        n=len(ran) + len(out),
        ran=len(ran),
        out_of_memory=len(out),
        balanced_accuracy=(right_ran / len(ran) + right_out / len(out)) / 2,
        false_fits=(len(out) - right_out) / called if called else 0.0,
    )


def ordering(rows: Iterable[Scored]) -> Summary | None:
    """How much slower the plan that a planner prefers ran than the fastest measured one.

    It prefers the fastest of those that it says fit, of all where it says so of none. One number
    for each model, chip, stack, precision, length and number of chips with at least two measured
    plans.
    """
    losses = []
    for members in _alike(rows).values():
        if len({m.case.plan for m in members}) >= 2:
            fitting = [m for m in members if m.predicted.fits] or members
            chosen = min(fitting, key=_predicted_cost)
            losses.append(_measured_cost(chosen) / min(map(_measured_cost, members)) - 1)
    return summary(losses) if losses else None
