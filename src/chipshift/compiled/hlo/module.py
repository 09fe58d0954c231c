"""An optimised program as text, read into computations of instructions with their source lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from chipshift.compiled.hlo.shape import Shape, parse_shapes

PLUMBING = (
    "compiled/step/sharding.py", "compiled/torch_program.py", "compiled/traced/operators.py",
    "compiled/traced/sharded.py", "compiled/traced/step.py", "compiled/programs.py",
    "compiled/child.py",
)  # fmt: skip
"""Files whose frames say nothing of where in a model an instruction belongs."""

HANDLE = ("compiled/step/model.py", "Weights.")
"""Nor do the methods by which the step's layers use their weights: file and class."""

TRACERS = re.compile(r"/site-packages/(torch|torchax|jax|jaxlib|flax|numpy)/|^<")
"""Packages that run a model, and frames of no file; a model's own may be a library's too."""

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-~]+)\s*\(.*\)\s*->.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-~]+) = ")
_OPCODE = re.compile(r"([a-z][a-z0-9\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-~]+)")
_CALLED = re.compile(
    r"(?:calls|body|condition|to_apply|branch_computations|called_computations"
    r"|true_computation|false_computation)=(\{[^}]*\}|%?[\w.\-~]+)"
)
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')


@dataclass(frozen=True)
class Instruction:
    """One instruction: ``rest`` is everything after its operands, verbatim."""

    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    rest: str
    root: bool

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        return parse_shapes(self.result)

    @property
    def op_name(self) -> str:
        """Where in the traced program it came from: ``jit(step)/while/body/dot_general``."""
        found = _OP_NAME.search(self.rest)
        return found.group(1) if found else ""

    def attribute(self, key: str) -> str:
        """A computation or number named by an attribute, "" where there is none."""
        found = re.search(rf"\b{key}=%?([\w.\-~]+)", self.rest)
        return found.group(1) if found else ""

    @property
    def called(self) -> tuple[tuple[str, str], ...]:
        """(attribute, computation) for every computation the instruction runs."""
        out = []
        for match in _CALLED.finditer(self.rest):
            key = match.group(0).partition("=")[0]
            out += [(key, name) for name in re.findall(r"[\w.\-~]+", match.group(1))]
        return tuple(out)


@dataclass(frozen=True)
class Computation:
    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {i.name: i for i in self.instructions}

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Instructions that take each one's result."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                found.setdefault(operand, []).append(instruction)
        return found

    @property
    def root(self) -> Instruction:
        return next((i for i in self.instructions if i.root), self.instructions[-1])


@dataclass(frozen=True)
class Module:
    """A whole program.

    Attributes:
        frames: stack frame id -> (file, line, parent frame's id), the innermost first in a chain.
        functions: (file, line) -> the function it stands in, with its class.
    """

    name: str
    computations: dict[str, Computation]
    entry: str
    frames: dict[int, tuple[str, int, int]]
    functions: dict[tuple[str, int], str]

    @cached_property
    def callers(self) -> dict[str, list[tuple[Computation, Instruction]]]:
        """Where each computation is run: the instruction and the computation it stands in."""
        found: dict[str, list[tuple[Computation, Instruction]]] = {}
        for computation in self.computations.values():
            for instruction in computation.instructions:
                for _, inner in instruction.called:
                    found.setdefault(inner, []).append((computation, instruction))
        return found

    def _within(self, file: str, line: int) -> str:
        """The function that a line stands in, "" where it is not known."""
        return self.functions.get((file, line), "")

    def source(self, instruction: Instruction) -> tuple[str, int] | None:
        """File and line of the innermost frame that is not a library's; without one, of the
        innermost in a library of models (transformers), where known."""
        direct = _SOURCE.search(instruction.rest)
        if direct:
            return direct.group(1), int(direct.group(2))
        found = _FRAME.search(instruction.rest)
        frame = int(found.group(1)) if found else 0
        models = None
        while frame in self.frames:
            file, line, parent = self.frames[frame]
            handle = file.endswith(HANDLE[0]) and self._within(file, line).startswith(HANDLE[1])
            if not file.endswith(PLUMBING) and not handle and not TRACERS.search(file):
                if "site-packages" not in file:
                    return file, line
                models = models or (file, line)
            if parent == frame:
                break
            frame = parent
        return models


def parse(text: str) -> Module:
    """Read the text that ``compiled.as_text()`` gives.

    Raises:
        ValueError: the text has no entry computation.
    """
    lines = text.split("\n")
    name = lines[0].removeprefix("HloModule ").partition(",")[0] if lines else ""
    computations: dict[str, Computation] = {}
    entry, current = "", ""
    body: list[Instruction] = []
    for line in _logical(lines):
        head = _COMPUTATION.match(line)
        if head and not line.startswith(" "):
            current, body = head.group(2), []
            entry = current if head.group(1) else entry
        elif line.startswith("}") and current:
            computations[current] = Computation(current, tuple(body))
            current = ""
        elif current and _INSTRUCTION.match(line):
            body.append(_instruction(line))
    if not entry:
        raise ValueError("the program has no ENTRY computation: not an optimised HLO text")
    return Module(name, computations, entry, *_frames(lines))


def _logical(lines: list[str]) -> Iterator[str]:
    """Lines with those that an attribute's embedded line break cut joined again."""
    held = ""
    for line in lines:
        starts = line.startswith(("}", "ENTRY ", "%", "HloModule")) and not line.startswith("}}")
        if starts or _INSTRUCTION.match(line) or not held:
            if held:
                yield held
            held = line
        else:
            held += " " + line
    if held:
        yield held


def _instruction(line: str) -> Instruction:
    head = _INSTRUCTION.match(line)
    assert head is not None
    after = line[head.end() :]
    at = _end_of_shape(after)
    opcode = _OPCODE.match(after, at)
    if opcode is None:
        return Instruction(head.group(2), "", after[:at], (), after[at:], bool(head.group(1)))
    close = _closing(after, opcode.end() - 1)
    inside = after[opcode.end() : close]
    operands = tuple(_OPERAND.findall(inside))
    rest = after[close + 1 :]
    if opcode.group(1) in ("constant", "parameter"):
        rest = f"value={inside}" + rest
    return Instruction(
        head.group(2), opcode.group(1), after[:at].strip(), operands, rest, bool(head.group(1))
    )


def _end_of_shape(text: str) -> int:
    """Where the opcode starts: after the result's shape, which may be a tuple with layouts."""
    if text.startswith("("):
        return _skip_spaces(text, _closing(text, 0) + 1)
    return _skip_spaces(text, text.find(" "))


def _skip_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    return at


def _closing(text: str, at: int) -> int:
    """Index of the bracket that closes the one at ``at``."""
    depth = 0
    for index in range(at, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index
    return len(text)


def _frames(
    lines: list[str],
) -> tuple[dict[int, tuple[str, int, int]], dict[tuple[str, int], str]]:
    """The stack-frame tables that stand before the first computation: frames, and functions."""
    files: dict[int, str] = {}
    names: dict[int, str] = {}
    functions: dict[tuple[str, int], str] = {}
    places: dict[int, tuple[int, int]] = {}
    frames: dict[int, tuple[str, int, int]] = {}
    table = ""
    for line in lines[1:]:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = line
        elif line.startswith(("%", "ENTRY ")):
            break
        elif line and table:
            number, _, rest = line.partition(" ")
            if table == "FileNames":
                files[int(number)] = rest.strip('"')
            elif table == "FunctionNames":
                names[int(number)] = rest.strip('"')
            elif table == "FileLocations":
                values = dict(re.findall(r"(\w+)=(\d+)", rest))
                file, row = int(values["file_name_id"]), int(values["line"])
                places[int(number)] = (file, row)
                functions[files[file], row] = names.get(int(values.get("function_name_id", 0)), "")
            elif table == "StackFrames":
                values = dict(re.findall(r"(\w+)=(\d+)", rest))
                file, row = places[int(values["file_location_id"])]
                # Printed one too high, so that the outermost frame can say 1 for "none".
                parent = int(values.get("parent_frame_id", 1)) - 1
                frames[int(number)] = (files[file], row, parent)
    return frames, functions
