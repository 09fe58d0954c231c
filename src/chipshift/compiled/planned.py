"""What a program sends beside what its plan calls for: the compiler's own collectives named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chipshift.compiled.expected import Sums

WITHIN = 0.02
"""Bytes above the arithmetic, relative, from which a collective counts as the compiler's own."""

SMALL_SHARE = 0.01
"""Collectives below this share of all bytes are listed but never called unplanned."""

LINES = 3
"""Source lines named for a collective that the plan did not call for."""

Row = dict[str, Any]


def beside(found: list[Row], places: list[Row], wanted: Sums) -> list[Row]:
    """Each collective with the plan's bytes for its kind and axis, then those the plan has and the
    program lacks. One that sends more than the plan says where, and what it stands in for."""
    total = sum(one["bytes_per_device_per_step"] for one in found) or 1.0
    left = dict(wanted)
    rows = []
    for one in found:
        sent = one["bytes_per_device_per_step"]
        plan = left.pop((one["kind"], one["mesh_axis"]), 0.0)
        small = sent - plan <= SMALL_SHARE * total
        planned = small or sent <= plan * (1 + WITHIN)
        rows.append(one | {"expected_bytes_per_device_per_step": plan, "planned": planned})
    rows += [_missing(kind, axis, sent) for (kind, axis), sent in left.items()]
    for row in rows:
        row["instead_of"] = None if row["planned"] else _instead_of(row, rows)
        row["sources"] = [] if row["planned"] else sources(row, places)
    return rows


def _missing(kind: str, axis: str, sent: float) -> Row:
    return {
        "kind": kind,
        "mesh_axis": axis,
        "count_per_step": 0,
        "bytes_per_device_per_step": 0.0,
        "algorithm": "",
        "expected_bytes_per_device_per_step": sent,
        "planned": True,
    }


def _instead_of(row: Row, rows: list[Row]) -> str | None:
    """The planned kind over the same axis that an all-reduce took the place of: most of its excess
    is twice what that one falls short of (an all-reduce is a reduce-scatter and an all-gather)."""
    if row["kind"] != "all_reduce":
        return None
    excess = row["bytes_per_device_per_step"] - row["expected_bytes_per_device_per_step"]
    short = {
        one["kind"]: one["expected_bytes_per_device_per_step"] - one["bytes_per_device_per_step"]
        for one in rows
        if one["mesh_axis"] == row["mesh_axis"] and one["kind"] != "all_reduce"
    }
    kind = max(short, key=lambda name: short[name], default=None)
    return kind if kind is not None and 2 * short[kind] > excess / 2 else None


def sources(row: Mapping[str, Any], places: list[Row]) -> list[Row]:
    """Lines of the traced program that a kind of collective over an axis comes from, the most bytes
    first."""
    sums: dict[tuple[str, int], float] = {}
    for place in places:
        same = (place["kind"], place["mesh_axis"]) == (row["kind"], row["mesh_axis"])
        if same and place["source"]:
            key = (place["source"][0], place["source"][1])
            sums[key] = sums.get(key, 0.0) + place["bytes_per_device_per_step"]
    return [
        {"file": file, "line": line, "bytes_per_device_per_step": sent}
        for (file, line), sent in sorted(sums.items(), key=lambda item: -item[1])[:LINES]
    ]
