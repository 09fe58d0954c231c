"""How a traced PyTorch module is cut over tp, and what of it is whole and why, in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from chipshift.report.lines import Line, Span, indented
from chipshift.units import si

ROLES = ("columns", "rows", "vocabulary")

LISTED = 4
"""Reasons named for what is whole."""


def sharding_lines(rows: list[Mapping[str, Any]] | None, width: int) -> Iterator[Line]:
    """Nothing where tp cuts nothing and nothing asks it to."""
    if not rows:
        return
    cut = [f"{role} of {_names(rows, role)}" for role in ROLES if _names(rows, role)]
    if cut:
        yield from _dim(f"tp cuts {'; '.join(cut)}", width)
    whole: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["whole_over_tp"]:
            whole.setdefault(row["whole_over_tp"], []).append(row)
    for why, of in list(whole.items())[:LISTED]:
        elements = sum(row["count"] * prod(row["shape"]) for row in of)
        names = ", ".join(dict.fromkeys(row["parameters"] for row in of))
        said = f"whole on every tp device: {names} ({si(float(elements), 'elements')}): {why}"
        for line in indented(said, width, 2):
            yield [Span(span.text, "yellow") for span in line]
    if len(whole) > LISTED:
        yield from _dim(f"{len(whole) - LISTED} more reasons in --json (sharding)", width)


def _names(rows: list[Mapping[str, Any]], role: str) -> str:
    """Last words of the parameters' names, each once: ``q_proj`` of ``layers.*.q_proj.weight``."""
    words = [row["parameters"].removesuffix(".weight").rpartition(".")[2] for row in rows
             if row["role"] == role]  # fmt: skip
    return ", ".join(dict.fromkeys(words))


def _dim(words: str, width: int) -> Iterator[Line]:
    for line in indented(words, width, 2):
        yield [Span(span.text, "dim") for span in line]
