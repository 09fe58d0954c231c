"""What takes the room in a program that does not fit, from the compiler's own buffer assignment.

The refusal itself names two sums only. Compiled again with XLA's dump on, the compiler writes what
it had placed when it gave up: every value with its size and offset, and the program.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from chipshift.compiled.hlo.module import Instruction, Module, parse
from chipshift.compiled.hlo.shape import Shape

LISTED = 10

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*)$", re.MULTILINE)
_ON_CORE = re.compile(r"\bcolor [1-9]")
_TOTAL = re.compile(r"color=0\)\nTotal bytes: (\d+)")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(?:\{([\d,]*)\})? @\d+> \(size=(\d+),offset=(\d+)\)")
_PASSES_ON = ("get-tuple-element", "bitcast", "copy", "copy-start", "copy-done")


def what_is_large(lowered: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Bytes by part and the largest temporaries; empty where nothing was dumped."""
    with tempfile.TemporaryDirectory(prefix="chipshift-dump-") as folder:
        with suppress(Exception):  # it is refused again: that is what is looked into
            lowered.compile(compiler_options={**options, "xla_dump_to": folder})
        return read_dump(Path(folder))


def read_dump(folder: Path) -> dict[str, Any]:
    """As ``what_is_large``, from a dump's folder: the module of most bytes in it."""
    best: dict[str, Any] = {}
    for report in folder.glob("*.after_optimizations-memory-usage-report.txt"):
        stem = str(report).removesuffix("-memory-usage-report.txt")
        total = _TOTAL.search(report.read_text("utf8"))
        program, buffers = Path(f"{stem}.txt"), Path(f"{stem}-buffer-assignment.txt")
        if total is None or not (program.exists() and buffers.exists()):
            continue
        found = int(total.group(1))
        if found > best.get("wanted_bytes", 0):
            best = {
                "wanted_bytes": found,
                "memory_bytes": allocated(buffers.read_text("utf8")) | {"peak": found},
                "largest": largest(parse(program.read_text("utf8")), buffers.read_text("utf8")),
            }
    return best


def allocated(text: str) -> dict[str, int]:
    """Bytes of device memory by part, from a buffer assignment."""
    parts = {"arguments": 0, "outputs": 0, "temporaries": 0}
    for size, what in _ALLOCATION.findall(text):
        if _ON_CORE.search(what):
            continue  # on the core, not in device memory
        if re.search(r"\bparameter \d", what):
            parts["arguments"] += int(size)
        if "maybe-live-out" in what:
            parts["outputs"] += int(size)
        if "preallocated-temp" in what:
            parts["temporaries"] += int(size)
    return parts


def blocks(text: str) -> list[tuple[str, tuple[int, ...], int]]:
    """(value, index, bytes) of the largest values that together fill the temporaries: from the
    largest on, each whose place no larger one has."""
    values: list[tuple[int, int, str, tuple[int, ...]]] = []
    temporary = False
    for line in text.splitlines():
        if line.startswith("allocation"):
            temporary = "preallocated-temp" in line and not _ON_CORE.search(line)
        elif temporary and (found := _VALUE.match(line)):
            name, index, size, offset = found.groups()
            at = tuple(int(n) for n in (index or "").split(",") if n)
            values.append((int(size), int(offset), name, at))
    taken: list[tuple[int, int]] = []
    out = []
    for size, offset, name, at in sorted(values, key=lambda value: -value[0]):
        if all(offset + size <= start or offset >= end for start, end in taken):
            taken.append((offset, offset + size))
            out.append((name, at, size))
    return out


def largest(module: Module, buffers: str) -> list[dict[str, Any]]:
    """The largest temporaries, each with the line that made it; ``count`` of the same size from the
    same line."""
    places = _Places(module)
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, index, size in blocks(buffers):
        found = places.made(name, index)
        if found is None:
            continue
        instruction, shape = found
        called = instruction.op_name or instruction.name
        source = module.source(instruction)
        one = {
            "name": called,
            "shape": str(shape or ""),
            "logical_bytes": shape.bytes if shape else size,
            "physical_bytes": size,
            "argument": False,
            "source": list(source) if source else None,
            "count": 0,
        }
        out.setdefault((called, str(shape), size, source), one)["count"] += 1
    return sorted(out.values(), key=lambda one: -one["physical_bytes"])[:LISTED]


class _Places:
    """Which instruction made a value, through loops, tuples and renamings."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.home = {
            i.name: computation
            for computation in module.computations.values()
            for i in computation.instructions
        }
        self.loops = {  # a loop's body by name -> the loop
            i.attribute("body"): i
            for computation in module.computations.values()
            for i in computation.instructions
            if i.opcode == "while"
        }

    def made(self, name: str, index: tuple[int, ...]) -> tuple[Instruction, Shape | None] | None:
        """The instruction behind ``name{index}`` and the value's shape; None for an argument."""
        shape: Shape | None = None
        for _ in range(32):
            computation = self.home.get(name)
            if computation is None:
                return None
            instruction = computation.by_name[name]
            at = index[0] if index else 0
            if shape is None and at < len(instruction.shapes):
                shape = instruction.shapes[at]
            if instruction.opcode == "parameter":
                loop = self.loops.get(computation.name)
                if loop is None:
                    return None
                step = self._element(loop, at)
            elif instruction.opcode == "while":
                step = self._element(instruction, at)
            elif instruction.opcode == "tuple" and at < len(instruction.operands):
                step = (instruction.operands[at], index[1:])
            elif instruction.opcode in _PASSES_ON and instruction.operands and _silent(instruction):
                inside = instruction.opcode == "get-tuple-element"
                own = (int(instruction.attribute("index") or 0),) if inside else ()
                step = (instruction.operands[0], (*own, *index))
            else:
                return instruction, shape
            name, index = step
        return None

    def _element(self, loop: Instruction, at: int) -> tuple[str, tuple[int, ...]]:
        """Where an element that a loop carries comes from: its body, where that makes it anew, else
        what entered the loop."""
        body = self.module.computations[loop.attribute("body")]
        made = body.root.operands[at] if body.root.opcode == "tuple" else body.root.name
        source = body.by_name.get(made)
        carried = source is None or (
            source.opcode == "get-tuple-element"
            and body.by_name[source.operands[0]].opcode == "parameter"
        )
        return (loop.operands[0], (at,)) if carried else (made, ())


def _silent(instruction: Instruction) -> bool:
    """Whether an instruction only passes on what another made."""
    return instruction.opcode != "copy" or not instruction.op_name
