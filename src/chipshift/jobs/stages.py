"""Layers of each model chunk where a framework does not spread them evenly over its stages.

A chunk is a contiguous run of layers; with v virtual stages chunk i sits on stage i mod pp.

Sources: NVIDIA, Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py and
transformer_block.py, 2026-08; PyTorch, torchtitan, torchtitan/distributed/pipeline_parallel.py,
2026-08.
"""

from __future__ import annotations

import re
from itertools import pairwise

LONGEST = 100_000
"""Letters of a layout once it is unrolled; no model has as many layers."""

_UNITS = (re.compile(r"\(([^()]+)\)\*(\d{1,6})"), re.compile(r"([EtmL|])\*(\d{1,6})"))


def of_layout(text: str) -> tuple[int, ...] | None:
    """``Et*3|(tt|)*29,m|L`` → layers of each chunk; None for what is no such layout.

    ``t`` is a layer, ``E`` the embedding, ``L`` the loss, ``m`` a multi-token-prediction layer; a
    bar ends a chunk.
    """
    unrolled = re.sub(r"[,\s'\"]", "", text)
    for unit in _UNITS:
        grown = sum(len(m.group(1)) * int(m.group(2)) for m in unit.finditer(unrolled))
        if len(unrolled) + grown > LONGEST:
            return None
        unrolled = unit.sub(lambda m: m.group(1) * int(m.group(2)), unrolled)
    if not re.fullmatch(r"E[EtmL|]*L", unrolled):
        return None
    return tuple(chunk.count("t") for chunk in unrolled.split("|"))


def of_rows(rows: object) -> tuple[int, ...] | None:
    """``[["embedding", "decoder"], ["decoder", "loss"]]`` or torchtitan's module names a part."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows) or not rows:
        return None
    return tuple(
        sum(bool(re.match(r"(?:t|decoder|layers\.\d+)$", str(name))) for name in row)
        for row in rows
    )


def of_splits(layers: int, names: list[str]) -> tuple[int, ...] | None:
    """torchtitan's older ``["layers.4", "layers.8"]``: the first layer of each stage but one."""
    found = [re.fullmatch(r"layers\.(\d{1,6})", name.strip()) for name in names]
    starts = [0, *(int(m.group(1)) for m in found if m is not None), layers]
    if None in found or any(a >= b for a, b in pairwise(starts)):
        return None
    return tuple(b - a for a, b in pairwise(starts))


def with_ends(
    layers: int, pp: int, vpp: int, first: int | None, last: int | None
) -> tuple[int, ...] | None:
    """Megatron's stated first or last stage, the rest even; None where it would refuse."""
    stated = [n for n in (first, last) if n is not None]
    middle, left = pp - len(stated), layers - sum(stated)
    if middle < 0 or left < 0 or (left % middle if middle else left):
        return None
    stages = [left // middle if middle else 0] * pp
    stages[0] = stages[0] if first is None else first
    stages[-1] = stages[-1] if last is None else last
    if any(n % vpp for n in stages):
        return None
    return tuple(n // vpp for n in stages) * vpp


def with_places(
    layers: int, pp: int, vpp: int, embedding: int, loss: int
) -> tuple[int, ...] | None:
    """Megatron counts embedding or loss as a layer of the first or last chunk (1 each, or 0)."""
    whole = layers + embedding + loss
    if whole % (pp * vpp):
        return None
    chunks = [whole // (pp * vpp)] * (pp * vpp)
    chunks[0] -= embedding
    chunks[-1] -= loss
    return tuple(chunks) if min(chunks) >= 0 else None


def of_torchtitan(layers: int, stages: int, embedding: int, head: int) -> tuple[int, ...] | None:
    """torchtitan's split: embedding and head weigh some layers, the first chunks take the rest."""
    each, extra = divmod(layers + embedding + head, stages)
    if stages < 2 or each < max(1, embedding, head):
        return None
    chunks = [each + (i < extra) for i in range(stages)]
    chunks[0] -= embedding
    chunks[-1] -= head
    return tuple(chunks)


def told(chunks: tuple[int, ...], pp: int) -> str:
    """``5 4×14 2``: layers of each stage, first to last, for a table."""
    stages = [sum(chunks[i::pp]) for i in range(pp)]
    runs: list[list[int]] = []
    for n in stages:
        if runs and runs[-1][0] == n:
            runs[-1][1] += 1
        else:
            runs.append([n, 1])
    return " ".join(f"{n}×{times}" if times > 1 else str(n) for n, times in runs)
