"""Where the axes of a mesh sit on the physical axes of a machine.

On a TPU torus the assignment is JAX's (``create_device_mesh`` with split axes allowed): from the
last mesh axis, which communicates most, to the first. On domains of GPUs and on Trainium it is the
order of the ranks: the last mesh axis fills the chip, then the domain or torus, first. Slices over
the data-centre network go to the first mesh axes, as MaxText's ``dcn_*`` axes do by default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from chipshift.errors import InputError
from chipshift.fabric.axes import Axis, inner_axes, outer_axes
from chipshift.fabric.jax_mesh import assign_torus
from chipshift.fabric.torus import AXES
from chipshift.machines.machine import Domain, Machine

MESH_ORDER = ("pp", "dp", "fsdp", "cp", "tp")
"""Outermost to innermost; the last communicates most. On several TPU slices the first axes cross
DCN: hand in ``dp`` before ``pp`` to keep pipelines inside a slice."""


@dataclass(frozen=True)
class Segment:
    """A piece of one physical axis that belongs to a mesh axis.

    Attributes:
        axis: ``x y z``, ``core``, ``nvlink``, ``net`` or ``slice``.
        level: index into ``Machine.fabric``.
        size: positions in the piece.
        stride: distance between neighbours of the piece, in positions of the physical axis.
        wraps: whether the piece closes into a ring.
        axis_size: positions of the whole physical axis.
    """

    axis: str
    level: int
    size: int
    stride: int
    wraps: bool
    axis_size: int

    @property
    def whole(self) -> bool:
        return self.size == self.axis_size


@dataclass(frozen=True)
class Placement:
    """Where a group of devices sits: ``segments`` outermost first.

    Attributes:
        size: devices of the group.
        split: whether a torus axis is shared with another mesh axis, or a group straddles domains
            that it does not fill evenly.
        note: what the split costs, in words; "" without one.
    """

    size: int
    segments: tuple[Segment, ...]
    split: bool
    note: str


def assign(machine: Machine, sizes: Mapping[str, int], rings: int = 0) -> dict[str, Placement]:
    """Place each mesh axis; ``sizes`` in mesh order, the last communicating most.

    Never fails for sizes that multiply to ``machine.devices``: splitting a physical axis is
    allowed, and marked in the placement with its cost. With ``rings`` the last axis goes round
    rings of 2 × rings/2 chips (``Plan.rings``) in place of JAX's assignment.

    Raises:
        InputError: when a size is below 1 or the product is not the number of devices, or a slice
            cannot be cut into such rings.
    """
    items = tuple(sizes.items())
    product = math.prod(size for _, size in items)
    if product != machine.devices or any(size < 1 for _, size in items):
        written = ",".join(f"{name}={size}" for name, size in items)
        raise InputError(
            f"mesh {written} has {product} devices, but {machine.name} has {machine.devices} "
            f"({machine.chips} chips of {machine.chip.devices_per_chip}); expected sizes that "
            f"multiply to {machine.devices}{_nearest_mesh(items, machine.devices)}"
        )
    chip = machine.chip
    if rings:
        _check_rings(machine, items, rings)
    return dict(_assign(chip.family, chip.devices_per_chip, machine.fabric, items, rings))


def _nearest_mesh(items: Sequence[tuple[str, int]], devices: int) -> str:
    """The first axis that makes up the devices by itself, the others as they are, as a clause."""
    for name, size in items:
        others = math.prod(size for _, size in items) // max(size, 1)
        if others and devices % others == 0:
            return f", such as {name}={devices // others}"
    return ""


def _check_rings(machine: Machine, items: tuple[tuple[str, int], ...], rings: int) -> None:
    """Raise InputError where MaxText's custom_mesh would not take the slice or the mesh."""
    inner = inner_axes(machine.fabric, machine.chip.devices_per_chip)
    beside = [name for name, size in items[:-1] if size > machine.slices]
    if [axis.size for axis in inner] != [16, 16] or items[-1][1] != rings or len(beside) > 1:
        raise InputError(
            f"plan rings={rings} on {machine.name}: rings of 2 x {rings // 2} chips stand on "
            f"slices of 16x16 whose mesh has one axis beside the innermost of {rings}; expected "
            "such a mesh, or no custom_mesh"
        )


def group(placements: Mapping[str, Placement], names: tuple[str, ...]) -> Placement:
    """The union of several mesh axes, as one group: what gathers over fsdp and cp, say.

    ``names`` in mesh order. Neighbouring pieces of one physical axis are joined again.
    """
    segments: list[Segment] = []
    for name in names:
        for piece in placements[name].segments:
            _join(segments, piece)
    return _placement(segments)


def subgroup(placement: Placement, size: int) -> Placement:
    """The innermost ``size`` devices of a group: expert groups that divide fsdp · cp, say.

    Raises:
        InputError: when ``size`` does not divide the group.
    """
    if size < 1 or placement.size % size:
        raise InputError(f"a group of {placement.size} devices has no part of {size}")
    pieces: list[Segment] = []
    left = size
    for piece in reversed(placement.segments):
        take = math.gcd(left, piece.size)
        left //= take
        if take == piece.size:
            pieces.append(piece)
        elif take > 1:
            pieces.append(replace(piece, size=take, wraps=False))
    return _placement(list(reversed(pieces)))


def rest(placement: Placement, inner: int) -> Placement:
    """What is left of a group beside its innermost ``inner`` devices: one from each such part.

    Raises:
        InputError: when ``inner`` does not divide the group.
    """
    if inner < 1 or placement.size % inner:
        raise InputError(f"a group of {placement.size} devices has no part of {inner}")
    pieces: list[Segment] = []
    left = inner
    for piece in reversed(placement.segments):
        taken = math.gcd(left, piece.size)
        left //= taken
        if taken == 1:
            pieces.append(piece)
        elif taken < piece.size:
            size, stride = piece.size // taken, piece.stride * taken
            pieces.append(replace(piece, size=size, stride=stride))
    return _placement(list(reversed(pieces)))


@lru_cache(maxsize=65536)
def _assign(
    family: str,
    devices_per_chip: int,
    fabric: tuple[Domain, ...],
    items: tuple[tuple[str, int], ...],
    rings: int,
) -> tuple[tuple[str, Placement], ...]:
    names = [name for name, _ in items]
    sizes = [size for _, size in items]
    outer, inner = outer_axes(fabric), inner_axes(fabric, devices_per_chip)
    if family != "tpu":
        inside = _fill((*outer, *inner), sizes)
        return tuple((n, _placement(s)) for n, s in zip(names, inside, strict=True))
    outside, sizes = _first_axes_over(outer, sizes)
    inside = _on_rings(inner, sizes) if rings else _inside_slice(inner, sizes)
    return tuple(
        (name, _placement([*out, *segments]))
        for name, out, segments in zip(names, outside, inside, strict=True)
    )


def _fill(axes: tuple[Axis, ...], sizes: list[int]) -> list[list[Segment]]:
    """Ranks in order: the last mesh axis takes the innermost physical axis first."""
    left = [axis.size for axis in axes]
    pieces: list[list[Segment]] = [[] for _ in sizes]
    for index in range(len(sizes) - 1, -1, -1):
        need = sizes[index]
        for at in range(len(axes) - 1, -1, -1):
            take = math.gcd(need, left[at])
            if take > 1:
                pieces[index].insert(0, _piece(axes[at], take, axes[at].size // left[at]))
                left[at] //= take
                need //= take
    return pieces


def _first_axes_over(
    outer: tuple[Axis, ...], sizes: list[int]
) -> tuple[list[list[Segment]], list[int]]:
    """Slices and instances go to the first mesh axes; the rest of each stays inside."""
    left = [axis.size for axis in outer]
    pieces: list[list[Segment]] = [[] for _ in sizes]
    rest = list(sizes)
    for index in range(len(sizes)):
        for at, axis in enumerate(outer):
            take = math.gcd(rest[index], left[at])
            if take > 1:
                left[at] //= take
                rest[index] //= take
                pieces[index].append(_piece(axis, take, left[at]))
    return pieces, rest


def _inside_slice(inner: tuple[Axis, ...], sizes: list[int]) -> list[list[Segment]]:
    """JAX's assignment: its rings on small slices, else whole axes where they fit."""
    ring = _ring_order(inner)
    if ring:
        return _fill(ring, sizes)
    matrix = assign_torus(tuple(axis.size for axis in inner), tuple(sizes))
    pieces: list[list[Segment]] = [[] for _ in sizes]
    for axis, row in zip(inner, matrix, strict=True):
        stride = axis.size
        for index, take in enumerate(row):
            stride //= take
            if take > 1:
                pieces[index].append(_piece(axis, take, stride))
    return pieces


def _on_rings(inner: tuple[Axis, ...], sizes: list[int]) -> list[list[Segment]]:
    """The last axis on blocks of 2 × n/2 chips, which close into rings; the others over these.

    Source: Google, MaxText, utils/max_utils.py (reshape_mesh_to_rings), 2026-08: a block of 2 × 2
    or 2 × 4 is walked round, blocks are taken row by row.
    """
    x, y = inner
    wide = sizes[-1] // 2
    blocks = (replace(x, size=x.size // 2), replace(y, size=y.size // wide))
    left = [axis.size for axis in blocks]
    pieces: list[list[Segment]] = [[] for _ in sizes]
    for index in range(len(sizes) - 2, -1, -1):
        need = sizes[index]
        for at, (axis, step) in reversed(list(enumerate(((x, 2), (y, wide))))):
            take = math.gcd(need, left[at])
            if take > 1:
                stride = step * (blocks[at].size // left[at])
                pieces[index].insert(0, _piece(axis, take, stride))
                left[at] //= take
                need //= take
    pieces[-1] = [_piece(x, 2, 1), _piece(y, wide, 1)]
    return [[piece for piece in one if piece.size > 1] for one in pieces]


def _ring_order(inner: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Axes from the outside in where JAX walks a small slice as one ring; () elsewhere.

    Two-device chips (TPU7x) of 8 to 32 devices, x and y at most 2: both devices of a chip, then
    x, then y, then z. A 2x4 of single devices: the long axis, then the short one.
    """
    torus = tuple(axis for axis in inner if axis.name != "core")
    cores = tuple(axis for axis in inner if axis.name == "core")
    devices = math.prod(axis.size for axis in inner)
    narrow = all(axis.size <= 2 for axis in torus[:2])
    if cores and cores[0].size == 2 and 8 <= devices <= 32 and narrow:
        return (*reversed(torus), *cores)
    if not cores and sorted(axis.size for axis in torus if axis.size > 1) == [2, 4]:
        return tuple(sorted(torus, key=lambda axis: axis.size))
    return ()


def _piece(axis: Axis, size: int, stride: int) -> Segment:
    """A piece closes where it reaches round a wrapped axis: whole, or strided to its end."""
    return Segment(
        axis.name,
        axis.level,
        size,
        stride,
        axis.wraps and size * stride == axis.size,
        axis.size,
    )


def _join(segments: list[Segment], piece: Segment) -> None:
    """Append a piece, or merge it with the piece of the same axis that it continues."""
    for at, outer in enumerate(segments):
        if outer.axis == piece.axis and outer.stride == piece.stride * piece.size:
            # The joined piece closes exactly where its outer part reached the end of a wrap.
            segments[at] = replace(outer, size=outer.size * piece.size, stride=piece.stride)
            return
    segments.append(piece)


def _placement(segments: list[Segment]) -> Placement:
    notes = [_cost(piece) for piece in segments if not piece.whole and piece.axis in AXES]
    uneven = _straddles(segments)
    if uneven:
        notes.append(uneven)
    size = math.prod(piece.size for piece in segments)
    return Placement(size, tuple(segments), bool(notes), "; ".join(notes))


def ordinal(number: int) -> str:
    """``2nd``, ``4th``: a stride in words."""
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"


def _cost(piece: Segment) -> str:
    if piece.stride == 1:
        return f"a contiguous {piece.size} of axis {piece.axis}: a line, one port instead of two"
    shape = "ring" if piece.wraps else "line"
    return (
        f"every {ordinal(piece.stride)} chip of axis {piece.axis}: a {shape} whose links "
        f"{piece.stride} groups share"
    )


def _straddles(segments: list[Segment]) -> str:
    """A group on part of a domain and also across domains does not fill its domains."""
    inside = [piece for piece in segments if piece.axis == "nvlink"]
    across = any(piece.axis == "net" for piece in segments)
    if across and any(piece.stride == 1 and not piece.whole for piece in inside):
        return "straddles domains that it does not fill"
    return ""
