"""A derivation as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chipshift.worked.value import Worked

Key = tuple[object, ...]


def as_json(value: Worked) -> dict[str, Any]:
    """The contract's ``worked`` object, inputs included; see ``together``."""
    return together([value])[0]


def together(values: Sequence[Worked]) -> list[dict[str, Any]]:
    """The ``worked`` objects of several values, each distinct step worked out once among them.

    A value that is read again (an equal one counts as the same) stands there with its number and
    ``same_as``, the ``id`` of the place where it has its expression, inputs and source: the first
    in the order of the text. So an object grows with the steps of a derivation, not with the paths
    through it, of which a deep model has millions.
    """
    ids: dict[int, int] = {}
    keys: dict[Key, int] = {}
    written: dict[int, dict[str, Any]] = {}

    def write(node: Worked) -> dict[str, Any]:
        at = ids[id(node)]
        head = {"value": node.value, "unit": node.unit, "name": node.name}
        if at in written:
            written[at]["id"] = at
            return {**head, "expression": "", "inputs": [], "source": f"id {at}", "same_as": at}
        out: dict[str, Any] = {**head, "expression": node.expression, "inputs": [],
                               "source": node.source}  # fmt: skip
        written[at] = out
        out["inputs"] = [write(one) for one in node.inputs]
        return out

    for value in values:
        _number(value, ids, keys)
    return [write(value) for value in values]


def _number(node: Worked, ids: dict[int, int], keys: dict[Key, int]) -> int:
    """Number the distinct steps of a derivation, inputs first; equal steps have one number."""
    if id(node) in ids:
        return ids[id(node)]
    inputs = tuple(_number(one, ids, keys) for one in node.inputs)
    key = (node.name, node.value, node.unit, node.expression, node.source, inputs)
    ids[id(node)] = keys.setdefault(key, len(keys))
    return ids[id(node)]


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
