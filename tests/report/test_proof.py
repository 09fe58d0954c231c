"""Part four: what the compiler said of each plan."""

from __future__ import annotations

from typing import Any

from chipshift.report.proof import proof_lines, room, verdict


def collective(kind: str, sent: float, plan: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "mesh_axis": "fsdp", "bytes_per_device_per_step": sent,
        "expected_bytes_per_device_per_step": plan, "planned": True, "instead_of": None,
        "sources": [],
    } | more  # fmt: skip


FITS: dict[str, Any] = {
    "machine": "v6e:4x4",
    "compiled": True,
    "fits": True,
    "reason": None,
    "short_bytes": None,
    "fast_mode": {"verdict_holds": True},
    "memory_bytes": {"peak": 8 * 2**30, "available": 31.25 * 2**30},
    "collectives": [
        collective("all_gather", 3e9, 3e9),
        collective(
            "all_reduce", 4e9, 0.0, planned=False, instead_of="reduce_scatter",
            sources=[{"file": "/home/me/train.py", "line": 12}],
        ),
    ],
    "nearest_fit": None,
    "notes": [],
}  # fmt: skip


def text(*proofs: dict[str, Any], width: int = 100) -> list[str]:
    return ["".join(span.text for span in line) for line in proof_lines(list(proofs), width)]


def test_a_plan_that_fits_names_its_memory_and_what_the_plan_did_not_call_for() -> None:
    first, sent, unplanned = text(FITS)
    assert first.split(None, 1) == [
        "v6e:4x4", "compiles and fits: 8.0 GiB of 31.2 GiB a device at the peak",
    ]  # fmt: skip
    assert sent.strip() == (
        "sent a step: 3.00 GB all_gather over fsdp, 4.00 GB all_reduce over fsdp"
    )
    assert unplanned.strip() == (
        "unplanned: 4.00 GB all_reduce over fsdp instead of reduce_scatter (train.py:12)"
    )


def test_a_plan_that_does_not_fit_names_one_that_does() -> None:
    refused = FITS | {
        "compiled": False, "fits": False, "short_bytes": 2**30, "collectives": [],
        "memory_bytes": {"peak": 32.25 * 2**30, "available": 31.25 * 2**30},
        "nearest_fit": {"plan": "fsdp=16,remat=full", "memory_bytes": {"peak": 20 * 2**30}},
    }  # fmt: skip
    first, instead = text(refused)
    assert "does not fit: 32.2 GiB of 31.2 GiB a device at the peak, 1.0 GiB too much" in first
    assert instead.strip() == (
        "fits instead: --plan fsdp=16,remat=full (20.0 GiB, compiled to confirm)"
    )


def test_a_plan_that_is_not_compiled_says_why() -> None:
    nothing = {"peak": None, "available": 31.25 * 2**30}
    one = FITS | {"compiled": False, "fits": None, "reason": "pp=4", "memory_bytes": nothing}
    assert (verdict(one)[0], room(one)) == ("not compiled", ": pp=4")


def test_a_long_reason_is_read_to_its_end() -> None:
    nothing = {"peak": None, "available": 31.25 * 2**30}
    reason = "ep=8 divides neither fsdp=1 nor " + "its product with any other axis " * 4 + "at all"
    one = FITS | {"compiled": False, "fits": None, "reason": reason, "memory_bytes": nothing}
    first, *rest = text(one, width=60)
    assert first.strip().endswith("not compiled")
    assert reason in " ".join(line.strip() for line in rest)
    assert all(len(line) <= 60 for line in rest)


def test_no_line_is_wider_than_the_window() -> None:
    assert all(len(line) <= 60 for line in text(FITS, width=60))
