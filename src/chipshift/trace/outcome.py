"""What a recorded run says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Framework = Literal["torch", "jax"]
INPUT_CHANGED = "an input's shape or type changed"


class Place(NamedTuple):
    """A line of the user's code (from 1; 0 where none is on the stack)."""

    file: str
    line: int


@dataclass(frozen=True)
class Recompile:
    """``count`` programs beyond the first, for one reason at one place."""

    cause: str
    place: Place
    count: int


@dataclass(frozen=True)
class Break:
    """A place where the step cannot stay one program, and why."""

    place: Place
    why: str


@dataclass(frozen=True)
class TraceResult:
    """Counts over all ``steps``.

    ``programs`` are the distinct programs that the steps come to. ``host_syncs`` are reads of a
    device value by the host; ``fallbacks`` are (op, place) pairs that leave the device.
    """

    framework: Framework
    steps: int
    programs: int
    recompiles: tuple[Recompile, ...]
    host_syncs: tuple[tuple[Place, int], ...]
    fallbacks: tuple[tuple[str, Place, int], ...]
    graph_breaks: tuple[Break, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """Why one program differs from those before: ``kind`` groups, ``example`` illustrates."""

    kind: str
    place: Place
    example: str = ""


def grouped(causes: Iterable[Cause]) -> tuple[Recompile, ...]:
    """Causes of the same kind at the same place as one, with the first one's example."""
    counts: Counter[tuple[str, Place]] = Counter()
    example: dict[tuple[str, Place], str] = {}
    for cause in causes:
        key = (cause.kind, cause.place)
        counts[key] += 1
        example.setdefault(key, cause.example)
    return tuple(
        Recompile(
            kind + (f": {example[kind, place]}" if example[kind, place] else ""), place, count
        )
        for (kind, place), count in counts.most_common()
    )
