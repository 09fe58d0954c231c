"""A ratio to the present with its uncertainty, against the line where nothing changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from chipshift.report.charts.svg import Scale, line, picture, rect, tag, text

WIDTH = 400.0


@dataclass(frozen=True)
class Ruler:
    """One ratio.

    Attributes:
        value: target over present, below 1 is better.
        error: relative half-width of the ratio.
    """

    label: str
    value: float
    error: float


def rulers(rows: list[Ruler], where: str) -> Markup:
    """The ratios on one logarithmic scale around 1: left is better."""
    reach = max(2.0, *(max(r.value * (1 + r.error), (1 + r.error) / r.value) for r in rows))
    reach = 2.0 ** math.ceil(math.log2(reach) - 1e-9)
    scale = Scale(1 / reach, reach, 100, WIDTH - 52, log=True)
    top, pitch = 20.0, 26.0
    bottom = top + pitch * len(rows)
    body = rect(scale.start, top - 4, scale(1) - scale.start, bottom - top + 4, "better")
    ticks = [1 / reach, 1.0, reach] + ([0.5, 2.0] if reach == 4 else [])
    for tick in ticks:
        class_ = "one" if tick == 1 else "grid"
        body += line(scale(tick), top - 4, scale(tick), bottom, class_)
        words = "present" if tick == 1 else f"{tick:g}×"
        body += text(scale(tick), bottom + 14, words, "faint", "middle")
    body += text(scale.start, 11, "better", "faint") + text(scale.end, 11, "worse", "faint", "end")
    said = []
    for i, row in enumerate(rows):
        y = top + pitch * i + pitch / 2
        low = max(scale(row.value / (1 + row.error)), scale.start)
        high = min(scale(row.value * (1 + row.error)), scale.end)
        body += text(92, y + 4, row.label, "", "end")
        body += tag("path", d=f"M{low:.1f} {y}H{high:.1f}", class_="spread")
        body += tag("circle", cx=scale(row.value), cy=y, r=5.0, class_="point")
        body += text(scale.end + 8, y + 4, f"{row.value:.2f}×", "strong")
        said.append(f"{row.label} {row.value:.2f} times the present's, ± {row.error:.0%}")
    return picture(WIDTH, bottom + 20, f"{where} against the present", "; ".join(said), body)
