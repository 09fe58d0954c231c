"""Every collective of a step: kind, mesh axis, how often, bytes a device sends, how it is done."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from chipshift.compiled.hlo.groups import MeshAxes, parse_groups, parse_pairs
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.purpose import in_place_of, padded_bytes, result, sent_bytes

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
_CHAIN = re.compile(r'chain_id="(\d+)"')
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
        inserted: of ``bytes``, what the compiler put in by itself; why: ``made again`` (instead of
            kept), ``padding``, or ``evened out`` (parts of unequal size moved to their places).
        instead: (kind, axis, bytes) of the collectives that an all-reduce does the work of;
            spent: of ``bytes``, what it sends for them.
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
    inserted: float = 0.0
    why: str = ""
    instead: tuple[tuple[str, str, float], ...] = ()
    spent: float = 0.0

    @property
    def own(self) -> float:
        """Bytes sent for what the collective is itself."""
        return self.bytes - self.inserted - self.spent


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
    chains, again = _chains(module), _made_again(module)
    found: list[Collective] = []
    permutes: dict[str, list[tuple[Computation, Instruction, int]]] = defaultdict(list)
    for name, count in times.items():
        computation = module.computations.get(name)
        if computation is None or count == 0:
            continue
        for instruction in computation.instructions:
            kind = KINDS.get(instruction.opcode.removesuffix("-start"))
            chain = _chain_of(instruction) if kind is not None else None
            if kind == "permute" and instruction.op_name.endswith("dot_general"):
                permutes[instruction.op_name].append((computation, instruction, count))
            elif kind is not None and chain is not None:
                first, beside = chains[chain]
                if first is instruction:  # the others are the same collective, going on
                    one = _collective(module, mesh, computation, instruction, kind, count, again)
                    one = replace(one, overlapped=beside, algorithm="asynchronous fusions")
                    found += [one] if one.group > 1 else []
            elif kind is not None:
                one = _collective(module, mesh, computation, instruction, kind, count, again)
                one = replace(one, overlapped=one.overlapped or name in started)
                found += [one] if one.group > 1 else []
            elif instruction.opcode == "send" and _MEGASCALE.search(instruction.rest):
                found.append(_megascale(module, instruction, count))
    for members in permutes.values():
        found += _windowed(module, mesh, members)
    return tuple(found)


def _chain_of(instruction: Instruction) -> tuple[str, str] | None:
    """What names one asynchronous collective of libtpu's, None where the instruction is a whole."""
    found = _CHAIN.search(instruction.rest)
    return (instruction.attribute("channel_id"), found.group(1)) if found else None


def _chains(module: Module) -> dict[tuple[str, str], tuple[Instruction, bool]]:
    """Asynchronous collectives that libtpu takes through several fusions: one that starts it, some
    that compute while it moves, one that ends it; each spells the whole collective out again.

    Returns for each its first instruction and whether anything is computed beside it.
    """
    found: dict[tuple[str, str], tuple[Instruction, bool]] = {}
    for computation in module.computations.values():
        ends = '"AsyncCollective' in computation.root.rest  # ...Start or ...Done, nothing computed
        for instruction in computation.instructions:
            chain = _chain_of(instruction)
            if chain is None or instruction.opcode.removesuffix("-start") not in KINDS:
                continue
            first, beside = found.get(chain, (instruction, False))
            found[chain] = (first, beside or not ends)
    return found


def _collective(
    module: Module,
    mesh: MeshAxes,
    computation: Computation,
    instruction: Instruction,
    kind: str,
    count: int,
    again: set[str],
) -> Collective:
    operands = [s for o in instruction.operands for s in result(computation, o)]
    sent_from = sum(shape.bytes for shape in operands)
    instead: tuple[tuple[str, str, float], ...] = ()
    spent = padding = 0.0
    if kind == "permute":
        pairs = _PAIRS.search(instruction.rest)
        axis, size = mesh.over_pairs(parse_pairs(pairs.group(1) if pairs else ""))
        sent: float = sent_from
    else:
        groups = parse_groups(_after(instruction.rest, "replica_groups="), mesh.devices)
        axis, size = mesh.over(groups), len(groups[0])
        if kind == "all_reduce" and _is_scattered(computation, instruction):
            kind = "reduce_scatter"
            padding = sent_bytes(kind, padded_bytes(computation, instruction), size)
        elif kind == "all_reduce" and size > 1:
            instead, spent = in_place_of(module, mesh, computation, instruction, axis, size)
        sent = sent_bytes(kind, sent_from, size)
    said = _with_source(module, computation, instruction)
    why = _why(instruction, kind, padding, again)
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
        (padding if why == "padding" else sent if why else 0.0) * count,
        why,
        () if why else tuple((k, a, b * count) for k, a, b in instead),
        0.0 if why else spent * count,
    )


def _why(instruction: Instruction, kind: str, padding: float, again: set[str]) -> str:
    """Why the compiler put a collective, or a part of it, in; "" where it comes from the program.
    A permute without an operation of the traced program moves rows of a padded reduce-scatter to
    where they belong."""
    if instruction.name in again:
        return "made again"
    if kind == "permute" and not instruction.op_name:
        return "evened out"
    return "padding" if padding else ""


def _made_again(module: Module) -> set[str]:
    """Collectives that the compiler does a second time instead of keeping their result, to fit the
    memory: it names them after the first, which may have been left out since."""
    copies: dict[str, list[str]] = defaultdict(list)
    for computation in module.computations.values():
        for one in computation.instructions:
            if one.opcode.removesuffix("-start") in KINDS:
                copies[one.name.partition(".remat")[0]].append(one.name)
    return {name for names in copies.values() for name in sorted(names, key=len)[1:]}


def _with_source(module: Module, computation: Computation, one: Instruction) -> Instruction:
    """The collective, or where it has no line of its own the fusion that it is inside of."""
    if module.source(one):
        return one
    everything = (i for c in module.computations.values() for i in c.instructions)
    fusions = (i for i in everything if i.opcode == "fusion")
    return next((i for i in fusions if i.attribute("calls") == computation.name), one)


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
    permuted array; the collective sends n - 1 of them from each device. Sums start as zeros, which
    are passed on too, once for all unrolled matmuls of one shape: these carry nothing.
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
        parts = _parts(same, size)
        found.append(
            Collective(
                "reduce_scatter" if _passes_sums(module, same) else "all_gather",
                axis,
                size,
                max(1, round(parts / (size - 1))),
                float(instruction.shapes[0].bytes * parts),
                "windowed einsum",
                True,
                True,
                instruction.op_name,
                module.source(instruction),
            )
        )
    return found


def _parts(members: list[tuple[Computation, Instruction, int]], n: int) -> int:
    """Parts a device passes on in a step, those left out that carry nothing.

    A loop that goes both ways round has n permutes a run and one after it, one that goes one way n
    or n - 1; n - 1 of them pass a part.
    """
    loops: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    alone = 0
    for computation, instruction, count in members:
        made_by = computation.by_name.get(instruction.operands[0])
        pairs = _PAIRS.search(instruction.rest)
        if "windowed_dot_general_body" in computation.name:
            loops[computation.name][pairs.group(1) if pairs else ""] += count
        elif made_by is None or made_by.opcode != "broadcast":
            alone += count
    for ways in loops.values():
        passed = sum(ways.values())
        runs = passed // (n if passed % n == 0 else n - 1)
        alone += runs * (n - 1 - (len(ways) > 1))  # without the one after it, counted already
    return alone


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
                inserted=held.inserted + one.inserted,
                instead=_added(held.instead, one.instead),
                spent=held.spent + one.spent,
            )
        sums[key] = one
    named = [
        replace(one, algorithm=algorithms[key].most_common(1)[0][0]) for key, one in sums.items()
    ]
    return tuple(sorted(named, key=lambda one: -one.bytes))


def _added(
    one: tuple[tuple[str, str, float], ...], other: tuple[tuple[str, str, float], ...]
) -> tuple[tuple[str, str, float], ...]:
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for kind, axis, sent in (*one, *other):
        sums[kind, axis] += sent
    return tuple((kind, axis, sent) for (kind, axis), sent in sums.items())
