"""``--against``: two compilations compared, and what is no report of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled import against
from chipshift.errors import InputError
from chipshift.report.compile_screen import (
    _against,
)


def test_against_a_file_of_another_kind(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text('{"schema": "chipshift/plan/1"}')
    with pytest.raises(InputError, match="expected 'chipshift/compile/1'"):
        against.load(str(old))


WHOLE: dict[str, Any] = {
    "schema": "chipshift/compile/1", "memory_bytes": {"peak": 1}, "collectives": [],
}  # fmt: skip


ROW = {"kind": "all_gather", "mesh_axis": "dp", "bytes_per_device_per_step": 1.0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_bytes", "x"),
        ("memory_bytes", {"peak": "much"}),
        ("collectives", 5),
        ("collectives", [ROW | {"bytes_per_device_per_step": None}]),
        ("collectives", [{"kind": "all_gather"}]),
    ],
)
def test_against_a_report_that_is_not_whole(tmp_path: Path, key: str, value: Any) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps(WHOLE))
    assert against.load(str(old)) == WHOLE
    old.write_text(json.dumps(WHOLE | {key: value}))
    with pytest.raises(InputError, match=f"{key} is not as compile --json writes it"):
        against.load(str(old))


def test_a_comparison_says_what_the_old_report_is_of() -> None:
    """Another program's figures are another program's, whatever they are."""
    new = WHOLE | {"machine": "v6e:4x4", "program": "p", "mode": "fast", "versions": {"jax": "2"}}
    old = new | {"program": "q", "versions": {"jax": "1", "libtpu": "7"}}
    change = against.compare("old.json", old, new)
    assert change["differs"] == [
        {"what": "program", "old": "q", "new": "p"},
        {"what": "jax", "old": "1", "new": "2"},
        {"what": "libtpu", "old": "7", "new": None},
    ]
    words = ["".join(span.text for span in line) for line in _against(change, 100)]
    assert words[:2] == ["Against old.json", "  of another program: q, now p"]


def test_changes_are_new_minus_old() -> None:
    def report(peak: int, sent: float) -> dict[str, Any]:
        row = {"kind": "all_gather", "mesh_axis": "fsdp", "bytes_per_device_per_step": sent}
        return {"memory_bytes": {"peak": peak}, "collectives": [row], "estimated_time_s": None}

    change = against.compare("old.json", report(100, 5.0), report(90, 8.0))
    assert change["memory_bytes"] == {"peak": -10}
    assert change["collectives"] == [{"kind": "all_gather", "mesh_axis": "fsdp", "change": 3.0}]
    assert change["estimated_time_s"] is None
