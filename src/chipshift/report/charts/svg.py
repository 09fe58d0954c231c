"""The few SVG elements that the charts are made of, and the scales they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

WIDE, NARROW = 960.0, 340.0
"""Widths a chart is drawn at: for a desktop or paper, and for a phone; CSS shows one of them."""

CHAR = 6.9
"""Mean width of a character at the charts' 12 px."""


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def tag(name: str, content: str = "", **attributes: str | float | None) -> Markup:
    """One element; ``class_`` is written ``class``, underscores as hyphens, None left out."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, (int, float)) else escape(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{text}"')
    head = f"<{name}{''.join(parts)}"
    return Markup(f"{head}>{content}</{name}>" if content else f"{head}/>")


def hint(words: str) -> Markup:
    """What a pointer resting on a mark shows."""
    return tag("title", escape(words))


def text(x: float, y: float, words: str, class_: str = "", anchor: str | None = None,
         transform: str | None = None) -> Markup:  # fmt: skip
    """A line of text; ``y`` is its baseline."""
    return tag("text", escape(words), x=x, y=y, class_=class_ or None, text_anchor=anchor,
               transform=transform)  # fmt: skip


def rect(x: float, y: float, width: float, height: float, class_: str, title: str = "",
         rx: float | None = None) -> Markup:  # fmt: skip
    """A rectangle; ``title`` is what a pointer resting on it shows."""
    return tag(
        "rect",
        hint(title) if title else "",
        x=x,
        y=y,
        width=max(width, 0.0),
        height=height,
        class_=class_,
        rx=rx,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def picture(width: float, height: float, title: str, description: str, body: str) -> Markup:
    """A whole chart, with the title and description that a screen reader gives."""
    described = hint(title) + tag("desc", escape(description))
    return tag(
        "svg", described + body, viewBox=f"0 0 {number(width)} {number(height)}",
        width=width, height=height, role="img", aria_label=f"{title}. {description}",
        class_="chart",
    )  # fmt: skip


def both(draw: Callable[[float], Markup]) -> Markup:
    """A chart at both widths; the page's style sheet shows the one that suits."""
    return tag("div", draw(WIDE), class_="wide") + tag("div", draw(NARROW), class_="narrow")


def fits(words: str, width: float) -> bool:
    """Whether a label stands inside a mark of this width."""
    return len(words) * CHAR + 8 <= width


@dataclass(frozen=True)
class Scale:
    """Values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        share = (value - low) / (high - low) if high > low else 0.0
        return self.start + share * (self.end - self.start)


def round_ticks(high: float, most: int = 6) -> list[float]:
    """0 and round steps up to ``high``."""
    if high <= 0:
        return [0.0]
    rough = high / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= rough * 0.999)
    return [i * step for i in range(math.floor(high / step + 1e-9) + 1)]


def decade_ticks(low: float, high: float, inside: tuple[int, ...] = (1,)) -> list[float]:
    """Powers of ten (times ``inside``) between low and high."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [m * 10.0**e for e in range(first, last + 1) for m in inside]
    return [t for t in ticks if low * 0.999 <= t <= high * 1.001]


def legend(items: list[tuple[str, str]], x: float, y: float, width: float) -> tuple[Markup, float]:
    """Swatches with their names, broken into rows; returns the markup and its height."""
    out = Markup("")
    at, row = x, 0
    for class_, words in items:
        needs = 18 + len(words) * CHAR + 14
        if at + needs > x + width and at > x:
            at, row = x, row + 1
        out += rect(at, y + row * 18, 11, 11, class_, rx=2)
        out += text(at + 16, y + row * 18 + 10, words)
        at += needs
    return out, (row + 1) * 18.0
