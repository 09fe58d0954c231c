"""Collectives beside the plan's arithmetic: what the compiler put in itself is named."""

from __future__ import annotations

from typing import Any

from chipshift.compiled.planned import beside, delivered


def row(kind: str, sent: float, axis: str = "fsdp") -> dict[str, Any]:
    return {"kind": kind, "mesh_axis": axis, "count_per_step": 1,
            "bytes_per_device_per_step": sent, "algorithm": ""}  # fmt: skip


def at(kind: str, sent: float, line: int, axis: str = "fsdp") -> dict[str, Any]:
    return row(kind, sent, axis) | {"source": ["model.py", line]}


def test_what_the_plan_calls_for_is_planned_and_has_no_lines() -> None:
    (found,) = beside([row("all_gather", 101.0)], [], {("all_gather", "fsdp"): 100.0}, None)
    assert (found["planned"], found["sources"], found["instead_of"]) == (True, [], None)
    assert found["expected_bytes_per_device_per_step"] == 100.0


def in_place(kind: str, sent: float, axis: str = "fsdp") -> dict[str, Any]:
    """An all-reduce of twice the bytes that does the work of ``kind``."""
    instead = [{"kind": kind, "mesh_axis": axis, "bytes_per_device_per_step": sent}]
    return row("all_reduce", 2 * sent, axis) | {
        "own_bytes_per_device_per_step": 0.0, "in_place_of": instead,
    }  # fmt: skip


SCATTER_AND_GATHER = {("reduce_scatter", "fsdp"): 100.0, ("all_gather", "fsdp"): 100.0}


def test_an_all_reduce_in_place_of_a_reduce_scatter_says_so_with_its_lines() -> None:
    """Twice the reduce-scatter's bytes, from two lines, the larger one first."""
    places = [at("all_reduce", 60.0, 7), at("all_reduce", 140.0, 9), at("all_gather", 100.0, 3)]
    program = [in_place("reduce_scatter", 100.0), row("all_gather", 100.0)]
    found = beside(program, places, SCATTER_AND_GATHER, None)
    by_kind = {one["kind"]: one for one in found}
    reduced = by_kind["all_reduce"]
    assert (reduced["planned"], reduced["instead_of"]) == (False, "reduce_scatter")
    assert [(s["line"], s["bytes_per_device_per_step"]) for s in reduced["sources"]] == [
        (9, 140.0), (7, 60.0),
    ]  # fmt: skip
    assert by_kind["all_gather"]["planned"] is True
    missing = by_kind["reduce_scatter"]
    assert (missing["bytes_per_device_per_step"], missing["planned"]) == (0.0, True)
    assert missing["done_bytes_per_device_per_step"] == 100.0  # by the all-reduce


def test_a_way_out_goes_by_whether_the_slice_or_the_layout_is_the_cause() -> None:
    program = [in_place("reduce_scatter", 100.0), row("all_gather", 100.0)]
    by_layout = beside(program, [], SCATTER_AND_GATHER, SCATTER_AND_GATHER)[0]
    assert "xla_tpu_relayout_group_size_threshold" in by_layout["way_out"]
    foretold = {("all_reduce", "fsdp"): 200.0, ("all_gather", "fsdp"): 100.0}
    by_slice = beside(program, [], SCATTER_AND_GATHER, foretold, foretold)[0]
    assert "two mesh axes" in by_slice["way_out"]
    foretold_by_layout = beside(program, [], SCATTER_AND_GATHER, foretold, SCATTER_AND_GATHER)[0]
    assert foretold_by_layout["way_out"] == by_layout["way_out"]
    assert by_slice["lowered_bytes_per_device_per_step"] == 200.0


def test_what_is_done_leaves_insertions_out_and_counts_work_as_what_it_is() -> None:
    """120 B gathered, 20 of them again; a scatter of 50 B done as an all-reduce of 100 B."""
    gathered = row("all_gather", 120.0) | {"own_bytes_per_device_per_step": 100.0}
    assert delivered([gathered, in_place("reduce_scatter", 50.0)]) == {
        ("all_gather", "fsdp"): 100.0,
        ("all_reduce", "fsdp"): 0.0,
        ("reduce_scatter", "fsdp"): 50.0,
    }


def test_an_insertion_is_listed_with_its_reason_line_and_bytes() -> None:
    again = at("all_gather", 20.0, 3) | {
        "inserted": "made again", "inserted_bytes_per_device_per_step": 20.0,
    }  # fmt: skip
    (found,) = beside([row("all_gather", 120.0)], [again, at("all_gather", 100.0, 3)],
                      {("all_gather", "fsdp"): 100.0}, None)  # fmt: skip
    assert found["insertions"] == [
        {"why": "made again", "file": "model.py", "line": 3, "bytes_per_device_per_step": 20.0}
    ]


def test_an_unplanned_collective_that_replaces_nothing_is_only_unplanned() -> None:
    found = beside(
        [row("all_reduce", 200.0, "tp"), row("reduce_scatter", 100.0)], [],
        {("reduce_scatter", "fsdp"): 100.0}, None,
    )  # fmt: skip
    assert (found[0]["planned"], found[0]["instead_of"]) == (False, None)


def test_what_is_a_small_share_of_all_bytes_is_never_called_unplanned() -> None:
    program = [row("all_gather", 1000.0), row("permute", 0.9)]
    found = beside(program, [], {("all_gather", "fsdp"): 1000.0}, None)
    assert [one["planned"] for one in found] == [True, True]


def test_what_is_more_than_a_thousandth_of_all_bytes_is_named() -> None:
    program = [row("all_gather", 1000.0), row("permute", 9.0)]
    found = beside(program, [], {("all_gather", "fsdp"): 1000.0}, None)
    assert [one["planned"] for one in found] == [True, False]
