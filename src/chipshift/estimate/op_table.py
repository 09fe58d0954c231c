"""The ops of one microbatch on one device, each with what bounds it: the roofline, op by op.

The times are the ones that an estimate sums (``work``); here they are kept apart. Numbers are
floats, or ``Worked`` where setting and cut are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from chipshift.estimate.op_times import (
    attention_bytes,
    attention_kernel_of,
    attention_sides,
    matmul_kernel_of,
    matmul_sides,
    memory_side,
    shares_of,
)
from chipshift.estimate.setting import Setting
from chipshift.estimate.stack import Stack
from chipshift.jobs.plan import Plan
from chipshift.models.ops import Cut, Op, end_ops, layer_ops
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import AttentionKernel, MatmulKernel
from chipshift.worked import plain

Number = Any

ON_CHIP_SHARE = 0.75
"""An attention kernel that reaches less than this share of what matmuls reach is bound on chip:
its matrix units wait for the exponentials between its two matmuls."""


@dataclass(frozen=True)
class OpTime:
    """One op on one device.

    Attributes:
        name: the op, with the pass after a point where it is not the forward one
            (``mlp_up``, ``mlp_up.input_grad``, ``attention.backward``).
        kind: as in ``models.ops.Op``.
        count: times it runs in one microbatch, over the whole network.
        flops, moved_bytes: of one run, through the matrix units and through HBM.
        compute_s, memory_s, launch_s: what the matrix units, HBM and the launch take; ``time_s``
            is the larger of the first two plus the last.
        bound: ``compute``, ``hbm``, ``on_chip`` or ``overhead``.
        why: the reason, with its numbers.
    """

    name: str
    kind: str
    count: Number
    flops: Number
    moved_bytes: Number
    compute_s: Number
    memory_s: Number
    launch_s: Number
    bound: str
    why: str

    @property
    def time_s(self) -> Number:
        return roof.op_time(self.compute_s, self.memory_s, self.launch_s)

    @property
    def intensity_flop_per_byte(self) -> Number:
        return roof.intensity(self.flops, self.moved_bytes) if plain(self.moved_bytes) else 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two rows the same op: everything but how often it runs."""
        return tuple(plain(getattr(self, f.name)) for f in fields(self) if f.name != "count")


def plan_cut(s: Setting, plan: Plan) -> Cut:
    """How a plan cuts one forward pass of one microbatch."""
    return Cut(
        tokens=plan.microbatch * s.seq_len / plan.cp,
        seq_len=s.document_len,
        tp=float(plan.tp),
        ep=float(plan.ep),
        sp=float(plan.tp if plan.sequence_parallel else 1),
        imbalance=s.stack.moe_imbalance if plan.ep > 1 else 1.0,
        etp=float(plan.etp or plan.tp),
        ulysses=float(plan.ulysses),
    )


def op_table(s: Setting, cut: Cut) -> tuple[OpTime, ...]:
    """Every op of the network, forward and backward, in order of the forward pass.

    Layers that differ only in number share their rows; ops that differ between kinds of layers
    carry what tells them apart.
    """
    first, last = end_ops(s.model, cut)
    rows: list[OpTime] = [row for op in first for row in _rows(op, s, 1)]
    for layer, count in s.model.layers:
        for op in layer_ops(layer, s.model.d_model, cut):
            window = layer.attention.window if layer.attention else None
            named = op
            if op.kind == "attention" and window is not None and plain(window) < float(cut.seq_len):
                named = replace(op, name=f"attention[window {int(plain(window))}]")
            for row in _rows(named, s, count):
                _add(rows, row)
    for op in last:
        rows += _rows(op, s, 1)
    return tuple(row for row in rows if plain(row.time_s) > 0)


def _add(rows: list[OpTime], row: OpTime) -> None:
    """Append a row, or count it in with the equal op of another kind of layer."""
    same = [i for i, old in enumerate(rows) if old.key == row.key]
    if same:
        rows[same[0]] = replace(row, count=rows[same[0]].count + row.count)
        return
    name, others = row.name, {old.name for old in rows}
    number = 2
    while name in others:
        name, number = f"{row.name}[{number}]", number + 1
    rows.append(replace(row, name=name))


def _rows(op: Op, s: Setting, count: Number) -> list[OpTime]:
    if op.kind in ("matmul", "grouped_matmul"):
        return _matmul_rows(op, s, count)
    if op.kind == "attention":
        return _attention_rows(op, s, count)
    return _memory_rows(op, s, count)


def _matmul_rows(op: Op, s: Setting, count: Number) -> list[OpTime]:
    kernel = matmul_kernel_of(op, s.kernels, s.stack)
    rows = op.m if op.kind == "grouped_matmul" else None
    passes: tuple[tuple[str, Number, Number, Number], ...] = (
        ("", op.m, op.n, op.k),
        (".input_grad", op.m, op.k, op.n),
        (".weight_grad", op.k, op.n, op.m),
    )
    out = []
    if op.name == "dispatch":  # its mask has no gradient
        passes = (passes[0], passes[2])
    for phase, m, n, k in passes:
        compute, memory = matmul_sides(m, n, k, op.groups, kernel, rows)
        moved = roof.matmul_bytes(m, n, k, op.groups, kernel.in_bytes, kernel.out_bytes)
        seconds = float(compute), float(memory), float(kernel.launch_s)
        bound = _bound(*seconds)
        why = {
            "compute": _why_compute(float(m), float(n), float(k), kernel, rows, s.stack),
            "hbm": _why_hbm(float(op.flops), float(moved), float(kernel.peak_flop_per_s), kernel),
            "overhead": _why_launch(seconds[2], *seconds[:2]),
        }[bound]
        out.append(OpTime(op.name + phase, op.kind, count, op.flops, moved, compute, memory,
                          kernel.launch_s, bound, why))  # fmt: skip
    return out


def _attention_rows(op: Op, s: Setting, count: Number) -> list[OpTime]:
    kernel = attention_kernel_of(s.kernels, s.stack)
    moved = attention_bytes(op.q_tokens, op.heads, op.kv_heads, op.head_dim, op.v_head_dim)
    sides = attention_sides(op, kernel, s.kernels)
    reached = shares_of(op, kernel)
    passes = (("", 1.0, 1.0, reached[0]), (".backward", kernel.backward_flops, 2.0, reached[1]))
    out = []
    for (phase, work, traffic, reach), (compute, memory) in zip(passes, sides, strict=True):
        share = float(reach)
        launch = float(kernel.launch_s)
        bound = _bound(float(compute), float(memory), launch)
        alone = share / float(s.stack.attention_scale)
        if bound == "compute" and alone < ON_CHIP_SHARE * float(s.kernels.plain.e_max):
            bound = "on_chip"
        out.append(OpTime(
            op.name + phase, op.kind, count, op.flops * work, moved * traffic,
            compute, memory, kernel.launch_s, bound,
            _why_attention(bound, share, kernel, s, float(op.keys), (compute, memory, launch)),
        ))  # fmt: skip
    return out


def _memory_rows(op: Op, s: Setting, count: Number) -> list[OpTime]:
    moved, seconds = memory_side(op, s.kernels, s.stack)
    back = s.stack.backward_memory_factor
    why = f"no matmul in it: {float(moved) / 1e6:,.0f} MB through HBM as {s.stack.name} fuses it"
    forward = OpTime(op.name, op.kind, count, 0.0, moved, 0.0, seconds, 0.0, "hbm", why)
    if op.kind == "embedding":
        return [forward]
    backward = replace(forward, name=f"{op.name}.backward", moved_bytes=moved * back,
                       memory_s=seconds * back,
                       why=f"{float(back):g} times the forward pass's traffic")  # fmt: skip
    return [forward, backward]


def _bound(compute_s: float, memory_s: float, launch_s: float) -> str:
    if launch_s > max(compute_s, memory_s):
        return "overhead"
    return "compute" if compute_s >= memory_s else "hbm"


def _why_compute(m: float, n: float, k: float, kernel: MatmulKernel, rows: Any, stack: Stack
                 ) -> str:  # fmt: skip
    """Peak times the shares that the shape, and the stack in a real step, leave of it."""
    sizes = ((m, kernel.tile_m), (n, kernel.tile_n), (k, kernel.tile_k))
    useful = float(np.prod([size / float(roof.padded(size, tile)) for size, tile in sizes]))
    wave = float(roof.wave_share(m, n, kernel.tile_m, kernel.tile_n, kernel.units,
                                 kernel.wave_softness))  # fmt: skip
    ramp = float(roof.reduction_share(k if rows is None else rows, kernel.k_half))
    e_max, scale = float(kernel.e_max), float(stack.matmul_scale)
    of = "rows an expert" if rows is not None else "reduction"
    length = k if rows is None else float(rows)
    parts = [f"{e_max / scale:.0%} for large shapes", f"{of} of {length:,.0f} {ramp:.0%}"]
    if useful < 0.995:
        parts.append(f"tiles {useful:.0%} full")
    if wave < 0.995:
        parts.append(f"waves {wave:.0%} full")
    parts += _in_a_step(scale, stack)
    return f"{e_max * useful * wave * ramp:.0%} of peak: " + ", ".join(parts)


def _in_a_step(scale: float, stack: Stack) -> list[str]:
    """What the stack reaches in a step of what the kernel reaches alone, where they differ."""
    return [] if scale == 1 else [f"{scale:.0%} of that in a step of {stack.name}"]


def _why_hbm(flops: float, moved: float, peak: float, kernel: MatmulKernel) -> str:
    ridge = float(roof.ridge_point(peak, float(kernel.hbm_bytes_per_s)))
    return f"{flops / moved:,.0f} FLOP a byte, the ridge is at {ridge:,.0f}"


def _why_launch(launch_s: float, compute_s: float, memory_s: float) -> str:
    longest = max(compute_s, memory_s)
    return f"{launch_s * 1e6:.1f} µs to launch, {longest * 1e6:.1f} µs of work"


def _why_attention(bound: str, share: float, kernel: AttentionKernel, s: Setting, keys: float,
                   seconds: tuple[Any, Any, float]) -> str:  # fmt: skip
    compute, memory, launch = (float(x) for x in seconds)
    if bound == "overhead":
        return _why_launch(launch, compute, memory)
    if bound == "hbm":
        return f"reading q, k, v takes {memory / compute:.1f} times what the matmuls take"
    scale = float(s.stack.attention_scale)
    more = "".join(f", {words}" for words in _in_a_step(scale, s.stack))
    reach = f"{share / scale:.0%} of peak at {keys:,.0f} keys a query{more}"
    if bound == "on_chip":
        large = float(s.kernels.plain.e_max)
        return f"{reach} (large matmuls {large:.0%}): softmax stands between its two matmuls"
    return reach
