"""Collectives that the cut of a PyTorch module asks for: bytes a device sends.

A parameter cut over fsdp is gathered once for the forward pass, as the widest of its uses wants it,
for each matmul once more in the backward pass, and its gradient, all uses' added, is reduced and
scattered; over dp the gradient's part is summed. What is whole on every device has its gradient
summed over both. A table's rows, looked up and cut along their width, send their own gradients
instead. Over tp activations are summed (traced/sums_over_tp.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from chipshift.compiled.planned import beside
from chipshift.compiled.stages import Over, Sums, gathered, scattered, summed
from chipshift.fabric.lowering import Laid, Slice

MATMUL_WIDTH = 2
"""Bytes an element that a TPU's matmul takes: fp32 goes in as bf16, unless a precision is asked for
(JAX documentation, jax.default_matmul_precision), and is cast before it is gathered."""


@dataclass(frozen=True)
class Cut:
    """A parameter, how it is cut and how often it is used.

    Attributes:
        width: bytes an element. axes: mesh axis of each dimension, None = not cut.
        uses: times it is used; matmuls: those of them that gather it again for the backward pass.
        rows: bytes of its rows that a device looks up, whose gradients it sends.
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
    on: Slice | None = None,
) -> Asked:
    """(kind, axis, bytes).

    Args:
        axes: sizes of the mesh's axes, in its order. batch: those over which the inputs are cut,
            and gradients therefore summed.
        over_tp: bytes of activations that a device sends in sums over tp.
        most_width: bytes an element that a matmul takes at most.
        on: the slice, for what its compiler is known to send; None: what the cut asks for.
    """
    sums: Sums = defaultdict(float)
    batch = tuple(batch)
    for cut in cuts:
        others = prod(axes[a] for a in cut.axes if a and a not in batch)
        cut_by = _over(axes, [axis for axis in batch if axis in cut.axes])
        same = _over(axes, [axis for axis in batch if axis not in cut.axes])
        _add(sums, _gathers(cut, cut_by, others, most_width, on))
        _add(sums, _gradients(cut, cut_by, same, others, on))
    sums["all_reduce", "tp"] += over_tp
    return tuple((kind, axis, sent) for (kind, axis), sent in sums.items() if sent)


def _over(axes: Mapping[str, int], names: list[str]) -> Over:
    axis = "+".join(name for name in names if axes[name] > 1)
    return Over(axis, prod(axes[name] for name in names), axis)


def _add(sums: Sums, more: Sums, times: float = 1.0) -> None:
    for key, sent in more.items():
        sums[key] += times * sent


def _gathers(cut: Cut, where: Over, others: int, most_width: int, on: Slice | None) -> Sums:
    """``others``: devices over which axes beside the batch's cut it."""
    elements, narrow = prod(cut.shape) / others, min(cut.width, most_width)
    sums: Sums = defaultdict(float)
    forward = cut.width if cut.uses > cut.matmuls else narrow
    times = [(forward, 1 if cut.uses else 0), (narrow, cut.matmuls)]
    for width, gathers in times:
        by_sum = on is not None and on.gathers_by_sum(where.devices, elements * width)
        sent = cut.width if by_sum else width  # a sum of zeros and a part is cast after it
        _add(sums, gathered(where, elements * sent, on), gathers)
    return sums


def _gradients(cut: Cut, where: Over, same: Over, others: int, on: Slice | None) -> Sums:
    """``same``: devices that hold the same part and see other inputs."""
    held, n, k = prod(cut.shape) / others * cut.width, where.devices, same.devices
    sums: Sums = defaultdict(float)
    if n > 1:
        in_matmul = cut.uses == cut.matmuls
        by_sum = on is not None and (
            on.scatters_by_sum(n, in_matmul and k == 1)
            or (not (in_matmul and on.multiplies_meanwhile(n, k))
                and on.scatters_layout_by_sum(n, _laid(cut, where, others)))
        )  # fmt: skip
        if cut.uses > (1 if cut.rows else 0):
            _add(sums, scattered(where, held, by_sum))
        sums["all_to_all", where.axis] += cut.rows * (n - 1) / n
    if cut.uses:
        _add(sums, summed(same, held / n))
    return sums


def _laid(cut: Cut, where: Over, others: int) -> Laid:
    """A matrix's columns on a device, by whether they or its rows are scattered."""
    names = where.axis.split("+")
    if len(cut.shape) != 2:
        return Laid()
    rows_scattered = cut.axes[0] in names
    columns = cut.shape[1] / (others if cut.axes[1] not in (None, *names) else 1)
    return Laid(across=columns) if rows_scattered else Laid(along=columns)


def beside_module(
    found: list[Row], places: list[Row], asked: Asked, sent: Asked | None = None
) -> list[Row]:
    """Each collective with what the module's cut asks for, and what this compiler is known to send
    for that."""
    wanted, lowered = ({(kind, axis): n for kind, axis, n in one or ()} for one in (asked, sent))
    return beside(found, places, wanted, lowered or None)


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
