"""Seconds of one op on a device, forward and backward, at the speed of a stack's kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chipshift.estimate.parts import Times, absent, plus
from chipshift.estimate.stack import Stack
from chipshift.models.adapters import (
    adapter_backward_bytes,
    adapter_forward_bytes,
    dora_backward_bytes,
    dora_forward_bytes,
)
from chipshift.models.ops import Op
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import (
    AttentionKernel,
    Kernels,
    MatmulKernel,
    attention_shares,
    scaled,
)
from chipshift.worked import formula, plain, rename

Number = Any


def matmul_s(op: Op, kernel: MatmulKernel) -> tuple[Number, Number, Number]:
    """Seconds of a matmul's forward, input gradient and weight gradient.

    A grouped matmul's achieved share goes by the rows of one expert in all three.
    """
    rows = op.m if op.kind == "grouped_matmul" else None
    return (
        one_matmul_s(op.m, op.n, op.k, op.groups, kernel, rows),
        one_matmul_s(op.m, op.k, op.n, op.groups, kernel, rows),
        one_matmul_s(op.k, op.n, op.m, op.groups, kernel, rows),
    )


def one_matmul_s(m: Number, n: Number, k: Number, groups: Number, kernel: MatmulKernel,
                 rows: Number | None) -> Number:  # fmt: skip
    """Seconds of ``groups`` matmuls (m, k) × (k, n); ``rows`` as in ``matmul_sides``."""
    compute, memory = matmul_sides(m, n, k, groups, kernel, rows)
    return roof.op_time(compute, memory, kernel.launch_s)


def matmul_sides(m: Number, n: Number, k: Number, groups: Number, kernel: MatmulKernel,
                 rows: Number | None) -> tuple[Number, Number]:  # fmt: skip
    """Seconds that a matmul takes of the matrix units and of memory; the op takes the larger.

    ``rows`` of one expert decide a grouped matmul's achieved share; None for a plain matmul.
    """
    ramp = k if rows is None else rows
    compute = roof.matrix_unit_time(
        rename(roof.padded(m, kernel.tile_m), "rows_padded"),
        rename(roof.padded(n, kernel.tile_n), "outputs_padded"),
        rename(roof.padded(k, kernel.tile_k), "reduction_padded"),
        groups,
        kernel.peak_flop_per_s,
        kernel.e_max,
        roof.wave_share(m, n, kernel.tile_m, kernel.tile_n, kernel.units, kernel.wave_softness),
        roof.reduction_share(ramp, kernel.k_half),
    )
    moved = roof.matmul_bytes(m, n, k, groups, kernel.in_bytes, kernel.out_bytes)
    return compute, roof.stream_time(moved, kernel.hbm_bytes_per_s, kernel.e_hbm)


def attention_s(op: Op, kernel: AttentionKernel, kernels: Kernels) -> tuple[Number, Number]:
    """Seconds of attention forward and backward."""
    (forward, memory), (backward, memory_back) = attention_sides(op, kernel, kernels)
    return (
        roof.op_time(forward, memory, kernel.launch_s),
        roof.op_time(backward, memory_back, kernel.launch_s),
    )


def attention_sides(op: Op, kernel: AttentionKernel, kernels: Kernels
                    ) -> tuple[tuple[Number, Number], tuple[Number, Number]]:  # fmt: skip
    """Seconds of the matrix units and of memory, forward and backward."""
    share, back = shares_of(op, kernel)
    forward = roof.attention_compute_time(op.flops, kernel.peak_flop_per_s, share)
    backward = roof.attention_compute_time(
        op.flops * kernel.backward_flops, kernel.peak_flop_per_s, back
    )
    moved = attention_bytes(op.q_tokens, op.heads, op.kv_heads, op.head_dim, op.v_head_dim)
    memory = roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)
    return (forward, memory), (backward, memory * 2)


def shares_of(op: Op, kernel: AttentionKernel) -> tuple[Number, Number]:
    """Shares of the peak that an op's attention reaches, forward and backward."""
    return attention_shares(kernel, op.keys, op.kv_len, op.span, op.head_dim, op.v_head_dim)


@formula(unit="B", source="q, k, v read and the output written once, bf16")
def attention_bytes(q_tokens: Number, heads: Number, kv_heads: Number, head_dim: Number,
                    v_head_dim: Number) -> Number:  # fmt: skip
    """HBM traffic of a fused attention kernel."""
    return 2 * q_tokens * (heads + kv_heads) * (head_dim + v_head_dim)


@formula(unit="B", source="passes over the tensor, as the stack fuses the op")
def pass_bytes(elements: Number, passes: Number, element_bytes: Number) -> Number:
    """HBM traffic of a memory-bound op."""
    return elements * passes * element_bytes


@formula(unit="elements", source="each row that a gather moves is a transfer of its own")
def with_rows(elements: Number, rows: Number, row_elements: Number) -> Number:
    """Elements moved, and what their rows take beside them as so many more."""
    return elements + rows * row_elements


@formula(unit="s", source="measured: 8-bit experts behind an all-to-all lose time beside bytes")
def sorted_by_rows(stream_s: Number, rows: Number, row_s: Number) -> Number:
    """Seconds of a permutation: its passes, and so much for each row, however wide."""
    return stream_s + rows * row_s


def _passes(kind: str, stack: Stack) -> tuple[Number, Number]:
    """Forward passes of a memory-bound op under a stack, and bytes of one element."""
    return {
        "norm": (stack.norm_passes, 2.0),
        "residual": (0.0, 2.0),  # fused with the norm: its passes are counted there
        "rope": (stack.rope_passes, 2.0),
        "activation": (stack.activation_scale, 2.0),
        "permute": (stack.permute_passes, 2.0),
        "mask": (MASK_PASSES, 2.0),
        "bias": (stack.expert_bias_passes, 2.0),
        "embedding": (2.0, 2.0),
        "loss": (1.0, stack.loss_bytes_per_logit),
    }[kind]


MASKED = ("dispatch", "combine")
"""Einsums of tokens with a mask (models/ops.py)."""

MASK_PASSES = 1.5
"""Writes of a capacity mask: bf16 weights and their boolean copy; einsums count their reads."""


def op_times(op: Op, kernels: Kernels, stack: Stack, trainable: Number, maps: float = 0.0,
             dora: bool = False) -> tuple[Times, Times, Times]:  # fmt: skip
    """Forward, input gradient and weight gradient of one op, with the adapters on its maps."""
    if op.kind in ("matmul", "grouped_matmul"):
        kernel = matmul_kernel_of(op, kernels, stack)
        forward, into_input, into_weight = matmul_s(op, kernel)
        cast = rename(_cast_s(op, kernels, stack, op.k), f"{op.name}_cast_s")
        gradient = _cast_s(op, kernels, stack, op.n)
        cast_back = rename(gradient, f"{op.name}_gradient_cast_s")
        if op.name in MASKED:  # not weights: their gradients do not depend on what is trained
            trainable = 1.0
        if op.name == "dispatch":  # made of whole numbers: the mask has no gradient
            into_input = 0.0
        beside, back = _adapters_s(op, kernels, maps, dora)
        return (
            Times(matmul=rename(forward, f"{op.name}_forward_s"), memory=plus(cast, beside)),
            Times(
                matmul=rename(into_input, f"{op.name}_input_grad_s"), memory=plus(cast_back, back)
            ),
            Times(
                matmul=rename(into_weight * trainable, f"{op.name}_weight_grad_s"),
                memory=_weight_sum_s(op, kernels, stack, trainable),
            ),
        )
    if op.kind == "attention":
        forward, backward = attention_s(op, attention_kernel_of(kernels, stack), kernels)
        return (
            Times(attention=rename(forward, "attention_forward_s")),
            Times(attention=rename(backward, "attention_backward_s")),
            Times(),
        )
    _, streamed = memory_side(op, kernels, stack)
    seconds = rename(streamed, f"{op.name}_forward_s")
    back = rename(seconds * stack.backward_memory_factor, f"{op.name}_backward_s")
    return Times(memory=seconds), Times(memory=back), Times()


def matmul_kernel_of(op: Op, kernels: Kernels, stack: Stack) -> MatmulKernel:
    """A matmul's kernel at the stack's speed: head and router in bf16, experts grouped."""
    small = op.name == "router" or (op.name == "lm_head" and not float(plain(stack.narrow_head)))
    own = kernels.grouped if op.kind == "grouped_matmul" else kernels.matmul
    return scaled(kernels.plain if small else own, _matmul_scale(op, kernels, stack, small))


@formula(unit="1", source="QKᵀ and PV forward; each of the backward pass is as large")
def backward_over_forward(backward_matmuls: Number) -> Number:
    """FLOPs of attention's backward kernels over the forward's."""
    return backward_matmuls / 2


def attention_kernel_of(kernels: Kernels, stack: Stack) -> AttentionKernel:
    """The attention kernel at the stack's speed."""
    k, scale = kernels.attention, stack.attention_scale
    return replace(
        k,
        e_forward=rename(k.e_forward * scale, "e_forward_in_a_step"),
        e_backward=rename(k.e_backward * scale, "e_backward_in_a_step"),
        backward_flops=rename(
            backward_over_forward(stack.attention_backward_matmuls),
            "attention_backward_over_forward",
        ),
    )


def memory_side(op: Op, kernels: Kernels, stack: Stack) -> tuple[Number, Number]:
    """Bytes and seconds of a memory-bound op's forward pass."""
    passes, element_bytes = _passes(op.kind, stack)
    if op.name == "experts_activation" and float(plain(stack.fused_experts)):
        passes = 0.0  # the matmul's kernel makes it
    elements = op.elements
    if op.kind == "permute" and not absent(stack.permute_row_elements):
        elements = rename(with_rows(elements, op.m, stack.permute_row_elements), "permuted")
    moved = pass_bytes(elements, passes, element_bytes)
    rate = rename(kernels.stream_e_hbm * stack.memory_scale, "e_hbm_in_a_step")
    seconds = roof.stream_time(moved, kernels.hbm_bytes_per_s, rate)
    if op.kind == "permute" and not absent(stack.permute_row_s):
        seconds = sorted_by_rows(seconds, op.m, stack.permute_row_s)
    return moved, seconds


def _matmul_scale(op: Op, kernels: Kernels, stack: Stack, small: bool) -> Number:
    """In-situ speed of a matmul under a stack, over the kernel's own."""
    scale = stack.matmul_scale
    if float(kernels.matmul.in_bytes) < 2 and not small:
        scale = scale * stack.narrow_matmul_scale
    return scale * stack.grouped_scale if op.kind == "grouped_matmul" else scale


@formula(unit="elements", source="a matmul's rows, and its weights where they are cast with them")
def cast_elements(rows: Number, width: Number, weights: Number, groups: Number,
                  casts_weights: Number) -> Number:  # fmt: skip
    """Elements that a matmul reads to make 8-bit copies: (rows·width + cast·weights) · groups."""
    return (rows * width + casts_weights * weights) * groups


def _cast_s(op: Op, kernels: Kernels, stack: Stack, width: Number) -> Number:
    """Seconds to make the 8-bit copies and scales of a matmul's operands; 0 for wider dtypes.

    Args:
        width: of a row that is cast: the input's forward, the output gradient's backward.
    """
    if float(kernels.matmul.in_bytes) >= 2 or op.name in ("router", "lm_head"):
        return 0.0
    if op.name == "experts_down" and float(plain(stack.fused_experts)):
        return 0.0  # the kernel of the matmul before writes 8 bits
    elements = op.m * width * op.groups
    if not absent(stack.casts_weights):
        elements = cast_elements(op.m, width, op.n * op.k, op.groups, stack.casts_weights)
    moved = pass_bytes(elements, plus(stack.cast_passes, stack.range_passes), 2.0)
    return roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)


def _weight_sum_s(op: Op, kernels: Kernels, stack: Stack, trainable: Number) -> Number:
    """Seconds in which a weight's gradient is added to its sum over microbatches as it is made.

    The sum passes through the kernel once for each output, however few rows made it; at 2,048 rows
    in 8 bits that is a tenth of the matmuls' time.
    """
    if absent(stack.weight_sum_bytes) or op.name in MASKED:
        return 0.0
    moved = op.n * op.k * op.groups * stack.weight_sum_bytes
    seconds = roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)
    return rename(seconds * trainable, f"{op.name}_weight_sum_s")


def _adapters_s(op: Op, kernels: Kernels, maps: float, dora: bool) -> tuple[Number, Number]:
    """Seconds of an op's adapters, forward and backward; 0 where it has none."""
    if not maps:
        return 0.0, 0.0
    rows = op.m * op.groups
    found = []
    sent = adapter_forward_bytes(rows, op.k, op.n, maps)
    back = adapter_backward_bytes(rows, op.k, op.n, maps)
    if dora:
        sent = sent + dora_forward_bytes(rows, op.k, op.n, op.groups)
        back = back + dora_backward_bytes(rows, op.n)
    for name, moved in (("forward", sent), ("backward", back)):
        seconds = roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)
        found.append(rename(seconds, f"{op.name}_adapters_{name}_s"))
    return found[0], found[1]
