"""Fitting a stack's constants on measured runs: least squares on log step time, held by priors.

Runs weigh by 1/√(their number) within a configuration, so that a publisher's repeats of one count
little more than once; errors beyond 10 % pull with constant force (Huber), so that one odd run
cannot bend a constant.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np

from chipshift.errors import InputError
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.estimate import check_plan, choice_of
from chipshift.estimate.groups import group_links
from chipshift.estimate.score import AXES, Score, score
from chipshift.estimate.setting import Setting, for_job, setting
from chipshift.machines.names import parse_machine
from chipshift.validate.case import Case
from chipshift.validate.free import FIXED, Free, free_of, scope_of

Floats = Any
NOISE, LARGE, STEP = 0.05, 0.10, 0.03
"""Spread of a run about its estimate; where an error counts as odd; step of the derivative."""


@dataclass
class Run:
    """A case ready to be timed again and again under other constants."""

    case: Case
    setting: Setting
    columns: Columns
    choices: list[Choice]
    chosen: int = 0

    def score(self, constants: dict[str, float], choice: int | None = None) -> Score:
        s = self.setting
        stack = replace(s.stack, **constants)  # type: ignore[arg-type]
        s = replace(s, stack=for_job(stack, s.job, s.machine.chip.family))
        return score(s, self.columns, self.choices[self.chosen if choice is None else choice])

    def step_time_s(self, constants: dict[str, float]) -> float:
        found = self.score(constants)
        return float(sum(found.time.values()) + sum(found.exposed[axis] for axis in AXES))

    def choose(self, constants: dict[str, float]) -> None:
        """Take the least rematerialisation that fits under these constants."""
        for i in range(len(self.choices)):
            self.chosen = i
            total = float(self.score(constants, i).memory["total"])
            if total <= self.setting.usable_bytes:
                return


def prepared(case: Case) -> Run:
    """A case with its links placed and its numbers laid out.

    Raises:
        InputError: the estimate cannot take it.
    """
    machine, p = parse_machine(case.machine), case.plan
    s = setting(case.job, machine, case.stack_release)
    check_plan(s, p)
    columns = Columns(
        dp=float(p.dp), fsdp=float(p.fsdp), tp=float(p.tp), cp=float(p.cp), ep=float(p.ep),
        pp=float(p.pp), vpp=float(p.vpp), microbatch=float(p.microbatch),
        accumulation=float(p.accumulation), etp=float(p.etp or p.tp),
        links=group_links(machine, p.dp, p.fsdp, p.cp, p.tp, p.ep, p.pp, p.etp),
    )  # fmt: skip
    return Run(case, s, columns, [choice_of(replace(p, remat=r)) for r in case.remats])


def usable(cases: Sequence[Case]) -> list[Run]:
    """The grade A pretraining (or sweep) runs with a time that the estimate can take."""
    out = []
    for case in cases:
        counts = case.quality == "A" and case.task in ("pretrain", "sweep")
        if counts and case.measured.step_time_s:
            try:
                out.append(prepared(case))
            except (InputError, KeyError):
                continue
    return out


class Fit:
    """The least-squares problem of one stack: ``x`` are its constants in log or log-odds."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self.stack = runs[0].case.stack
        self.keys: list[tuple[Free, str]] = []
        for free in free_of(self.stack):
            for value in sorted({scope_of(r.case, free.scope) for r in runs}):
                self.keys.append((free, value))
        self.prior = np.array([_in(f, f.priors.get(v, f.prior)) for f, v in self.keys])
        self.sd = np.array([f.sd for f, _ in self.keys])
        self.truth = np.log([r.case.measured.step_time_s or 1.0 for r in runs])
        same = Counter(_configuration(r.case) for r in runs)
        self.weight = np.array([same[_configuration(r.case)] ** -0.5 for r in runs])
        self.uses = [
            [i for i, (f, v) in enumerate(self.keys) if scope_of(r.case, f.scope) == v]
            for r in runs
        ]

    def stored(self) -> Floats:
        """The constants of the last fit that the package carries, else their priors."""
        known = stored_fits().get(self.stack, {})
        return np.array(
            [
                _in(free, known[name]) if (name := label(free, value)) in known else prior
                for (free, value), prior in zip(self.keys, self.prior, strict=True)
            ]
        )

    def constants(self, x: Floats, case: Case) -> dict[str, float]:
        """The constants that hold for a run: own values, times those of narrower scopes."""
        out = dict(FIXED.get(self.stack, {}))
        factors: dict[str, float] = {}
        for i, (free, value) in enumerate(self.keys):
            if scope_of(case, free.scope) != value:
                continue
            if free.times:
                factors[free.name] = factors.get(free.name, 1.0) * _out(free, x[i])
            else:
                out[free.name] = _out(free, x[i])
        return out | {name: out[name] * factor for name, factor in factors.items()}

    def log_times(self, x: Floats, rows: Sequence[int] | None = None) -> Floats:
        """Log of the predicted step times."""
        chosen = range(len(self.runs)) if rows is None else rows
        return np.array(
            [
                math.log(self.runs[j].step_time_s(self.constants(x, self.runs[j].case)))
                for j in chosen
            ]
        )

    def loss(self, x: Floats) -> float:
        size = np.abs(self.log_times(x) - self.truth)
        pull = np.where(size < LARGE, size**2 / 2, LARGE * (size - LARGE / 2))
        held = ((x - self.prior) / self.sd) ** 2 / 2
        return float(np.sum(self.weight**2 * pull) / NOISE**2 + np.sum(held))

    def jacobian(self, x: Floats, at: Floats) -> Floats:
        """Derivative of the log times, by differences; only of the runs that use a constant."""
        out = np.zeros((len(self.runs), len(x)))
        for i in range(len(x)):
            rows = [j for j in range(len(self.runs)) if i in self.uses[j]]
            moved = x.copy()
            moved[i] += STEP
            out[rows, i] = (self.log_times(moved, rows) - at[rows]) / STEP
        return out

    def normal(self, x: Floats, keep: Floats) -> tuple[Floats, Floats]:
        """Matrix and right-hand side of a Gauss-Newton step over the runs that ``keep`` weighs."""
        at = self.log_times(x)
        error, slope = at - self.truth, self.jacobian(x, at)
        huber = np.where(np.abs(error) <= LARGE, 1.0, LARGE / np.maximum(np.abs(error), LARGE))
        self.slope, self.pull = slope, huber * self.weight**2 / NOISE**2
        self.error = error
        return self.reduced(x, keep)

    def reduced(self, x: Floats, keep: Floats) -> tuple[Floats, Floats]:
        """As ``normal`` at the last point, with other runs kept."""
        w = self.pull * keep
        matrix = self.slope.T @ (w[:, None] * self.slope) + np.diag(1 / self.sd**2)
        return matrix, self.slope.T @ (w * self.error) + (x - self.prior) / self.sd**2

    def values(self, x: Floats) -> dict[str, float]:
        """The fitted values by label, to be stored."""
        return {
            label(free, value): float(f"{_out(free, z):.6g}")
            for (free, value), z in zip(self.keys, x, strict=True)
        }

    def choose(self, x: Floats) -> None:
        """Take the least rematerialisation that fits wherever a source does not state it."""
        for run in self.runs:
            if len(run.choices) > 1:
                run.choose(self.constants(x, run.case))

    def solve(self, start: Floats | None = None, most: int = 15) -> Floats:
        """Gauss-Newton with halving; an unstated remat is chosen anew in the first steps."""
        x = self.prior.copy() if start is None else start.copy()
        everything = np.ones(len(self.runs))
        for step in range(most):
            if step < 5:
                self.choose(x)
            matrix, right = self.normal(x, everything)
            move = np.clip(-np.linalg.solve(matrix, right), -0.6, 0.6)
            before, size = self.loss(x), 1.0
            while size > 0.06 and self.loss(x + size * move) >= before:
                size /= 2
            if size <= 0.06:
                break
            x = x + size * move
            if step >= 5 and before - self.loss(x) < 0.2:
                break
        return x

    def without(self, x: Floats, left_out: Sequence[int]) -> Floats:
        """The constants with some runs left out: one Gauss-Newton step from the full fit."""
        keep = np.ones(len(self.runs))
        keep[list(left_out)] = 0.0
        matrix, right = self.reduced(x, keep)
        return x - np.clip(np.linalg.solve(matrix, right), -0.6, 0.6)


def label(free: Free, value: str) -> str:
    """Name of one fitted value: ``memory_scale/chip:v6e``, with × where it multiplies."""
    return f"{free.name}/{'×' if free.times else ''}{free.scope}:{value}"


@functools.cache
def stored_fits() -> dict[str, dict[str, float]]:
    """Fitted values by stack, as benchmarks/calibration/fit_stacks.py left them."""
    file = resources.files("chipshift.validate") / "data" / "fitted.json"
    found: dict[str, dict[str, float]] = json.loads(file.read_text("utf8"))
    return found


def _configuration(case: Case) -> tuple[Any, ...]:
    plan = case.plan if case.task == "sweep" else None
    return (case.chip, case.model, case.precision, case.chips, case.job.seq_len.value, plan)


def _in(free: Free, value: float) -> float:
    return math.log(value / (1 - value)) if free.share else math.log(value)


def _out(free: Free, x: float) -> float:
    return 1 / (1 + math.exp(-x)) if free.share else math.exp(x)
