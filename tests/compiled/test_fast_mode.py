"""What the fast mode says of its own error, and when that could turn the verdict."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from chipshift.compiled import fast_mode
from chipshift.compiled.report import report
from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.machines.names import parse_machine
from chipshift.report.compile_screen import screen
from chipshift.report.proof import details

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SEEN = {"low": -0.10, "median": -0.02, "high": 0.25}


def room(peak: float | None, available: float | None) -> dict[str, Any]:
    return {"peak": peak, "available": available}


@pytest.mark.parametrize(
    ("peak", "holds"),
    [
        (89.0, True),  # at full effort at most 89 / 0.9 = 98.9 of 100
        (91.0, False),  # perhaps 91 / 0.9 = 101.1: it may not fit after all
        (100.0, False),
        (124.0, False),  # perhaps 124 / 1.25 = 99.2: it may fit after all
        (126.0, True),  # at least 126 / 1.25 = 100.8
    ],
)
def test_the_verdict_holds_where_no_deviation_seen_would_turn_it(peak: float, holds: bool) -> None:
    assert fast_mode.verdict_holds(SEEN, room(peak, 100.0)) is holds


@given(some.floats(1.0, 200.0), some.floats(-0.10, 0.25))
def test_a_verdict_that_holds_is_the_one_of_full_effort(peak: float, deviation: float) -> None:
    if fast_mode.verdict_holds(SEEN, room(peak, 100.0)):
        assert (peak / (1 + deviation) <= 100.0) is (peak <= 100.0)


def test_no_verdict_is_neither() -> None:
    assert fast_mode.verdict_holds(SEEN, room(None, 100.0)) is None
    assert fast_mode.verdict_holds(SEEN, room(90.0, None)) is None


def test_what_is_shipped_is_what_the_kept_programs_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    compare = importlib.import_module("compare_compile")
    assert fast_mode.known() == compare.fast_mode()
    assert set(fast_mode.known()) == {"v5e", "v5p", "v6e", "v7x"}


def compiled(machine: str, mode: str, share: float) -> dict[str, Any]:
    """The report of a program whose peak is a share of the usable memory."""
    found = parse_machine(machine)
    available = int(found.chip.value("usable_hbm_bytes_per_device"))
    sizes = {"arguments": 1, "outputs": 1, "temporaries": 1, "peak": int(share * available)}
    outcome = {"compiled": True, "memory_bytes": sizes | {"available": available}}
    asked = Request("entry", "mine", target(found), mode=mode)
    return report(asked, found, outcome, cached=False)


def text(found: dict[str, Any]) -> str:
    return " ".join("".join(span.text for span in line) for line in screen(found))


def test_the_screen_says_how_many_programs_were_the_same_to_the_byte() -> None:
    programs = fast_mode.known()["v6e"]["programs"]
    assert f"to the byte in {programs} programs on v6e" in text(compiled("v6e:4x4", "fast", 0.999))


def test_the_screen_states_the_deviation_and_asks_for_time_near_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = {"programs": 7, "models": 3, "peak": SEEN, "evidence": "some programs"}
    monkeypatch.setattr(fast_mode, "known", lambda: {"v6e": seen})
    near, far = compiled("v6e:4x4", "fast", 0.999), compiled("v6e:4x4", "fast", 0.4)
    for found in (near, far):
        assert "-10.0% to +25.0%" in text(found)
        assert "7 programs on v6e" in text(found)
    assert near["fits"] is True
    assert "compile with --time" in text(near)
    assert "compile with --time" not in text(far)
    assert any("compile with --time" in line for line in details(near))
    assert not any("--time" in line for line in details(far))


def test_both_modes_send_the_same_bytes_by_kind_and_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    verify = importlib.import_module("verify_compile")
    fast, whole = verify.results("fast"), verify.results("time")
    both = [line for line, row in whole.items() if row["compiled"] and fast[line]["compiled"]]
    assert len(both) >= 20
    for line in both:
        sent = [
            {
                (c["kind"], c["mesh_axis"]): c["bytes_per_device_per_step"]
                for c in row["collectives"]
            }
            for row in (fast[line], whole[line])
        ]
        assert sent[0] == sent[1], line


def test_both_modes_mean_the_same_room_by_temporaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs kept since time mode reads it off the buffer assignment; null of others."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    verify = importlib.import_module("verify_compile")
    fast, whole = verify.results("fast"), verify.results("time")
    rooms = {
        line: row["memory_bytes"]["temporaries"] for line, row in whole.items() if row["compiled"]
    }
    known = {line: room for line, room in rooms.items() if room is not None}
    assert len(known) >= 4
    assert known == {line: fast[line]["memory_bytes"]["temporaries"] for line in known}


def test_time_mode_and_gpus_have_no_such_error() -> None:
    # XLA:GPU is given the same options in both modes.
    for machine, mode in (("v6e:4x4", "time"), ("h100:8x1", "fast")):
        found = compiled(machine, mode, 0.999)
        assert found["fast_mode"] is None
        assert "fast mode: " not in text(found)


def test_a_chip_without_programs_is_said_to_be_unknown() -> None:
    found = compiled("v4:2x2x1", "fast", 0.999)
    assert found["fast_mode"]["programs"] == 0
    assert found["fast_mode"]["verdict_holds"] is None
    assert "on v4 is not known" in text(found)
