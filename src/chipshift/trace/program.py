"""Programs as sequences of operations, and why one differs from another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chipshift.trace.outcome import INPUT_CHANGED, Cause, Place

DATA_DEPENDENT = frozenset(
    {"nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select"}
    | {"repeat_interleave", "bincount"}
)
"""Operations whose result has a size that only the data decide."""


@dataclass(frozen=True)
class Op:
    """One operation, or a ``read`` by the host; ``key`` is what a compiler would fix."""

    name: str
    key: tuple[Any, ...]
    place: Place
    in_optimizer: bool


@dataclass
class Tape:
    """What one run of the step did."""

    inputs: tuple[Any, ...]
    ops: list[Op] = field(default_factory=list)

    @property
    def program(self) -> tuple[Any, ...]:
        """What tells one program from another."""
        return tuple((op.name, op.key) for op in self.ops)


def causes(tapes: list[Tape], definition: Place) -> Iterator[Cause]:
    """For each program not seen before, why it differs from the most similar one seen."""
    seen: dict[tuple[Any, ...], Tape] = {}
    for tape in tapes:
        if tape.program in seen:
            continue
        if seen:
            nearest = max(seen.values(), key=lambda old, new=tape: _common(old, new))  # type: ignore[misc]
            yield _difference(nearest, tape, definition)
        seen[tape.program] = tape


def _common(old: Tape, new: Tape) -> int:
    for at, (a, b) in enumerate(zip(old.ops, new.ops, strict=False)):
        if (a.name, a.key) != (b.name, b.key):
            return at
    return min(len(old.ops), len(new.ops))


def _difference(old: Tape, new: Tape, definition: Place) -> Cause:
    if old.inputs != new.inputs:
        pairs = zip(old.inputs, new.inputs, strict=False)
        example = next((f"{_told(a)} to {_told(b)}" for a, b in pairs if a != b), "their number")
        return Cause(INPUT_CHANGED, definition, example)
    at = _common(old, new)
    before = old.ops[at] if at < len(old.ops) else None
    after = new.ops[at] if at < len(new.ops) else None
    here = after or before
    assert here is not None
    if before is not None and after is not None and before.name == after.name:
        if after.name in DATA_DEPENDENT or after.name.startswith("index"):
            return Cause("a size that depends on data", after.place, f"aten::{after.name}")
        if before.key[0] != after.key[0]:
            changed = next(
                (f"{b[0]} of aten::{after.name}, {a[1]} to {b[1]}"
                 for a, b in zip(before.key[0], after.key[0], strict=False) if a != b),
                f"aten::{after.name}",
            )  # fmt: skip
            return Cause("a Python number became part of the program", after.place, changed)
    if here.in_optimizer:
        return Cause("the optimizer made its state in the first step", here.place)
    reads = [op for op in new.ops[:at] if op.name == "read" and not op.in_optimizer]
    if reads:
        return Cause("a value read from the device decides what runs", reads[-1].place)
    return Cause("the Python code took another path", here.place, f"aten::{here.name}")


def _told(shape: Any) -> str:
    """``float32(4, 128)`` for a tensor's shape and type."""
    return "no tensor" if shape is None else f"{shape[1].removeprefix('torch.')}{shape[0]}"
