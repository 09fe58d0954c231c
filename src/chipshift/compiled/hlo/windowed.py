"""XLA's windowed einsums: permutes in a loop around a matmul, as the collective they implement."""

from __future__ import annotations

import re
from collections import defaultdict

from chipshift.compiled.hlo.collective import Collective
from chipshift.compiled.hlo.groups import MeshAxes, parse_pairs
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.purpose import UNCHANGED, copied_in_pieces

PAIRS = re.compile(r"source_target_pairs=\{((?:\{[0-9]+,[0-9]+\},?)*)\}")

SCATTERED_APART = "scattered apart"
"""Sums of several matmuls that the program adds, scattered one by one before they are."""


def windowed(
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
        axis, size = mesh.over_pairs(parse_pairs(_pairs(instruction)))
        shape = instruction.shapes[0]
        by_shape[(f"{shape.dtype}{shape.dims}", axis, size)].append(
            (computation, instruction, count)
        )
    found = []
    for (_, axis, size), same in by_shape.items():
        if size < 2:
            continue
        computation, instruction, _ = same[0]
        parts, scatters = _parts(same, size), _passes_sums(module, same)
        apart = _apart(module, same) * (size - 1) if scatters else 0
        part = instruction.shapes[0].bytes
        found.append(
            Collective(
                "reduce_scatter" if scatters else "all_gather",
                axis,
                size,
                max(1, round(parts / (size - 1))),
                float(part * parts),
                "windowed einsum",
                True,
                True,
                instruction.op_name,
                module.source(instruction),
                float(part * apart),
                SCATTERED_APART if apart else "",
            )
        )
    return found


def _apart(module: Module, members: list[tuple[Computation, Instruction, int]]) -> int:
    """Scatters a step that would not be there if what they scatter were added before: in one sum
    the last parts of several unrolled rings meet, one from each way round."""
    ends: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    times: dict[tuple[str, str], int] = {}
    for computation, instruction, count in members:
        if "windowed_dot_general_body" in computation.name:
            continue
        for user, name in _ends(module, computation, instruction):
            ends[computation.name, user].append((name, _pairs(instruction)))
            times[computation.name, user] = count
    found = 0
    for (computation_name, user), parts in ends.items():
        rings = len(parts) // len({way for _, way in parts})
        if rings > 1 and _added(module, computation_name, user, {name for name, _ in parts}):
            found += (rings - 1) * times[computation_name, user]
    return found


def _ends(module: Module, computation: Computation, permuted: Instruction) -> list[tuple[str, str]]:
    """What takes a permuted part, as it is or copied, and passes nothing on; by which name."""
    found: list[tuple[str, str]] = []
    for user in computation.users.get(permuted.name, ()):
        if _copied(module, user):
            found += _ends(module, computation, user)
        elif not _passes_on(computation, user):
            found.append((user.name, permuted.name))
    return list(dict.fromkeys(found))


def _copied(module: Module, user: Instruction) -> bool:
    """Whether an instruction passes a permuted part on as it is."""
    ends = ("collective-permute-done", "async-done", *UNCHANGED)
    return user.opcode in ends or copied_in_pieces(module, user)


def in_a_ring_of_sums(module: Module, computation: Computation, permuted: Instruction) -> bool:
    """Whether a permute of no named operation (programs for several slices have no names) passes a
    matmul's sums on: what comes out is added to something, or what goes in are zeros."""
    made_by = computation.by_name.get(permuted.operands[0])
    if made_by is not None and made_by.opcode == "broadcast":
        return True
    todo, seen = [permuted], set()
    while todo:
        for user in computation.users.get(todo.pop().name, ()):
            inner = module.computations.get(user.attribute("calls"))
            if user.opcode == "fusion" and inner is not None:
                if any(one.opcode == "add" for one in inner.instructions):
                    return True
            elif _copied(module, user) and user.name not in seen:
                seen.add(user.name)
                todo.append(user)
    return False


def _added(module: Module, computation: str, fusion: str, operands: set[str]) -> bool:
    """Whether a fusion adds all of some operands to one sum, each as it is."""
    taker = module.computations[computation].by_name[fusion]
    inner = module.computations.get(taker.attribute("calls"))
    if inner is None:
        return False
    wanted = [str(at) for at, name in enumerate(taker.operands) if name in operands]
    given = {one.attribute("value"): one for one in inner.instructions if one.opcode == "parameter"}
    sums = [_sums(inner, given[at]) for at in wanted]
    return bool(set.intersection(*sums))


def _sums(inner: Computation, one: Instruction) -> set[str]:
    """The additions that a value goes into, directly or as a part of another sum."""
    found: set[str] = set()
    for user in inner.users.get(one.name, ()):
        if user.opcode == "add":
            found |= {user.name, *_sums(inner, user)}
        elif user.opcode in UNCHANGED:
            found |= _sums(inner, user)
    return found


def _passes_on(computation: Computation, one: Instruction) -> bool:
    """Whether an instruction's result, or a part of it, is permuted."""
    for user in computation.users.get(one.name, ()):
        if user.opcode.startswith("collective-permute"):
            return True
        if user.opcode == "get-tuple-element" and _passes_on(computation, user):
            return True
    return False


def _pairs(instruction: Instruction) -> str:
    pairs = PAIRS.search(instruction.rest)
    return pairs.group(1) if pairs else ""


def _parts(members: list[tuple[Computation, Instruction, int]], n: int) -> int:
    """Parts a device passes on in a step, those left out that carry nothing.

    A loop that goes both ways round has n permutes a run and one after it, one that goes one way n
    or n - 1; n - 1 of them pass a part.
    """
    loops: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    alone = 0
    for computation, instruction, count in members:
        made_by = computation.by_name.get(instruction.operands[0])
        if "windowed_dot_general_body" in computation.name:
            loops[computation.name][_pairs(instruction)] += count
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
