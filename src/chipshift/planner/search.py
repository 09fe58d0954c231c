"""The search: every plan of one job on one machine, best first, within its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.memory import gradient_cuts, optimizer_cuts, weight_cuts
from chipshift.estimate.score import AXES, Score, score, shared
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import layers_params, stage_layers
from chipshift.jobs.plan import Plan
from chipshift.parallel.memory import optimizer_bytes_per_param, state_bytes
from chipshift.planner.space import DEGREES, Base, applies, base_rows, choices, chunks
from chipshift.planner.table import Prepared, Row, columns, prepare

CHUNK = 8192
KEEP = 256


@dataclass(frozen=True)
class Found:
    """What a search found on one machine.

    Attributes:
        fitting: best rows that fit, ascending step time, at most ``KEEP``.
        not_fitting: best rows that do not fit, ascending memory.
        considered: legal plans; scored + pruned = considered.
        pruned: left out because a proved bound showed that they cannot be kept.
        counted_fitting: scored plans that fit.
    """

    setting: Setting
    base: Base
    fitting: list[Row]
    not_fitting: list[Row]
    considered: int
    scored: int
    pruned: int
    counted_fitting: int
    seconds: float

    def plan(self, row: Row) -> Plan:
        """The row as a plan."""
        dp, fsdp, cp, tp, ep, pp = (
            int(x) for x in self.base.degrees[self.base.tuple_of[row.index]]
        )
        return Plan(
            dp=dp, fsdp=fsdp, cp=cp, tp=tp, ep=ep, pp=pp,
            vpp=int(self.base.vpp[row.index]),
            microbatch=float(self.base.microbatch[row.index]),
            accumulation=round(float(self.base.accumulation[row.index])),
            remat=row.choice.remat,
            optimizer_sharding=row.choice.optimizer_sharding,
            schedule=row.choice.schedule,
            cp_kind=row.choice.cp_kind,
        )  # fmt: skip


def step_times(found: Score) -> np.ndarray:
    """Step time of each row: the sum of its parts."""
    total = np.zeros(())
    for part in found.time.values():
        total = total + part
    for axis in AXES:
        total = total + found.exposed[axis]
    return total


class _Best:
    """The best rows so far by one figure; the figure of the worst of them is a bound."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.bound = np.inf
        self.key = np.empty(0)
        self.rows: list[Row] = []

    def offer(self, key: np.ndarray, make: Callable[[int], Row]) -> None:
        """Take over rows whose key is below the bound."""
        better = np.flatnonzero(key < self.bound)
        if not len(better):
            return
        if len(better) > self.keep:
            better = better[np.argpartition(key[better], self.keep)[: self.keep]]
        rows = self.rows + [make(int(i)) for i in better]
        keys = np.concatenate([self.key, key[better]])
        order = np.argsort(keys, kind="stable")[: self.keep]
        self.key, self.rows = keys[order], [rows[i] for i in order]
        if len(order) == self.keep:
            self.bound = float(self.key[-1])


def search(s: Setting, fixed: Mapping[str, str | int | float] | None = None, *,
           prune: bool = True, keep: int = KEEP,
           progress: Callable[[int], None] | None = None) -> Found:  # fmt: skip
    """Score every legal plan and keep the best.

    Two bounds prune, both proved: a plan needs at least its layers' state, so it cannot fit where
    that alone exceeds the memory; and its step takes at least the ops of its layers without any
    recomputation or communication, so it cannot be kept where that exceeds the worst kept time.

    Args:
        fixed: parts of the plan that the user holds (``tp``: 4, ``remat``: ``full`` ...).
        prune: False scores every plan.
        keep: how many of the best to keep.
        progress: called with the number of plans settled so far.
    """
    start = time.perf_counter()
    fixed = fixed or {}
    base = base_rows(s, fixed)
    best, smallest = _Best(keep), _Best(8)
    counts = {"considered": 0, "scored": 0, "fitting": 0}
    if len(base):
        prepared = prepare(s, base)
        floor = compute_floor(s, prepared)
        for group in _groups(choices(s, fixed), base):
            _search_group(s, prepared, floor, group, prune, best, smallest, counts, progress)
    return Found(
        setting=s,
        base=base,
        fitting=best.rows,
        not_fitting=smallest.rows,
        considered=counts["considered"],
        scored=counts["scored"],
        pruned=counts["considered"] - counts["scored"],
        counted_fitting=counts["fitting"],
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _Group:
    """Choices that apply to the same rows and share the state bound."""

    rows: np.ndarray
    choices: list[Choice]


def _groups(all_choices: list[Choice], base: Base) -> list[_Group]:
    degrees = base.degrees[base.tuple_of]
    by: dict[tuple[str, str], list[Choice]] = {}
    for choice in all_choices:
        by.setdefault((choice.schedule, choice.optimizer_sharding), []).append(choice)
    groups = [_Group(np.flatnonzero(applies(cs[0], base, degrees)), cs) for cs in by.values()]
    return [g for g in groups if len(g.rows)]


def _search_group(s: Setting, p: Prepared, floor: np.ndarray, group: _Group, prune: bool,
                  best: _Best, smallest: _Best, counts: dict[str, int],
                  progress: Callable[[int], None] | None) -> None:  # fmt: skip
    """Score the rows of one group, fastest floor first, until no further row can be kept."""
    n = len(group.choices)
    counts["considered"] += len(group.rows) * n
    rows = group.rows
    if prune:
        state = state_floor(s, p.base, rows, group.choices[0])
        possible = state <= s.usable_bytes
        if not possible.any():
            smallest.offer(state, lambda i: Row(int(rows[i]), group.choices[-1], np.inf, state[i]))
        rows = rows[possible]
        rows = rows[np.argsort(floor[rows], kind="stable")]
    for part in chunks(len(rows), CHUNK):
        some = rows[part]
        if prune:
            some = some[floor[some] <= best.bound]
            if not len(some):
                break
        c, w = columns(p, some)
        common = shared(s, c, w, group.choices[0])
        for choice in group.choices:
            found = score(s, c, choice, common)
            seconds = step_times(found)
            total = found.memory["total"]
            fits = total <= s.usable_bytes
            counts["scored"] += len(some)
            counts["fitting"] += int(fits.sum())

            def row(i: int, seconds: np.ndarray = seconds, total: np.ndarray = total,
                    some: np.ndarray = some, choice: Choice = choice) -> Row:  # fmt: skip
                return Row(int(some[i]), choice, float(seconds[i]), float(total[i]))

            best.offer(np.where(fits, seconds, np.inf), row)
            smallest.offer(np.where(fits, np.inf, total), row)
        if progress is not None:
            progress(counts["scored"])


def compute_floor(s: Setting, p: Prepared) -> np.ndarray:
    """Seconds of the layers' ops alone, every microbatch: no step is shorter (one a row)."""
    pp = p.base.degrees[:, DEGREES.index("pp")][p.base.tuple_of].astype(float)
    _, counts = stage_layers(s, pp, p.base.vpp)
    total = np.zeros(len(p.base))
    for one, count in zip(p.cuts.layers, counts, strict=True):
        cost = one.input_grad + one.weight_grad
        for times in one.forward.values():
            cost = cost + times
        total = total + count * np.broadcast_to(cost.total, (_cuts(p),))[p.cut_of]
    # the last stage may hold up to one layer less than the fullest
    kept = np.where(pp > 1, 1 - 1 / np.maximum(sum(counts[1:], counts[0]), 1), 1.0)
    return total * kept * p.base.accumulation  # type: ignore[no-any-return]


def _cuts(p: Prepared) -> int:
    return int(p.cut_of.max()) + 1


def state_floor(s: Setting, base: Base, rows: np.ndarray, choice: Choice) -> np.ndarray:
    """Bytes of the layers' weights, gradients and moments: no device holds less (one a row)."""
    degrees = base.degrees[base.tuple_of[rows]].astype(float)
    named = {axis: degrees[:, i] for i, axis in enumerate(DEGREES)}
    c = Columns(**named, etp=named["tp"], vpp=base.vpp[rows], microbatch=base.microbatch[rows],
                accumulation=base.accumulation[rows], links={})  # fmt: skip
    _, counts = stage_layers(s, c.pp, c.vpp)
    dense, experts = layers_params(s, c, counts)
    b = s.bytes
    kept = optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable
    total = np.zeros(len(rows))
    kinds = ((b.weights, weight_cuts(c)), (b.gradients * s.trainable, gradient_cuts(c, choice)),
             (kept, optimizer_cuts(c, choice)))  # fmt: skip
    for size, (cut, expert_cut) in kinds:
        total = total + state_bytes(dense, size, cut) + state_bytes(experts, size, expert_cut)
    return total


def without_memory_limit(s: Setting) -> Setting:
    """The same setting on devices of unlimited memory: what memory costs."""
    return replace(s, usable_bytes=float("inf"))
