"""A table of plans as arrays: rows gathered from what is computed once for each distinct key."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from chipshift.estimate.columns import GROUPS, Choice, Columns
from chipshift.estimate.groups import group_links
from chipshift.estimate.score import Work, work
from chipshift.estimate.setting import Setting
from chipshift.fabric import Links, stack
from chipshift.fabric import take as take_links
from chipshift.planner.space import DEGREES, Base

T = TypeVar("T")


def take(record: T, rows: np.ndarray) -> T:
    """A dataclass of arrays (nested, in lists and dicts as well) with only these rows."""
    return _map(record, rows)  # type: ignore[no-any-return]


def _map(value: Any, rows: np.ndarray) -> Any:
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
        links: for each group the links of every degree tuple.
        cuts: costs of every distinct (tp, cp, ep, microbatch); ``cut_of`` names each row's.
    """

    base: Base
    links: dict[str, Links]
    cuts: Work
    cut_of: np.ndarray


def prepare(s: Setting, base: Base) -> Prepared:
    """Links of each degree tuple and costs of each distinct cut."""
    rows = [
        group_links(s.machine, dp, fsdp, cp, tp, ep, pp, 0, order)
        for (dp, fsdp, cp, tp, ep, pp), order in zip(
            base.degrees.tolist(), base.orders, strict=True
        )
    ]
    links = {name: stack([row[name] for row in rows]) for name in GROUPS}
    tp, cp, ep = (base.degrees[:, DEGREES.index(a)][base.tuple_of] for a in ("tp", "cp", "ep"))
    code = ((tp * 2**20 + cp) * 2**20 + ep).astype(np.int64)
    _, code = np.unique(code, return_inverse=True)
    micro, micro_of = np.unique(base.microbatch, return_inverse=True)
    keys, first, cut_of = np.unique(
        code * len(micro) + micro_of, return_index=True, return_inverse=True
    )
    del keys
    cuts = work(
        s,
        tp[first].astype(float),
        cp[first].astype(float),
        ep[first].astype(float),
        tp[first].astype(float),
        base.microbatch[first],
        True,
    )
    return Prepared(base, links, cuts, cut_of)


def columns(p: Prepared, rows: np.ndarray) -> tuple[Columns, Work]:
    """The numbers of some rows, ready to be scored."""
    base = p.base
    at = base.tuple_of[rows]
    degrees = base.degrees[at].astype(float)
    named = {axis: degrees[:, i] for i, axis in enumerate(DEGREES)}
    links = {name: take_links(one, at) for name, one in p.links.items()}
    c = Columns(
        **named,
        etp=named["tp"],
        vpp=base.vpp[rows],
        microbatch=base.microbatch[rows],
        accumulation=base.accumulation[rows],
        links=links,
    )
    return c, take(p.cuts, p.cut_of[rows])


@dataclass(frozen=True)
class Row:
    """One scored row that was kept: its place in the base table, its choice and its figures."""

    index: int
    choice: Choice
    step_time_s: float
    memory_bytes: float
