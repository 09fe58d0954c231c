"""A machine's fabric with the axes of a plan on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chipshift.estimate.groups import mesh_order
from chipshift.fabric import Placement, assign
from chipshift.fabric.axes import inner_axes, outer_axes
from chipshift.fabric.placement import ordinal
from chipshift.machines.machine import Machine
from chipshift.report.charts.svg import (
    Scale,
    both,
    hint,
    legend,
    line,
    number,
    picture,
    rect,
    tag,
    text,
)
from chipshift.units import si

DRAWN = 16
"""Positions of one axis that are drawn before the rest is said in words."""

AXIS_WORDS = {
    "dp": "data", "fsdp": "fully sharded data", "tp": "tensor", "cp": "context", "pp": "pipeline",
}  # fmt: skip
NOTES = (
    "Filled: chips that the first (black) meets along one",
    "mesh axis. Dashed stubs: links that wrap round.",
)
FLAT_MOST, DEEP_MOST = 16, 8
STUB = 11.0

Spot = Callable[[float, float, float], tuple[float, float]]
"""Where a chip of the lattice stands in the drawing."""

OVER = {"nvlink": "inside a domain", "net": "between domains", "slice": "between slices",
        "core": "inside a chip"}  # fmt: skip


@dataclass(frozen=True)
class Share:
    """The part of a physical axis that one mesh axis has."""

    mesh: str
    size: int
    stride: int
    wraps: bool


@dataclass(frozen=True)
class Physical:
    """One physical axis and who has it, innermost share first.

    Attributes:
        switched: every position reaches every other (a switch or mesh), not only neighbours.
    """

    name: str
    size: int
    wraps: bool
    switched: bool
    rate: str
    shares: tuple[Share, ...]

    def owner(self, position: int) -> str:
        """The mesh axis whose neighbours the link after this position joins; "" for none."""
        after = position + 1
        crossing = [s for s in self.shares if after % s.stride == 0]
        if after == self.size:
            crossing = [s for s in self.shares if s.wraps]
        return crossing[-1].mesh if crossing else ""


def placed_axes(machine: Machine, degrees: Mapping[str, int], order: Sequence[str] = ()
                ) -> dict[str, Placement]:  # fmt: skip
    """Where each mesh axis of a plan sits; ``order`` outermost first, () for the usual one."""
    return assign(machine, {axis: degrees[axis] for axis in order or mesh_order(machine)})


def layout(machine: Machine, placed: Mapping[str, Placement]) -> tuple[Physical, ...]:
    """The physical axes of a machine, innermost first, as mesh axes share them."""
    axes = (*outer_axes(machine.fabric), *inner_axes(machine.fabric, machine.chip.devices_per_chip))
    out = []
    for axis in reversed(axes):
        shares = [
            Share(mesh, s.size, s.stride, s.wraps)
            for mesh, placement in placed.items()
            for s in placement.segments
            if s.axis == axis.name and s.level == axis.level
        ]
        level = machine.fabric[axis.level]
        between = axis.name == "core"
        rate = (
            ""
            if between
            else f"{si(level.link_bytes_per_s, 'B/s')} a "
            + ("link" if level.kind in ("torus", "mesh") else "chip")
        )
        out.append(Physical(
            axis.name, axis.size, axis.wraps, level.kind != "torus" and not between, rate,
            tuple(sorted(shares, key=lambda share: share.stride)),
        ))  # fmt: skip
    return tuple(out)


def fabric(machine: Machine, placed: Mapping[str, Placement], title: str) -> Markup:
    """The lattice of a torus where it can be drawn, and a strip for each physical axis."""
    axes = layout(machine, placed)
    degrees = {axis: placement.size for axis, placement in placed.items()}
    used = [axis for axis in AXIS_WORDS if degrees.get(axis, 1) > 1]
    torus = [axis for axis in axes if axis.name in "xyz"]
    torus.sort(key=lambda axis: axis.name)
    drawable = _drawable([axis.size for axis in torus])

    def draw(width: float) -> Markup:
        names = [(f"p-{a}", f"{a} {degrees[a]} ({AXIS_WORDS[a]})") for a in used]
        body, y = legend(names, 0, 2, width)
        y += 14
        narrow = width < 600
        beside = drawable and not narrow
        if drawable:
            picture_, tall, broad = _lattice(torus, 400.0 if beside else width)
            body += tag("g", picture_, transform=f"translate(0 {number(y)})")
        left = broad + 40 if beside else 0.0
        start = y + 4 if beside or not drawable else y + tall + 10
        strips, end = _strips(axes, left, start, width)
        body += strips
        bottom = max(end, y + tall) if drawable else end
        if drawable:
            for words in NOTES:
                body += text(0, bottom + 10, words, "faint")
                bottom += 15
        said = "; ".join(_said(axis) for axis in axes if axis.size > 1)
        return picture(width, bottom + 6, title, said, body)

    return both(draw)


def _said(axis: Physical) -> str:
    parts = [
        f"{s.mesh} {s.size}" + (f" every {s.stride}" if s.stride > 1 else "") for s in axis.shares
    ]
    kind = "switched" if axis.switched else "ring" if axis.wraps else "line"
    where = OVER.get(axis.name, f"axis {axis.name}")
    return f"{where}: {axis.size}, {kind}; {', '.join(parts) or 'one mesh position'}"


def _drawable(sizes: list[int]) -> bool:
    """Whether a torus is small enough to draw chip by chip."""
    if len(sizes) == 2:
        return max(sizes) <= FLAT_MOST
    return len(sizes) == 3 and max(sizes) <= DEEP_MOST and min(sizes) <= DEEP_MOST / 2


def _lattice(torus: list[Physical], room: float) -> tuple[Markup, float, float]:
    """Chips and links of a torus; returns the markup, its height and its width.

    A third axis leans back by less than one pitch in all, so that no chip hides another.
    """
    nx, ny, nz = [axis.size for axis in torus] + [1] * (3 - len(torus))
    lean_x, lean_y = (0.82 / nz, 0.58 / nz) if nz > 1 else (0.0, 0.0)
    pitch = min(34.0 if nz == 1 else 84.0, (room - 44) / (nx - 1 + lean_x * (nz - 1)))
    pad, depth = 22.0, lean_y * pitch * (nz - 1)

    def at(x: float, y: float, z: float) -> tuple[float, float]:
        return pad + (x + lean_x * z) * pitch, pad + depth + (y - lean_y * z) * pitch

    drawn: dict[str, list[str]] = {}
    size = max(5.0, min(12.0, pitch * (0.42 if nz == 1 else 0.4 / nz + 0.02)))
    for place in itertools.product(range(nx), range(ny), range(nz)):
        for i, axis in enumerate(torus):
            _link(drawn, axis, i, place, at)
    chips: dict[str, list[str]] = {}
    for place in itertools.product(range(nx), range(ny), range(nz)):
        x, y = (number(v - size / 2) for v in at(*place))
        square = f"M{x} {y}h{number(size)}v{number(size)}h-{number(size)}z"
        chips.setdefault(_chip(torus, place), []).append(square)
    lattice = Markup("").join(
        tag("path", d="".join(strokes), class_=class_)
        for layer in (drawn, chips) for class_, strokes in layer.items()
    )  # fmt: skip
    right, bottom = at(nx - 1, 0, nz - 1)[0], at(0, ny - 1, 0)[1]
    return lattice, bottom + pad, right + pad


def _link(drawn: dict[str, list[str]], axis: Physical, i: int, place: tuple[int, int, int],
          at: Spot) -> None:  # fmt: skip
    """Add the link from a chip to the next one along axis ``i``, or a wrapping one's stubs."""
    x0, y0 = at(*place)
    owner = axis.owner(place[i])
    class_ = f"link a-{owner}" if owner else "link"
    x1, y1 = at(*(p + (k == i) for k, p in enumerate(place)))
    if place[i] + 1 < axis.size:
        drawn.setdefault(class_, []).append(_stroke(x0, y0, x1, y1))
        return
    if not axis.wraps:
        return
    fx, fy = at(*(0 if k == i else p for k, p in enumerate(place)))
    length = max(abs(x1 - x0), abs(y1 - y0))
    dx, dy = ((x1 - x0) * STUB / length, (y1 - y0) * STUB / length)
    stubs = drawn.setdefault(f"{class_} stub", [])
    stubs += [_stroke(x0, y0, x0 + dx, y0 + dy), _stroke(fx, fy, fx - dx, fy - dy)]


def _stroke(x0: float, y0: float, x1: float, y1: float) -> str:
    """A straight line of a path, from one point to another."""
    to = f"H{number(x1)}" if y0 == y1 else f"V{number(y1)}" if x0 == x1 else ""
    return f"M{number(x0)} {number(y0)}{to or f'L{number(x1)} {number(y1)}'}"


def _chip(torus: list[Physical], place: tuple[int, int, int]) -> str:
    """A chip's class: filled with the colour of the mesh axis along which it meets the first."""
    moved = {
        share.mesh
        for axis, position in zip(torus, place, strict=False)
        for share in axis.shares
        if (position // share.stride) % share.size
    }
    if len(moved) == 1:
        return f"chip p-{moved.pop()}"
    return "chip" if moved else "chip first"


def _strips(axes: tuple[Physical, ...], left: float, y: float, width: float
            ) -> tuple[Markup, float]:  # fmt: skip
    """One strip a physical axis: its positions, its links by owner, the wrap underneath."""
    out = Markup("")
    for axis in axes:
        if axis.size < 2:
            continue
        kind = "switch" if axis.switched else "ring" if axis.wraps else "line"
        where = OVER.get(axis.name, f"axis {axis.name}")
        out += text(left, y + 12, f"{where}: {axis.size}, {kind}", "strong")
        out += text(width, y + 12, axis.rate, "faint", "end")
        shown = min(axis.size, DRAWN)
        x = Scale(0, DRAWN - 1, left + 13, width - 13)
        wide = min((x(1) - x(0)) * 0.5, 24.0 if axis.switched else 14.0)
        row = y + 32
        if axis.switched:
            body, tall = _switched(axis, x, row, shown)
        else:
            body, tall = _line(axis, x, row, shown)
        out += body
        for i in range(shown):
            tall_ = min(wide, 14.0)
            out += rect(x(i) - wide / 2, row - tall_ / 2, wide, tall_, "chip", str(i), 2)
        bottom = row + tall
        if axis.size > shown:
            words = f"{axis.size - shown} more of the same"
            out += text(left, bottom + 12, words, "faint")
            bottom += 14
        words = "; ".join(_words(s) for s in axis.shares)
        out += text(left, bottom + 12, words, "")
        y = bottom + 30
    return out, y


def _words(share: Share) -> str:
    if share.stride == 1:
        return f"{share.mesh} {share.size} (neighbours)"
    return f"{share.mesh} {share.size} (every {ordinal(share.stride)})"


def _line(axis: Physical, x: Scale, y: float, shown: int) -> tuple[Markup, float]:
    out = Markup("")
    for i in range(shown - 1):
        owner = axis.owner(i)
        out += line(x(i), y, x(i + 1), y, f"link a-{owner}" if owner else "link")
    if axis.wraps:
        owner = axis.owner(axis.size - 1)
        a = number(x(0))
        path = f"M{a} {number(y)}v9q0 8 8 8H{number(x(shown - 1) - 8)}q8 0 8 -8v-9"
        out += tag("path", hint("wraparound link"), d=path,
                   class_=f"link a-{owner}" if owner else "link")  # fmt: skip
    return out, 22.0 if axis.wraps else 14.0


def _switched(axis: Physical, x: Scale, y: float, shown: int) -> tuple[Markup, float]:
    """A bus for each group of positions that communicate; one row a mesh axis.

    Of groups that take every nth position only the first is drawn; a bus that reaches beyond the
    drawn positions ends open at the right.
    """
    out = Markup("")
    row = y + 16
    for share in axis.shares:
        class_ = f"a-{share.mesh}"
        reach = share.size * share.stride
        for base in range(0, shown, reach):
            members = range(base, min(base + reach, shown), share.stride)
            beyond = base + reach > shown
            end = x(shown - 1) + 12 if beyond else x(members[-1])
            out += line(x(members[0]), row, end, row, f"link {class_}")
            for i in members:
                out += line(x(i), y, x(i), row, f"drop {class_}")
        row += 10
    return out, row - y
