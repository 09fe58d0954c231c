"""The compiler's own estimate of time: cycles of every fusion and kernel, loops multiplied in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chipshift.compiled.hlo.flops import is_softmax, softmax_flops
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Computation, Instruction, Module

_STATED = re.compile(r'"cost_estimate":\{"flops":"(\d+)"[^}]*"bytes_accessed":"(\d+)"')

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')

UNKNOWN = 2**63 - 1
"""The largest signed number stands for no estimate (libtpu, on v7x)."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that carries no estimate (Pallas).

    Attributes:
        name: by the traced program. times: that it runs a step. source: file and line.
        flops: of one run, stated by whoever wrote it (``pl.CostEstimate``) or by its shapes; None
            where neither tells.
        bytes: that one run moves from and to the device's memory, stated or its operands and
            results there.
    """

    name: str
    times: int
    flops: float | None
    bytes: float
    source: tuple[str, int] | None


@dataclass(frozen=True)
class Cycles:
    """Cycles a step.

    Attributes:
        compute: of fusions and kernels that carry an estimate.
        by_kind: the same by opcode.
        without: kernels that carry none.
    """

    compute: float
    by_kind: dict[str, float]
    without: tuple[Kernel, ...]


def read_cycles(module: Module) -> Cycles:
    """Sums over the computations that run, fusions counted once at their caller."""
    by_kind: dict[str, float] = {}
    without: list[Kernel] = []
    for name, count in multiplicities(module).items():
        computation = module.computations.get(name)
        if computation is None or "fused_computation" in name:
            continue
        for i in computation.instructions:
            found = _CYCLES.search(i.rest)
            if found and int(found.group(1)) < UNKNOWN:
                by_kind[i.opcode] = by_kind.get(i.opcode, 0.0) + int(found.group(1)) * count
            elif i.opcode == "custom-call" and 'custom_call_target="tpu_custom_call"' in i.rest:
                without.append(_kernel(module, computation, i, count))
    return Cycles(sum(by_kind.values()), by_kind, tuple(without))


def _kernel(module: Module, within: Computation, call: Instruction, times: int) -> Kernel:
    parts = [part for part in call.op_name.split("/") if part != "pallas_call"]
    stated = _STATED.search(call.rest)
    flops = float(stated.group(1)) if stated else None
    moved = float(stated.group(2)) if stated else _moved(within, call)
    if is_softmax(call):
        flops = softmax_flops(within, call)
    return Kernel(parts[-1] if parts else call.name, times, flops, moved, module.source(call))


def _moved(within: Computation, call: Instruction) -> float:
    """Bytes of a kernel's operands and results that lie in the device's memory."""
    operands = [within.by_name[name] for name in call.operands if name in within.by_name]
    arrays = [shape for one in (*operands, call) for shape in one.shapes]
    return float(sum(shape.physical_bytes for shape in arrays if shape.space == 0))
