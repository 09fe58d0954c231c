"""What an all-reduce is for: a sum that every device wants, or a scatter or gather sent whole.

libtpu often sends a reduce-scatter as an all-reduce of the whole array, of which each device then
keeps its part, and an all-gather as an all-reduce of arrays that are zero but for each device's
part. Both show in what surrounds the all-reduce, and both send twice the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.shape import Shape

UNCHANGED = ("bitcast", "copy", "copy-start", "copy-done", "reshape", "transpose", "convert")
"""Opcodes that pass an array on, whatever its layout."""

STARTS = ("async-start", "call-start", "fusion", "call")
DONES = ("async-done", "call-done", "all-reduce-done", "async-update", "recv-done")
GATHERS = ("all-gather", "all-gather-start", "all-gather-done")
ADDED = ("add",)

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="[^"]*"')

WHOLE = 10**18
"""Elements used where not only a part is."""

DEPTH = 24
"""Instructions that are followed from an all-reduce before its use counts as unknown."""


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


def result(computation: Computation, name: str) -> tuple[Shape, ...]:
    """Arrays of an instruction's result, none where there is no such instruction."""
    instruction = computation.by_name.get(name)
    return instruction.shapes if instruction else ()


def padded_bytes(computation: Computation, scattered: Instruction) -> float:
    """Bytes by which an array is padded before it is scattered, so that all parts are equal."""
    found = 0.0
    for operand in scattered.operands:
        made = computation.by_name.get(operand)
        if made is not None and made.opcode == "pad":
            before = sum(shape.bytes for shape in result(computation, made.operands[0]))
            found += sum(shape.bytes for shape in made.shapes) - before
    return found


def padded_between_slices(computation: Computation, send: Instruction) -> int:
    """Bytes of whole tiles that a device hands over between slices beyond the array's own."""
    made = computation.by_name.get(send.operands[0])
    while made is not None and made.opcode in UNCHANGED:
        made = computation.by_name.get(made.operands[0])
    if made is None or 'target="ZeroCrop"' not in made.rest:
        return 0
    before = sum(shape.bytes for shape in result(computation, made.operands[0]))
    return sum(shape.bytes for shape in made.shapes) - before


def in_place_of(
    module: Module,
    mesh: MeshAxes,
    computation: Computation,
    one: Instruction,
    axis: str,
    n: int,
) -> tuple[tuple[tuple[str, str, float], ...], float]:
    """What an all-reduce over ``n`` devices does the work of, and the bytes it sends for that.

    For each of its arrays: a gather of zero-padded parts, in the type that comes out, as nothing is
    added up; a scatter where only a part of the sum is used, over those axes that have as many
    devices as parts, and then an all-reduce of the part over the others.
    """
    sizes = [sum(shape.bytes for shape in result(computation, name)) for name in one.operands]
    kept = parts_kept(module, computation, one)
    found: list[tuple[str, str, float]] = []
    spent = 0.0
    for name, shape, size, parts in zip(one.operands, one.shapes, sizes, kept, strict=False):
        over = axis if parts == n > 1 else mesh.part(axis, parts) if parts > 1 else ""
        if zero_padded(module, computation, name, shape, n):
            if parts <= n:  # else the last stage of a sum over slices (``gathered_for_a_part``)
                found.append(("all_gather", axis, shape.bytes * (n - 1) / n))
        elif over:
            found.append(("reduce_scatter", over, sent_bytes("reduce_scatter", size, parts)))
            if n > parts:
                rest = "+".join(each for each in axis.split("+") if each not in over.split("+"))
                left = sent_bytes("all_reduce", size / parts, n // parts)
                found.append(("all_reduce", rest, left))
        else:
            continue
        spent += sent_bytes("all_reduce", size, n)
    return tuple(found), spent


def parts_kept(
    module: Module, computation: Computation, one: Instruction, through: tuple[str, ...] = ()
) -> list[int]:
    """For each array of an all-reduce, into how many parts it is cut of which one is used; 1 where
    anything uses the whole."""
    arrays = [prod(shape.dims) for shape in one.shapes[: len(one.operands)]]
    found = []
    for index, size in enumerate(arrays):
        at = index if len(arrays) > 1 else None
        uses = set(_uses(module, computation, one, at, DEPTH, through))
        kept = max(uses, default=None)
        found.append(max(1, size // kept) if kept else 1)
    return found


def gathered_for_a_part(module: Module, computation: Computation, one: Instruction, n: int) -> bool:
    """Whether of what is gathered from ``n`` devices, or of its sum with something, less is used
    than each of them had. Not of one that the program names: it asks for that gather itself."""
    return not one.op_name and all(
        parts > n for parts in parts_kept(module, computation, one, ADDED)
    )


def part_between_slices(module: Module, computation: Computation, send: Instruction) -> bool:
    """Whether of a sum between slices, gathered inside the slice or not, less is used than each
    device hands over."""
    name = _RENDEZVOUS.search(send.rest)
    for one in computation.instructions:
        if name and one.opcode == "recv" and name.group(0) in one.rest:
            uses = set(_uses(module, computation, one, 0, DEPTH, (*GATHERS, *ADDED)))
            return max(uses, default=WHOLE) < prod(one.shapes[0].dims)
    return False


def zero_padded(
    module: Module, computation: Computation, operand: str, shape: Shape, n: int
) -> bool:
    """Whether an operand of an all-reduce over ``n`` devices is zeros with the device's own part
    put in, and no part is several devices', who would add up what they have of it."""
    part: int = _written(module, computation, operand, DEPTH)
    return 0 < part * n < 2 * prod(shape.dims)


def _uses(
    module: Module,
    computation: Computation,
    one: Instruction,
    index: int | None,
    depth: int,
    through: tuple[str, ...] = (),
) -> Iterator[int]:
    """Elements of every part that is cut out of a value; infinitely many where all of it is used.

    ``index``: which element of a tuple the value is; ``through``: opcodes that pass it on beside
    those that leave it unchanged.
    """
    if depth == 0:
        yield WHOLE
        return
    if one.root:
        yield from _used_by_callers(module, computation, index, depth, through)
    for user in computation.users.get(one.name, ()):
        if index is not None and user.opcode == "get-tuple-element":
            if user.attribute("index") == str(index):
                yield from _uses(module, computation, user, None, depth - 1, through)
        elif user.opcode == "dynamic-slice" and user.operands[0] == one.name:
            yield prod(user.shapes[0].dims)
        elif user.opcode in (*UNCHANGED, *DONES, *through) or copied_in_pieces(module, user):
            yield from _uses(module, computation, user, index, depth - 1, through)
        elif user.opcode == "tuple" and user.root:
            at = user.operands.index(one.name)
            yield from _used_by_callers(module, computation, at, depth, through)
        elif user.opcode == "fusion" and index is None:
            yield from _inside(module, user, one.name, depth, through)
        else:
            yield WHOLE


def copied_in_pieces(module: Module, one: Instruction) -> bool:
    """Whether an instruction copies a piece of memory to another place, joins such pieces, or ends
    a collective that goes through several fusions."""
    if one.opcode == "async-start":
        inner = module.computations.get(one.attribute("calls"))
        return inner is not None and inner.root.opcode == "slice"
    joins = ('target="ConcatBitcast"', 'target="AsyncCollectiveDone"')
    return one.opcode == "custom-call" and any(name in one.rest for name in joins)


def _inside(
    module: Module, fusion: Instruction, name: str, depth: int, through: tuple[str, ...]
) -> Iterator[int]:
    """Uses within a fusion of the operand ``name``."""
    inner = module.computations[fusion.attribute("calls")]
    for at, operand in enumerate(fusion.operands):
        if operand != name:
            continue
        for parameter in inner.instructions:
            if parameter.opcode == "parameter" and parameter.attribute("value") == str(at):
                yield from _uses(module, inner, parameter, None, depth - 1, through)


def _used_by_callers(
    module: Module,
    computation: Computation,
    index: int | None,
    depth: int,
    through: tuple[str, ...],
) -> Iterator[int]:
    """Uses of a computation's result where it is called; all of it where nothing says more."""
    callers = module.callers.get(computation.name, ())
    if not callers:
        yield WHOLE
    for caller, call in callers:
        if call.opcode in STARTS:
            yield from _uses(module, caller, call, index, depth - 1, through)
        elif call.opcode not in DONES:
            yield WHOLE


def _written(module: Module, computation: Computation, name: str, depth: int) -> int:
    """Elements of the part that was written into a larger array to make a value, or padded; 0 where
    it was made otherwise."""
    made = computation.by_name.get(name)
    if made is None or depth == 0:
        return 0
    if made.opcode in ("dynamic-update-slice", "pad"):
        part = result(computation, made.operands[0 if made.opcode == "pad" else 1])
        return prod(part[0].dims) if part else 0
    if made.opcode in UNCHANGED:
        return _written(module, computation, made.operands[0], depth - 1)
    if made.opcode == "fusion":
        inner = module.computations[made.attribute("calls")]
        return _written(module, inner, inner.root.name, depth - 1)
    if made.opcode == "parameter":  # of a computation beside the main program
        callers = module.callers.get(computation.name, ())
        at = int(made.attribute("value") or 0)
        parts = [
            _written(module, caller, call.operands[at], depth - 1)
            for caller, call in callers
            if call.opcode in STARTS and at < len(call.operands)
        ]
        return max(parts) if parts and all(parts) else 0
    return 0
