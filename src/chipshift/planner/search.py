"""The search: every plan of one job on one machine, best first, within its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.groups import other_orders
from chipshift.estimate.memory import gradient_cuts, optimizer_cuts, stored_bytes, weight_cuts
from chipshift.estimate.score import AXES, Score, Shared, score, shared
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import layers_params, stage_layers
from chipshift.fabric import take as take_links
from chipshift.jobs.plan import Plan
from chipshift.parallel import remat
from chipshift.parallel.memory import optimizer_bytes_per_param, state_bytes
from chipshift.parallel.schedule import in_flight
from chipshift.planner.orders import joined, reordered
from chipshift.planner.space import DEGREES, Base, applies, base_rows, choices, chunks
from chipshift.planner.table import Prepared, Row, columns, prepare, take

CHUNK = 8192
KEEP = 256
PROMISING = 256


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
            schedule=row.choice.schedule if pp > 1 else "1f1b",
            cp_kind=row.choice.cp_kind,
            order=self.base.orders[self.base.tuple_of[row.index]],
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
           prune: bool = True, keep: int = KEEP, orders: bool = True,
           progress: Callable[[int], None] | None = None) -> Found:  # fmt: skip
    """Score every legal plan and keep the best.

    Two bounds prune, both proved: the first stage holds at least its layers' state and stored
    activations, so a plan cannot fit where those alone exceed the memory; and its step takes at
    least the ops of its layers with what its remat policy runs again, without communication,
    bubble or head, so it cannot be kept where that exceeds the worst kept time. The most
    promising are then scored in other orders of the mesh axes as well (planner/orders.py).

    Args:
        fixed: parts of the plan that the user holds (``tp``: 4, ``remat``: ``full`` ...).
        prune: False scores every plan.
        keep: how many of the best to keep.
        orders: also try other orders of the mesh axes.
        progress: called with the number of plans settled so far.
    """
    start = time.perf_counter()
    fixed = fixed or {}
    base = base_rows(s, fixed)
    best, smallest = _Best(keep), _Best(8)
    tally = _Tally(best, smallest, _Best(PROMISING))
    if len(base):
        prepared = prepare(s, base)
        floor = compute_floor(s, prepared)
        for group in _groups(choices(s, fixed), base):
            _search_group(s, prepared, floor, group, prune, tally, progress)
        base = _search_orders(s, base, tally) if orders else base
    return Found(
        setting=s,
        base=base,
        fitting=best.rows,
        not_fitting=smallest.rows,
        considered=tally.considered,
        scored=tally.scored,
        pruned=tally.considered - tally.scored,
        counted_fitting=tally.fitting,
        seconds=time.perf_counter() - start,
    )


@dataclass
class _Tally:
    """What a search has found and counted so far."""

    best: _Best
    smallest: _Best
    promising: _Best
    considered: int = 0
    scored: int = 0
    fitting: int = 0


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
                  tally: _Tally, progress: Callable[[int], None] | None) -> None:  # fmt: skip
    """Score the rows of one group, fastest floor first, until no further row can be kept."""
    tally.considered += len(group.rows) * len(group.choices)
    best, smallest = tally.best, tally.smallest
    rows = group.rows
    state = np.zeros(len(p.base))
    cuts: list[_CutFloors] = []
    if prune:
        cuts = [_cut_floors(s, p, choice.remat) for choice in group.choices]
        state[rows] = state_floor(s, p.base, rows, group.choices[0])
        rows = rows[np.argsort(floor[rows], kind="stable")]
    for part in chunks(len(rows), CHUNK):
        some = rows[part]
        if prune and floor[some[0]] > best.bound:
            break
        masks = [np.ones(len(some), bool)] * len(group.choices)
        if prune:
            at = _Stage(s, p, some)
            masks = [
                _possible(p, float(s.usable_bytes), some, floor, state, choice, cut, at, best,
                          smallest)
                for choice, cut in zip(group.choices, cuts, strict=True)
            ]  # fmt: skip
        union = np.logical_or.reduce(masks)
        if not union.any():
            continue
        c, w = columns(p, some[union])
        common = shared(s, c, w, group.choices[0])
        for choice, mask in zip(group.choices, masks, strict=True):
            own = mask[union]
            if own.any():
                _score_rows(s, c, common, choice, some[union], own, tally)
        if progress is not None:
            progress(tally.scored)


def _score_rows(s: Setting, c: Columns, common: Shared, choice: Choice, rows: np.ndarray,
                own: np.ndarray, tally: _Tally, first: int = 0) -> None:  # fmt: skip
    """Score one choice on the rows that its bounds left, and offer them."""
    if own.mean() < 0.7:
        keep = np.flatnonzero(own)
        # of the links, scoring itself reads the pipeline's only: the rest is in ``common``
        pipeline = {"pp": take_links(c.links["pp"], keep)}
        c = replace(take(replace(c, links={}), keep), links=pipeline)
        common, rows = take(common, keep), rows[keep]
    found = score(s, c, choice, common)
    seconds = step_times(found)
    total = found.memory["total"]
    fits = total <= s.usable_bytes
    tally.scored += len(rows)
    tally.fitting += int(fits.sum())

    def row(i: int) -> Row:
        return Row(first + int(rows[i]), choice, float(seconds[i]), float(total[i]))

    tally.best.offer(np.where(fits, seconds, np.inf), row)
    tally.smallest.offer(np.where(fits, np.inf, total), row)
    if not first:
        # half of what is exposed is what another order of the axes might save
        exposed = sum((found.exposed[axis] for axis in AXES[1:]), found.exposed[AXES[0]])
        tally.promising.offer(np.where(fits, seconds - exposed / 2, np.inf), row)


def _search_orders(s: Setting, base: Base, tally: _Tally) -> Base:
    """Score the most promising plans in the other orders of the mesh axes; the joined base."""
    kept = tally.promising.rows
    if not kept or not other_orders(s.machine):
        return base
    by: dict[Choice, list[int]] = {}
    for row in kept:
        by.setdefault(row.choice, []).append(row.index)
    more, source = reordered(s, base, np.unique([row.index for row in kept]))
    if not len(source):
        return base
    prepared = prepare(s, more)
    for choice, rows in by.items():
        own = np.flatnonzero(np.isin(source, rows))
        if not len(own):
            continue
        tally.considered += len(own)
        c, w = columns(prepared, own)
        common = shared(s, c, w, choice)
        every = np.ones(len(own), bool)
        _score_rows(s, c, common, choice, own, every, tally, first=len(base))
    return joined(base, more)


@dataclass(frozen=True)
class _CutFloors:
    """What a remat policy runs again and stores in one layer, by kind, for each distinct cut."""

    again: list[np.ndarray]
    stored: list[np.ndarray]


def _cut_floors(s: Setting, p: Prepared, remat_name: str) -> _CutFloors:
    policy = remat.policy(remat_name, reruns_output=float(s.stack.reruns_output) > 0)
    cuts = int(p.cut_of.max()) + 1
    again, stored = [], []
    for one in p.cuts.layers:
        times = np.zeros(cuts)
        for tensor, cost in one.forward.items():
            if policy.recomputes_tensor(tensor):
                times = times + cost.total * policy.every
        again.append(np.broadcast_to(times, (cuts,)))
        stored.append(np.broadcast_to(stored_bytes(s, policy, [1.0], [one], 1.0), (cuts,)))
    return _CutFloors(again, stored)


def _possible(p: Prepared, usable: float, rows: np.ndarray, floor: np.ndarray, state: np.ndarray,
              choice: Choice, cut: _CutFloors, at: _Stage, best: _Best, smallest: _Best,
              ) -> np.ndarray:  # fmt: skip
    """Rows that neither bound excludes for a choice (bool).

    When memory excludes all of them they are still offered as the smallest so far, by their floor.
    """
    again, stored = np.zeros(len(rows)), np.zeros(len(rows))
    for kind, count in enumerate(at.counts):
        again += cut.again[kind][at.cut_of] * count
        stored += cut.stored[kind][at.cut_of] * count
    seconds = floor[rows] + again * at.kept * at.accumulation
    memory = state[rows] + stored * in_flight(choice.schedule, at.pp, at.vpp, at.accumulation)
    fits = memory <= usable
    if not fits.any():
        smallest.offer(memory, lambda i: Row(int(rows[i]), choice, np.inf, float(memory[i])))
    return np.asarray(fits & (seconds <= best.bound))


class _Stage:
    """Stage layout of some rows, and gathering of what was computed for each cut."""

    def __init__(self, s: Setting, p: Prepared, rows: np.ndarray) -> None:
        base = p.base
        self.pp = base.degrees[:, DEGREES.index("pp")][base.tuple_of[rows]].astype(float)
        self.vpp, self.accumulation = base.vpp[rows], base.accumulation[rows]
        on_stage, self.counts = stage_layers(s, self.pp, self.vpp)
        # the last stage may hold up to one layer less than the fullest
        self.kept = np.where(self.pp > 1, 1 - 1 / np.maximum(on_stage, 1), 1.0)
        self.cut_of = p.cut_of[rows]


def compute_floor(s: Setting, p: Prepared) -> np.ndarray:
    """Seconds of the layers' ops alone, every microbatch: no step is shorter (one a row)."""
    rows = np.arange(len(p.base))
    at = _Stage(s, p, rows)
    total = np.zeros(len(rows))
    for one, count in zip(p.cuts.layers, at.counts, strict=True):
        cost = one.input_grad + one.weight_grad
        for times in one.forward.values():
            cost = cost + times
        cuts = int(p.cut_of.max()) + 1
        total = total + count * np.broadcast_to(cost.total, (cuts,))[at.cut_of]
    return np.asarray(total * at.kept * at.accumulation)


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
