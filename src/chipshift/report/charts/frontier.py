"""Plans by time and cost: what is not beaten on both."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from chipshift.report.charts.svg import Scale, both, hint, line, number, picture, rect, tag, text
from chipshift.units import duration, si


@dataclass(frozen=True)
class Point:
    """A plan.

    Attributes:
        kind: ``present``, ``best``, ``other``, ``unchanged``, or ``unfit`` where it does not fit.
        series: index of its machine's colour; the present is 0.
    """

    letter: str
    label: str
    step_time_s: float
    usd_per_1e12_tokens: float
    kind: str
    series: int


def unbeaten(points: list[Point]) -> list[Point]:
    """Points that no other beats in both time and cost, by time."""
    out: list[Point] = []
    fitting = [p for p in points if p.kind != "unfit"]
    for point in sorted(fitting, key=lambda p: (p.step_time_s, p.usd_per_1e12_tokens)):
        if not out or point.usd_per_1e12_tokens < out[-1].usd_per_1e12_tokens:
            out.append(point)
    return out


def frontier(points: list[Point]) -> Markup:
    """Step time against the cost of 1e12 tokens; the line joins what nothing beats on both."""
    times = [p.step_time_s for p in points]
    costs = [p.usd_per_1e12_tokens for p in points]
    best = unbeaten(points)

    def draw(width: float) -> Markup:
        height = 330.0 if width > 600 else 300.0
        x = Scale(min(times) / 1.25, max(times) * 1.25, 66, width - 12, log=True)
        y = Scale(min(costs) / 1.2, max(costs) * 1.2, height - 46, 14, log=True)
        body = rect(x.start, y.end, x.end - x.start, y.start - y.end, "plot")
        body += _ticks(x, y, 7 if width > 600 else 3)
        path = f"M{number(x(best[0].step_time_s))} {number(y.end)}"
        for p in best:
            path += f"V{number(y(p.usd_per_1e12_tokens))}H{number(x(p.step_time_s))}" \
                if p is best[0] else f"H{number(x(p.step_time_s))}V{number(y(p.usd_per_1e12_tokens))}"  # fmt: skip  # noqa: E501
        body += tag("path", d=path + f"H{number(x.end)}", class_="unbeaten")
        for p in sorted(points, key=lambda p: p.kind == "best"):
            body += _point(p, x, y)
        body += text(x.end, height - 8, "step time (log)", "faint", "end")
        body += text(66, 11, "USD for 1e12 tokens (log)", "faint")
        said = "; ".join(
            f"{p.letter} {p.label}: {duration(p.step_time_s)}, "
            f"{si(p.usd_per_1e12_tokens, 'USD')}" for p in points
        )  # fmt: skip
        return picture(width, height, "Time against cost of the plans", said, body)

    return both(draw)


def _ticks(x: Scale, y: Scale, most: int) -> Markup:
    out = Markup("")
    for tick in _log_ticks(x.low, x.high, most):
        out += line(x(tick), y.start, x(tick), y.end, "grid")
        out += text(x(tick), y.start + 15, duration(tick), "faint", "middle")
    for tick in _log_ticks(y.low, y.high, 6):
        out += line(x.start, y(tick), x.end, y(tick), "grid")
        out += text(x.start - 6, y(tick) + 4, si(tick, ""), "faint", "end")
    return out


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values between low and high of a logarithmic axis, at most about so many."""
    for inside in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(-12, 16) for m in inside]
        found = [t for t in ticks if low <= t <= high]
        if len(found) <= most:
            return found
    return found


def _point(p: Point, x: Scale, y: Scale) -> Markup:
    at_x, at_y = x(p.step_time_s), y(p.usd_per_1e12_tokens)
    words = f"{p.label}: {duration(p.step_time_s)}, {si(p.usd_per_1e12_tokens, 'USD')}"
    class_ = f"mark s-{p.series}" + ("" if p.kind in ("best", "present") else " hollow")
    class_ += " unfit" if p.kind == "unfit" else ""
    radius = 10.0 if p.kind in ("best", "present") else 8.0
    if p.kind == "present":
        shape = rect(at_x - 9, at_y - 9, 18, 18, class_, title=words, rx=2)
    else:
        shape = tag("circle", hint(words), cx=at_x, cy=at_y, r=radius, class_=class_)
    ink = "letter" if p.kind in ("best", "present") else "letter inked"
    return shape + text(at_x, at_y + 4, p.letter, ink, "middle")
