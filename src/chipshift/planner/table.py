"""A table of plans as arrays: rows gathered from what is computed once for each distinct key."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from chipshift.estimate.collectives import AXES, Traffic
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.passes import Stage, Work, stage, work
from chipshift.estimate.score import Score, memory, ops, timed
from chipshift.estimate.setting import Setting
from chipshift.jobs.plan import Plan
from chipshift.planner.collectives import SEQUENCE_PARALLEL, Collectives, collectives
from chipshift.planner.sites import Ints, Sites, all_sites, distinct
from chipshift.planner.space import DEGREES, Base

T = TypeVar("T")


def take(record: T, rows: Ints) -> T:
    """A dataclass of arrays (nested, in lists and dicts as well) with only these rows."""
    return _map(record, rows)  # type: ignore[no-any-return]


def _map(value: Any, rows: Ints) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return value[rows]
    if isinstance(value, dict):
        return {key: _map(one, rows) for key, one in value.items()}
    if isinstance(value, list):
        return [_map(one, rows) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _map(getattr(value, f.name), rows) for f in fields(value)}
        return replace(value, **changes)
    return value


@dataclass(frozen=True)
class Prepared:
    """What a table of plans needs beyond its rows.

    Attributes:
        sites: where the axes of each degree tuple can sit.
        cuts: costs of every distinct (tp, cp, ep, microbatch); ``cut_of`` names each row's.
        vpp_values: distinct numbers of virtual stages.
        sum_of: each row's tuple · len(vpp_values) + the place of its vpp among them.
        moved: times of every collective.
    """

    base: Base
    sites: Sites
    cuts: Work
    cut_of: Ints
    vpp_values: np.ndarray
    sum_of: Ints
    moved: Collectives

    def traffic(self, rows: Ints, sites: Ints) -> Traffic:
        """Collectives of some rows, each with its axes on one site of its tuple."""
        return self.moved.traffic(sites, self.cut_of[rows], self.sum_of[rows])

    def least_traffic(self, rows: Ints) -> Traffic:
        """Of each collective of some rows, the least time that any order of the axes gives it."""
        return self.traffic(rows, len(self.sites.order) + self.base.tuple_of[rows])


def prepare(s: Setting, base: Base, cp_kind: str, *, bounds: bool = True,
            usual_only: bool = False) -> Prepared:  # fmt: skip
    """Sites of each degree tuple, costs of each distinct cut and times of each collective.

    Args:
        cp_kind: how keys and values are exchanged.
        bounds: also the least times of any order, which ``least_traffic`` needs.
        usual_only: only the machine's usual order of the mesh axes.
    """
    sites = all_sites(s.machine, base.degrees, usual_only)
    named = degrees_of(base)
    # a cut is the tuple's (tp, cp, ep) and the row's microbatch
    code, below = np.zeros(len(base.degrees), np.int64), 1
    for axis in ("tp", "cp", "ep"):
        values, index = np.unique(named[axis], return_inverse=True)
        code, below = code * len(values) + index.reshape(-1), below * len(values)
    found, code = distinct(code, below)
    micro, micro_of = np.unique(base.microbatch, return_inverse=True)
    keys, cut_of = distinct(
        code[base.tuple_of] * len(micro) + micro_of.reshape(-1), len(found) * len(micro)
    )
    example = np.empty(len(found), np.int64)
    example[code] = np.arange(len(code))
    at = example[keys // len(micro)]
    tp, cp, ep = (named[axis][at] for axis in ("tp", "cp", "ep"))
    ulysses = cp if cp_kind == "all_to_all" else 1.0
    sequences = micro[keys % len(micro)]
    cuts = work(s, tp, cp, ep, tp, sequences, SEQUENCE_PARALLEL, ulysses)
    vpp, vpp_of = np.unique(base.vpp, return_inverse=True)
    moved = collectives(s, sites, named, cuts.tokens, tp, sequences, vpp, cp_kind, bounds)
    return Prepared(
        base, sites, cuts, cut_of, vpp, base.tuple_of * len(vpp) + vpp_of.reshape(-1), moved
    )


def degrees_of(base: Base) -> dict[str, np.ndarray]:
    """Each axis's degree of every tuple."""
    return {axis: base.degrees[:, i].astype(float) for i, axis in enumerate(DEGREES)}


def numbers(p: Prepared, rows: Ints, cp_kind: str) -> Columns:
    """The numbers of some rows; their links are in ``Prepared.moved``."""
    base = p.base
    degrees = base.degrees[base.tuple_of[rows]].T.astype(float)
    named = dict(zip(DEGREES, degrees, strict=True))
    return Columns(
        **named,
        etp=named["tp"],
        vpp=base.vpp[rows],
        microbatch=base.microbatch[rows],
        accumulation=base.accumulation[rows],
        links={},
        ulysses=named["cp"] if cp_kind == "all_to_all" else 1.0,
    )


def rows_stage(s: Setting, p: Prepared, rows: Ints, choice: Choice) -> tuple[Columns, Stage]:
    """The numbers of some rows, and what their stages hold; every choice of a table has the same.

    No plan of a table lays its stages out unevenly.
    """
    c = numbers(p, rows, choice.cp_kind)
    return c, stage(s, c, choice, take(p.cuts, p.cut_of[rows]))


def step_times(found: Score) -> np.ndarray:
    """Step time of each row: the sum of its parts."""
    total = np.zeros(())
    for part in found.time.values():
        total = total + part
    for axis in AXES:
        total = total + found.exposed[axis]
    return total


def scored(s: Setting, p: Prepared, rows: Ints, sites: Ints, choice: Choice) -> Score:
    """Every part of time and memory of some rows, each on one of its sites, under a choice."""
    c, at = rows_stage(s, p, rows, choice)
    found = timed(s, c, choice, ops(s, c, choice, at), at.counts, p.traffic(rows, sites))
    return replace(found, memory=memory(s, c, choice, at))


@dataclass(frozen=True)
class Row:
    """One scored row that was kept: its place in the base table, its choice and its figures.

    Attributes:
        site: of its tuple's sites, the one with the least step time.
    """

    index: int
    choice: Choice
    step_time_s: float
    memory_bytes: float
    site: int


def plan_of(p: Prepared, row: Row) -> Plan:
    """A row as a plan."""
    base = p.base
    dp, fsdp, cp, tp, ep, pp = base.degrees[base.tuple_of[row.index]].tolist()
    return Plan(
        dp=dp, fsdp=fsdp, cp=cp, tp=tp, ep=ep, pp=pp,
        vpp=int(base.vpp[row.index]),
        microbatch=float(base.microbatch[row.index]),
        accumulation=round(float(base.accumulation[row.index])),
        remat=row.choice.remat,
        optimizer_sharding=row.choice.optimizer_sharding,
        schedule=row.choice.schedule if pp > 1 else "1f1b",
        cp_kind=row.choice.cp_kind,
        order=p.sites.orders[p.sites.order[row.site]],
    )  # fmt: skip
