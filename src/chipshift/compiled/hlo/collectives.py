"""Every collective of a step: kind, mesh axis, how often, bytes a device sends, how it is done."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from chipshift.compiled.hlo.groups import MeshAxes, parse_groups, parse_pairs
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.shape import Shape

KINDS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "permute",
    "collective-broadcast": "broadcast",
}
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{[0-9]+,[0-9]+\},?)*)\}")
_MEGASCALE = re.compile(r'_xla_megascale_transfer_type="?\\?"?([A-Z_]+)')
_EMITTER = re.compile(r'"emitter":"([^"]+)"')
_STRATEGY = re.compile(r'"strategy":"([^"]+)"')
_COMPUTE = ("fusion", "convolution", "dot", "custom-call", "while", "call")


@dataclass(frozen=True)
class Collective:
    """One kind of collective over one axis at one place of the program.

    Attributes:
        group: devices that take part together.
        count: times a step. bytes: sent by one device, all times together (outputs.md).
        algorithm: emitter and strategy that the compiler chose.
        overlapped: computation is scheduled between its start and its end.
        windowed: a loop of permutes around a matmul, counted as what it implements.
        where: op name of the traced program; source: file and line.
    """

    kind: str
    axis: str
    group: int
    count: int
    bytes: float
    algorithm: str
    overlapped: bool
    windowed: bool
    where: str
    source: tuple[str, int] | None


def read_collectives(module: Module, mesh: MeshAxes) -> tuple[Collective, ...]:
    """All collectives that move bytes between devices, in program order."""
    times = multiplicities(module)
    started = {
        inner
        for computation in module.computations.values()
        for instruction in computation.instructions
        if instruction.opcode in ("call-start", "async-start")
        for _, inner in instruction.called
    }  # beside the main program, on the SparseCores
    found: list[Collective] = []
    permutes: dict[str, list[tuple[Computation, Instruction, int]]] = defaultdict(list)
    for name, count in times.items():
        computation = module.computations.get(name)
        if computation is None or count == 0:
            continue
        for instruction in computation.instructions:
            kind = KINDS.get(instruction.opcode.removesuffix("-start"))
            if kind == "permute" and instruction.op_name.endswith("dot_general"):
                permutes[instruction.op_name].append((computation, instruction, count))
            elif kind is not None:
                one = _collective(module, mesh, computation, instruction, kind, count)
                one = replace(one, overlapped=one.overlapped or name in started)
                found += [one] if one.group > 1 else []
            elif instruction.opcode == "send" and _MEGASCALE.search(instruction.rest):
                found.append(_megascale(module, instruction, count))
    for members in permutes.values():
        found += _windowed(module, mesh, members)
    return tuple(found)


def _collective(
    module: Module,
    mesh: MeshAxes,
    computation: Computation,
    instruction: Instruction,
    kind: str,
    count: int,
) -> Collective:
    operands = [s for o in instruction.operands for s in _result(computation, o)]
    sent_from = sum(shape.bytes for shape in operands)
    if kind == "permute":
        pairs = _PAIRS.search(instruction.rest)
        axis, size = mesh.over_pairs(parse_pairs(pairs.group(1) if pairs else ""))
        sent: float = sent_from
    else:
        groups = parse_groups(_after(instruction.rest, "replica_groups="), mesh.devices)
        axis, size = mesh.over(groups), len(groups[0])
        if kind == "all_reduce" and _is_scattered(computation, instruction):
            kind = "reduce_scatter"
        sent = sent_bytes(kind, sent_from, size)
    said = _with_source(module, computation, instruction)
    return Collective(
        kind,
        axis,
        size,
        count,
        sent * count,
        _algorithm(module, computation, instruction),
        _overlapped(computation, instruction),
        False,
        said.op_name,
        module.source(said),
    )


def _with_source(module: Module, computation: Computation, one: Instruction) -> Instruction:
    """The collective, or where it has no line of its own the fusion that it is inside of."""
    if module.source(one):
        return one
    everything = (i for c in module.computations.values() for i in c.instructions)
    fusions = (i for i in everything if i.opcode == "fusion")
    return next((i for i in fusions if i.attribute("calls") == computation.name), one)


def sent_bytes(kind: str, operand_bytes: float, n: int) -> float:
    """Bytes one of ``n`` devices sends: (n-1)/n x the whole array for all-gather and
    reduce-scatter, twice that for all-reduce, (n-1)/n x its own part for all-to-all."""
    if kind == "all_gather":
        return operand_bytes * (n - 1)
    if kind == "all_reduce":
        return 2 * operand_bytes * (n - 1) / n
    if kind in ("reduce_scatter", "all_to_all"):
        return operand_bytes * (n - 1) / n
    return operand_bytes


def _result(computation: Computation, name: str) -> tuple[Shape, ...]:
    instruction = computation.by_name.get(name)
    return instruction.shapes if instruction else ()


def _after(text: str, key: str) -> str:
    at = text.find(key)
    return text[at + len(key) :] if at >= 0 else "{}"


def _is_scattered(computation: Computation, instruction: Instruction) -> bool:
    """libtpu writes a reduce-scatter as a fusion of an all-reduce whose slice is the result."""
    return "all-reduce-scatter" in computation.name or (
        'from-cross-replica-sharding="true"' in instruction.rest
        and computation.root.opcode == "dynamic-slice"
        and instruction.name in computation.root.operands
    )


def _algorithm(module: Module, computation: Computation, instruction: Instruction) -> str:
    text = instruction.rest
    if '"emitter"' not in text:  # inside a fusion: its caller carries the choice
        calls = f"calls=%{computation.name},"
        text = next(
            (
                i.rest
                for c in module.computations.values()
                for i in c.instructions
                if calls in i.rest
            ),
            "",
        )
    parts = [found.group(1) for found in (_EMITTER.search(text), _STRATEGY.search(text)) if found]
    return " ".join(parts)


def _overlapped(computation: Computation, start: Instruction) -> bool:
    """Whether something is computed between ``start`` and the ``-done`` that takes its result, or
    beside it in the same fusion (libtpu's asynchronous collective fusions)."""
    opcodes = {i.opcode for i in computation.instructions}
    if "fused_computation" in computation.name and opcodes & {"convolution", "dot"}:
        return True
    if not start.opcode.endswith("-start"):
        return False
    inside = False
    for instruction in computation.instructions:
        if instruction is start:
            inside = True
        elif inside and start.name in instruction.operands:
            return False
        elif inside and instruction.opcode in _COMPUTE:
            return True
    return False


def _megascale(module: Module, instruction: Instruction, count: int) -> Collective:
    """A transfer between slices over the data-center network."""
    kind = _MEGASCALE.search(instruction.rest)
    sent = sum(s.bytes for s in instruction.shapes if s.dims)
    target = re.search(r'_xla_megascale_target="?\\?"?\{?([^"\\]*)', instruction.rest)
    return Collective(
        (kind.group(1).lower() if kind else "send"),
        "dcn",
        0,
        count,
        float(sent * count),
        f"megascale {target.group(1)}" if target else "megascale",
        True,
        False,
        instruction.op_name,
        module.source(instruction),
    )


def _windowed(
    module: Module, mesh: MeshAxes, members: list[tuple[Computation, Instruction, int]]
) -> list[Collective]:
    """Permutes that belong to one matmul, as the all-gather or reduce-scatter they implement.

    XLA's windowed einsum passes a matmul's operand, or its partial sums, around the ring while it
    multiplies, in both directions, in a loop or unrolled. Each of the ring's ``n`` parts is one
    permuted array; the collective sends n - 1 of them from each device.
    """
    by_shape: dict[tuple[str, str, int], list[tuple[Computation, Instruction, int]]]
    by_shape = defaultdict(list)
    for computation, instruction, count in members:
        pairs = _PAIRS.search(instruction.rest)
        axis, size = mesh.over_pairs(parse_pairs(pairs.group(1) if pairs else ""))
        shape = instruction.shapes[0]
        by_shape[(f"{shape.dtype}{shape.dims}", axis, size)].append(
            (computation, instruction, count)
        )
    found = []
    for (_, axis, size), same in by_shape.items():
        if size < 2:
            continue
        computation, instruction, _ = same[0]
        runs = _runs([count for _, _, count in same], size)
        found.append(
            Collective(
                "reduce_scatter" if _passes_sums(module, same) else "all_gather",
                axis,
                size,
                runs,
                float(instruction.shapes[0].bytes * (size - 1) * runs),
                "windowed einsum",
                True,
                True,
                instruction.op_name,
                module.source(instruction),
            )
        )
    return found


def _runs(counts: list[int], n: int) -> int:
    """Times a step that matmuls of one shape run, from the counts of their permutes.

    One run takes n + 1 permutes where both directions of the ring are used, else n or n - 1.
    """
    base = math.gcd(*counts)
    trips = sum(counts) // base
    for each in (n + 1, n, n - 1):
        if trips % each == 0:
            return base * trips // each
    return base * max(1, round(trips / n))


def _passes_sums(module: Module, members: list[tuple[Computation, Instruction, int]]) -> bool:
    """Whether the ring passes partial sums (a reduce-scatter) rather than an operand."""
    for computation, instruction, _ in members:
        if "windowed_dot_general_body_rs" in computation.name:
            return True
        if "windowed_dot_general_body_ag" in computation.name:
            return False
        producer = computation.by_name.get(instruction.operands[0])
        if producer is None:
            continue
        inner = module.computations.get(producer.attribute("calls"))
        opcodes = {i.opcode for i in inner.instructions} if inner else {producer.opcode}
        if opcodes & {"convolution", "dot"} or producer.opcode == "broadcast":
            return True
    return False


def by_axis(collectives: tuple[Collective, ...]) -> tuple[Collective, ...]:
    """Collectives added up over places: one a kind and axis, the most bytes first."""
    sums: dict[tuple[str, str, int], Collective] = {}
    algorithms: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for one in collectives:
        key = (one.kind, one.axis, one.group)
        algorithms[key][one.algorithm] += one.count
        if key in sums:
            held = sums[key]
            one = replace(
                held,
                count=held.count + one.count,
                bytes=held.bytes + one.bytes,
                overlapped=held.overlapped or one.overlapped,
                windowed=held.windowed or one.windowed,
            )
        sums[key] = one
    named = [
        replace(one, algorithm=algorithms[key].most_common(1)[0][0]) for key, one in sums.items()
    ]
    return tuple(sorted(named, key=lambda one: -one.bytes))
