"""Rotary positions, as configs state them and the compiled step turns by them."""

from __future__ import annotations

from dataclasses import dataclass

SCALINGS = ("linear", "llama3", "yarn")
"""Scalings that are worked out."""


@dataclass(frozen=True)
class Rope:
    """Rotary positions: pair i of n turns by theta^(-i / n) a position, before scaling.

    Attributes:
        scaling: ``""``, one of ``SCALINGS``, or another's name, which is not worked out.
        factor: what scaled frequencies are divided by.
        low, high: llama3: turns over ``length`` positions up to which a pair is scaled, and from
            which it is not; yarn: the pair up to which none is scaled, and from which all are.
        gain: cosines and sines are multiplied by it (yarn's attention factor).
    """

    theta: float = 10000.0
    scaling: str = ""
    factor: float = 1.0
    low: float = 0.0
    high: float = 0.0
    length: int = 0
    gain: float = 1.0


UNSCALED = Rope()
