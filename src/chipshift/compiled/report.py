"""The report of one compilation: outputs.md's ``compile`` object, from the child's outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chipshift.compiled.expected import expected
from chipshift.compiled.expected_module import beside_module
from chipshift.compiled.fast_mode import stated
from chipshift.compiled.hlo.flops import SOFTMAX
from chipshift.compiled.planned import beside, insertions, sources
from chipshift.compiled.request import Request
from chipshift.compiled.seconds import attention_kernel_flops, estimated_time
from chipshift.fabric.lowering import slice_of
from chipshift.machines.machine import Machine


def report(
    request: Request, machine: Machine, outcome: dict[str, Any], cached: bool
) -> dict[str, Any]:
    """One compilation as data; what the compiler did not say is null."""
    memory = _memory(machine, outcome)
    found = {
        "schema": "chipshift/compile/1",
        "machine": machine.name,
        "program": request.program,
        "plan": request.plan or None,
        "notes": [*request.notes, *outcome.get("notes", ())],
        "sharding": outcome.get("sharding") or None,
        "mode": request.mode,
        "compiled": bool(outcome.get("compiled")),
        "reason": outcome.get("reason"),
        "memory_bytes": memory,
        "short_bytes": short(memory),
        "fast_mode": stated(request.mode, machine, memory),
        "collectives": _collectives(request, outcome),
        "places": outcome.get("places", [])[:40],
        "estimated_time_s": _seconds(request, machine, outcome),
        "padding": outcome.get("padding", {"bytes": None, "fraction": None}),
        "largest": outcome.get("largest", []),
        "flops_per_device": _flops(request, machine, outcome),
        "compile_time_s": outcome.get("compile_time_s"),
        "lower_time_s": outcome.get("lower_time_s"),
        "cached": cached,
        "versions": {"jax": None, "jaxlib": None, "libtpu": None, **outcome.get("versions", {})},
        "findings": outcome.get("findings", []),
        "nearest_fit": None,
        "also": [],
        "against": None,
    }
    found["fits"] = _fits(found)
    return found


def _seconds(request: Request, machine: Machine, outcome: dict[str, Any]) -> dict[str, Any] | None:
    """Null in fast mode: the compiler is stopped before it estimates cycles."""
    if request.mode == "fast" or not outcome.get("compiled"):
        return None
    return estimated_time(outcome, request.config, machine)


def _flops(request: Request, machine: Machine, outcome: dict[str, Any]) -> float | None:
    """Of the matmuls, and of kernels: the built-in step's attention by its shapes, a user's own by
    what its writer states; null where a kernel stands in the program whose work nobody states."""
    found = outcome.get("flops")
    if not found:
        return None
    # the kernel that libtpu makes of a softmax is among the matmuls already
    kernels = [k for k in outcome["cycles"]["without"] if k["name"] != SOFTMAX]
    if not kernels:
        return float(found["matmuls"])
    if request.config is not None:
        return float(found["matmuls"]) + attention_kernel_flops(request.config, machine)
    if any(k["flops"] is None for k in kernels):
        return None
    return float(found["matmuls"]) + float(sum(k["flops"] * k["times"] for k in kernels))


def _memory(machine: Machine, outcome: dict[str, Any]) -> dict[str, Any]:
    said = dict(outcome.get("memory_bytes") or {})
    available = outcome.get("available_bytes") or said.get("available")
    if available is None and machine.chip.has("usable_hbm_bytes_per_device"):
        available = int(machine.chip.value("usable_hbm_bytes_per_device"))
    keys = ("arguments", "outputs", "temporaries", "peak")
    memory = {key: said.get(key) for key in keys}
    if memory["peak"] is None:
        memory["peak"] = outcome.get("wanted_bytes")  # what the compiler says it would need
    return memory | {"available": available}


def short(memory: dict[str, Any]) -> int | None:
    """Bytes too much, None where it fits or is not known."""
    if memory["peak"] is None or memory["available"] is None:
        return None
    return (
        int(memory["peak"] - memory["available"]) if memory["peak"] > memory["available"] else None
    )


def _fits(found: dict[str, Any]) -> bool | None:
    memory = found["memory_bytes"]
    if found["short_bytes"]:
        return False
    known = memory["peak"] is not None and memory["available"] is not None
    return True if found["compiled"] and known else None


def _collectives(request: Request, outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Beside the plan's arithmetic where the program is the built-in step, else as they are."""
    found, places = outcome.get("collectives", []), outcome.get("places", [])
    if request.config is not None:
        aim = request.target
        wanted = expected(request.config)
        on = slice_of(aim.chip, aim.topology, aim.devices, aim.slices)
        sent = expected(request.config, on) if on else None
        by_slice = expected(request.config, replace(on, layouts=False)) if on else None
        return beside(found, places, wanted, sent, by_slice) if found else []
    if outcome.get("asked") is not None:
        return beside_module(found, places, outcome["asked"], outcome.get("sent"))
    unknown = {
        "expected_bytes_per_device_per_step": None,
        "lowered_bytes_per_device_per_step": None,
        "planned": None,
        "instead_of": None,
        "way_out": None,
    }
    return [
        one | unknown | {"sources": sources(one, places), "insertions": insertions(one, places)}
        for one in found
    ]
