"""A collective of a step, and collectives added up by kind and mesh axis."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Collective:
    """One kind of collective over one axis at one place of the program.

    Attributes:
        group: devices that take part together.
        count: times a step. bytes: sent by one device, all times together (outputs.md).
        algorithm: emitter and strategy that the compiler chose.
        overlapped: computation is scheduled between its start and its end.
        windowed: a loop of permutes around a matmul, counted as what it implements.
        where: op name of the traced program; source: file and line.
        inserted: of ``bytes``, what the compiler put in by itself; why: ``made again`` (instead of
            kept), ``padding``, ``evened out`` (parts of unequal size moved to their places),
            ``scattered apart`` (one by one, what the program adds first), or ``laid out anew``
            (an activation, cut along another dimension).
        instead: (kind, axis, bytes) of the collectives that an all-reduce does the work of;
            spent: of ``bytes``, what it sends for them.
    """

    kind: str
    axis: str
    group: int
    count: int
    bytes: float
    algorithm: str
    overlapped: bool
    windowed: bool
    where: str
    source: tuple[str, int] | None
    inserted: float = 0.0
    why: str = ""
    instead: tuple[tuple[str, str, float], ...] = ()
    spent: float = 0.0

    @property
    def own(self) -> float:
        """Bytes sent for what the collective is itself."""
        return self.bytes - self.inserted - self.spent


def by_axis(collectives: tuple[Collective, ...]) -> tuple[Collective, ...]:
    """Collectives added up over places: one a kind and axis, the most bytes first."""
    sums: dict[tuple[str, str, int], Collective] = {}
    algorithms: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for one in collectives:
        key = (one.kind, one.axis, one.group)
        algorithms[key][one.algorithm] += one.count
        if key in sums:
            held = sums[key]
            one = replace(
                held,
                count=held.count + one.count,
                bytes=held.bytes + one.bytes,
                overlapped=held.overlapped or one.overlapped,
                windowed=held.windowed or one.windowed,
                inserted=held.inserted + one.inserted,
                instead=_added(held.instead, one.instead),
                spent=held.spent + one.spent,
            )
        sums[key] = one
    named = [
        replace(one, algorithm=algorithms[key].most_common(1)[0][0]) for key, one in sums.items()
    ]
    return tuple(sorted(named, key=lambda one: -one.bytes))


def _added(
    one: tuple[tuple[str, str, float], ...], other: tuple[tuple[str, str, float], ...]
) -> tuple[tuple[str, str, float], ...]:
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for kind, axis, sent in (*one, *other):
        sums[kind, axis] += sent
    return tuple((kind, axis, sent) for (kind, axis), sent in sums.items())
