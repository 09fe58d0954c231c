"""What a placed group has for links, in numbers that collectives can be timed with.

``links`` turns a placement into columns; ``stack`` puts many of them under each other and
``take`` repeats its rows, so that ``collective_time`` runs over a table of plans at once.
``links_worked`` gives the same columns as ``Worked`` values that end at the sourced link rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from chipshift.fabric.axes import OUTER
from chipshift.fabric.curves import IDEAL, OCTAVES, Floats, Table, startup_s, table
from chipshift.fabric.paces import (
    KINDS,
    ChipLinks,
    Lift,
    inside,
    inside_abscissa,
    level_rate,
    outside_abscissa,
    outside_paces,
)
from chipshift.fabric.placement import Placement, Segment
from chipshift.machines.machine import Domain, Machine
from chipshift.worked import leaf


@dataclass(frozen=True, eq=False)
class Path:
    """One kind of collective on one group: numbers, or arrays of equal length.

    Attributes:
        inside_s_per_byte: ideal seconds a byte of V inside the domain or slice.
        outside_s_per_byte: the same between domains or slices; 0 in a single one.
        inside_x, outside_x: abscissa of the measured curve a byte of V.
        inside_curve, outside_curve: first cell of the curve's table in ``Links.intercept``.
        startup_s: latency that adds to the transfer (switched and scale-out networks).
        hop_s: latency that hides behind the transfer (torus); for a permute it adds.
    """

    inside_s_per_byte: Any
    outside_s_per_byte: Any
    inside_x: Any
    outside_x: Any
    inside_curve: Any
    outside_curve: Any
    startup_s: Any
    hop_s: Any


@dataclass(frozen=True, eq=False)
class Links:
    """Links of one group, or of many (arrays) after ``stack``.

    Attributes:
        size: devices of the group.
        n_in, n_out: devices inside one domain or slice, and domains or slices.
        bandwidth_in: B/s one-way a device: an all-gather inside takes (n_in-1)/n_in · V/B.
        bandwidth_out: one-way B/s of a device between domains or slices; 0 where there are none.
        hops: links on the longest path inside; 1 on a switch.
        port_count: links of a device that the group uses inside.
        paths: per kind of collective.
        tables: of the measured curves in use.
        intercept, slope: of all those tables, one after the other.
        two_level: whether any group spans domains or slices.
    """

    size: Any
    n_in: Any
    n_out: Any
    bandwidth_in: Any
    bandwidth_out: Any
    hops: Any
    port_count: Any
    paths: Mapping[str, Path]
    tables: tuple[Table, ...]
    intercept: Floats
    slope: Floats
    two_level: bool


_COLUMNS = ("size", "n_in", "n_out", "bandwidth_in", "bandwidth_out", "hops", "port_count")
_PATH_COLUMNS = tuple(Path.__dataclass_fields__)


def links(machine: Machine, placement: Placement) -> Links:
    """Numeric columns of one placed group; cached by fabric and placement."""
    return _links(_chip(machine), machine.fabric, placement.segments)


def links_worked(machine: Machine, placement: Placement) -> Links:
    """As ``links``, with counts, rates and latencies as leaves that carry their source."""
    return _build(_chip(machine), machine.fabric, placement.segments, leaf)


def stack(rows: Sequence[Links]) -> Links:
    """Many groups as one ``Links`` of arrays, a row each; equal curves are kept once."""
    place: dict[int, int] = {}
    index = [place.setdefault(id(row), len(place)) for row in rows]
    if len(place) < len(rows):
        # ``links`` hands out the same object for the same group: build each row once.
        distinct = dict(zip(index, rows, strict=True))
        return take(stack([distinct[at] for at in range(len(place))]), np.array(index))
    cells: dict[int, int] = {}
    tables: list[Table] = []

    def moved(row: Links, first: int) -> int:
        found = row.tables[first // OCTAVES]
        if id(found) not in cells:
            cells[id(found)] = len(tables) * OCTAVES
            tables.append(found)
        return cells[id(found)]

    paths = {}
    for kind in KINDS:
        columns: dict[str, Any] = {}
        for name in _PATH_COLUMNS:
            values = [getattr(row.paths[kind], name) for row in rows]
            if name.endswith("_curve"):
                values = [moved(row, first) for row, first in zip(rows, values, strict=True)]
            columns[name] = np.array(values)
        paths[kind] = Path(**columns)
    whole: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in rows], dtype=float) for name in _COLUMNS
    }
    two_level = any(row.two_level for row in rows)
    return Links(**whole, paths=paths, two_level=two_level, **_flat(tables))


def take(rows: Links, index: Any) -> Links:
    """Rows of a ``stack`` by index, repeated as ``index`` says: one row a plan, say."""
    paths = {
        kind: Path(**{name: getattr(path, name)[index] for name in _PATH_COLUMNS})
        for kind, path in rows.paths.items()
    }
    whole: dict[str, Any] = {name: getattr(rows, name)[index] for name in _COLUMNS}
    return Links(
        **whole,
        paths=paths,
        tables=rows.tables,
        intercept=rows.intercept,
        slope=rows.slope,
        two_level=rows.two_level,
    )


def same_links(row: Links) -> tuple[object, ...]:
    """A key that is equal for groups on which every collective takes the same time."""
    numbers = tuple(getattr(row, name) for name in _COLUMNS)
    paths = tuple(
        (getattr(path, name) if not name.endswith("_curve")
         else id(row.tables[getattr(path, name) // OCTAVES]))
        for path in row.paths.values() for name in _PATH_COLUMNS
    )  # fmt: skip
    return (*numbers, *paths)


def _flat(tables: list[Table]) -> dict[str, Any]:
    return {
        "tables": tuple(tables),
        "intercept": np.concatenate([one.intercept for one in tables]),
        "slope": np.concatenate([one.slope for one in tables]),
    }


def _chip(machine: Machine) -> ChipLinks:
    """A chip's own links; where no source gives the rate between its devices, all links' sum."""
    chip, level = machine.chip, machine.fabric[0]
    links_of_chip = 2 * len(level.dims) if level.kind == "torus" else 1
    die = chip.figures.get("die_to_die_bytes_per_s")
    hop = chip.figures.get("scale_up_hop_latency_s")
    return ChipLinks(
        chip.key,
        chip.devices_per_chip,
        die.value if die else level.link_bytes_per_s * links_of_chip,
        die.source if die else "assumed: as much as all links of the chip",
        hop.source if hop else "the machine's description",
    )


@lru_cache(maxsize=65536)
def _links(
    chip: ChipLinks,
    fabric: tuple[Domain, ...],
    segments: tuple[Segment, ...],
) -> Links:
    return _build(chip, fabric, segments, _number)


def _number(value: float, unit: str, name: str, source: str) -> float:
    return value


def _build(
    chip: ChipLinks,
    fabric: tuple[Domain, ...],
    segments: tuple[Segment, ...],
    lift: Lift,
) -> Links:
    pieces = [piece for piece in segments if piece.size > 1]
    across = [piece for piece in pieces if fabric[piece.level].kind in OUTER]
    within = inside(chip, fabric, [piece for piece in pieces if piece not in across], lift)
    n_out = math.prod(piece.size for piece in across)
    nic: Any = 0.0
    if n_out > 1:
        # A chip's interface serves all its devices at once, whichever group they are in.
        nic = level_rate(fabric[-1], lift)
        nic = nic if chip.devices == 1 else nic / chip.devices
    paces = outside_paces(fabric[-1].kind, n_out, within.n, nic, lift)
    tables: dict[int, tuple[int, Table]] = {}

    def first_cell(found: Table) -> int:
        return tables.setdefault(id(found), (len(tables) * OCTAVES, found))[0]

    n = within.n * n_out
    paths = {}
    for kind in KINDS:
        near = table(chip.key, within.level, kind, within.n) if within.n > 1 else IDEAL
        far = table(chip.key, "scale_out", kind, n) if n_out > 1 else IDEAL
        pace = within.pace[kind]
        measured = far if n_out > 1 else near
        # Where the inside is a torus, NCCL's hops inside a node do not exist: count slices only.
        flat = n_out > 1 and within.level == "torus"
        startup = startup_s(measured, kind, n_out if flat else n, n_out, flat)
        paths[kind] = Path(
            inside_s_per_byte=pace / n_out if kind == "all_to_all" and n_out > 1 else pace,
            outside_s_per_byte=paces[kind],
            inside_x=inside_abscissa(kind, within, n_out),
            outside_x=outside_abscissa(kind, within.n, n_out),
            inside_curve=first_cell(near),
            outside_curve=first_cell(far),
            startup_s=lift(startup, "s", "startup", measured.source) if startup else 0.0,
            hop_s=within.hop_s[kind],
        )
    return Links(
        size=n,
        n_in=within.n,
        n_out=n_out,
        bandwidth_in=within.bandwidth,
        bandwidth_out=nic,
        hops=within.hops,
        port_count=within.ports,
        paths=paths,
        two_level=n_out > 1,
        **_flat([one for _, one in tables.values()]),
    )
