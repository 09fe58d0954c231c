"""What GPU kernels and fused ops are worth on the target: the same ops there without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chipshift.estimate.op_times import (
    attention_bytes,
    attention_kernel_of,
    attention_s,
    matmul_s,
    matmul_sides,
    pass_bytes,
)
from chipshift.estimate.score import score
from chipshift.estimate.update import optimizer_traffic_bytes
from chipshift.flows.port import Cost, Port, difference, step_of, with_stack
from chipshift.jobs.job import Flag
from chipshift.models.model import DenseMlp, Layer, MoeMlp
from chipshift.models.ops import Op, layer_ops
from chipshift.parallel.memory import optimizer_bytes_per_param
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import MatmulKernel, scaled
from chipshift.units import DTYPE_BYTES
from chipshift.worked import formula, rename

Number = Any

EAGER = "counted: one kernel for each line of the op, operands read and results written once"
NORM_PASSES = 21.0
"""Passes of 2 bytes: to fp32 (2 + 4), square (4 + 4), mean (4), scale (4 + 4), to bf16 (4 + 2),
weight (2 + 2) make 36 bytes an element, the residual's sum (2 + 2 + 2) 6 more."""
ROPE_PASSES = 10.0
"""x·cos (2 + 2), minus a half (1 + 1), the halves put together (2 + 2), ·sin (2 + 2) and the sum
(4 + 2) make 20 bytes an element."""
GATED_SCALE = 5 / 3
"""silu of the gate (1 + 1) and its product with the other half (2 + 1), over the 3 tensors that a
fused kernel touches."""
PERMUTE_PASSES = 3.5
"""Gathered (1 + 1) on the way to the experts; scaled (1 + 1) and added to a row (1 + 2) on the way
back; the mean of both."""
LOSS_BYTES = 14.0
"""Logits to fp32 (2 + 4), log-softmax (4 + 4); the gather of the targets is small."""

PARTS = ("norm", "rope", "activation", "loss", "permute")


def unfused(p: Port, parts: tuple[str, ...], what: str) -> Cost:
    """Memory-bound ops of these kinds as a kernel a line, against fused as the stack fuses them."""
    gated = any(
        isinstance(layer.mlp, DenseMlp | MoeMlp) and float(layer.mlp.matrices) == 3
        for layer, _ in p.s.model.layers
    )
    eager = {
        "norm": ("norm_passes", NORM_PASSES),
        "rope": ("rope_passes", ROPE_PASSES),
        "activation": ("activation_scale", GATED_SCALE if gated else 1.0),
        "loss": ("loss_bytes_per_logit", LOSS_BYTES),
        "permute": ("permute_passes", PERMUTE_PASSES),
    }
    changed = {}
    for part in parts:
        name, value = eager[part]
        if value > float(getattr(p.s.stack, name)):
            changed[name] = p.given(value, "1", f"{name}_unfused", EAGER)
    without = rename(with_stack(p, **changed).time["memory_bound"], "memory_bound_unfused_s")
    fused = rename(p.target.time["memory_bound"], "memory_bound_fused_s")
    kinds = ", ".join(parts)
    return Cost(
        difference(without, fused),
        f"{what}: memory-bound ops ({kinds}) a kernel a line against fused as {p.target.stack} "
        "fuses them",
    )


FUSED_BY_KEY = (
    ("norm", ("norm",)), ("rotary", ("rope",)), ("rope", ("rope",)),
    ("cross_entropy", ("loss",)), ("permute", ("permute",)), ("mlp_kernel", ("activation",)),
)  # fmt: skip


def fused_ops(p: Port, flag: Flag) -> Cost:
    """What a fusing flag names, by its key; a library that fuses everything counts as all."""
    key = flag.key.replace("-", "_")
    if "mla_down_proj" in key:
        return _joined_projections(p)
    parts = next((kinds for word, kinds in FUSED_BY_KEY if word in key), PARTS)
    return unfused(p, parts, "if XLA did not fuse them")


def _joined_projections(p: Port) -> Cost:
    """MLA's two down projections as two matmuls against one."""
    cut = p.cut()

    def apart(layer: Layer) -> Number:
        ops = {op.name: op for op in layer_ops(layer, p.s.model.d_model, cut)}
        if "q_down" not in ops:
            return 0.0
        kernel = scaled(p.s.kernels.matmul, p.s.stack.matmul_scale)
        query, keys = ops["q_down"], ops["kv_down"]
        both = replace(query, n=query.n + keys.n)
        two = rename(matmul_passes_s(query, kernel), "q_down_s") + rename(
            matmul_passes_s(keys, kernel), "kv_down_s"
        )
        return difference(rename(two, "two_matmuls_s"),
                          rename(matmul_passes_s(both, kernel), "one_matmul_s"))  # fmt: skip

    return Cost(p.of_layers(apart, "split_s"), "the down projections as two matmuls against one")


def matmul_passes_s(op: Op, kernel: MatmulKernel) -> Number:
    """Seconds of a matmul's three passes."""
    forward, into_input, into_weight = matmul_s(op, kernel)
    return (
        rename(forward, "forward_s") + rename(into_input, "input_grad_s")
        + rename(into_weight, "weight_grad_s")
    )  # fmt: skip


def compiler(p: Port, flag: Flag) -> Cost:
    """torch.compile's fusion."""
    del flag
    return unfused(p, ("norm", "rope", "activation", "loss"), "if nothing fused them")


def transformer_engine(p: Port, flag: Flag) -> Cost:
    """Transformer Engine's fused layers: norm with the linear layer, bias with the activation."""
    del flag
    return unfused(p, ("norm", "activation"), "its layers without their fusion")


@formula(
    unit="B", source="AdamW as ten element-wise kernels: decay, two moments, denominator, update"
)
def unfused_optimizer_bytes(master: Number, moment: Number, moments: Number, gradient: Number
                            ) -> Number:  # fmt: skip
    """HBM bytes of one parameter in an optimizer of separate kernels.

    Weights are read and written by decay and update (4·p); each moment is scaled, takes the
    gradient and is read for the update (4·m + g); the denominator's root, scale and shift and its
    last read pass over a temporary of the moments' size (6·m), where there are two moments.
    """
    return 4 * master + moments * (4 * moment + gradient) + 6 * moment * np.where(moments > 1, 1, 0)


@formula(unit="s", source="the same pass over more bytes")
def slower_pass(fused_s: Number, unfused_bytes: Number, fused_bytes: Number) -> Number:
    """Extra seconds of an optimizer that moves ``unfused_bytes`` a parameter."""
    return fused_s * (unfused_bytes / fused_bytes - 1)


def fused_optimizer(p: Port, flag: Flag) -> Cost:
    """The optimizer as separate element-wise kernels against one pass."""
    del flag
    b = p.s.bytes
    kept = optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param)
    once = optimizer_traffic_bytes(kept, b.gradients, b.weights, p.s.trainable)
    master = b.master if float(b.master) else b.weights
    many = unfused_optimizer_bytes(master, b.moments, b.moments_per_param, b.gradients)
    seconds = slower_pass(p.target.time["optimizer"], many * p.s.trainable, once)
    return Cost(seconds, "the update as separate element-wise kernels against one fused pass")


@formula(unit="B", source="scores: QKᵀ writes, softmax reads and writes, PV reads; 7 backward")
def score_traffic_bytes(scores: Number, element_bytes: Number) -> Number:
    """HBM traffic of the score matrices of one layer that keeps them, forward and backward.

    Forward 4 passes: QKᵀ writes S, softmax reads S and writes P, PV reads P. Backward 7: dO·Vᵀ
    writes dP, dV reads P, softmax reads P and dP and writes dS, dQ and dK read dS.
    """
    return 11 * scores * element_bytes


def attention_kernel(p: Port, flag: Flag) -> Cost:
    """Attention with its scores in HBM, as plain matmuls and a softmax, against the kernel."""
    del flag
    cut = p.cut()
    again = p.policy.every if p.policy.recomputes("attention") else 0.0

    def extra(layer: Layer) -> Number:
        op = _attention(layer, p, cut)
        if op is None:
            return 0.0
        kernel = attention_s(op, attention_kernel_of(p.s.kernels, p.s.stack), p.s.kernels)
        forward, backward = plain_attention_s(p, op)
        return (
            rename(forward, "plain_forward_s") * (1 + again) + rename(backward, "plain_backward_s")
            - rename(kernel[0], "kernel_forward_s") * (1 + again)
            - rename(kernel[1], "kernel_backward_s")
        )  # fmt: skip

    def traffic(layer: Layer) -> Number:
        op = _attention(layer, p, cut)
        if op is None:
            return 0.0
        kept = rename(attention_bytes(op.q_tokens, op.heads, op.kv_heads, op.head_dim,
                                      op.v_head_dim) * 3, "kernel_bytes")  # fmt: skip
        return score_traffic_bytes(_scores(p, op), 2.0) - kept

    seconds, moved = p.of_layers(extra, "extra_s"), p.of_layers(traffic, "extra_bytes")
    return Cost(
        at_least_nothing(seconds),
        "attention as plain matmuls over the whole square of scores, kept in HBM in bf16, against "
        "the kernel",
        moved=rename(moved, "score_traffic_bytes"),
    )


@formula(unit="s", source="a kernel that plain ops beat costs nothing to lose")
def at_least_nothing(seconds: Number) -> Number:
    """Seconds gained, 0 where plain ops are faster."""
    return np.maximum(seconds, 0)


def _attention(layer: Layer, p: Port, cut: Any) -> Op | None:
    if layer.attention is None:
        return None
    ops = layer_ops(layer, p.s.model.d_model, cut)
    return next(op for op in ops if op.kind == "attention")


def _scores(p: Port, op: Op) -> Number:
    """Elements of a layer's score matrices: every query meets every key of its sequence."""
    return rename(op.q_tokens * op.heads * p.s.seq_len, "score_elements")


def plain_attention_s(p: Port, op: Op) -> tuple[Number, Number]:
    """Seconds of attention forward and backward as matmuls and a softmax through HBM."""
    kernel = scaled(p.s.kernels.plain, p.s.stack.matmul_scale)
    rows = op.q_tokens / p.c.microbatch
    groups = op.heads * p.c.microbatch
    keys = p.s.seq_len

    def matmul(m: Number, n: Number, k: Number, name: str) -> Number:
        compute, memory = matmul_sides(m, n, k, groups, kernel, None)
        return rename(roof.op_time(compute, memory, kernel.launch_s), name)

    def softmax(passes: float, name: str) -> Number:
        moved = pass_bytes(_scores(p, op), passes, 2.0)
        rate = p.s.kernels.stream_e_hbm * p.s.stack.memory_scale
        return rename(roof.stream_time(moved, p.s.kernels.hbm_bytes_per_s, rate), name)

    forward = (
        matmul(rows, keys, op.head_dim, "scores_s") + softmax(2.0, "softmax_s")
        + matmul(rows, op.v_head_dim, keys, "values_s")
    )  # fmt: skip
    backward = (
        matmul(rows, keys, op.v_head_dim, "score_grad_s")
        + matmul(keys, op.v_head_dim, rows, "value_grad_s") + softmax(3.0, "softmax_grad_s")
        + matmul(rows, op.head_dim, keys, "query_grad_s")
        + matmul(keys, op.head_dim, rows, "key_grad_s")
    )  # fmt: skip
    return forward, backward


def at_bf16_rate(p: Port) -> bool:
    """Whether the target's matmuls in the job's dtype are no faster than its bf16 ones."""
    fastest = float(p.s.kernels.plain.peak_flop_per_s) * 1.01
    return float(p.s.kernels.matmul.peak_flop_per_s) <= fastest


def narrow_matmuls(p: Port, wanted: str) -> Cost:
    """A recipe in fewer bits: the target's matmuls against the same at the recipe's rate.

    Where the chip has the dtype the estimate runs at that rate already, and the difference is 0.
    """
    s = p.s
    if not at_bf16_rate(p):
        now = p.target.time["matmul"]
        seconds = difference(rename(now, "matmul_as_estimated_s"),
                             rename(now, f"matmul_in_{p.target.peak_dtype}_s"))  # fmt: skip
        return Cost(seconds, f"{p.target.machine.chip.key} has {p.target.peak_dtype} matmuls: the "
                    "estimate runs at their rate")  # fmt: skip
    gain = p.given(DTYPE_BYTES["bf16"] / DTYPE_BYTES[wanted], "1", "rate_gain",
                   f"{wanted}: matmul rate and bytes go by the width of an element")  # fmt: skip

    peak = rename(s.kernels.plain.peak_flop_per_s * gain, "recipe_peak_flop_per_s")
    read = rename(s.kernels.plain.in_bytes / gain, "recipe_bytes")

    def at_rate(kernel: MatmulKernel) -> MatmulKernel:
        return replace(kernel, peak_flop_per_s=peak, in_bytes=read)

    kernels = replace(s.kernels, matmul=at_rate(s.kernels.matmul),
                      grouped=at_rate(s.kernels.grouped))  # fmt: skip
    faster = score(replace(s, kernels=kernels), p.c, p.choice)
    seconds = difference(rename(p.target.step_time_s, "step_at_bf16_rate_s"),
                         rename(step_of(faster), "step_at_the_recipes_rate_s"))  # fmt: skip
    return Cost(seconds, f"the step at the rate of bf16 matmuls against {wanted} ones at "
                f"{float(gain):g} times their rate, casts among them")  # fmt: skip


FP32_PASSES = 3.0
"""bf16 passes of JAX's precision "high", the nearest to TF32's 10-bit mantissa."""


@formula(unit="s", source="matmuls in fp32 × the further bf16 passes they are split into")
def split_matmuls(fp32_matmul_s: Number, passes: Number) -> Number:
    """Extra seconds of fp32 matmuls as several bf16 passes."""
    return fp32_matmul_s * (passes - 1)


def tf32(p: Port, flag: Flag) -> Cost:
    """fp32 matmuls as three bf16 passes, against one; a job whose matmuls are narrower has none."""
    del flag
    compute = p.job.precision.value.compute
    passes = p.given(FP32_PASSES, "1", "bf16_passes",
                     "JAX documentation, jax.lax.Precision: HIGH is bfloat16_3x")  # fmt: skip
    if compute in ("fp32", "tf32"):
        seconds = split_matmuls(p.target.time["matmul"], passes)
        return Cost(seconds, "matmuls at TF32's precision in three bf16 passes against one")
    none = p.given(0.0, "s", "fp32_matmul_s", f"the job's matmuls run in {compute}: none in fp32")
    return Cost(split_matmuls(none, passes), f"no matmul of the step is in fp32: all in {compute}")


def unknown_code(p: Port, flag: Flag) -> Cost:
    """Code that the job file only names."""
    del p, flag
    return Cost(None, "the file only names this code: what it runs is not in it (--code reads it)")
