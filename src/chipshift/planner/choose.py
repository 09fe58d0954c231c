"""From a search to an answer: the winner, the runners-up and why they lose, what limits cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chipshift.estimate.collectives import AXES
from chipshift.estimate.estimate import Estimate, Price, estimate
from chipshift.estimate.setting import Setting, setting
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.planner.bounds import without_memory_limit
from chipshift.planner.search import Found, Kept, search
from chipshift.units import duration, gib
from chipshift.worked import formula, plain

RUNNERS_UP = 5
Fixed = Mapping[str, str | int | float]


@dataclass(frozen=True)
class RunnerUp:
    """Another plan, and why it loses to the best."""

    estimate: Estimate
    loses_because: str


@dataclass(frozen=True)
class Constraint:
    """What holding something fixed costs a step, against the best plan without it.

    Attributes:
        job, plan, without_s: the plan without it, its step time, and the job it is of (another
            batch, where that is fixed).
        steps: steps of this job that one of that job's is worth.
    """

    name: str
    cost_s: float
    cost_usd: float | None
    job: TrainJob
    plan: Plan
    without_s: float
    steps: float = 1.0


@formula(unit="s", source="step time, less that of the best plan without the limit; never below 0")
def limit_cost(step_time_s: Any, without_s: Any, steps: Any) -> Any:
    """Seconds a step that a limit costs; ``steps`` of them are one step without it."""
    return np.maximum(step_time_s - without_s / steps, 0)


@formula(unit="USD", source="seconds × price × chips")
def limit_usd(cost_s: Any, usd_per_chip_hour: Any, chips: Any) -> Any:
    """Dollars a step that a limit costs."""
    return cost_s * usd_per_chip_hour * chips / 3600


@dataclass(frozen=True)
class Choice:
    """The answer for one job on one machine.

    Attributes:
        best: the fastest plan that fits; None when none fits.
        short_bytes: by how much the smallest plan misses the memory of a device (0 when one fits);
            None where no plan is legal.
        smallest: the plan that needs least memory, when none fits.
    """

    machine: Machine
    stack: str
    best: Estimate | None
    runners_up: list[RunnerUp]
    constraints: list[Constraint]
    short_bytes: float | None
    smallest: Plan | None
    found: Found


def choose(job: TrainJob, machine: Machine, stack: str, *, fixed: Fixed | None = None,
           price: Price | None = None, explain_choice: bool = True, prune: bool = True,
           progress: Callable[[int], None] | None = None, found: Found | None = None
           ) -> Choice:  # fmt: skip
    """The best plan on a machine; with ``explain_choice`` also runners-up and constraints.

    Args:
        prune: False scores every plan, to see that pruning loses none.
        found: what a search of the same job, machine and held values found before.
    """
    s = setting(job, machine, stack)
    found = found or search(s, fixed, prune=prune, progress=progress)
    if not found.fitting:
        smallest, short = _smallest(s, found, fixed)
        return Choice(machine, stack, None, [], [], short, smallest, found)
    best = estimate(job, found.fitting[0].plan, machine, stack, price=price,
                    plan_source=planned(found, machine.name))  # fmt: skip
    others = _runners_up(job, found, best, price) if explain_choice else []
    limits = _constraints(s, best, fixed or {}) if explain_choice else []
    return Choice(machine, stack, best, others, limits, 0.0, None, found)


def _smallest(s: Setting, found: Found, fixed: Fixed | None) -> tuple[Plan | None, float | None]:
    """The plan that needs least memory, and what ``estimate`` says it lacks; None where none is."""
    if not found.not_fitting and found.considered and not found.pruned:
        found = search(s, fixed)  # one that prunes by bounds also ranks what does not fit
    if not found.not_fitting:
        return None, None
    plan = found.not_fitting[0].plan
    needs = float(estimate(s.job, plan, s.machine, s.stack.name).memory["total"])
    return plan, needs - float(s.usable_bytes)


def planned(found: Found, machine: str) -> str:
    """Who chose a plan, in words."""
    return f"chosen by the planner among {found.considered:,} legal plans on {machine}"


def _family(row: Kept) -> tuple[object, ...]:
    """What makes two plans different in kind: how it is cut, not how the batch is sliced."""
    p = row.plan
    return (p.tp, p.pp, p.cp, p.ep, p.fsdp > 1, p.dp > 1)


def _runners_up(job: TrainJob, found: Found, best: Estimate, price: Price | None
                ) -> list[RunnerUp]:  # fmt: skip
    """The best plan of each other family, fastest first, and the reason it loses."""
    seen = {_family(found.fitting[0])}
    out: list[RunnerUp] = []
    for row in found.fitting[1:]:
        if _family(row) in seen:
            continue
        seen.add(_family(row))
        other = estimate(job, row.plan, best.machine, best.stack, price=price,
                         plan_source=planned(found, best.machine.name))  # fmt: skip
        out.append(RunnerUp(other, loses_because(best, other)))
        if len(out) == RUNNERS_UP:
            break
    return out


PART_NAMES = {
    "matmul": "matmul time", "attention": "attention time", "memory_bound": "memory-bound ops",
    "bubble": "pipeline bubble", "optimizer": "optimizer time", "other": "overheads",
}  # fmt: skip


def loses_because(best: Estimate, other: Estimate) -> str:
    """The part of the step that grew most against the best plan."""
    grown = {
        PART_NAMES[k]: float(plain(other.time[k]) - plain(best.time[k])) for k in PART_NAMES
    } | {
        f"exposed {axis} collectives": float(
            plain(other.collectives_exposed[axis]) - plain(best.collectives_exposed[axis])
        )
        for axis in AXES
    }
    name, seconds = max(grown.items(), key=lambda item: item[1])
    whole = float(plain(other.step_time_s) - plain(best.step_time_s))
    if whole <= 1e-9:
        more = float(plain(other.memory["total"]) - plain(best.memory["total"]))
        return f"as fast, with {gib(abs(more))} {'more' if more > 0 else 'less'} memory a device"
    return f"{duration(whole)} slower: {duration(seconds)} more {name}"


def _constraints(s: Setting, best: Estimate, fixed: Fixed) -> list[Constraint]:
    """What memory, the batch and each thing that the user holds cost."""
    out: list[Constraint] = []
    free = search(without_memory_limit(s), fixed, keep=1)
    if free.fitting:
        out.append(_priced("memory of a device", s.job, best, free))
    for key in fixed:
        rest = {k: v for k, v in fixed.items() if k != key}
        loose = search(s, rest, keep=1)
        if loose.fitting:
            out.append(_priced(f"{key}={fixed[key]}", s.job, best, loose))
    return out


def _priced(name: str, job: TrainJob, best: Estimate, free: Found, steps: float = 1.0
            ) -> Constraint:  # fmt: skip
    """A limit's cost against the first plan of a search without it."""
    plan = free.fitting[0].plan
    without = estimate(job, plan, best.machine, best.stack, price=best.price)
    cost = float(limit_cost(best.step_time_s, without.step_time_s, steps))
    price = best.price.usd_per_chip_hour
    usd = None if price is None else float(limit_usd(cost, price, best.machine.chips))
    return Constraint(name, cost, usd, job, plan, float(without.step_time_s), steps)


def with_batch(job: TrainJob, factor: int) -> TrainJob:
    """The job with ``factor`` times as many sequences a step."""
    stated = job.sequences_per_step
    return replace(job, sequences_per_step=replace(stated, value=stated.value * factor))


def batch_limit(job: TrainJob, machine: Machine, stack: str, best: Estimate) -> Constraint | None:
    """What the fixed batch costs: the best plan with twice the batch, at half its step time."""
    twice = with_batch(job, 2)
    double = search(setting(twice, machine, stack), keep=1)
    if not double.fitting:
        return None
    name = "tokens a step held fixed (against twice the batch)"
    return _priced(name, twice, best, double, steps=2.0)
