"""Parts of an estimate that may be absent, and seconds by what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chipshift.worked import rename

Number = Any


def absent(part: Number) -> bool:
    """Whether a part is the plain zero that stands for nothing at all."""
    return isinstance(part, float) and part == 0.0


def plus(a: Number, b: Number) -> Number:
    """a + b, without the zeros of absent parts in the derivation's text."""
    if absent(a):
        return b
    return a if absent(b) else a + b


@dataclass(frozen=True)
class Times:
    """Seconds by what bounds them: matrix units, the attention kernel, memory traffic."""

    matmul: Number = 0.0
    attention: Number = 0.0
    memory: Number = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(
            plus(self.matmul, other.matmul),
            plus(self.attention, other.attention),
            plus(self.memory, other.memory),
        )

    def times(self, factor: Number) -> Times:
        return Times(*(part if absent(part) else part * factor for part in self.parts))

    def named(self, name: str) -> Times:
        """The same under names for a derivation: ``<name>_matmul_s`` and so on."""
        kinds = ("matmul", "attention", "memory")
        return Times(*(rename(p, f"{name}_{k}_s") for p, k in zip(self.parts, kinds, strict=True)))

    @property
    def parts(self) -> tuple[Number, Number, Number]:
        return self.matmul, self.attention, self.memory

    @property
    def total(self) -> Number:
        return plus(plus(self.matmul, self.attention), self.memory)
