"""The roofline on the terminal: a plot for each machine, the ops, and why each is bound."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chipshift.report.charts.roofline import BOUND_WORDS
from chipshift.report.lines import WIDTH, Line, Span, cut, indented, print_lines, room
from chipshift.report.pictures import plotted
from chipshift.units import duration, si

MOST_MACHINES = 4
ROWS = 11
REASONS = 3
BOUND_STYLES = {"compute": "blue", "hbm": "green", "on_chip": "yellow", "overhead": "dim"}
BOUND_SHORT = {"compute": "compute", "hbm": "hbm", "on_chip": "on chip", "overhead": "launch"}

Machine = Mapping[str, Any]


def print_roofline(answer: Mapping[str, Any], html: str = "") -> None:
    """Print the screen of ``chipshift roofline``."""
    print_lines(screen(answer, room(), html))


def screen(answer: Mapping[str, Any], width: int = WIDTH, html: str = "") -> Iterator[Line]:
    """The lines of ``roofline --json``."""
    job, machines = answer["job"], list(answer["machines"])[:MOST_MACHINES]
    cut_ = machines[0]["cut"]
    words = f": one microbatch of {cut_['tokens']:,.0f} tokens on a device, tp {cut_['tp']:g}"
    yield [Span(job["name"], "bold"), Span(words)]
    several = [
        f"{m['name']} {m['devices_per_chip']}" for m in machines if m["devices_per_chip"] > 1
    ]
    if several:
        words = f"plots are per chip, times of one device (devices a chip: {', '.join(several)})"
        yield [Span(cut(words, width), "dim")]
    names = plotted(machines)
    letters = dict(zip(names, string.ascii_uppercase, strict=False))
    yield []
    yield from _plots(machines, letters, width)
    yield []
    yield from _table(machines, letters, width)
    yield []
    yield from _reasons(machines, width)
    if html:
        yield [Span("Page     ", "bold"), Span(html)]


def _plots(machines: Sequence[Machine], letters: Mapping[str, str], width: int) -> Iterator[Line]:
    """The machines' roofs side by side on the same axes, each op by its letter."""
    each = min(34, (width - 2 * len(machines)) // len(machines))
    panels = [_panel(m, machines, letters, each) for m in machines]
    for row in zip(*panels, strict=True):
        line: Line = []
        for piece in row:
            line += [*piece, Span("  ")]
        yield line[:-1]


def _panel(machine: Machine, machines: Sequence[Machine], letters: Mapping[str, str], width: int
           ) -> list[list[Span]]:  # fmt: skip
    points = [op for m in machines for op in m["ops"] if op["name"] in letters]
    low = math.log10(min([op["intensity_flop_per_byte"] for op in points] + [40.0]) / 2)
    high = math.log10(max([op["intensity_flop_per_byte"] for op in points] + [4e3]) * 1.5)
    top = math.log10(max(m["peak_flop_per_s"] for m in machines) * 1.3)
    floor = top - 1.9
    cells = [[Span(" ")] * width for _ in range(ROWS)]

    def column(intensity: float) -> int:
        share = (math.log10(intensity) - low) / (high - low)
        return min(width - 1, max(0, round(share * (width - 1))))

    def row(rate: float) -> int:
        return round((top - math.log10(rate)) / (top - floor) * (ROWS - 1))

    for x in range(width):
        intensity = 10 ** (low + (high - low) * x / (width - 1))
        slope = intensity * machine["hbm_bytes_per_s"]
        y = row(min(machine["peak_flop_per_s"], slope))
        if 0 <= y < ROWS:
            cells[y][x] = Span("─" if slope >= machine["peak_flop_per_s"] else "╱", "dim")
    for op in machine["ops"]:
        if op["name"] in letters and op["time_s"] > 0:
            y = row(op["flops"] / op["time_s"] * machine["devices_per_chip"])
            if 0 <= y < ROWS:
                at = column(op["intensity_flop_per_byte"])
                while at > 0 and cells[y][at].text in string.ascii_uppercase:
                    at -= 1
                cells[y][at] = Span(letters[op["name"]], f"bold {BOUND_STYLES[op['bound']]}")
    ridge = machine["ridge_flop_per_byte"][machine["dtype"]]
    head = f"{machine['name']}: {si(machine['peak_flop_per_s'], 'FLOP/s')} {machine['dtype']}"
    foot = f"{10**low:,.0f} FLOP/B, ridge {ridge:,.0f}"
    end = f"{10**high:,.0f}"
    end = end if len(foot) + 2 + len(end) <= width else ""
    return [
        [Span(f"{cut(head, width):<{width}}", "bold")],
        *cells,
        [Span(f"{foot}{end:>{max(1, width - len(foot))}}"[:width], "dim")],
    ]


def _table(machines: Sequence[Machine], letters: Mapping[str, str], width: int) -> Iterator[Line]:
    """Each op over the whole network, forward and backward together."""
    label = 30
    each = min(22, (width - label) // len(machines))
    heads = "".join(f"{cut(m['name'], each - 1):>{each}}" for m in machines)
    yield [Span(f"{'op, forward and backward':<{label}}{heads}", "bold")]
    families = [_families(m) for m in machines]
    for name in dict.fromkeys(n for f in families for n in f):
        line = [Span(f"{letters.get(name, ' ')} {cut(name, label - 3):<{label - 2}}")]
        for family in families:
            seconds, bound = family.get(name, (0.0, ""))
            text = f"{duration(seconds)} " if bound else "– "
            line += [
                Span(f"{text:>{each - 8}}"),
                Span(f"{BOUND_SHORT.get(bound, ''):<8}", BOUND_STYLES.get(bound, "")),
            ]
        yield line
    totals = [sum(seconds for seconds, _ in family.values()) for family in families]
    sums = "".join(f"{duration(t) + ' ':>{each - 8}}{'':8}" for t in totals)
    yield [Span(f"  {'all of them':<{label - 2}}{sums}".rstrip(), "bold")]


def _families(machine: Machine) -> dict[str, tuple[float, str]]:
    """Seconds of each op with its gradients, and what bounds its slowest pass."""
    out: dict[str, tuple[float, str]] = {}
    slowest: dict[str, float] = {}
    for op in machine["ops"]:
        name = str(op["name"]).split(".")[0]
        seconds = op["time_s"] * op["count"]
        spent, bound = out.get(name, (0.0, ""))
        if seconds > slowest.get(name, 0.0):
            slowest[name], bound = seconds, op["bound"]
        out[name] = (spent + seconds, bound)
    return out


def _reasons(machines: Sequence[Machine], width: int) -> Iterator[Line]:
    """Why the longest ops of each machine take what they take."""
    yield [Span("Why", "bold")]
    for machine in machines:
        ops = sorted(machine["ops"], key=lambda op: -op["time_s"] * op["count"])[:REASONS]
        yield [Span(f"  {machine['name']}", "bold"), Span(f" ({machine['stack']})", "dim")]
        for op in ops:
            words = f"{op['name']}, bound by {BOUND_WORDS[op['bound']]}: {op['why']}"
            yield from indented(words, width, 4)
