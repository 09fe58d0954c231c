"""One plan on the terminal: its figures, where its time goes, what fills its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.output import estimate_json, jsonable
from chipshift.report.charts.breakdown import step_parts
from chipshift.report.charts.memory import PARTS as MEMORY_PARTS
from chipshift.report.lines import WIDTH, Line, Span, indented, labelled, print_lines, room
from chipshift.report.rows import ROWS, cell, machine_text, plan_text
from chipshift.report.words import error_text
from chipshift.units import duration, gib

BAR, BESIDE = 40, 58
"""Columns of the longest bar where there is room, and of what stands before it."""


def print_estimate(estimate: Estimate) -> None:
    """Print the screen of one estimate."""
    print_lines(screen(jsonable(estimate_json(estimate)), room()))


def screen(e: Mapping[str, Any], width: int = WIDTH) -> Iterator[Line]:
    """The lines of one estimate's JSON."""
    job, machine = e["job"], e["machine"]
    head = f"{job['name']} on {machine['name']}"
    yield [Span(head, "bold"), Span(f"  {machine_text(machine)}"[: width - len(head)])]
    yield from indented(f"{plan_text(e['plan'])} ({e['stack']})", width, 2)
    yield []
    for row in ROWS:
        yield [Span(f"  {row.label:<24}"), Span(f"{cell(e, row):>14}", "bold")]
        if row.path == "memory_bytes.available" and not e["memory_bytes"]["fits"]:
            yield [Span("  does not fit: the times are those it would take", "bold red")]
    yield []
    yield [Span("Step time", "bold")]
    yield from _bars([(p.label, p.value) for p in step_parts(e)], duration, width)
    yield []
    yield [Span("Memory a device", "bold")]
    memory = e["memory_bytes"]
    yield from _bars([(words, memory[key]) for key, words in MEMORY_PARTS], gib, width)
    if not memory["fits"]:
        over = gib(memory["total"] - memory["available"])
        yield [Span(f"  does not fit: {over} too much", "bold red")]
    yield []
    yield from labelled("Error, measured:", error_text(e["error_band"]), width)
    yield [Span("Assumed", "bold")]
    for row in e["assumptions"]:
        yield from indented(f"{row['what']}: {row['value']}; {row['why']}", width, 2)


def _bars(parts: list[tuple[str, float]], show: Any, width: int) -> Iterator[Line]:
    """Each part that is not 0 with its share of the total as a bar."""
    total = sum(value for _, value in parts) or 1.0
    for label, value in parts:
        if value > 0:
            share = value / total
            bar = "█" * max(1, round(share * min(BAR, width - BESIDE)))
            yield [Span(f"  {label:<34}{show(value):>12} {share:>6.1%}  "), Span(bar, "blue")]
