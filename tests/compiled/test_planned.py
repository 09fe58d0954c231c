"""Collectives beside the plan's arithmetic: what the compiler put in itself is named."""

from __future__ import annotations

from typing import Any

from chipshift.compiled.planned import beside


def row(kind: str, sent: float, axis: str = "fsdp") -> dict[str, Any]:
    return {"kind": kind, "mesh_axis": axis, "count_per_step": 1,
            "bytes_per_device_per_step": sent, "algorithm": ""}  # fmt: skip


def at(kind: str, sent: float, line: int, axis: str = "fsdp") -> dict[str, Any]:
    return row(kind, sent, axis) | {"source": ["model.py", line]}


def test_what_the_plan_calls_for_is_planned_and_has_no_lines() -> None:
    (found,) = beside([row("all_gather", 101.0)], [], {("all_gather", "fsdp"): 100.0})
    assert (found["planned"], found["sources"], found["instead_of"]) == (True, [], None)
    assert found["expected_bytes_per_device_per_step"] == 100.0


def test_an_all_reduce_in_place_of_a_reduce_scatter_says_so_with_its_lines() -> None:
    """Twice the reduce-scatter's bytes, from two lines, the larger one first."""
    places = [at("all_reduce", 60.0, 7), at("all_reduce", 140.0, 9), at("all_gather", 100.0, 3)]
    found = beside(
        [row("all_reduce", 200.0), row("all_gather", 100.0)], places,
        {("reduce_scatter", "fsdp"): 100.0, ("all_gather", "fsdp"): 100.0},
    )  # fmt: skip
    by_kind = {one["kind"]: one for one in found}
    reduced = by_kind["all_reduce"]
    assert (reduced["planned"], reduced["instead_of"]) == (False, "reduce_scatter")
    assert [(s["line"], s["bytes_per_device_per_step"]) for s in reduced["sources"]] == [
        (9, 140.0), (7, 60.0),
    ]  # fmt: skip
    assert by_kind["all_gather"]["planned"] is True
    missing = by_kind["reduce_scatter"]
    assert (missing["bytes_per_device_per_step"], missing["planned"]) == (0.0, True)


def test_an_unplanned_collective_that_replaces_nothing_is_only_unplanned() -> None:
    found = beside(
        [row("all_reduce", 200.0, "tp"), row("reduce_scatter", 100.0)], [],
        {("reduce_scatter", "fsdp"): 100.0},
    )  # fmt: skip
    assert (found[0]["planned"], found[0]["instead_of"]) == (False, None)


def test_what_is_a_small_share_of_all_bytes_is_never_called_unplanned() -> None:
    found = beside(
        [row("all_gather", 1000.0), row("permute", 9.0)], [], {("all_gather", "fsdp"): 1000.0}
    )
    assert [one["planned"] for one in found] == [True, True]
