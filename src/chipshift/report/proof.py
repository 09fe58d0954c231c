"""Part four of the answer: what the target's own compiler said of each chosen plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from chipshift.report.compile_screen import NEAR_THE_LIMIT
from chipshift.report.lines import Line, Span, cut
from chipshift.units import gib_or_mib, si

COLLECTIVES = 3
"""Collectives named a target, the most bytes first; the page and --json have all of them."""

Proof = Mapping[str, Any]


def proofs_of(answer: Mapping[str, Any]) -> list[Proof]:
    """The compilations of an answer: one a target, or the one that ``proof`` holds."""
    found: list[Proof] = answer.get("proofs") or []
    return found or ([answer["proof"]] if answer.get("proof") else [])


def proof_lines(proofs: list[Proof], width: int) -> Iterator[Line]:
    """What each compilation showed: memory, what is sent, what the plan did not call for."""
    for one in proofs:
        words, style = verdict(one)
        said, rest = room(one), width - 18 - len(words)
        name, verdict_span = (
            Span(f"   {one['machine']:<14} "),
            Span(words[: max(width - 18, 0)], style),
        )
        yield [name, verdict_span, *([Span(said)] if len(said) <= rest else [])]
        if len(said) > rest:
            for line in wrap(said.removeprefix(": "), max(width - 18, 1)):
                yield [Span(" " * 18), Span(line)]
        for line in details(one):
            said_so = line in one["notes"]  # a note's reason stands at its end
            parts = wrap(line, max(width - 18, 1)) if said_so else [cut(line, width - 18)]
            for part in parts:
                yield [Span(" " * 18), Span(part, "dim")]


def verdict(one: Proof) -> tuple[str, str]:
    """In a word, and the style it is shown in."""
    if one["fits"]:
        return "compiles and fits", "bold green"
    if one["fits"] is False:
        return "does not fit", "bold red"
    return ("compiles", "bold") if one["compiled"] else ("not compiled", "bold red")


def room(one: Proof) -> str:
    """Memory at the peak and what there is, or why there is no program."""
    memory = one["memory_bytes"]
    if memory["peak"] is None:
        return "" if one["compiled"] else f": {one['reason']}"
    there = memory["available"]
    words = f": {gib_or_mib(memory['peak'])}"
    words += f" of {gib_or_mib(there)} a device at the peak" if there is not None else " a device"
    return words + (f", {gib_or_mib(one['short_bytes'])} too much" if one["short_bytes"] else "")


def details(one: Proof) -> Iterator[str]:
    """What fits instead, what is sent a step, what the plan did not call for, and notes."""
    if one["nearest_fit"]:
        fit = one["nearest_fit"]
        peak = gib_or_mib(fit["memory_bytes"]["peak"])
        yield f"fits instead: --plan {fit['plan']} ({peak}, compiled to confirm)"
    sent = [c for c in one["collectives"] if c["bytes_per_device_per_step"]]
    if sent:
        yield "sent a step: " + ", ".join(
            f"{si(c['bytes_per_device_per_step'], 'B')} {c['kind']} over {c['mesh_axis']}"
            for c in sent[:COLLECTIVES]
        )
    for c in one["collectives"]:
        if c["planned"] is False:
            yield unplanned(c)
    if one["fast_mode"] and one["fast_mode"]["verdict_holds"] is False:
        yield NEAR_THE_LIMIT
    yield from one["notes"]


def unplanned(c: Mapping[str, Any]) -> str:
    """A collective that the plan did not call for, with the line it comes from."""
    more = c["bytes_per_device_per_step"] - c["expected_bytes_per_device_per_step"]
    instead = f" instead of {c['instead_of']}" if c["instead_of"] else ""
    first = c["sources"][0] if c["sources"] else None
    where = f" ({first['file'].rpartition('/')[2]}:{first['line']})" if first else ""
    return f"unplanned: {si(more, 'B')} {c['kind']} over {c['mesh_axis']}{instead}{where}"
