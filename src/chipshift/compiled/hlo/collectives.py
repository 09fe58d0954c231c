"""Every collective of a step: kind, mesh axis, how often, bytes a device sends, how it is done."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from chipshift.compiled.hlo.added import Scatter, scattered_apart
from chipshift.compiled.hlo.collective import Collective
from chipshift.compiled.hlo.groups import MeshAxes, parse_groups, parse_pairs
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.purpose import (
    gathered_for_a_part,
    in_place_of,
    padded_between_slices,
    padded_bytes,
    part_between_slices,
    result,
    sent_bytes,
)
from chipshift.compiled.hlo.windowed import PAIRS, in_a_ring_of_sums, windowed

KINDS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "permute",
    "collective-broadcast": "broadcast",
}
_TARGET = re.compile(r'_xla_megascale_target="?\\?"?(\{[\d,]+\}x\{[\d:,]+\})')
"""Slices and their devices; of other groups (an all-to-all's) every device stands in it, which
tells a reader nothing."""

_MEGASCALE = re.compile(r'_xla_megascale_transfer_type="?\\?"?([A-Z_]+)')
_EMITTER = re.compile(r'"emitter":"([^"]+)"')
_STRATEGY = re.compile(r'"strategy":"([^"]+)"')
_CHAIN = re.compile(r'chain_id="(\d+)"')
_MATMULS = ("convolution", "dot")

STEPS_BACK = 4
"""Operands back from a collective to what made them: bitcasts and copies lie between."""

_KERNEL = re.compile(r'custom_call_target="(tpu_custom_call|__)')
"""Pallas kernels, and cuBLAS's and cuDNN's."""


def read_collectives(
    module: Module, mesh: MeshAxes, asked: tuple[str, ...] = ()
) -> tuple[Collective, ...]:
    """All collectives that move bytes between devices, in program order.

    Args:
        asked: axes over which the program itself asks for each scatter of what it then adds.
    """
    times = multiplicities(module)
    started = _computed_beside(module)
    chains, again = _chains(module), _made_again(module)
    found: list[Collective] = []
    scatters: list[Scatter] = []
    permutes: dict[str, list[tuple[Computation, Instruction, int]]] = defaultdict(list)
    for name, count in times.items():
        computation = module.computations.get(name)
        if computation is None or count == 0:
            continue
        for instruction in computation.instructions:
            kind = KINDS.get(instruction.opcode.removesuffix("-start"))
            chain = _chain_of(instruction) if kind is not None else None
            if kind == "permute" and _in_a_matmul(module, computation, instruction):
                permutes[instruction.op_name].append((computation, instruction, count))
                scatters.append(Scatter(-1, computation, instruction))
            elif kind is not None and chain is not None:
                members, beside = chains[chain]
                if members[0][1] is instruction:  # the others are the same collective, going on
                    one = _collective(module, mesh, computation, instruction, kind, count, again)
                    one = replace(one, overlapped=beside, algorithm="asynchronous fusions")
                    if kind == "all_gather" and any(
                        gathered_for_a_part(module, c, i, one.group) for c, i in members
                    ):
                        one = replace(one, spent=one.bytes)
                    found += [one] if one.group > 1 else []
            elif kind is not None:
                one = _collective(module, mesh, computation, instruction, kind, count, again)
                one = replace(one, overlapped=one.overlapped or name in started)
                alone = len(instruction.operands) == 1 and not set(one.axis.split("+")) & {*asked}
                if one.group > 1 and alone and _scatters(one):
                    scatters.append(Scatter(len(found), computation, instruction))
                found += [one] if one.group > 1 else []
            elif instruction.opcode == "send" and _MEGASCALE.search(instruction.rest):
                found.append(_megascale(module, computation, instruction, count))
    found = scattered_apart(module, found, scatters)
    for ring in permutes.values():
        found += windowed(module, mesh, ring)
    return tuple(found)


def _scatters(one: Collective) -> bool:
    """Whether a collective is a scatter or an all-reduce of which a part is used."""
    return one.kind == "reduce_scatter" or any(kind == "reduce_scatter" for kind, *_ in one.instead)


def _computed_beside(module: Module) -> set[str]:
    """Computations that run beside the main program, on the SparseCores, while it computes."""
    found = {
        inner
        for computation in module.computations.values()
        for instruction in computation.instructions
        if instruction.opcode in ("call-start", "async-start")
        and _overlapped(module, computation, instruction)
        for _, inner in instruction.called
    }
    left = list(found)
    while left:
        inside = module.computations.get(left.pop())
        more = {name for one in inside.instructions for _, name in one.called} if inside else set()
        left += more - found
        found |= more
    return found


def _in_a_matmul(module: Module, computation: Computation, permute: Instruction) -> bool:
    """Whether a permute is part of a windowed einsum."""
    if permute.op_name or permute.opcode.endswith("-done"):
        return permute.op_name.endswith("dot_general")
    return in_a_ring_of_sums(module, computation, permute)


def _chain_of(instruction: Instruction) -> tuple[str, str] | None:
    """What names one asynchronous collective of libtpu's, None where the instruction is a whole."""
    found = _CHAIN.search(instruction.rest)
    return (instruction.attribute("channel_id"), found.group(1)) if found else None


def _chains(
    module: Module,
) -> dict[tuple[str, str], tuple[list[tuple[Computation, Instruction]], bool]]:
    """Asynchronous collectives that libtpu takes through several fusions: one that starts it, some
    that compute while it moves, one that ends it; each spells the whole collective out again.

    Returns for each its instructions, and whether anything is computed beside it.
    """
    found: dict[tuple[str, str], tuple[list[tuple[Computation, Instruction]], bool]] = {}
    for computation in module.computations.values():
        ends = '"AsyncCollective' in computation.root.rest  # ...Start or ...Done, nothing computed
        for instruction in computation.instructions:
            chain = _chain_of(instruction)
            if chain is None or instruction.opcode.removesuffix("-start") not in KINDS:
                continue
            members, beside = found.get(chain, ([], False))
            found[chain] = ([*members, (computation, instruction)], beside or not ends)
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
        pairs = PAIRS.search(instruction.rest)
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
        if kind == "all_gather" and gathered_for_a_part(module, computation, instruction, size):
            spent = sent  # the last stage of a sum over slices, of which each device keeps a part
    said = _with_source(module, computation, instruction)
    why = _why(instruction, kind, padding, again)
    return Collective(
        kind,
        axis,
        size,
        count,
        sent * count,
        _algorithm(module, computation, instruction),
        _overlapped(module, computation, instruction),
        False,
        said.op_name,
        module.source(said) or _made_at(module, computation, instruction),
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


def _made_at(module: Module, computation: Computation, one: Instruction) -> tuple[str, int] | None:
    """The line that made what a collective without a line sends: libtpu drops it where it sends a
    scatter as an all-reduce."""
    for _ in range(STEPS_BACK):
        before = next((n for n in one.operands if n in computation.by_name), None)
        if before is None:
            return None
        one = computation.by_name[before]
        if module.source(one):
            return module.source(one)
    return None


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


def _overlapped(module: Module, computation: Computation, start: Instruction) -> bool:
    """Whether a matmul, a kernel or a loop runs between ``start`` and the ``-done`` that takes its
    result, or beside it in the same fusion (libtpu's asynchronous collective fusions)."""
    opcodes = {i.opcode for i in computation.instructions}
    if "fused_computation" in computation.name and opcodes & set(_MATMULS):
        return True
    if not start.opcode.endswith("-start"):
        return False
    inside = False
    for instruction in computation.instructions:
        if instruction is start:
            inside = True
        elif inside and start.name in instruction.operands:
            return False
        elif inside and _computes(module, instruction):
            return True
    return False


def _computes(module: Module, instruction: Instruction) -> bool:
    """Whether an instruction is a matmul, a kernel or a loop, or a fusion around a matmul."""
    if instruction.opcode in (*_MATMULS, "while"):
        return True
    if instruction.opcode == "custom-call":
        return _KERNEL.search(instruction.rest) is not None
    inner = module.computations.get(instruction.attribute("calls"))
    if inner is None or instruction.opcode not in ("fusion", "call"):
        return False
    return any(one.opcode in _MATMULS for one in inner.instructions)


def _megascale(
    module: Module, computation: Computation, instruction: Instruction, count: int
) -> Collective:
    """A transfer between slices over the data-center network."""
    kind = _MEGASCALE.search(instruction.rest)
    sent = sum(s.bytes for s in instruction.shapes if s.dims)
    padding = padded_between_slices(computation, instruction)
    whole = sent - padding
    sums = kind is not None and kind.group(1) == "ALL_REDUCE"
    scatters = sums and part_between_slices(module, computation, instruction)
    target = _TARGET.search(instruction.rest)
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
        inserted=float(padding * count),
        why="padding" if padding else "",
        instead=(("reduce_scatter", "dcn", float(whole * count)),) if scatters else (),
        spent=float(whole * count) if scatters else 0.0,
    )
