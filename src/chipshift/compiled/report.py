"""The report of one compilation: outputs.md's ``compile`` object, from the child's outcome."""

from __future__ import annotations

from typing import Any

from chipshift.compiled.expected import expected
from chipshift.compiled.request import Request
from chipshift.compiled.seconds import estimated_time
from chipshift.machines.machine import Machine

PLANNED_WITHIN = 0.02
"""Bytes above the arithmetic, relative, from which a collective counts as the compiler's own."""

SMALL_SHARE = 0.01
"""Collectives below this share of all bytes are listed but never called unplanned."""


def report(
    request: Request, machine: Machine, outcome: dict[str, Any], cached: bool
) -> dict[str, Any]:
    """One compilation as data; what the compiler did not say is null."""
    memory = _memory(machine, outcome)
    collectives = outcome.get("collectives", [])
    found = {
        "schema": "chipshift/compile/1",
        "machine": machine.name,
        "program": request.program,
        "mode": request.mode,
        "compiled": bool(outcome.get("compiled")),
        "reason": outcome.get("reason"),
        "memory_bytes": memory,
        "short_bytes": outcome.get("short_bytes"),
        "collectives": _beside_expected(request, collectives),
        "places": outcome.get("places", [])[:40],
        "estimated_time_s": _seconds(request, machine, outcome),
        "padding": outcome.get("padding", {"bytes": None, "fraction": None}),
        "largest": outcome.get("largest", []),
        "flops_per_device": outcome.get("flops_per_device"),
        "compile_time_s": outcome.get("compile_time_s"),
        "lower_time_s": outcome.get("lower_time_s"),
        "cached": cached,
        "versions": {"jax": None, "jaxlib": None, "libtpu": None, **outcome.get("versions", {})},
        "findings": outcome.get("findings", []),
        "also": [],
        "against": None,
    }
    found["fits"] = _fits(found)
    return found


def _seconds(request: Request, machine: Machine, outcome: dict[str, Any]) -> dict[str, Any] | None:
    """Null in fast mode: low effort leaves matmuls untuned, so that their cycles mean nothing."""
    if request.mode == "fast" or not outcome.get("compiled"):
        return None
    return estimated_time(outcome, request.config, machine)


def _memory(machine: Machine, outcome: dict[str, Any]) -> dict[str, Any]:
    said = dict(outcome.get("memory_bytes") or {})
    available = outcome.get("available_bytes") or said.get("available")
    if available is None and machine.chip.has("usable_hbm_bytes_per_device"):
        available = int(machine.chip.value("usable_hbm_bytes_per_device"))
    keys = ("arguments", "outputs", "temporaries", "peak")
    memory = {key: said.get(key) for key in keys}
    if memory["temporaries"] is None and outcome.get("wanted_bytes"):
        memory["temporaries"] = outcome["wanted_bytes"]  # what the compiler says it would need
    return memory | {"available": available}


def _fits(found: dict[str, Any]) -> bool | None:
    memory = found["memory_bytes"]
    if found["compiled"] and memory["peak"] is not None and memory["available"] is not None:
        return bool(memory["peak"] <= memory["available"])
    return False if found["short_bytes"] else None


def _beside_expected(request: Request, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each collective with the arithmetic's bytes for its kind and axis, largest first; kinds that
    the arithmetic expects and the program lacks are listed with none."""
    if request.config is None:
        return [one | {"expected_bytes_per_device_per_step": None} for one in found]
    wanted = expected(request.config)
    total = sum(one["bytes_per_device_per_step"] for one in found) or 1.0
    rows = []
    for one in found:
        sent = one["bytes_per_device_per_step"]
        plan = wanted.pop((one["kind"], one["mesh_axis"]), 0.0)
        small = sent - plan <= SMALL_SHARE * total
        rows.append(
            one
            | {
                "expected_bytes_per_device_per_step": plan,
                "planned": small or sent <= plan * (1 + PLANNED_WITHIN),
            }
        )
    for (kind, axis), sent in wanted.items():
        rows.append(
            {
                "kind": kind,
                "mesh_axis": axis,
                "count_per_step": 0,
                "bytes_per_device_per_step": 0.0,
                "algorithm": "",
                "expected_bytes_per_device_per_step": sent,
                "planned": True,
            }
        )
    return rows
