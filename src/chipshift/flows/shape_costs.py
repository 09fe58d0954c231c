"""What shapes cost on the target: dimensions that leave the matrix unit idle, rows that vary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chipshift.estimate.op_times import matmul_kernel_of, one_matmul_s
from chipshift.flows.collective_costs import CAPACITY, CAPACITY_SOURCE
from chipshift.flows.kernel_costs import matmul_passes_s
from chipshift.flows.port import Cost, Port
from chipshift.jobs.job import Flag
from chipshift.models.ops import Op, end_ops, layer_ops
from chipshift.roofline.kernels import MatmulKernel
from chipshift.roofline.time import padded
from chipshift.worked import formula, plain, rename

Number = Any

MOST_ITEMS = 4
LEAST_SHARE = 0.002
"""Padding that costs less of the step than this is not worth an item."""


@formula(unit="s", source="time at the padded dimension, less time at the exact one")
def fill_cost(padded_s: Number, exact_s: Number) -> Number:
    """Seconds that whole tiles of one dimension cost."""
    return padded_s - exact_s


def unfilled(op: Op, lanes: float) -> dict[str, str]:
    """Dimensions of a matmul that are not whole tiles of the unit: ``n`` or ``k``, in words."""
    if op.kind not in ("matmul", "grouped_matmul") or op.name == "router":
        return {}
    return {
        name: f"{words} {float(size):,.0f}"
        for name, words, size in (("n", "outputs", op.n), ("k", "reduction", op.k))
        if float(plain(padded(size, lanes))) > float(plain(size))
    }


TILE_OF = {"n": ("tile_n", "tile_k", "tile_n"), "k": ("tile_k", "tile_n", "tile_m")}
"""The tile that a dimension meets in a matmul's forward pass and in its two gradients."""


def fill_s(op: Op, kernel: MatmulKernel, dimension: str) -> Number:
    """Seconds of a matmul's three passes that whole tiles of one dimension cost."""
    rows = op.m if op.kind == "grouped_matmul" else None
    shapes = ((op.m, op.n, op.k), (op.m, op.k, op.n), (op.k, op.n, op.m))
    names = ("forward_s", "input_grad_s", "weight_grad_s")

    def three(kernels: list[MatmulKernel]) -> Number:
        total: Number = 0.0
        for (m, n, k), one, name in zip(shapes, kernels, names, strict=True):
            total = total + rename(one_matmul_s(m, n, k, op.groups, one, rows), name)
        return total

    exact = [replace(kernel, **{tile: 1.0}) for tile in TILE_OF[dimension]]
    return fill_cost(rename(three([kernel] * 3), "padded_s"), rename(three(exact), "exact_s"))


def fills(p: Port) -> Iterator[tuple[str, str, Number]]:
    """Rule, words and seconds a step of every dimension that does not fill the unit."""
    lanes = p.s.machine.chip.value("matrix_unit_cols")
    cut = p.cut()
    found: dict[str, list[Number]] = {}
    for kind, (layer, _) in enumerate(p.s.model.layers):
        for op in layer_ops(layer, p.s.model.d_model, cut):
            for dimension, words in unfilled(op, lanes).items():
                kernel = matmul_kernel_of(op, p.s.kernels, p.s.stack)
                one = fill_s(op, kernel, dimension)
                seconds = p.of_kind(kind, one, f"{op.name}_fill_s")
                found.setdefault(f"{op.name}: {words}", []).append(seconds)
    for op in end_ops(p.s.model, cut)[1]:
        for dimension, words in unfilled(op, lanes).items():
            kernel = matmul_kernel_of(op, p.s.kernels, p.s.stack)
            seconds = fill_s(op, kernel, dimension) * p.c.accumulation
            found.setdefault(f"{op.name}: {words}", []).append(seconds)
    for name, parts in found.items():
        rule = "vocab-not-128-multiple" if name.startswith("lm_head") else "dim-not-128-multiple"
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        yield rule, name, total


@formula(
    unit="s", source="time × the share of the unit's columns or rows that the heads leave idle"
)
def idle_share(attention_s: Number, head_dim: Number, lanes: Number) -> Number:
    """Seconds of attention that narrow heads leave the unit idle, at the most."""
    return attention_s * (1 - head_dim / lanes)


def narrow_heads(p: Port) -> tuple[float, float, Cost] | None:
    """Head width, the unit's width and the cost; None where the heads fill it."""
    lanes = p.s.machine.chip.value("matrix_unit_cols")
    attention = next((ly.attention for ly, _ in p.s.model.layers if ly.attention), None)
    if attention is None or float(attention.head_dim) >= lanes:
        return None
    figure = p.s.machine.chip.figures["matrix_unit_cols"]
    width = p.given(lanes, "columns", "matrix_unit_cols", f"{figure.source}, {figure.date}")
    seconds = idle_share(p.target.time["attention"], attention.head_dim, width)
    return float(attention.head_dim), lanes, Cost(
        seconds,
        "at the most: attention's time × the idle share of the unit, whose one side is the head's "
        "width in both of its matmuls",
    )  # fmt: skip


@formula(unit="s", source="expert matmuls over rows padded to a capacity")
def padded_rows(experts_s: Number, capacity: Number) -> Number:
    """Extra seconds of expert matmuls whose rows are padded."""
    return experts_s * (capacity - 1)


def dropless_moe(p: Port, flag: Flag) -> Cost:
    """Expert matmuls over rows padded to a capacity, against rows as they are routed."""
    del flag
    cut = p.cut()
    capacity = p.given(CAPACITY, "1", "capacity_factor", CAPACITY_SOURCE)
    total: Number = 0.0
    for kind, (layer, _) in enumerate(p.s.model.layers):
        seconds: Number = 0.0
        for op in layer_ops(layer, p.s.model.d_model, cut):
            if op.kind == "grouped_matmul":
                kernel = matmul_kernel_of(op, p.s.kernels, p.s.stack)
                seconds = seconds + rename(matmul_passes_s(op, kernel), f"{op.name}_s")
        total = total + p.of_kind(kind, seconds, "experts_s")
    return Cost(padded_rows(rename(total, "experts_s"), capacity),
                "expert matmuls padded to a capacity of 1.25 against ragged groups")  # fmt: skip


@formula(unit="1", source="even lengths padded to powers of two: 1 − (1/2)/(2/3)")
def padding_share(mean_length: Number, mean_bucket: Number) -> Number:
    """Share of the rows that is padding, lengths and buckets as shares of the longest."""
    return 1 - mean_length / mean_bucket


@formula(unit="s", source="time of the rows × the share of them that is padding")
def padding_s(busy_s: Number, share: Number) -> Number:
    """Seconds of a step spent on padding."""
    return busy_s * share


COMPILE_S = 100.0
COMPILE_SOURCE = (
    "a round figure in the middle half of the whole steps compiled for v5e, v5p, v6e and v7x by "
    "libtpu 0.0.42.1 on two shared CPU cores (benchmarks/data/compile_results.jsonl, 2026-12)"
)
SMALLEST_BUCKET = 128


def variable_length(p: Port, flag: Flag) -> Cost:
    """Rows padded to a bucket, and a compile for each bucket, once."""
    del flag
    even = "assumed: lengths spread evenly up to seq_len; a length file gives the real ones"
    mean = p.given(1 / 2, "1", "mean_length_share", even)
    bucket = p.given(2 / 3, "1", "mean_bucket_share", f"{even}: Σ 2^-i · 2^-i over the buckets")
    t = p.target.time
    busy = rename(t["matmul"] + t["attention"] + t["memory_bound"], "busy_s")
    share = padding_share(mean, bucket)
    shapes = 1 + max(0, math.floor(math.log2(p.job.seq_len.value / SMALLEST_BUCKET)))
    each = p.given(COMPILE_S, "s", "compile_s", COMPILE_SOURCE)
    return Cost(
        padding_s(busy, share),
        "assumed: lengths spread evenly up to seq_len, rows padded to powers of two; and a compile "
        f"of each of {shapes} shapes once a run",
        each_s=each,
        each="distinct shape compiled",
    )


@formula(unit="s", source="pairs of tokens of two documents, out of all pairs of the row")
def crossing_s(attention_s: Number, documents: Number) -> Number:
    """Seconds of attention between tokens of different documents of a row."""
    return attention_s * (1 - 1 / documents)


def packed_documents(p: Port, flag: Flag) -> Cost:
    """Attention over whole rows, against within the documents of a row."""
    del flag
    count = p.given(2.0, "documents", "documents_a_row", "assumed: two documents of equal length a "
                    "row; more of them make it up to the whole of attention's time")  # fmt: skip
    return Cost(crossing_s(p.target.time["attention"], count),
                "assumed: two documents a row; attention over whole rows, as the estimate counts "
                "it, against within documents")  # fmt: skip


def sparse_attention(p: Port, flag: Flag) -> Cost:
    """The whole of attention: the most that empty blocks can save."""
    del flag
    return Cost(p.target.time["attention"], "at the most: full attention as the estimate counts "
                "it; the blocks left empty save a part of it")  # fmt: skip
