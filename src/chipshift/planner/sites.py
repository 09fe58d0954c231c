"""Axis assignment: every distinct place that the mesh axes of a plan can take on the fabric.

The order of the mesh axes decides which of them takes which physical axes (fabric/placement.py).
Of the up to 120 orders of a plan many give each group the same links: those are one site. Sites
are found for a whole table of degrees at once; placements and links are worked out once for each
distinct key and gathered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from chipshift.estimate.columns import GROUPS
from chipshift.estimate.groups import ALONE, mesh_order
from chipshift.fabric import Links, Placement, assign, group, links, rest, subgroup
from chipshift.fabric.links import same_links
from chipshift.machines.machine import Machine
from chipshift.planner.space import DEGREES

Ints = np.ndarray

LARGEST_TABLE = 2**22
"""Codes below this are made distinct by marking, larger ones by sorting."""


@dataclass(frozen=True)
class Sites:
    """Where the groups of each degree tuple can sit.

    Attributes:
        first: a tuple's sites are ``first[t]`` to ``first[t + 1]``; the usual order's is the first.
        order: for each site, which of ``orders`` has it (the first that does).
        orders: mesh axes, outermost first; () is the machine's usual order.
        of: for each of ``columns.GROUPS``, each site's row in ``links``.
        links: the distinct links of all groups.
    """

    first: Ints
    order: Ints
    orders: list[tuple[str, ...]]
    of: dict[str, Ints]
    links: list[Links]

    @property
    def counts(self) -> Ints:
        """Sites of each tuple."""
        return np.diff(self.first)


def distinct(codes: Ints, below: int) -> tuple[Ints, Ints]:
    """Distinct codes in ascending order, and for each element its index among them.

    Args:
        codes: integers of at least 0 and less than ``below``.
    """
    if below > LARGEST_TABLE:
        found, index = np.unique(codes, return_inverse=True)
        return found, index.reshape(-1)
    seen = np.zeros(below, bool)
    seen[codes] = True
    found = np.flatnonzero(seen)
    place = np.zeros(below, np.int64)
    place[found] = np.arange(len(found))
    return found, place[codes]


def all_sites(machine: Machine, degrees: Ints, usual_only: bool = False) -> Sites:
    """Sites of every row of ``degrees`` ((tuples, 6) in the order of DEGREES).

    Args:
        usual_only: only the machine's usual order of the mesh axes.
    """
    usual = mesh_order(machine)
    by_axis = {axis: degrees[:, DEGREES.index(axis)] for axis in DEGREES}
    mesh_of, meshes = _meshes([by_axis[axis] for axis in usual])
    rows = _ordered(machine, usual, meshes, usual_only)
    # each tuple has the rows of its mesh
    spread = np.bincount(rows.mesh, minlength=len(meshes))
    counts = spread[mesh_of]
    tuple_of = np.repeat(np.arange(len(degrees)), counts)
    row = ranges((np.cumsum(spread) - spread)[mesh_of], counts)
    placed = _Placed()
    groups = _groups(placed, rows, row, {a: by_axis[a][tuple_of] for a in DEGREES})
    found, link_of = _links(machine, placed.known)
    named = {name: link_of[at] for name, at in groups.items()}
    keep = _first_of_each(tuple_of, named, len(degrees), len(found))
    first = np.searchsorted(tuple_of[keep], np.arange(len(degrees) + 1))
    return Sites(first, rows.order[row[keep]], rows.orders,
                 {name: at[keep] for name, at in named.items()}, found)  # fmt: skip


def ranges(starts: Ints, counts: Ints) -> Ints:
    """``starts[i], starts[i] + 1, ...`` (``counts[i]`` of them), one after the other."""
    ends = np.cumsum(counts)
    offset = np.repeat(starts - (ends - counts), counts)
    return np.asarray(np.arange(len(offset)) + offset)


def _meshes(sizes: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Distinct meshes: for each tuple its mesh, and (meshes, axes) sizes in the usual order."""
    code = np.zeros(len(sizes[0]), np.int64)
    for size in sizes:
        values, index = np.unique(size, return_inverse=True)
        code = code * len(values) + index.reshape(-1)
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    return of.reshape(-1), np.stack([size[first] for size in sizes], axis=1)


@dataclass(frozen=True)
class _Ordered:
    """Every mesh in every order of its axes longer than 1, by mesh.

    Attributes:
        mesh, order: of each row.
        at: for each axis its placement, as an id in ``places``.
        position: for each axis its place in the order, 0 outermost.
    """

    mesh: Ints
    order: Ints
    orders: list[tuple[str, ...]]
    at: dict[str, Ints]
    position: dict[str, Ints]
    places: list[Placement]


def _ordered(machine: Machine, usual: tuple[str, ...], meshes: Ints, usual_only: bool) -> _Ordered:
    """Place the axes of every mesh in every order; equal sequences of sizes are placed once."""
    n_axes = len(usual)
    longer = meshes > 1
    pattern = longer @ (1 << np.arange(n_axes))
    orders: dict[tuple[str, ...], int] = {(): 0}
    blocks: list[Ints] = []  # mesh, order, then each axis's position
    for bits in np.unique(pattern).tolist():
        axes = [i for i in range(n_axes) if bits >> i & 1]
        ones = [i for i in range(n_axes) if i not in axes]
        permutations = [(*ones, *p) for p in itertools.permutations(axes)]
        table = np.array(permutations[:1] if usual_only else permutations)
        names = [()] + [tuple(usual[i] for i in p) for p in permutations[1:]]
        order = np.array([orders.setdefault(name, len(orders)) for name in names[: len(table)]])
        own = np.flatnonzero(pattern == bits)
        position = np.argsort(table, axis=1)
        block = np.empty((2 + n_axes, len(own) * len(table)), np.int64)
        block[0] = np.repeat(own, len(table))
        block[1] = np.tile(order, len(own))
        block[2:] = np.tile(position, (len(own), 1)).T
        blocks.append(block)
    rows = np.concatenate(blocks, axis=1)
    rows = rows[:, np.argsort(rows[0], kind="stable")]
    mesh, position = rows[0], rows[2:]
    # sizes in the order of each row, as one code
    values, index = np.unique(meshes, return_inverse=True)
    index = index.reshape(meshes.shape)
    sequence = np.zeros((n_axes, len(mesh)), np.int64)
    for axis in range(n_axes):
        sequence[position[axis], np.arange(len(mesh))] = index[mesh, axis]
    code = np.zeros(len(mesh), np.int64)
    for at in range(n_axes):
        code = code * len(values) + sequence[at]
    keys, first, of = np.unique(code, return_index=True, return_inverse=True)
    places: dict[Placement, int] = {ALONE: 0}
    placed = np.empty((len(keys), n_axes), np.int64)
    for i, at in enumerate(first.tolist()):
        sizes = values[sequence[:, at]].tolist()
        found = assign(machine, dict(zip(map(str, range(n_axes)), sizes, strict=True)))
        for j, one in enumerate(found.values()):
            placed[i, j] = 0 if one.size == 1 else places.setdefault(one, len(places))
    by_row = placed[of.reshape(-1)]
    every = np.arange(len(mesh))
    return _Ordered(
        mesh, rows[1], list(orders),
        {axis: by_row[every, position[i]] for i, axis in enumerate(usual)},
        {axis: position[i] for i, axis in enumerate(usual)},
        list(places),
    )  # fmt: skip


@dataclass
class _Placed:
    """Placements by number, and what is made of them, each worked out once."""

    known: list[Placement] = field(default_factory=lambda: [ALONE])
    number: dict[Placement, int] = field(default_factory=lambda: {ALONE: 0})

    def add(self, one: Placement) -> int:
        """The number of a placement; every group of one device is 0."""
        if one.size == 1:
            return 0
        if one not in self.number:
            self.number[one] = len(self.known)
            self.known.append(one)
        return self.number[one]

    def each(self, make: Callable[..., Placement], *columns: Ints) -> Ints:
        """``make`` of each row of integers, called once for each distinct row."""
        code, below = np.zeros(len(columns[0]), np.int64), 1
        decoded: list[Ints] = []
        for column in columns:
            values, index = distinct(column, int(column.max(initial=0)) + 1)
            found, code = distinct(code * len(values) + index, below * len(values))
            decoded = [one[found // len(values)] for one in decoded] + [values[found % len(values)]]
            below = len(found)
        made = [self.add(make(*row)) for row in zip(*(d.tolist() for d in decoded), strict=True)]
        return np.array(made, dtype=np.int64)[code]

    def union(self, *numbers: int) -> Placement:
        """Several placements as one group, outermost first."""
        parts = {str(i): self.known[n] for i, n in enumerate(numbers) if n}
        return group(parts, tuple(parts)) if len(parts) != 1 else next(iter(parts.values()))


def _groups(placed: _Placed, rows: _Ordered, row: Ints, sizes: dict[str, Ints]) -> dict[str, Ints]:
    """The placement of each group of ``columns.GROUPS``, as ``estimate.groups.placements`` has it.

    Unions are made for the meshes, then spread over the tuples (``row``), which differ in ep.
    """
    numbers = np.array([placed.add(one) for one in rows.places])
    at = {axis: numbers[one] for axis, one in rows.at.items()}

    def union(*axes: str) -> Ints:
        rank = np.argsort(np.stack([rows.position[a] for a in axes]), axis=0)
        table = np.stack([at[a] for a in axes])
        ordered = np.take_along_axis(table, rank, axis=0)
        return placed.each(placed.union, *ordered)

    sharded = sizes["fsdp"] > 1
    shards = np.where(sharded, union("fsdp", "cp")[row], 0)
    sums = np.where(sharded, at["dp"][row], union("dp", "cp")[row])
    out = {"tp": at["tp"][row], "cp": at["cp"][row], "pp": at["pp"][row],
           "weights": shards, "dp": sums}  # fmt: skip
    ep = sizes["ep"]
    if int(ep.max(initial=1)) == 1:
        return out | {"ep": np.zeros_like(shards), "expert_weights": shards, "expert_dp": sums}
    pool = union("dp", "fsdp", "cp")[row]
    inside = np.minimum(ep, np.where(sharded, sizes["fsdp"] * sizes["cp"], 1))
    return out | {
        "ep": placed.each(lambda n, k: subgroup(placed.known[n], k), pool, ep),
        "expert_weights": placed.each(lambda n, k: rest(placed.known[n], k), shards, inside),
        "expert_dp": placed.each(lambda n, k: rest(placed.known[n], k), sums, ep // inside),
    }


def _links(machine: Machine, places: list[Placement]) -> tuple[list[Links], Ints]:
    """Distinct links of the placements, and each placement's row among them."""
    rows: dict[object, int] = {}
    found: list[Links] = []
    index = np.empty(len(places), np.int64)
    for i, place in enumerate(places):
        one = links(machine, place)
        key = same_links(one)
        if key not in rows:
            rows[key] = len(found)
            found.append(one)
        index[i] = rows[key]
    return found, index


def _first_of_each(tuple_of: Ints, named: dict[str, Ints], tuples: int, n_links: int) -> Ints:
    """Rows that are the first of their tuple with their links, ascending."""
    code, below = np.zeros(len(tuple_of), np.int64), 1
    for name in GROUPS:
        values, index = distinct(named[name], n_links)
        found, code = distinct(code * len(values) + index, below * len(values))
        below = len(found)
    _, first = np.unique(tuple_of * below + code, return_index=True)
    return np.sort(first)
