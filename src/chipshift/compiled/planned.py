"""What a program sends beside what its plan calls for: the compiler's own collectives named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from chipshift.compiled.stages import Sums
from chipshift.fabric.lowering import rules

WITHIN = 0.02
"""Bytes above the arithmetic, relative, from which a collective counts as the compiler's own."""

SMALL_SHARE = 1e-3
"""Collectives below this share of all bytes are listed but never called unplanned."""

LINES = 3
"""Source lines named for a collective that the plan did not call for."""

SENT = "bytes_per_device_per_step"
OWN = f"own_{SENT}"

Row = dict[str, Any]


def beside(
    found: list[Row],
    places: list[Row],
    wanted: Sums,
    lowered: Sums | None,
    by_slice: Sums | None = None,
) -> list[Row]:
    """Each collective with the plan's bytes for its kind and axis, then those the plan has and the
    program lacks. One that sends more than the plan says where, and what it stands in for.

    ``lowered``: what this compiler is known to send for the plan's collectives (lowering.py), where
    it is known; ``by_slice``: the same by rules of the slice alone.
    """
    total = sum(one[SENT] for one in found) or 1.0
    left, sent_for = dict(wanted), dict(lowered or {})
    done = delivered(found)
    rows = []
    for one in found:
        key = (one["kind"], one["mesh_axis"])
        plan, sent = left.pop(key, 0.0), one[SENT]
        planned = sent - plan <= SMALL_SHARE * total or sent <= plan * (1 + WITHIN)
        rows.append(one | {"expected_bytes_per_device_per_step": plan, "planned": planned})
    for kind, axis in [*left, *(key for key in sent_for if key not in wanted)]:
        if (kind, axis) not in {(row["kind"], row["mesh_axis"]) for row in rows}:
            rows.append(_missing(kind, axis, left.get((kind, axis), 0.0)))
    for row in rows:
        key = (row["kind"], row["mesh_axis"])
        row["lowered_bytes_per_device_per_step"] = sent_for.get(key, 0.0) if lowered else None
        row["done_bytes_per_device_per_step"] = done.get(key, 0.0)
        row["instead_of"] = None if row["planned"] else _instead_of(row)
        row["sources"] = [] if row["planned"] else sources(row, places)
        row["way_out"] = _way_out(row, (by_slice or {}).get(key, 0.0))
        row["insertions"] = insertions(row, places)
    return rows


def delivered(found: list[Row]) -> Sums:
    """Bytes of each kind over each axis that the program's collectives do the work of: what was put
    in by the compiler left out, and an all-reduce that stands for a gather or a scatter counted as
    that."""
    sums: Sums = defaultdict(float)
    for one in found:
        sums[one["kind"], one["mesh_axis"]] += one[OWN] if OWN in one else one[SENT]
        for other in one.get("in_place_of", []):
            sums[other["kind"], other["mesh_axis"]] += other[SENT]
    return dict(sums)


def _missing(kind: str, axis: str, sent: float) -> Row:
    return {
        "kind": kind,
        "mesh_axis": axis,
        "count_per_step": 0,
        "bytes_per_device_per_step": 0.0,
        "own_bytes_per_device_per_step": 0.0,
        "inserted_bytes_per_device_per_step": 0.0,
        "in_place_of": [],
        "algorithm": "",
        "expected_bytes_per_device_per_step": sent,
        "planned": True,
    }


def _instead_of(row: Row) -> str | None:
    """The kind that most of an unplanned all-reduce's bytes do the work of, if any."""
    others = max(row.get("in_place_of", []), key=lambda one: float(one[SENT]), default=None)
    return str(others["kind"]) if others and others["kind"] != row["kind"] else None


def _way_out(row: Row, by_slice: float) -> str | None:
    """What keeps a gather or scatter from being an all-reduce, where something is known to.
    ``by_slice``: bytes that rules of the slice say are sent so."""
    if row["instead_of"] is None or row["lowered_bytes_per_device_per_step"] is None:
        return None
    if row["instead_of"] == "reduce_scatter" and by_slice <= row[SENT] / 2:
        return str(rules()["way_out"]["flag"])
    over = {other["mesh_axis"] for other in row["in_place_of"]}
    return str(rules()["way_out"]["staged"]) if over == {row["mesh_axis"]} else None


def insertions(row: Row, places: list[Row]) -> list[Row]:
    """What the compiler put in of a kind over an axis: why, bytes, and the line it comes from, the
    most bytes first."""
    sums: dict[tuple[str, str | None, int | None], float] = defaultdict(float)
    for place in places:
        same = (place["kind"], place["mesh_axis"]) == (row["kind"], row["mesh_axis"])
        if same and place.get("inserted"):
            file, line = (place["source"] or (None, None))[:2]
            sums[place["inserted"], file, line] += place["inserted_bytes_per_device_per_step"]
    return [
        {"why": why, "file": file, "line": line, SENT: sent}
        for (why, file, line), sent in sorted(sums.items(), key=lambda item: -item[1])
    ]


def sources(row: Mapping[str, Any], places: list[Row]) -> list[Row]:
    """Lines of the traced program that a kind of collective over an axis comes from, the most bytes
    first."""
    sums: dict[tuple[str, int, str | None], float] = {}
    for place in places:
        same = (place["kind"], place["mesh_axis"]) == (row["kind"], row["mesh_axis"])
        if same and place["source"]:
            key = (place["source"][0], place["source"][1], place.get("function"))
            sums[key] = sums.get(key, 0.0) + place["bytes_per_device_per_step"]
    return [
        {"file": file, "line": line, "function": function, "bytes_per_device_per_step": sent}
        for (file, line, function), sent in sorted(sums.items(), key=lambda i: -i[1])[:LINES]
    ]
