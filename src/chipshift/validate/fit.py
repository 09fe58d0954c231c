"""Fitting a stack's constants on measured runs: ridge regression on log step time.

Each constant is the stack's value times factors of what a run shares with others (``free``), all
held by priors; the log of a step time is near enough linear in their logs for a few Gauss-Newton
steps. A publisher's repeats of one configuration count little more than once (``weights``); errors
beyond 10 % pull with constant force (Huber), so that one odd run cannot bend a constant.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np

from chipshift.errors import InputError
from chipshift.estimate.collectives import AXES
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.estimate import check_plan, choice_of, columns_of
from chipshift.estimate.score import held, memory, time_only
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.switches import for_job
from chipshift.machines.names import parse_machine
from chipshift.validate.case import Case
from chipshift.validate.free import (
    ERAS,
    FIXED,
    MIN_MODELS,
    MIN_RUNS,
    Free,
    free_of,
    own_scopes,
    scopes_of,
    touches,
)

Floats = Any
NOISE, LARGE, STEP = 0.05, 0.10, 0.03
"""Spread of a run about its estimate; where an error counts as odd; step of the derivative."""
REACHES = (1.0, 0.5, 0.25, 0.12, 0.06)
"""How far a step may go from where the problem was taken as linear: a spread in the keys."""
CHOOSING = 5
"""First steps of a fit, in which an unstated rematerialisation is chosen anew."""


@dataclass
class Run:
    """A case ready to be timed again and again under other constants."""

    case: Case
    setting: Setting
    columns: Columns
    choices: list[Choice]
    chosen: int = 0

    def under(self, constants: dict[str, Any]) -> Setting:
        """The setting under other constants: floats, or arrays of several values at once."""
        s = self.setting
        stack = replace(s.stack, **constants)
        return replace(s, stack=for_job(stack, s.job, s.machine.chip.family))

    def step_time_s(self, constants: dict[str, Any]) -> Any:
        """Seconds of a step under other constants, as many as these are."""
        s, choice = self.under(constants), self.choices[self.chosen]
        found = time_only(s, self.columns, choice, held(s, self.columns, choice))
        return sum(found.time.values()) + sum(found.exposed[axis] for axis in AXES)

    def choose(self, constants: dict[str, Any]) -> None:
        """Take the least rematerialisation that fits under these constants."""
        s = self.under(constants)
        for i, choice in enumerate(self.choices):
            self.chosen = i
            at = held(s, self.columns, choice)
            total = float(memory(s, self.columns, choice, at)["total"])
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
    columns = columns_of(case.job, p, machine)
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


@dataclass(frozen=True)
class Key:
    """One fitted number: the stack's value of a constant, or a factor of it.

    Attributes:
        scope, value: ``stack`` and '', or what the factor is shared by (``chip``, ``gb200``).
        runs, models: how many runs, of how many models, share it.
    """

    free: Free
    scope: str
    value: str
    sd: float
    runs: int
    models: int

    @property
    def label(self) -> str:
        """Name in the stored fit: ``memory_scale``, ``memory_scale@chip:v6e``."""
        return self.free.name + (f"@{self.scope}:{self.value}" if self.value else "")


def keys_of(cases: Sequence[Case], free: Sequence[Free]) -> list[Key]:
    """Every number that the runs can speak for.

    One that touches too few runs or models stands at its prior; a factor that all of them share
    is the stack's own value.
    """
    out = []
    for one in free:
        mine = [case for case in cases if touches(one.name, case)]
        if not supported(mine):
            continue
        out.append(Key(one, "stack", "", one.sd, len(mine), models(mine)))
        shared: dict[tuple[str, str], list[Case]] = {}
        for case in mine:
            for place in own_scopes(case, one):
                shared.setdefault(place, []).append(case)
        for (scope, value), members in sorted(shared.items()):
            if scope in one.spread and supported(members) and len(members) < len(mine):
                sd = one.spread[scope]
                out.append(Key(one, scope, value, sd, len(members), models(members)))
    return out


def speaks(case: Case, key: Key) -> bool:
    """Whether a run is one of those that a fitted number rests on."""
    mine = key.scope == "stack" or (key.scope, key.value) in own_scopes(case, key.free)
    return mine and touches(key.free.name, case)


def models(cases: Sequence[Case]) -> int:
    """Different models among runs."""
    return len({case.model for case in cases})


def supported(members: Sequence[Case]) -> bool:
    """Whether so many runs of so many models may have a constant of their own."""
    return len(members) >= MIN_RUNS and models(members) >= MIN_MODELS


class Fit:
    """The least-squares problem of one stack: ``x`` are its keys' steps from their priors, in log
    or log-odds.

    Args:
        keys: those of another fit, to time runs that it is not fitted on under its constants.
    """

    def __init__(self, runs: list[Run], keys: list[Key] | None = None) -> None:
        self.runs = runs
        self.stack = runs[0].case.stack
        cases = [run.case for run in runs]
        free = free_of(self.stack)
        self.names = [one.name for one in free]
        self.share = np.array([one.share for one in free])
        self.keys = keys_of(cases, free) if keys is None else keys
        self.of = np.array([[key.free.name == name for name in self.names] for key in self.keys])
        self.rests_on = np.array([[speaks(case, key) for key in self.keys] for case in cases])
        scopes = [scopes_of(case) for case in cases]
        self.uses = np.array(
            [[k.scope == "stack" or k.value in one[k.scope] for k in self.keys] for one in scopes]
        )
        self.base = np.array([[_in(f, f.prior) + _known(f, one) for f in free] for one in scopes])
        self.sd = np.array([key.sd for key in self.keys])
        self.truth = np.log([case.measured.step_time_s or 1.0 for case in cases])
        self.weight = weights(cases) / NOISE**2

    def stored(self) -> Floats:
        """The last fit that the package carries; 0, the prior, for what it does not know."""
        known = stored_fits().get(self.stack, {})
        return np.array([known.get(key.label, 0.0) for key in self.keys])

    def values(self, x: Floats) -> dict[str, float]:
        """The fit by label, to be stored."""
        return {key.label: round(float(z), 5) for key, z in zip(self.keys, x, strict=True)}

    def constants(self, x: Floats, row: int, stepped: bool = False) -> dict[str, Any]:
        """The constants that hold for a run: floats at one point, arrays at several.

        Args:
            x: one point, or one a line. Arrays have, for each point, one value and, where
                ``stepped``, one more for each constant that has made a step.
        """
        z = self.base[row] + np.where(self.uses[row], x, 0.0) @ self.of
        if stepped:
            steps = np.vstack([np.zeros(len(self.names)), STEP * np.eye(len(self.names))])
            z = (np.atleast_2d(z)[:, None, :] + steps).reshape(-1, len(self.names))
        free = zip(self.names, self.share, z.T, strict=True)
        return FIXED.get(self.stack, {}) | {
            name: 1 / (1 + np.exp(-v)) if share else np.exp(v) for name, share, v in free
        }

    def log_times(self, x: Floats, rows: Sequence[int] | None = None) -> Floats:
        """Log of the predicted step times."""
        chosen = range(len(self.runs)) if rows is None else rows
        return np.array([math.log(self.runs[j].step_time_s(self.constants(x, j))) for j in chosen])

    def slopes(self, points: Floats) -> tuple[Floats, Floats]:
        """Log times and their derivatives by key, from one evaluation of each run.

        Args:
            points: keys, a line for each point.

        Returns:
            Log times (points, runs) and derivatives (points, runs, keys).
        """
        logs, slopes = [], []
        for j, run in enumerate(self.runs):
            found = np.log(run.step_time_s(self.constants(points, j, stepped=True)))
            found = found.reshape(len(points), len(self.names) + 1)
            by_name = (found[:, 1:] - found[:, :1]) / STEP
            logs.append(found[:, 0])
            slopes.append(by_name @ self.of.T * self.uses[j])
        return np.stack(logs, 1), np.stack(slopes, 1)

    def loss(self, x: Floats) -> float:
        size = np.abs(self.log_times(x) - self.truth)
        pull = np.where(size < LARGE, size**2 / 2, LARGE * (size - LARGE / 2))
        return float(np.sum(self.weight * pull) + np.sum((x / self.sd) ** 2) / 2)

    def relative_errors(self, x: Floats) -> Floats:
        """Signed relative error of each run."""
        return np.expm1(self.log_times(x) - self.truth)

    def choose(self, x: Floats) -> None:
        """Take the least rematerialisation that fits wherever a source does not state it."""
        for j, run in enumerate(self.runs):
            if len(run.choices) > 1:
                run.choose({k: float(v) for k, v in self.constants(x, j).items()})

    def solve(self, start: Floats | None = None, most: int = 12) -> Floats:
        """Gauss-Newton within reach; an unstated remat is chosen anew in the first steps."""
        x = np.zeros(len(self.keys)) if start is None else start.copy()
        for step in range(most):
            settling = step < CHOOSING
            if settling:
                self.choose(x)
            near, before = self.linear(x), self.loss(x)
            better = None
            for reach in REACHES:
                there = near.solved(x, reach=reach)
                if self.loss(there) < before:
                    better = there
                    break
            if better is not None:
                x = better
            if not settling and (better is None or before - self.loss(x) < 0.2):
                break
        return x

    def linear(self, x: Floats) -> Linear:
        """The problem as it looks from ``x``."""
        return self.linears(x[None])[0]

    def linears(self, points: Floats) -> list[Linear]:
        """The problem as it looks from each of several points, a line of ``points`` each."""
        logs, slopes = self.slopes(points)
        return [
            Linear(x, at - self.truth, slope, self.weight, self.sd)
            for x, at, slope in zip(points, logs, slopes, strict=True)
        ]


@dataclass(frozen=True)
class Linear:
    """A fit with log times taken as linear about a point.

    Attributes:
        error: log of predicted over measured at ``at``; ``slope`` its derivative by key.
    """

    at: Floats
    error: Floats
    slope: Floats
    weight: Floats
    sd: Floats

    def solved(self, x: Floats, keep: Floats | None = None, allowed: Floats | None = None,
               rounds: int = 3, reach: float = np.inf) -> Floats:  # fmt: skip
        """The keys that fit best, reweighted for odd runs a few times.

        Args:
            x: where to begin.
            keep: weight of each run, 0 to leave it out.
            allowed: which keys may differ from 0.
            reach: how far the keys may go from ``at``, as a spread.
        """
        keep = np.ones(len(self.error)) if keep is None else keep
        sd = self.sd if allowed is None else np.where(allowed, self.sd, 1e-6)
        for _ in range(rounds):
            size = np.abs(self.error + self.slope @ (x - self.at))
            w = self.weight * keep * np.where(size <= LARGE, 1.0, LARGE / np.maximum(size, LARGE))
            matrix = self.slope.T @ (w[:, None] * self.slope) + np.diag(1 / sd**2 + reach**-2)
            right = self.slope.T @ (w * (self.slope @ self.at - self.error)) + self.at * reach**-2
            x = np.linalg.solve(matrix, right)
        return x


@functools.cache
def stored_fits() -> dict[str, dict[str, float]]:
    """Fitted values by stack, as benchmarks/calibration/fit_stacks.py left them."""
    file = resources.files("chipshift.validate") / "data" / "fitted.json"
    found: dict[str, dict[str, float]] = json.loads(file.read_text("utf8"))
    return found


def weights(cases: Sequence[Case]) -> Floats:
    """Weight of each run's square: repeats of a configuration count as one run.

    Where a stack's constants move with its releases, runs of one configuration under several
    releases are no mere repeats: r releases count as √r runs. All together weigh as many as there
    are configurations, so that the priors hold as firmly either way.
    """
    of = [_configuration(case) for case in cases]
    runs, releases = Counter(of), dict[tuple[Any, ...], set[str]]()
    for case, one in zip(cases, of, strict=True):
        moves = case.stack in ERAS and case.task != "sweep"
        releases.setdefault(one, set()).add(case.release if moves else "")
    each = np.array([math.sqrt(len(releases[one])) / runs[one] for one in of])
    return each * len(runs) / each.sum()


def _configuration(case: Case) -> tuple[Any, ...]:
    plan = case.plan if case.task == "sweep" else None
    return (case.chip, case.model, case.precision, case.chips, case.job.seq_len.value, plan)


def _known(free: Free, scopes: Mapping[str, tuple[str, ...]]) -> float:
    """Steps from the prior that are known beforehand for what a run stands on."""
    return sum(free.priors[v][0] for values in scopes.values() for v in values if v in free.priors)


def _in(free: Free, value: float) -> float:
    return math.log(value / (1 - value)) if free.share else math.log(value)
