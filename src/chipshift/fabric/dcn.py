"""Between TPU slices: the data-centre network, hierarchically.

An all-reduce over ``s`` slices of ``n`` devices is a reduce-scatter on ICI, an all-reduce of each
device's v/n over DCN, and an all-gather on ICI; ``w`` is the DCN one-way B/s of a **device**
(a chip's figure over its devices).
"""

from __future__ import annotations

from typing import Any

from chipshift.worked import formula

_BOOK = "derived: the ring formula on each chip's share; rates after scaling book, chapter 'TPUs'"


@formula(unit="s", source=_BOOK)
def all_reduce_s(v: Any, s: Any, n: Any, w: Any) -> Any:
    """2 (s-1)/s · (v/n)/w."""
    return 2 * (s - 1) / s * v / n / w


@formula(unit="s", source=_BOOK)
def all_gather_s(v: Any, s: Any, n: Any, w: Any) -> Any:
    """(s-1)/s · (v/n)/w. Reduce-scatter is the same."""
    return (s - 1) / s * v / n / w


@formula(unit="s", source=_BOOK)
def all_to_all_s(v: Any, s: Any, n: Any, w: Any) -> Any:
    """(s-1)/s² · (v/n)/w: the part of each slice's share that leaves it."""
    return (s - 1) / s / s * v / n / w


@formula(unit="s", source=_BOOK)
def permute_s(v: Any, s: Any, w: Any) -> Any:
    """v/w where the neighbour is in another slice."""
    return v / w * (s > 1)
