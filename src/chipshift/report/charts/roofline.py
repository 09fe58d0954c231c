"""Where each op sits under each machine's roof."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from chipshift.report.charts.svg import (
    Scale,
    both,
    decade_ticks,
    hint,
    line,
    number,
    picture,
    tag,
    text,
)
from chipshift.units import si

PLOT = 150.0
"""Height of a panel's axes; the names of the ops have their rows below."""

BOUND_WORDS = {
    "compute": "matrix units",
    "hbm": "HBM",
    "on_chip": "on-chip work beside the matmuls",
    "overhead": "launch",
}


@dataclass(frozen=True)
class Mark:
    """One op."""

    name: str
    intensity_flop_per_byte: float
    flop_per_s: float
    bound: str


@dataclass(frozen=True)
class Roof:
    """One machine, per chip.

    Attributes:
        peak_flop_per_s: of the dtype of the main matmuls.
    """

    name: str
    dtype: str
    peak_flop_per_s: float
    hbm_bytes_per_s: float
    marks: tuple[Mark, ...]

    @property
    def ridge_flop_per_byte(self) -> float:
        return self.peak_flop_per_s / self.hbm_bytes_per_s

    def at(self, intensity: float) -> float:
        """The roof's height in FLOP/s."""
        return min(self.peak_flop_per_s, intensity * self.hbm_bytes_per_s)


def roofline(roofs: list[Roof]) -> Markup:
    """One panel a machine on shared axes; the other machines' roofs are drawn faint."""

    def draw(width: float) -> Markup:
        columns = 1 if width < 600 else min(len(roofs), 3)
        rows = -(-len(roofs) // columns)
        gap = 18.0
        each = (width - gap * (columns - 1)) / columns
        tall = PLOT + 24 + 24 + 14 * max(len(r.marks) for r in roofs) + 38
        body = Markup("")
        for i, roof in enumerate(roofs):
            x, y = (i % columns) * (each + gap), (i // columns) * tall
            panel = _panel(roof, roofs, each, tall, first=i % columns == 0)
            body += tag("g", panel, transform=f"translate({number(x)} {number(y)})")
        said = "; ".join(
            f"{r.name}: roof {si(r.peak_flop_per_s, 'FLOP/s')} and "
            f"{si(r.hbm_bytes_per_s, 'B/s')}, ridge at {r.ridge_flop_per_byte:.0f} FLOP a byte"
            for r in roofs
        )
        return picture(width, rows * tall, "Roofline, each op of a step, per chip", said, body)

    return both(draw)


def _panel(roof: Roof, roofs: list[Roof], width: float, height: float, first: bool) -> Markup:
    points = [m for r in roofs for m in r.marks]
    low = min(v / 2 for v in (*(m.intensity_flop_per_byte for m in points),
                              *(r.ridge_flop_per_byte / 1.6 for r in roofs)))  # fmt: skip
    high = max([m.intensity_flop_per_byte for m in points] + [3e3]) * 1.7
    top = max(r.peak_flop_per_s for r in roofs) * 1.8
    floor = min([m.flop_per_s for m in points] + [r.at(low) for r in roofs]) / 1.3
    left = 50.0 if first else 30.0
    x = Scale(low, high, left, width - 6, log=True)
    y = Scale(floor, top, PLOT + 24, 24, log=True)
    body = text(left, 14, roof.name, "strong")
    ridge = f"ridge {roof.ridge_flop_per_byte:,.0f} FLOP/B"
    body += text(width - 6, 14, ridge, "faint", "end")
    body += _grid(x, y, height - 38, first)
    for other in roofs:
        body += _roof_line(other, x, y, "roof faintline" if other is not roof else "roof")
    peak = f"{si(roof.peak_flop_per_s, 'FLOP/s')} {roof.dtype}"
    body += text(x.end, y(roof.peak_flop_per_s) - 6, peak, "faint", "end")
    slope_at = (low * roof.ridge_flop_per_byte) ** 0.5
    rate = si(roof.hbm_bytes_per_s, "B/s")
    body += text(x(slope_at) + 8, y(roof.at(slope_at)) + 10, rate, "faint")
    body += _marks(roof.marks, x, y)
    body += text(x.end, height - 8, "FLOP a byte of HBM", "faint", "end")
    return body


def _grid(x: Scale, y: Scale, bottom: float, first: bool) -> Markup:
    out = Markup("")
    for tick in decade_ticks(x.low, x.high, (1, 3)):
        out += line(x(tick), bottom, x(tick), y.end, "grid")
        out += text(x(tick), bottom + 14, f"{tick:,.0f}", "faint", "middle")
    for tick in decade_ticks(y.low, y.high, (1, 3)):
        out += line(x.start, y(tick), x.end, y(tick), "grid")
        words = si(tick, "", 1).strip() + ("F/s" if first else "")
        out += text(x.start - 4, y(tick) + 4, words.replace(" ", ""), "faint", "end")
    return out


def _roof_line(roof: Roof, x: Scale, y: Scale, class_: str) -> Markup:
    ridge = roof.ridge_flop_per_byte
    points = [(x.low, roof.at(x.low)), (ridge, roof.peak_flop_per_s), (x.high, roof.at(x.high))]
    path = "M" + "L".join(f"{number(x(a))} {number(y(b))}" for a, b in points)
    return tag("path", d=path, class_=class_)


def _marks(marks: tuple[Mark, ...], x: Scale, y: Scale) -> Markup:
    """Discs coloured by what bounds them, with names below, left to right and top to bottom.

    The leader of a disc that stands further right reaches further down, so that no name crosses
    another's leader.
    """
    ordered = sorted(marks, key=lambda m: m.intensity_flop_per_byte)
    lines, discs = Markup(""), Markup("")
    for rank, mark in enumerate(ordered):
        at_x, at_y = x(mark.intensity_flop_per_byte), y(mark.flop_per_s)
        to_y = y.start + 18 + rank * 14
        lines += line(at_x, at_y, at_x, to_y - 4, "leader")
        lines += text(at_x - 4, to_y, mark.name, "faint", "end")
        words = (
            f"{mark.name}: {si(mark.flop_per_s, 'FLOP/s')}, {mark.intensity_flop_per_byte:,.0f} "
            f"FLOP/B, bound by {BOUND_WORDS[mark.bound]}"
        )
        discs += tag("circle", hint(words), cx=at_x, cy=at_y, r=5.5,
                     class_=f"mark b-{mark.bound}")  # fmt: skip
    return lines + discs
