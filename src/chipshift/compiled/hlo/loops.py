"""How often each computation runs in a step: trip counts of loops, multiplied through nesting."""

from __future__ import annotations

import re
from collections import defaultdict

from chipshift.compiled.hlo.module import Computation, Instruction, Module

CALLS = ("call", "call-start", "async-start")
"""Opcodes whose ``to_apply`` is run, not a reducer; libtpu starts SparseCore work by the second."""

_KNOWN = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_VALUE = re.compile(r"value=(-?\d+)")


def multiplicities(module: Module) -> dict[str, int]:
    """Times a step that each computation runs; reducers of collectives are left out."""
    times: dict[str, int] = defaultdict(int)
    times[module.entry] = 1
    for name in _callers_first(module):
        for instruction in module.computations[name].instructions:
            if instruction.opcode.endswith(("-done", "-update")):
                continue  # they name again what their start runs
            for key, inner in instruction.called:
                if key == "to_apply" and instruction.opcode not in CALLS:
                    continue
                count = trip_count(module, name, instruction) if key == "body" else 1
                times[inner] += times[name] * count
    return dict(times)


def _callers_first(module: Module) -> list[str]:
    """Computations reachable from the entry, every caller before what it calls."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen or name not in module.computations:
            return
        seen.add(name)
        for instruction in module.computations[name].instructions:
            for _, inner in instruction.called:
                visit(inner)
        order.append(name)

    visit(module.entry)
    return order[::-1]


def trip_count(module: Module, caller: str, loop: Instruction) -> int:
    """Iterations of a ``while``: stated, or worked out from its induction variable.

    The condition compares an element of the loop's tuple with a constant; the body adds a constant
    to that element; the tuple that enters the loop starts it. 1 where that shape is not found.
    """
    stated = _KNOWN.search(loop.rest)
    if stated:
        return int(stated.group(1))
    condition = module.computations.get(loop.attribute("condition"))
    body = module.computations.get(loop.attribute("body"))
    if condition is None or body is None:
        return 1
    limit = _limit(module, condition)
    index = _compared_element(condition)
    if limit is None:
        return 1
    start = step = None
    if index is not None:
        start = _start(module.computations[caller], loop, index)
        step = _step(module, body, index)
    first, stride = start or 0, step or 1
    return max(1, -(-(limit - first) // stride)) if stride > 0 else max(1, first - limit)


def _constants(module: Module, computation: Computation) -> dict[str, int]:
    """Integer constants by name, with those of fusions called from here."""
    found: dict[str, int] = {}
    for instruction in computation.instructions:
        value = _VALUE.match(instruction.rest) if instruction.opcode == "constant" else None
        if value and instruction.result[:1] in "su":
            found[instruction.name] = int(value.group(1))
        for key, inner in instruction.called:
            if key == "calls" and inner in module.computations:
                found |= _constants(module, module.computations[inner])
    return found


def _limit(module: Module, condition: Computation) -> int | None:
    found = _constants(module, condition)
    return max(found.values()) if found else None


def _compared_element(condition: Computation) -> int | None:
    """Which element of the loop's tuple the condition looks at."""
    elements = [i for i in condition.instructions if i.opcode == "get-tuple-element"]
    integers = [i for i in elements if i.result[:1] in "su" and "[]" in i.result]
    return _index(integers[0]) if len(integers) == 1 else None


def _index(element: Instruction) -> int:
    found = re.search(r"\bindex=(\d+)", element.rest)
    return int(found.group(1)) if found else 0


def _start(caller: Computation, loop: Instruction, index: int) -> int | None:
    entering = caller.by_name.get(loop.operands[0]) if loop.operands else None
    if entering is None or entering.opcode != "tuple" or index >= len(entering.operands):
        return None
    value = caller.by_name.get(entering.operands[index])
    while value is not None and value.opcode in ("copy", "bitcast") and value.operands:
        value = caller.by_name.get(value.operands[0])
    if value is None or value.opcode != "constant":
        return None
    number = _VALUE.match(value.rest)
    return int(number.group(1)) if number else None


def _step(module: Module, body: Computation, index: int) -> int | None:
    root = body.root
    if root.opcode != "tuple" or index >= len(root.operands):
        return None
    value = body.by_name.get(root.operands[index])
    while value is not None and value.opcode in ("copy", "bitcast") and value.operands:
        value = body.by_name.get(value.operands[0])
    if value is None:
        return None
    if value.opcode == "add":
        numbers = _constants(module, body)
        steps = [numbers[o] for o in value.operands if o in numbers]
        return steps[0] if steps else None
    if value.opcode == "fusion":
        inner = module.computations.get(value.attribute("calls"))
        if inner is not None and inner.root.opcode == "add":
            numbers = _constants(module, inner)
            steps = [numbers[o] for o in inner.root.operands if o in numbers]
            return steps[0] if steps else None
    return None
