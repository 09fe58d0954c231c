"""What ``compile`` shows of a report in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.report.compile_screen import (
    _collectives,
    _padding,
    _unplanned,
    below_the_sum,
    place,
)

HERE = Path(__file__).parent
SOURCE = str(HERE.parents[1] / "src")


def test_lines_of_an_unplanned_collective_add_up_to_what_is_sent() -> None:
    # 100 GB sent where the plan has 60: 40 unplanned; two lines known send 70 + 20, 10 are left.
    file = "/elsewhere/model.py"
    row = {
        "kind": "all_gather", "mesh_axis": "tp", "bytes_per_device_per_step": 100e9,
        "expected_bytes_per_device_per_step": 60e9, "instead_of": None,
        "sources": [
            {"file": file, "line": 7, "bytes_per_device_per_step": 70e9},
            {"file": file, "line": 9, "bytes_per_device_per_step": 20e9},
        ],
    }  # fmt: skip
    words = ["".join(span.text for span in line) for line in _unplanned(row, 100)]
    assert words == [
        "  unplanned: 40.0 GB of all_gather over tp; all 100 GB by line",
        f"    {file}:7  70.0 GB",
        f"    {file}:9  20.0 GB",
        "    other lines, or none known  10.0 GB",
    ]


def _row(**more: Any) -> dict[str, Any]:
    return {
        "kind": "all_gather", "mesh_axis": "fsdp", "count_per_step": 3, "algorithm": "",
        "bytes_per_device_per_step": 6e6, "expected_bytes_per_device_per_step": 6e6,
        "lowered_bytes_per_device_per_step": None, "planned": True, "insertions": [],
    } | more  # fmt: skip


def _table(mode: str, *rows: dict[str, Any]) -> list[str]:
    stated = {"programs": 1} if mode == "fast" else None
    report = {
        "collectives": list(rows), "versions": {"libtpu": "0.0.42.1"}, "fast_mode": stated,
        "plan": "fsdp=8",
    }  # fmt: skip
    return ["".join(span.text for span in line).rstrip() for line in _collectives(report, 100)]


def test_a_way_longer_than_its_column_has_a_line_of_its_own() -> None:
    ways = "RotatedPincerEmitter 2DAllGatherNonMajorDim"
    lines = _table("time", _row(algorithm=ways), _row(algorithm="short"))
    assert lines[2] == f"    how: {ways}"
    assert lines[3].endswith("  short")
    assert max(map(len, lines)) <= 100


def test_the_fast_mode_says_which_mode_names_the_algorithm() -> None:
    assert any("--time says it" in line for line in _table("fast", _row()))
    for lines in (_table("time", _row()), _table("fast", _row(algorithm="windowed einsum"))):
        assert not any("--time" in line for line in lines)


def test_where_no_rule_of_libtpus_is_known_its_column_goes_and_a_line_says_so() -> None:
    unknown = _table("time", _row())
    assert "by libtpu" not in unknown[0]
    assert "is not foretold" in " ".join(unknown)
    known = _table("time", _row(lowered_bytes_per_device_per_step=6e6))
    assert "by libtpu" in known[0]
    assert "is not foretold" not in " ".join(known)


def test_collectives_of_a_program_without_a_plan_stand_with_their_lines() -> None:
    """A user's own step: nobody but its writer knows which were meant, and by the lines."""
    lines = [{"file": "/elsewhere/train.py", "line": 8, "bytes_per_device_per_step": 6e6}]
    none = {"expected_bytes_per_device_per_step": None, "planned": None, "sources": lines}
    words = _table("time", _row(**none))
    assert "by the plan" not in words[0] and "–" not in words[1].removesuffix("–")
    assert words[2] == "    /elsewhere/train.py:8  6.00 MB"
    assert not any("train.py" in line for line in _table("time", _row(sources=lines)))


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        # arguments 6, outputs 5, temporaries 4, together 15: under 6 + 5 outputs must lie in
        # arguments, under 6 + 4 temporaries must share room; above both it may be either
        (9, ": outputs take the room of donated arguments, and not all temporaries"),
        (10, ": outputs take the room of donated arguments"),
        (12, "donated arguments, or not all temporaries"),
        (15, None),
    ],
)
def test_a_peak_below_the_sum_of_its_parts_is_explained(peak: int, said: str | None) -> None:
    parts = {"peak": peak, "arguments": 6, "outputs": 5, "temporaries": 4}
    found = list(below_the_sum(parts))
    assert [said is not None and said in words for words in found] == [True] * (said is not None)


def test_a_tensors_padding_is_shown_where_it_can_be_seen() -> None:
    """Of 1 GiB each: a thirtieth more is nothing to read about, a third more is."""
    size = 2**30
    tensors = [
        {"shape": f"f32[{name}]", "name": name, "logical_bytes": size, "physical_bytes": physical}
        for name, physical in (("little", size * 31 // 30), ("much", size * 4 // 3))
    ]
    padding = {"padding": {"bytes": 0, "fraction": 0.0, "tensors": tensors}}
    words = ["".join(span.text for span in line) for line in _padding(padding, 100)]
    assert words == ["    f32[much] takes 1.3x its size: much"]


def test_lines_of_the_built_in_step_are_named_from_the_package_on() -> None:
    file = f"{SOURCE}/chipshift/compiled/step/model.py"
    assert place((file, 7)) == "chipshift/compiled/step/model.py:7"
    assert place(("/opt/site-packages/flax/nnx.py", 7)) == "flax/nnx.py:7"
    assert place(("/elsewhere/train.py", 7)) == "/elsewhere/train.py:7"
