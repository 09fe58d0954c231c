"""The compiler's own estimate of time: cycles of every fusion and kernel, loops multiplied in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Module

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')

UNKNOWN = 2**63 - 1
"""The largest signed number stands for no estimate (libtpu, on v7x)."""


@dataclass(frozen=True)
class Cycles:
    """Cycles a step.

    Attributes:
        compute: of fusions and kernels that carry an estimate.
        by_kind: the same by opcode.
        without: kernels that carry none (Pallas), with how often each runs a step.
    """

    compute: float
    by_kind: dict[str, float]
    without: tuple[tuple[str, str, int], ...]


def read_cycles(module: Module) -> Cycles:
    """Sums over the computations that run, fusions counted once at their caller."""
    by_kind: dict[str, float] = {}
    without: list[tuple[str, str, int]] = []
    for name, count in multiplicities(module).items():
        computation = module.computations.get(name)
        if computation is None or "fused_computation" in name:
            continue
        for i in computation.instructions:
            found = _CYCLES.search(i.rest)
            if found and int(found.group(1)) < UNKNOWN:
                by_kind[i.opcode] = by_kind.get(i.opcode, 0.0) + int(found.group(1)) * count
            elif i.opcode == "custom-call" and 'custom_call_target="tpu_custom_call"' in i.rest:
                without.append((i.name, i.op_name, count))
    return Cycles(sum(by_kind.values()), by_kind, tuple(without))
