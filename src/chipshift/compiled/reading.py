"""A compiled program read into the report's parts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from chipshift.compiled.hlo.collective import Collective, by_axis
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.cycles import read_cycles
from chipshift.compiled.hlo.flops import matmul_flops
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import Module, parse
from chipshift.compiled.hlo.padding import Padded, arguments, results
from chipshift.compiled.placed import main_placement, settled
from chipshift.compiled.programs import Program
from chipshift.compiled.request import Request
from chipshift.compiled.topology import gpu_memory_bytes
from chipshift.errors import InputError

LISTED = 10
"""Tensors and places named in each list of the report."""


def read(
    request: Request, program: Program, compiled: Any, folder: Path | None = None
) -> dict[str, Any]:
    """What a finished program says.

    Args:
        folder: of its compilation's dump, where there is one.
    """
    counted, sizes = _cost_analysis(compiled), memory(request, compiled)
    placed = main_placement(folder) if folder else None
    if placed is not None:
        # The room that temporaries have, as in fast mode. libtpu's own figure counts gaps and what
        # loops stack up twice: of 21 programs 17 would not fit the memory that they fit.
        sizes["temporaries"] = placed.temporaries
    return read_text(request, program, compiled.as_text(), sizes, counted)


def read_placed(request: Request, program: Program, folder: Path) -> dict[str, Any]:
    """What the dump of a compilation says that was stopped when its buffers were placed."""
    found, text = settled(folder)
    sizes = {
        "arguments": found.arguments,
        "outputs": found.outputs,
        "temporaries": found.temporaries,
        "peak": found.peak,
        "available": None,
    }
    return read_text(request, program, text, sizes, None)


def write_kept(request: Request, text: str) -> None:
    """The program where ``--hlo`` asks for it.

    Raises:
        InputError: it cannot be written there.
    """
    part = request.part
    try:
        part.write_text(text, "utf8")
        part.replace(request.keep)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"--hlo {request.keep}: cannot be written ({error.strerror})") from None


def read_text(
    request: Request,
    program: Program,
    text: str,
    memory: dict[str, int | None],
    counted: float | None,
) -> dict[str, Any]:
    """Memory, collectives, padding, cycles and floating-point operations of a program.

    Args:
        counted: FLOP by the compiler's own count.

    Raises:
        InputError: the program cannot be written where it was asked for.
    """
    if request.keep:
        write_kept(request, text)
    module = parse(text)
    mesh = MeshAxes(program.axes, program.sizes)
    sent = read_collectives(module, mesh, asked_alone(request))
    found = tuple(in_step(request, one) for one in sent)
    padded = arguments(module, program.arguments)
    made = results(module)
    cycles = read_cycles(module)
    return {
        "memory_bytes": memory,
        "mesh": [list(axis) for axis in zip(program.axes, program.sizes, strict=True)],
        "collectives": [_summed(one, found) for one in by_axis(found)],
        "places": [_place(one, module) for one in sorted(found, key=lambda c: -c.bytes)],
        "asked": None if program.asked is None else [list(one) for one in program.asked],
        "sent": None if program.sent is None else [list(one) for one in program.sent],
        "padding": _padding(padded, made),
        "largest": _largest(made),
        "cycles": {
            "compute": cycles.compute,
            "by_kind": cycles.by_kind,
            "without": [asdict(kernel) for kernel in cycles.without],
        },
        "flops": {"matmuls": matmul_flops(module), "by_cost_analysis": counted},
        "instructions": sum(len(c.instructions) for c in module.computations.values()),
    }


def _cost_analysis(compiled: Any) -> float | None:
    """FLOP by the compiler's own count, in which a loop's body stands once; None where it has
    none."""
    analysis = getattr(compiled, "cost_analysis", lambda: None)()
    return float(analysis["flops"]) if analysis and "flops" in analysis else None


def memory(request: Request, compiled: Any) -> dict[str, int | None]:
    """The compiler's own accounting, bytes a device; ``available`` where the compiler knows it."""
    stats = compiled.memory_analysis()
    if stats is None:
        return dict.fromkeys(("arguments", "outputs", "temporaries", "peak", "available"))
    peak = int(stats.peak_memory_in_bytes) or (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
    )
    return {
        "arguments": int(stats.argument_size_in_bytes),
        "outputs": int(stats.output_size_in_bytes),
        "aliased": int(stats.alias_size_in_bytes),
        "temporaries": int(stats.temp_size_in_bytes),
        "peak": int(peak),
        "host_temporaries": int(stats.host_temp_size_in_bytes),
        "generated_code": int(stats.generated_code_size_in_bytes),
        "available": gpu_memory_bytes(request.target.chip),
    }


def asked_alone(request: Request) -> tuple[str, ...]:
    """Axes over which the built-in step scatters each sum by itself: over tp those of a shared
    expert and of the routed ones, of latents and of the hidden state."""
    return ("tp",) if request.config is not None else ()


def in_step(request: Request, one: Collective) -> Collective:
    """A collective by what is known of the built-in step: transfers between slices by their mesh
    axis; all-to-alls that it does not write itself (which XLA names after another operation) as
    inserted, since no layout that it names moves a cut from one dimension to another."""
    operation = one.where.rpartition("/")[2]
    relaid = one.kind == "all_to_all" and operation not in ("", "all_to_all") and not one.why
    if request.config is not None and relaid:
        return replace(one, inserted=one.bytes, why="laid out anew")
    return across_slices(request, one)


def across_slices(request: Request, one: Collective) -> Collective:
    """A transfer over the data-center network, named by the mesh axis that crosses slices."""
    cfg = request.config
    if one.axis != "dcn" or cfg is None:
        return one
    axis = "dp" if cfg.mesh[0] % cfg.slices == 0 else "fsdp"
    others = (cfg.slices - 1) / cfg.slices  # of a part that is scattered over the slices
    instead = tuple((kind, axis, sent * others) for kind, _, sent in one.instead)
    share = others if one.kind == "reduce_scatter" else 1.0
    sent, inserted = one.bytes * share, one.inserted * share
    return replace(one, axis=axis, group=cfg.slices, bytes=sent, inserted=inserted, instead=instead)


def _as_dict(one: Collective) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "mesh_axis": one.axis,
        "group_size": one.group,
        "count_per_step": one.count,
        "bytes_per_device_per_step": one.bytes,
        "own_bytes_per_device_per_step": one.own,
        "inserted_bytes_per_device_per_step": one.inserted,
        "in_place_of": [
            {"kind": kind, "mesh_axis": axis, "bytes_per_device_per_step": sent}
            for kind, axis, sent in one.instead
        ],
        "algorithm": one.algorithm,
        "windowed": one.windowed,
    }


def _summed(one: Collective, found: tuple[Collective, ...]) -> dict[str, Any]:
    """A kind over an axis, with the share of its bytes that computation runs beside."""
    same = [c for c in found if (c.kind, c.axis, c.group) == (one.kind, one.axis, one.group)]
    hidden = sum(c.bytes for c in same if c.overlapped)
    return _as_dict(one) | {"overlapped_fraction": hidden / one.bytes if one.bytes else 0.0}


def _place(one: Collective, module: Module) -> dict[str, Any]:
    return _as_dict(one) | {
        "overlapped": one.overlapped,
        "inserted": one.why or None,
        "where": one.where,
        "source": list(one.source) if one.source else None,
        "function": module.functions.get(one.source) or None if one.source else None,
    }


def _padding(held: list[Padded], made: list[Padded]) -> dict[str, Any]:
    """Padding of the arguments, which stay for the whole step, and the worst tensors of all."""
    physical = sum(tensor.physical_bytes for tensor in held)
    wasted = physical - sum(tensor.logical_bytes for tensor in held)
    worst = sorted([*held, *made], key=lambda t: t.logical_bytes - t.physical_bytes)
    return {
        "bytes": wasted,
        "fraction": wasted / physical if physical else 0.0,
        "tensors": [_tensor(t) for t in worst[:LISTED] if t.physical_bytes > t.logical_bytes],
    }


def _largest(made: list[Padded]) -> list[dict[str, Any]]:
    seen: dict[tuple[str, str], Padded] = {}
    for tensor in sorted(made, key=lambda t: -t.physical_bytes):
        seen.setdefault((tensor.name, tensor.shape), tensor)
    return [_tensor(t) for t in list(seen.values())[:LISTED]]


def _tensor(tensor: Padded) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "logical_bytes": tensor.logical_bytes,
        "physical_bytes": tensor.physical_bytes,
        "argument": tensor.argument,
        "source": list(tensor.source or ()) or None,
    }
