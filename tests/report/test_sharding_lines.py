"""How a traced module is cut over tp, in lines."""

from __future__ import annotations

from typing import Any

from chipshift.report.sharding_lines import sharding_lines


def row(name: str, role: str | None, why: str | None = None, count: int = 2) -> dict[str, Any]:
    return {
        "parameters": name, "count": count, "shape": [64, 32], "cut": [None, "fsdp"],
        "role": role, "whole_over_tp": why,
    }  # fmt: skip


def text(rows: Any) -> list[str]:
    return ["".join(span.text for span in line) for line in sharding_lines(rows, 100)]


def test_what_is_cut_is_named_once_by_its_role() -> None:
    rows = [row("layers.*.up.weight", "columns"), row("layers.*.down.weight", "rows"),
            row("embed.weight", "vocabulary"), row("layers.*.up.bias", "with them")]  # fmt: skip
    (line,) = text(rows)
    assert line.strip() == "tp cuts columns of up; rows of down; vocabulary of embed"


def test_what_is_whole_is_said_with_its_elements_and_the_reason() -> None:
    # two of 64 x 32 each
    said = " ".join(text([row("layers.*.qkv.weight", None, "a part of it is cut out (m.py:7)")]))
    assert "layers.*.qkv.weight" in said
    assert "4.10 kelements" in said
    assert "a part of it is cut out (m.py:7)" in said


def test_of_many_reasons_four_are_named_and_the_rest_counted() -> None:
    lines = text([row(f"w{n}", None, f"reason {n}") for n in range(6)])
    assert "reason 3" in " ".join(lines) and "reason 4" not in " ".join(lines)
    assert lines[-1].strip() == "2 more reasons in --json (sharding)"


def test_nothing_is_said_of_a_program_that_is_no_module() -> None:
    assert text(None) == []
