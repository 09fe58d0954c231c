"""A derivation as data and as text."""

from __future__ import annotations

from typing import Any

from chipshift.worked.value import Worked


def as_json(value: Worked, known: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The contract's ``worked`` object, inputs included; a value that stands twice is one dict."""
    known = {} if known is None else known
    if id(value) not in known:
        known[id(value)] = {
            "value": value.value,
            "unit": value.unit,
            "name": value.name,
            "expression": value.expression,
            "inputs": [as_json(one, known) for one in value.inputs],
            "source": value.source,
        }
    return known[id(value)]


def lines(value: Worked, depth: int | None = None) -> list[str]:
    """The derivation as an indented tree; a value that stands twice is worked out once."""
    seen: set[tuple[str, float, str]] = set()
    out: list[str] = []

    def walk(node: Worked, indent: int) -> None:
        pad = "  " * indent
        unit = "" if node.unit == "1" else node.unit
        head = f"{pad}{node.name or 'value'} = {number(node.value)} {unit}".rstrip()
        key = (node.name, node.value, node.expression)
        if not node.expression:
            out.append(f"{head}    [{node.source or 'no source given'}]")
            return
        if key in seen:
            out.append(f"{head}    (worked out above)")
            return
        seen.add(key)
        out.append(f"{head} = {node.expression}")
        if node.source:
            out.append(f"{pad}  after {node.source}")
        if depth is None or indent < depth:
            for one in node.inputs:
                walk(one, indent + 1)

    walk(value, 0)
    return out


def number(value: float) -> str:
    """A figure as a derivation prints it: exact when it is a modest integer, else 6 digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"
