"""A torus of chips with point-to-point links: TPU ICI, NeuronLink.

Symbols: ``v`` bytes of the full array of one replica group, ``n`` devices of the group, ``w1``
one-way B/s of one link, ``ports`` links that the device with the fewest has inside the group.
A logical axis sits on pieces of physical axes; each piece is

- whole and wrapped: a ring, 2 ports;
- unwrapped, or a contiguous piece of a longer axis: a line, whose end has 1 port;
- strided (devices ``s`` apart): ``s`` groups interleave on the same links, so 2/s ports where the
  piece closes into a ring and 1/s where it does not.

Lower bounds: a link-level simulation in tests checks that they are never beaten and are reached
on whole rings, lines, strided rings, 2x2, 2x4, 4x4, 2x2x2 and 8x16.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chipshift.worked import formula

_BOOK = "scaling book, chapter 'Sharded matrices', collectives on a torus"
AXES = ("x", "y", "z", "w")
_COUNT = "derived: bytes through the busiest link"


def ports(stride: int, closes: bool) -> float:
    """Ports of the end device of one piece: 2/s on a ring, 1/s on a line."""
    return (2.0 if closes else 1.0) / stride


def hops(size: int, stride: int, closes: bool) -> int:
    """Links on the longest path along one piece: half way round a ring, the length of a line."""
    return math.ceil(size * stride / 2) if closes else (size - 1) * stride


@formula(unit="B/s", source="derived: ports of a corner device × one-way link rate")
def bandwidth(port_count: Any, w1: Any) -> Any:
    """ports · w1: the B for which an all-gather takes (n-1)/n · v/B."""
    return port_count * w1


@formula(unit="s", source=_BOOK)
def all_gather_s(v: Any, n: Any, b: Any) -> Any:
    """(n-1)/n · v/b with b from ``bandwidth``. Reduce-scatter is the same.

    One wrapped axis: b = 2 w1, the book's v/W2 with its finite-ring factor; a line: b = w1, so
    (n-1) hops of v/n each; a axes wrapped: b = 2 a w1.
    """
    return (n - 1) / n * v / b


@formula(unit="s", source=_BOOK)
def all_reduce_s(v: Any, n: Any, b: Any) -> Any:
    """2 (n-1)/n · v/b: a reduce-scatter, then an all-gather."""
    return 2 * (n - 1) / n * v / b


@formula(unit="s", source=_COUNT)
def all_to_all_s(v: Any, axis_load: Any, chips: Any, w1: Any) -> Any:
    """v · axis_load / (8 · chips · w1), axis_load from ``all_to_all_load``: a lower bound.

    One ring of X: v/(8 w1) = (v/W2)/4; a square torus X·X: v/(8 X w1). It assumes dimensions
    that pipeline perfectly, and no measurement of a TPU all-to-all is public.
    """
    return v * axis_load / (8 * chips * w1)


def all_to_all_load(pieces: list[tuple[int, int, bool]]) -> float:
    """Largest over the pieces (size, stride, closes) of what the busiest link carries.

    size · stride, doubled on a line (its middle link carries twice a ring's), times 1 - 1/size²
    for an odd size; 0 for a piece of one device.
    """
    loads = [
        size * stride * (1 if closes else 2) * (1 - (size % 2) / size**2)
        for size, stride, closes in pieces
    ]
    return max(loads, default=0.0)


@formula(unit="s", source="derived: one neighbour, one link, shared by interleaved groups")
def permute_s(v: Any, stride: Any, w1: Any) -> Any:
    """v · stride / w1: each device sends v to its neighbour of the axis."""
    return v * stride / w1


@formula(unit="s", source=_BOOK)
def latency_s(hop_count: Any, hop_s: Any) -> Any:
    """hops · t0, t0 about 1 µs on ICI."""
    return hop_count * hop_s


@formula(unit="s", source="scaling book, chapter 'TPUs', question 5")
def point_to_point_s(v: Any, hop_count: Any, hop_s: Any, usable_ports: Any, w1: Any) -> Any:
    """hops · t0 + v/(ports · w1); corner to corner on a mesh has 2 ports."""
    return hop_count * hop_s + v / (usable_ports * w1)


@formula(unit="B", source=_BOOK)
def latency_bound_below_bytes(hop_s: Any, w1: Any) -> Any:
    """t0 · w1: the bytes a hop carries in its own latency; a smaller message is latency-bound."""
    return hop_s * w1


@formula(unit="B/s", source="Google Cloud TPU documentation: pod totals")
def bisection_bytes_per_s(rows: Any, cuts: Any, w1: Any) -> Any:
    """rows · cuts · w1: one-way rate through a cut of a torus (2 cuts where the axis wraps)."""
    return rows * cuts * w1


def can_be_twisted(dims: tuple[int, ...]) -> bool:
    """Whether v4 and v5p offer a twisted torus of this shape: n·n·2n or n·2n·2n of whole cubes.

    A twist raises the bisection, so an all-to-all may be faster than the formula here; no source
    gives collective times on one, so nothing is adjusted.
    """
    low = min(dims)
    shape = tuple(sorted(d // low for d in dims))
    whole = len(dims) == 3 and all(d % 4 == 0 for d in dims) and all(d % low == 0 for d in dims)
    return whole and shape in ((1, 1, 2), (1, 2, 2))


@formula(unit="s", source=_BOOK)
def collective_s(latency: Any, bandwidth_time: Any) -> Any:
    """The larger of the two terms: hops overlap with the bytes that follow."""
    return np.maximum(latency, bandwidth_time)
