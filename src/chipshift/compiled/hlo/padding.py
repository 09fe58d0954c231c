"""What tiling costs: physical against logical bytes of arguments and of the largest results."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Module
from chipshift.compiled.hlo.shape import Shape

SKIPPED = ("parameter", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call")


@dataclass(frozen=True)
class Padded:
    """One tensor and what its layout adds."""

    name: str
    shape: str
    logical_bytes: int
    physical_bytes: int
    argument: bool
    source: tuple[str, int] | None


def arguments(module: Module, names: tuple[str, ...]) -> list[Padded]:
    """The program's arguments, named as the traced function's where their number agrees."""
    entry = module.computations[module.entry]
    parameters = [i for i in entry.instructions if i.opcode == "parameter"]
    parameters.sort(key=lambda i: int(i.rest.removeprefix("value=").partition(",")[0]))
    called = names if len(names) == len(parameters) else tuple(i.name for i in parameters)
    return [
        _padded(name, i.shapes[0], True, None)
        for name, i in zip(called, parameters, strict=True)
        if i.shapes
    ]


def results(module: Module) -> list[Padded]:
    """Arrays in device memory that the program makes outside its fusions."""
    found = []
    for name in multiplicities(module):
        computation = module.computations.get(name)
        if computation is None or _is_fused(module, name):
            continue
        for i in computation.instructions:
            if i.opcode in SKIPPED or i.opcode.endswith("-done"):
                continue
            found += [
                _padded(i.op_name or i.name, s, False, module.source(i))
                for s in i.shapes
                if s.space == 0 and s.dims
            ]
    return found


def _is_fused(module: Module, name: str) -> bool:
    return "fused" in name or "fusion" in name or "all-reduce-scatter" in name


def _padded(name: str, shape: Shape, argument: bool, source: tuple[str, int] | None) -> Padded:
    return Padded(name, str(shape), shape.bytes, shape.physical_bytes, argument, source)
