"""Measured curves: what a collective of a given size reaches of its links' rate.

A curve is a table of (bytes, fraction of the ideal rate), measured on one chip, network level,
kind of collective and group size (``curves.toml``, each with its source). It is used as *time*:
between two measured sizes the time grows linearly with the bytes, below the first it is constant
(the latency), above the last the last fraction holds. Between two measured group sizes the
time is interpolated in the logarithm of the group size.

The abscissa is: inside a switched or meshed domain the bytes ``v`` of the full array; on the
scale-out and DCN, ``v`` scaled to a domain of eight interfaces; on a torus the bytes that one hop
puts on one link.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from chipshift.fabric import nccl

Floats = npt.NDArray[np.float64]

OCTAVES = 48
"""Cells of a table: one for each power of two of bytes, up to 2^48."""


@dataclass(frozen=True)
class Curve:
    """One measured curve.

    Attributes:
        group: devices of the measured group.
        nodes: domains it lay in.
        rated: one-way B/s that the fractions are of.
        bytes: abscissa, increasing.
        fraction: of the ideal rate, at each.
        startup: whether the constant time at the small end is a start-up latency that adds to the
            transfer (switched and scale-out) rather than part of each hop (torus).
    """

    chip: str
    level: str
    kinds: tuple[str, ...]
    group: int
    nodes: int
    rated: float
    bytes: tuple[float, ...]
    fraction: tuple[float, ...]
    startup: bool
    source: str


@dataclass(frozen=True, eq=False)
class Table:
    """A curve as piecewise-linear time, in bytes that the full rate would move in that time.

    In the cell of ``x`` (its power of two) the full-rate bytes are ``intercept + slope · x``.

    Attributes:
        startup_s: start-up latency of the measured group, already taken off ``intercept``.
        measured: the group that it was measured on and its nodes.
    """

    intercept: Floats
    slope: Floats
    startup_s: float
    measured: tuple[int, int]
    source: str


IDEAL = Table(np.zeros(OCTAVES), np.ones(OCTAVES), 0.0, (1, 1), "the link's full rate")


@cache
def all_curves() -> tuple[Curve, ...]:
    """Every curve of ``curves.toml``."""
    text = (files("chipshift.fabric") / "curves.toml").read_text(encoding="utf-8")
    return tuple(_curve(entry) for entry in tomllib.loads(text)["curve"])


@cache
def relatives() -> Mapping[str, Mapping[str, str]]:
    """For each level, the chip whose curves stand in for one that has none."""
    text = (files("chipshift.fabric") / "curves.toml").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, str]] = tomllib.loads(text)["relative"]
    return found


@lru_cache(maxsize=4096)
def table(chip: str, level: str, kind: str, group: int) -> Table:
    """The table for a group: measured, interpolated between two measured, or the nearest one.

    Args:
        level: ``domain``, ``torus`` or ``scale_out`` (which stands in for DCN too).
    """
    curves, borrowed = _of_chip(chip, level, kind)
    if not curves:
        return IDEAL
    below = [one for one in curves if one.group <= group]
    above = [one for one in curves if one.group >= group]
    low = below[-1] if below else above[0]
    high = above[0] if above else below[-1]
    first, second = _tabulate(low, kind), _tabulate(high, kind)
    source = f"{borrowed}{low.source}"
    if low is high:
        return replace(first, source=source)
    w = math.log(group / low.group) / math.log(high.group / low.group)
    return Table(
        (1 - w) * first.intercept + w * second.intercept,
        (1 - w) * first.slope + w * second.slope,
        (1 - w) * first.startup_s + w * second.startup_s,
        first.measured if w < 0.5 else second.measured,
        f"{source}; {high.source} (between groups of {low.group} and {high.group})",
    )


def startup_s(found: Table, kind: str, group: int, nodes: int, flat: bool = False) -> float:
    """Start-up latency of a collective: the measured one, moved by NCCL's hops to this group.

    What NCCL's model adds or takes from the measured group to this one is added to the measured
    latency, which itself includes whatever that model leaves out. ``flat`` compares the steps
    between nodes only (slices of a torus, in which NCCL does not run).
    """
    if found.startup_s == 0.0 or group == 1:
        return 0.0
    then_group, then_nodes = found.measured
    then = nccl.latency_s(kind, then_nodes if flat else then_group, then_nodes)
    now = nccl.latency_s(kind, group, nodes)
    return max(found.startup_s + now - then, now)


def full_rate_bytes(curve: Curve, x: Any) -> Floats:
    """Bytes that the full rate would move in the time that ``x`` bytes took; start-up included."""
    xs = np.asarray(curve.bytes)
    ys = xs / np.asarray(curve.fraction)
    inside = np.interp(x, xs, ys)
    return np.asarray(np.where(np.asarray(x) > xs[-1], x / curve.fraction[-1], inside))


@lru_cache(maxsize=256)
def _tabulate(curve: Curve, kind: str) -> Table:
    edges = 2.0 ** np.arange(OCTAVES + 1)
    values = full_rate_bytes(curve, edges)
    startup = float(values[0]) if curve.startup else 0.0
    slope = np.diff(values) / np.diff(edges)
    slope[-1] = 1.0 / curve.fraction[-1]
    intercept = values[:-1] - slope * edges[:-1] - startup
    seconds = startup * _measured_pace(curve, kind)
    return Table(intercept, slope, seconds, (curve.group, curve.nodes), curve.source)


def _measured_pace(curve: Curve, kind: str) -> float:
    """Ideal seconds a byte of the measured group, for turning its start-up into seconds."""
    if kind == "permute":
        return 1 / curve.rated
    times = 2 if kind == "all_reduce" else 1
    if curve.nodes > 1:
        share = (curve.nodes - 1) / curve.nodes
        return times * share / (curve.group / curve.nodes * curve.rated)
    return times * (curve.group - 1) / curve.group / curve.rated


@lru_cache(maxsize=1024)
def _of_chip(chip: str, level: str, kind: str) -> tuple[tuple[Curve, ...], str]:
    """The chip's own curves for the kind, by group size, else its relative's, said so."""
    key, tried = chip, set[str]()
    while key and key not in tried:
        found = [c for c in all_curves() if c.chip == key and c.level == level and kind in c.kinds]
        if found:
            prefix = "" if key == chip else f"no measurement on {chip}, so {key}'s: "
            return tuple(sorted(found, key=lambda one: one.group)), prefix
        tried.add(key)
        key = relatives().get(level, {}).get(key, "")
    return (), ""


def _curve(entry: Mapping[str, Any]) -> Curve:
    if "busbw_gb_per_s" in entry:
        fraction = [rate / entry["rated_gb_per_s"] for rate in entry["busbw_gb_per_s"]]
    else:
        fraction = list(entry["fraction"])
    return Curve(
        chip=entry["chip"],
        level=entry["level"],
        kinds=tuple(entry["kinds"]),
        group=entry["group"],
        nodes=entry.get("nodes", 1),
        rated=entry["rated_gb_per_s"] * 1e9,
        bytes=tuple(mib * 2.0**20 for mib in entry["mib"]),
        fraction=tuple(fraction),
        startup=entry["level"] != "torus",
        source=entry["source"],
    )
