"""Sums that the compiler scatters one by one, though the program adds them first.

A tied table has two gradients, the look-up's and the head's. The program adds them and cuts the sum
to the optimizer's parts; where the compiler scatters each and adds the parts, one scatter more is
sent than was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from chipshift.compiled.hlo.collective import Collective
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.purpose import DONES, STARTS, UNCHANGED
from chipshift.compiled.hlo.windowed import SCATTERED_APART

DEPTH = 12
"""Instructions that are followed from a scatter to the sum that takes it."""

CUT = ("dynamic-slice", "get-tuple-element", "collective-permute-done")
NAMED = ("reduce_scatter", "psum_scatter")
"""Operations by which a program asks for a scatter itself."""

RELAID = "data-format"
"""What v7x's SparseCores lay out anew and pass on."""

GRADIENTS = "add_any"
"""JAX's name of the sum of what an array's several uses give it as gradients."""

Sum = tuple[str, str, str]


@dataclass(frozen=True)
class Scatter:
    """A scatter of the program: its place among the collectives found, -1 for a part of another
    that only another can be added to, and its instruction."""

    at: int
    computation: Computation
    instruction: Instruction


def scattered_apart(
    module: Module, found: list[Collective], scatters: list[Scatter]
) -> list[Collective]:
    """``found``, of each sum of several scatters all counted as inserted but that which sends the
    most."""
    taken: set[Sum] = set()
    out = list(found)
    for one in sorted(scatters, key=lambda s: -found[s.at].bytes if s.at >= 0 else -inf):
        sums = _sums(module, one.computation, one.instruction, DEPTH)
        if one.at >= 0 and sums & taken and found[one.at].where.rpartition("/")[2] not in NAMED:
            again = found[one.at]
            out[one.at] = replace(
                again, inserted=again.bytes, why=SCATTERED_APART, instead=(), spent=0.0
            )
        taken |= sums
    return out


def _sums(module: Module, computation: Computation, one: Instruction, depth: int) -> set[Sum]:
    """The sums of gradients that take a value, as it is or a part of it: computation, fusion and
    addition."""
    if depth == 0:
        return set()
    found: set[Sum] = set()
    if one.root:
        for caller, call in module.callers.get(computation.name, ()):
            if call.opcode in STARTS:
                found |= _sums(module, caller, call, depth - 1)
    for user in computation.users.get(one.name, ()):
        relaid = user.opcode == "async-start" and RELAID in user.name
        if user.opcode in (*UNCHANGED, *DONES, *CUT) or relaid:
            found |= _sums(module, computation, user, depth - 1)
        elif user.opcode == "fusion":
            inner = module.computations[user.attribute("calls")]
            for at, name in enumerate(user.operands):
                added = _added(inner, str(at)) if name == one.name else set()
                found |= {(computation.name, user.name, total) for total in added}
    return found


def _added(inner: Computation, at: str) -> set[str]:
    """The sums of gradients within a fusion that its operand goes into, cut or converted."""
    todo = [i for i in inner.instructions if i.opcode == "parameter" and i.attribute("value") == at]
    found: set[str] = set()
    while todo:
        for user in inner.users.get(todo.pop().name, ()):
            if user.opcode == "add" and user.op_name.endswith(GRADIENTS):
                found.add(user.name)
            elif user.opcode in (*UNCHANGED, *CUT, "add"):
                todo.append(user)
    return found
