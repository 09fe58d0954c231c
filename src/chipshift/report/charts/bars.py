"""Stacked horizontal bars on one scale: what a step or a device's memory is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from chipshift.report.charts.svg import (
    CHAR,
    Scale,
    fits,
    hint,
    legend,
    line,
    number,
    rect,
    round_ticks,
    tag,
    text,
)

LABELS = 218.0
BAR = 30.0


@dataclass(frozen=True)
class Part:
    """A piece of a bar; ``key`` names its colour (class ``p-<key>``)."""

    key: str
    label: str
    value: float


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        note: second line of its label.
        interval: low and high of its total, drawn as a whisker; None = none known.
        limit: a capacity, drawn as an outline; None = none.
    """

    label: str
    note: str
    parts: tuple[Part, ...]
    interval: tuple[float, float] | None = None
    limit: float | None = None

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)

    @property
    def reach(self) -> float:
        """The largest value that has to be on the scale."""
        high = self.interval[1] if self.interval else 0.0
        return max(self.total, high, self.limit or 0.0)


def stacked(bars: list[Bar], width: float, show: Callable[[float], str], unit: str
            ) -> tuple[Markup, float]:  # fmt: skip
    """The bars, their axis and legend; returns the markup and its height.

    Args:
        bars: from top to bottom.
        show: a value as text with its unit.
        unit: of the axis, as ``show`` prints it, for the axis title.
    """
    narrow = width < 600
    left = 0.0 if narrow else LABELS
    right = 92.0 if not narrow else 4.0
    scale = Scale(0, max(bar.reach for bar in bars) * 1.02, left, width - right)
    shown = {part.key for bar in bars for part in bar.parts if part.value > 0}
    used = {part.key: part.label for part in bars[0].parts if part.key in shown}
    head, y = legend([(f"p-{key}", label) for key, label in used.items()], left, 2, width - left)
    y += 14
    pitch = BAR + (40 if narrow else 24)
    bottom = y + len(bars) * pitch
    body = head + _axis(scale, y - 4, bottom, show, 3 if narrow else 6)
    for bar in bars:
        top = y + (30 if narrow else 6)
        body += _labels(bar, top, left, narrow)
        body += _one(bar, top, scale, show)
        end = scale(max(bar.total, bar.interval[1] if bar.interval else 0, bar.limit or 0))
        if narrow:
            body += text(width, top - 6, show(bar.total), "strong", "end")
        else:
            body += text(end + 8, top + BAR / 2 + 5, show(bar.total), "strong")
        y += pitch
    body += text(width if narrow else scale.end, bottom + 30, unit, "faint", "end")
    return body, bottom + 36


def _labels(bar: Bar, top: float, left: float, narrow: bool) -> Markup:
    if narrow:
        return text(0, top - 6, bar.label, "strong") + text(
            len(bar.label) * (CHAR + 0.6) + 8, top - 6, bar.note[:24], "faint"
        )
    return text(left - 12, top + BAR / 2 - 2, bar.label, "strong", "end") + text(
        left - 12, top + BAR / 2 + 13, bar.note, "faint", "end"
    )


def _one(bar: Bar, top: float, scale: Scale, show: Callable[[float], str]) -> Markup:
    out = Markup("")
    at = 0.0
    for part in bar.parts:
        if part.value <= 0:
            continue
        x, end = scale(at), scale(at + part.value)
        share = part.value / bar.total
        title = f"{bar.label}, {part.label}: {show(part.value)} ({share:.0%})"
        out += rect(x, top, end - x - (1 if end - x > 3 else 0), BAR, f"p-{part.key}", title)
        words = show(part.value)
        if fits(words, end - x):
            out += text((x + end) / 2, top + BAR / 2 + 4, words, f"on-{part.key}", "middle")
        at += part.value
    if bar.limit is not None:
        out += rect(scale(0), top - 3, scale(bar.limit) - scale(0), BAR + 6, "limit", rx=3,
                    title=f"available: {show(bar.limit)}")  # fmt: skip
    if bar.interval is not None:
        low, high = (scale(v) for v in bar.interval)
        y = top + BAR + 6
        path = f"M{number(low)} {number(y - 4)}v8M{number(high)} {number(y - 4)}v8" \
               f"M{number(low)} {number(y)}H{number(high)}"  # fmt: skip
        words = f"within its error: {show(bar.interval[0])} to {show(bar.interval[1])}"
        out += tag("path", hint(words), d=path, class_="whisker")
    return out


def _axis(scale: Scale, top: float, bottom: float, show: Callable[[float], str], most: int
          ) -> Markup:  # fmt: skip
    out = Markup("")
    for tick in round_ticks(scale.high, most):
        x = scale(tick)
        out += line(x, top, x, bottom, "grid")
        anchor = "start" if tick == 0 and scale.start == 0 else "middle"
        out += text(x, bottom + 14, "0" if tick == 0 else show(tick), "faint", anchor)
    return out
