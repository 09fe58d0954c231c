"""Collectives that the cut of a PyTorch module's parameters asks for: bytes a device sends.

A parameter cut over fsdp is gathered for the forward pass and again for the backward pass, an
embedding's table once, and its gradient is reduced and scattered; over dp the gradient's part is
summed. What is whole on every device has its gradient summed over both. Activations are not looked
at, so that nothing is expected over tp; a compiler may keep what it gathered, and send less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from chipshift.compiled.planned import SENT, beside

TABLES = ("embed_tokens", "wte", "embedding", "embeddings")
"""Words in the name of a parameter whose rows are looked up, which needs no gradient's gather."""

Cut = tuple[str, tuple[int, ...], int, tuple[str | None, ...]]
"""A parameter: its name, shape, bytes an element, and the mesh axis of each dimension."""

Asked = tuple[tuple[str, str, float], ...]
Row = dict[str, Any]


def asked_for(axes: Mapping[str, int], batch: Iterable[str], cuts: Iterable[Cut]) -> Asked:
    """(kind, axis, bytes). ``axes``: sizes of the mesh's axes, in its order; ``batch``: those over
    which the inputs are cut, and gradients therefore summed."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    batch = tuple(batch)
    for name, shape, width, spec in cuts:
        others = prod(axes[axis] for axis in spec if axis and axis not in batch)
        held = prod(shape) * width / others
        over = [axis for axis in batch if axis in spec and axes[axis] > 1]
        rest = [axis for axis in batch if axis not in spec and axes[axis] > 1]
        n, k = prod(axes[axis] for axis in over), prod(axes[axis] for axis in rest)
        gathers = 1 if any(word in name.split(".") for word in TABLES) else 2
        if n > 1:
            sums["all_gather", "+".join(over)] += gathers * held * (n - 1) / n
            sums["reduce_scatter", "+".join(over)] += held * (n - 1) / n
        if k > 1:
            sums["all_reduce", "+".join(rest)] += 2 * held / n * (k - 1) / k
    return tuple((kind, axis, sent) for (kind, axis), sent in sums.items())


def beside_module(found: list[Row], places: list[Row], asked: Asked, batch: list[str]) -> list[Row]:
    """Each collective with what the parameters' cut asks for; null over axes that cut other things
    than the batch, where activations decide."""
    wanted = {(kind, axis): sent for kind, axis, sent in asked}
    rows = beside(found, places, wanted, None)
    unknown: Row = {f"expected_{SENT}": None, "planned": None, "sources": [], "instead_of": None}
    return [
        row if set(row["mesh_axis"].split("+")) <= set(batch) else row | unknown for row in rows
    ]
