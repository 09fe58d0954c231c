"""The search: every plan of one job on one machine, best first, within its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from chipshift.estimate.columns import Choice
from chipshift.estimate.score import Score, memory, ops, timed
from chipshift.estimate.setting import Setting
from chipshift.jobs.plan import Plan
from chipshift.planner.bounds import Floors, floors, layouts
from chipshift.planner.sites import Ints, ranges
from chipshift.planner.space import Base, applies, base_rows, choices, chunks
from chipshift.planner.table import Prepared, Row, plan_of, prepare, rows_stage, step_times, take

CHUNK = 8192
PLANS = 2 * CHUNK
KEEP = 256
SMALLEST = 8


@dataclass(frozen=True)
class Kept:
    """A plan that was kept; its step time is infinite where only its memory was asked for."""

    plan: Plan
    step_time_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Found:
    """What a search found on one machine.

    A plan is a row of the table, a choice and a site: its axes in an order that gives its groups
    links of their own. Of the sites of a row and a choice the fastest is kept.

    Attributes:
        fitting: best plans that fit, ascending step time, at most ``KEEP``.
        not_fitting: where nothing fits, the plans that need least memory, ascending.
        considered: legal plans; scored + pruned = considered.
        pruned: left out because a proved bound showed that they cannot be kept.
        counted_fitting: scored plans that fit.
    """

    setting: Setting
    fitting: list[Kept]
    not_fitting: list[Kept]
    considered: int
    scored: int
    pruned: int
    counted_fitting: int
    seconds: float


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
        keys = np.concatenate([self.key, key[better]])
        order = np.argsort(keys, kind="stable")[: self.keep]
        had = len(self.rows)
        self.rows = [
            self.rows[i] if i < had else make(int(better[i - had])) for i in order.tolist()
        ]
        self.key = keys[order]
        if len(order) == self.keep:
            self.bound = float(self.key[-1])


def search(s: Setting, fixed: Mapping[str, str | int | float] | None = None, *,
           prune: bool = True, keep: int = KEEP, usual_only: bool = False,
           progress: Callable[[int], None] | None = None) -> Found:  # fmt: skip
    """Score every legal plan, in every order of its mesh axes, and keep the best.

    Three bounds prune, all proved (planner/bounds.py): on the memory of a device, on the seconds
    of a step's ops, and on its seconds with each collective on its best links of any order. Where
    nothing fits, the plans that need least memory are found instead.

    Args:
        fixed: parts of the plan that the user holds (``tp``: 4, ``remat``: ``full`` ...).
        prune: False scores every plan.
        keep: how many of the best to keep.
        usual_only: leave the mesh axes in the machine's usual order.
        progress: called with the number of plans settled so far.
    """
    start = time.perf_counter()
    fixed = fixed or {}
    base = base_rows(s, fixed)
    tally = _Tally(_Best(keep), progress)
    options = choices(s, fixed)
    fitting: list[Kept] = []
    smallest: list[Kept] = []
    if len(base):
        prepared = prepare(s, base, options[0].cp_kind, bounds=prune, usual_only=usual_only)
        groups = _groups(options, base)
        of_row = prepared.sites.counts[base.tuple_of]
        tally.considered = sum(int(of_row[g.rows].sum()) * len(g.choices) for g in groups)
        if prune:
            smallest = _kept(prepared, _search_pruned(s, prepared, groups, tally))
        else:
            for group in groups:
                _search_all(s, prepared, group, tally)
        fitting = _kept(prepared, tally.best.rows)
    return Found(
        setting=s,
        fitting=fitting,
        not_fitting=smallest,
        considered=tally.considered,
        scored=tally.scored,
        pruned=tally.considered - tally.scored,
        counted_fitting=tally.fitting,
        seconds=time.perf_counter() - start,
    )


def _kept(p: Prepared, rows: list[Row]) -> list[Kept]:
    return [Kept(plan_of(p, row), row.step_time_s, row.memory_bytes) for row in rows]


@dataclass
class _Tally:
    """What a search has found and counted so far."""

    best: _Best
    progress: Callable[[int], None] | None
    considered: int = 0
    scored: int = 0
    fitting: int = 0

    def report(self) -> None:
        """Tell the caller how far it is."""
        if self.progress is not None:
            self.progress(self.scored)


@dataclass(frozen=True)
class _Group:
    """Choices that apply to the same rows."""

    rows: Ints
    choices: list[Choice]


def _groups(all_choices: list[Choice], base: Base) -> list[_Group]:
    by: dict[tuple[str, str], list[Choice]] = {}
    for choice in all_choices:
        by.setdefault((choice.schedule, choice.optimizer_sharding), []).append(choice)
    groups = [_Group(np.flatnonzero(applies(cs[0], base)), cs) for cs in by.values()]
    return [g for g in groups if len(g.rows)]


@dataclass(frozen=True)
class _Spread:
    """Rows with all sites of each, one after the other.

    Attributes:
        row, site: of each plan, the place of its row among the rows, and its site.
        starts: where each row's plans begin.
    """

    row: Ints
    site: Ints
    starts: Ints


def _spread(p: Prepared, rows: Ints) -> _Spread:
    at = p.base.tuple_of[rows]
    counts = p.sites.counts[at]
    return _Spread(
        np.repeat(np.arange(len(rows)), counts), ranges(p.sites.first[at], counts),
        np.cumsum(counts) - counts,
    )  # fmt: skip


def _search_all(s: Setting, p: Prepared, group: _Group, tally: _Tally) -> None:
    """Score every choice of a group's rows on every site."""
    mean = float(p.sites.counts[p.base.tuple_of[group.rows]].mean())
    for part in chunks(len(group.rows), max(int(PLANS / mean), 1)):
        rows = group.rows[part]
        c, at = rows_stage(s, p, rows, group.choices[0])
        spread = _spread(p, rows)
        moved = p.traffic(rows[spread.row], spread.site)
        wide, counts = take(c, spread.row), take(at.counts, spread.row)
        for choice in group.choices:
            made = take(ops(s, c, choice, at), spread.row)
            found = timed(s, wide, choice, made, counts, moved)
            _offer(s, found, memory(s, c, choice, at)["total"], choice, rows, spread, tally)
        tally.report()


def _search_pruned(s: Setting, p: Prepared, groups: list[_Group], tally: _Tally) -> list[Row]:
    """Score what the bounds leave; where nothing fits, the rows of least memory instead."""
    at = layouts(s, p)
    pairs = [(floors(s, p, at, choice), g.rows) for g in groups for choice in g.choices]
    later: list[tuple[Floors, Ints]] = []
    for bound, every in pairs:
        rows = every[bound.memory(every) <= s.usable_bytes]
        if len(rows) > CHUNK:
            # the fastest first, whose times prune among the others
            order = np.argpartition(bound.time(rows), CHUNK)
            later.append((bound, rows[order[CHUNK:]]))
            rows = rows[order[:CHUNK]]
        _score_possible(s, bound, rows, tally)
    for bound, rest in later:
        rest = rest[bound.time(rest) <= tally.best.bound]
        for part in chunks(len(rest), CHUNK):
            _score_possible(s, bound, rest[part], tally)
        tally.report()
    smallest = _Best(SMALLEST)
    if not tally.best.rows:
        for bound, rows in pairs:
            _smallest(s, bound, rows, smallest)
    return smallest.rows


def _score_possible(s: Setting, bound: Floors, rows: Ints, tally: _Tally) -> None:
    """Score on every site the rows that no bound excludes."""
    p, choice = bound.p, bound.choice
    rows = rows[bound.time(rows) <= tally.best.bound]
    if not len(rows):
        return
    c, at = rows_stage(s, p, rows, choice)
    made = ops(s, c, choice, at)
    lowest = step_times(timed(s, c, choice, made, at.counts, p.least_traffic(rows)))
    left = np.flatnonzero(lowest <= tally.best.bound)
    c, at, made, rows = take(c, left), take(at, left), take(made, left), rows[left]
    total = np.broadcast_to(memory(s, c, choice, at)["total"], (len(rows),))
    left = np.flatnonzero(total <= s.usable_bytes)
    if not len(left):
        return
    spread = _spread(p, rows[left])
    wide = left[spread.row]
    found = timed(
        s, take(c, wide), choice, take(made, wide), take(at.counts, wide),
        p.traffic(rows[wide], spread.site),
    )  # fmt: skip
    _offer(s, found, total[left], choice, rows[left], spread, tally)


def _offer(s: Setting, found: Score, total: np.ndarray, choice: Choice, rows: Ints,
           spread: _Spread, tally: _Tally) -> None:  # fmt: skip
    """Count scored plans, and offer each row on its fastest site (the first of equal ones)."""
    seconds = step_times(found)
    fits = total <= s.usable_bytes
    tally.scored += len(spread.row)
    tally.fitting += int(fits[spread.row].sum())
    least = np.minimum.reduceat(seconds, spread.starts)
    ends = np.append(spread.starts[1:], len(seconds))

    def row(i: int) -> Row:
        start = int(spread.starts[i])
        site = start + int(np.argmin(seconds[start : ends[i]]))
        return Row(int(rows[i]), choice, float(least[i]), float(total[i]), int(spread.site[site]))

    tally.best.offer(np.where(fits, least, np.inf), row)


def _smallest(s: Setting, bound: Floors, rows: Ints, best: _Best) -> None:
    """Offer the rows that need least memory, all of it counted; its floor ends the scan."""
    low = bound.memory(rows)
    order = np.argsort(low, kind="stable")
    for part in chunks(len(rows), CHUNK):
        if low[order[part.start]] > best.bound:
            break
        _offer_smallest(s, bound, rows[order[part]], best)


def _offer_smallest(s: Setting, bound: Floors, rows: Ints, best: _Best) -> None:
    c, at = rows_stage(s, bound.p, rows, bound.choice)
    total = np.broadcast_to(memory(s, c, bound.choice, at)["total"], (len(rows),))
    first = bound.p.sites.first[bound.p.base.tuple_of[rows]]
    best.offer(
        total,
        lambda i: Row(int(rows[i]), bound.choice, float("inf"), float(total[i]), int(first[i])),
    )
