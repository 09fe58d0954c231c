"""A search on the terminal: the best plan, why the others lose, what each limit costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chipshift.report.lines import WIDTH, Line, Span, cut, indented, labelled, print_lines, room
from chipshift.report.rows import ROWS, cell, machine_text, plan_text, usd
from chipshift.report.words import does_not_fit, error_text
from chipshift.units import duration, gib


def print_plan(answer: Mapping[str, Any]) -> None:
    """Print the screen of one search."""
    print_lines(screen(answer, room()))


def screen(answer: Mapping[str, Any], width: int = WIDTH) -> Iterator[Line]:
    """The lines of ``plan --json``."""
    machine, best = answer["machine"], answer["best"]
    head = machine["name"]
    yield [Span(head, "bold"), Span(f"  {machine_text(machine)}"[: width - len(head)])]
    if best is None:
        yield [Span("does not fit", "bold red")]
        yield from indented(does_not_fit(answer), width, 2)
        yield from _search(answer)
        return
    yield [Span("  best  "), *_plan_line(best, width)]
    yield []
    for row in ROWS:
        yield [Span(f"  {row.label:<24}"), Span(f"{cell(best, row):>14}", "bold")]
    if best.get("batch_note"):
        yield from indented(best["batch_note"], width, 2)
    if answer["alternatives"]:
        yield []
        yield [Span("Others, and why they lose", "bold")]
    for other in answer["alternatives"]:
        time, memory = duration(other["step_time_s"]), gib(other["memory_bytes"]["total"])
        figures = f"  {time:>8} {memory:>9}  "
        yield [Span(figures), Span(cut(plan_text(other["plan"]), width - len(figures)))]
        yield from indented(other["loses_because"], width, len(figures))
    if answer["constraints"]:
        yield []
        yield [Span("What each limit costs a step", "bold")]
    for limit in answer["constraints"]:
        cost = f", {usd(limit['cost_usd'])}" if limit["cost_usd"] else ""
        yield [Span(cut(f"  {limit['name']}: {duration(limit['cost_s'])}{cost}", width))]
    yield from _frontier(answer, width)
    yield []
    yield from labelled("Error, measured:", error_text(best["error_band"]), width)
    for command in best.get("run", {}).values():
        yield [Span("Type next", "bold")]
        yield from indented(command, width, 2)
    yield from _search(answer)


def _plan_line(estimate: Mapping[str, Any], width: int) -> list[Span]:
    return [Span(cut(f"{plan_text(estimate['plan'])} ({estimate['stack']})", width - 8), "bold")]


def _frontier(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    """The slices that were looked at, where there are several."""
    rows = answer["frontier"]
    if len(rows) < 2:
        return
    yield []
    yield [Span("Slices looked at", "bold")]
    for row in rows:
        cost = row["usd_per_1e12_tokens"]
        price = "–" if cost is None else f"${cost:,.0f}"
        yield [Span(cut(
            f"  {row['machine']:<14}{row['chips']:>6,} chips {duration(row['step_time_s']):>9} "
            f"{price:>10} for 1e12 tokens  {plan_text(row['plan'])}", width
        ))]  # fmt: skip


def _search(answer: Mapping[str, Any]) -> Iterator[Line]:
    yield [Span(
        f"{answer['plans_considered']:,} plans considered: {answer['plans_pruned']:,} pruned, "
        f"{answer['plans_scored']:,} scored, {answer['plans_fitting']:,} fit, "
        f"in {duration(answer['search_time_s'])}", "dim"
    )]  # fmt: skip
