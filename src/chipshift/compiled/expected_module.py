"""Collectives that the cut of a PyTorch module asks for: bytes a device sends.

A parameter cut over fsdp is gathered where it is used, for a matmul once more in the backward pass,
and its gradient is reduced and scattered; over dp the gradient's part is summed. What is whole on
every device has its gradient summed over both. A table's rows, looked up and cut along their width,
send their own gradients instead. Over tp activations are summed (traced/sums_over_tp.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from chipshift.compiled.planned import beside

MATMUL_WIDTH = 2
"""Bytes an element that a TPU's matmul takes: fp32 goes in as bf16, unless a precision is asked for
(JAX documentation, jax.default_matmul_precision), and is cast before it is gathered."""


@dataclass(frozen=True)
class Cut:
    """A parameter, how it is cut and how often it is used.

    Attributes:
        width: bytes an element. axes: mesh axis of each dimension, None = not cut.
        uses: times it is gathered for use; matmuls: those of them that gather it again for the
            backward pass. rows: bytes of its rows that a device looks up, whose gradients it sends.
    """

    name: str
    shape: tuple[int, ...]
    width: int
    axes: tuple[str | None, ...]
    uses: int = 1
    matmuls: int = 0
    rows: float = 0.0


Asked = tuple[tuple[str, str, float], ...]
Row = dict[str, Any]


def asked_for(
    axes: Mapping[str, int],
    batch: Iterable[str],
    cuts: Iterable[Cut],
    over_tp: float = 0.0,
    most_width: int = 8,
) -> Asked:
    """(kind, axis, bytes).

    Args:
        axes: sizes of the mesh's axes, in its order. batch: those over which the inputs are cut,
            and gradients therefore summed.
        over_tp: bytes of activations that a device sends in sums over tp.
        most_width: bytes an element that a matmul takes at most.
    """
    sums: dict[tuple[str, str], float] = defaultdict(float)
    batch = tuple(batch)
    for cut in cuts:
        elements = prod(cut.shape) / prod(axes[a] for a in cut.axes if a and a not in batch)
        over = [axis for axis in batch if axis in cut.axes and axes[axis] > 1]
        rest = [axis for axis in batch if axis not in cut.axes and axes[axis] > 1]
        n, k = prod(axes[axis] for axis in over), prod(axes[axis] for axis in rest)
        held, scattered = elements * cut.width, cut.uses - (1 if cut.rows else 0)
        if n > 1:
            multiplied = 2 * cut.matmuls * elements * min(cut.width, most_width)
            gathered = multiplied + (cut.uses - cut.matmuls) * held
            sums["all_gather", "+".join(over)] += gathered * (n - 1) / n
            sums["reduce_scatter", "+".join(over)] += scattered * held * (n - 1) / n
            sums["all_to_all", "+".join(over)] += cut.rows * (n - 1) / n
        if k > 1:
            sums["all_reduce", "+".join(rest)] += cut.uses * 2 * held / n * (k - 1) / k
    sums["all_reduce", "tp"] += over_tp
    return tuple((kind, axis, sent) for (kind, axis), sent in sums.items() if sent)


def beside_module(found: list[Row], places: list[Row], asked: Asked) -> list[Row]:
    """Each collective with what the module's cut asks for."""
    return beside(found, places, {(kind, axis): sent for kind, axis, sent in asked}, None)


def sharding(cuts: Iterable[Cut], roles: Mapping[str, str], why: Mapping[str, str]) -> list[Row]:
    """How parameters are cut, those of one name in all layers together (``layers.*.up_proj``).

    Args:
        roles: what of a parameter tp cuts. why: why a parameter is whole over tp.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    for cut in cuts:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", cut.name)
        role, reason = roles.get(cut.name), why.get(cut.name) or None
        key = (name, cut.shape, cut.axes, role, reason)
        row = {"parameters": name, "count": 0, "shape": list(cut.shape), "cut": list(cut.axes),
               "role": role, "whole_over_tp": reason}  # fmt: skip
        rows.setdefault(key, row)["count"] += 1
    return list(rows.values())
