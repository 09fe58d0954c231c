"""What one layer costs a device for one microbatch: op times, by the tensor they make.

This part of the estimate depends only on the cut (tp, cp, ep, microbatch), so that a table of
plans computes it once for each distinct cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from chipshift.estimate.stack import Stack
from chipshift.models.adapters import (
    DORA_KEPT,
    DORA_KEPT_SUMMED,
    Adapters,
    adapter_backward_bytes,
    adapter_forward_bytes,
    dora_backward_bytes,
    dora_forward_bytes,
    dora_kept_elements,
)
from chipshift.models.model import Attention, Layer, Model, Recurrent
from chipshift.models.ops import Cut, Op, end_ops, layer_ops
from chipshift.parallel.remat import tensor_of
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import AttentionKernel, Kernels, MatmulKernel, scaled
from chipshift.worked import formula, plain, rename

Number = Any


def absent(part: Number) -> bool:
    """Whether a part is the plain zero that stands for nothing at all."""
    return isinstance(part, float) and part == 0.0


def plus(a: Number, b: Number) -> Number:
    """a + b, without the zeros of absent parts in the derivation's text."""
    if absent(a):
        return b
    return a if absent(b) else a + b


@dataclass(frozen=True)
class Times:
    """Seconds by what bounds them: matrix units, the attention kernel, memory traffic."""

    matmul: Number = 0.0
    attention: Number = 0.0
    memory: Number = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(
            plus(self.matmul, other.matmul),
            plus(self.attention, other.attention),
            plus(self.memory, other.memory),
        )

    def times(self, factor: Number) -> Times:
        return Times(*(part if absent(part) else part * factor for part in self.parts))

    def named(self, name: str) -> Times:
        """The same under names for a derivation: ``<name>_matmul_s`` and so on."""
        kinds = ("matmul", "attention", "memory")
        return Times(*(rename(p, f"{name}_{k}_s") for p, k in zip(self.parts, kinds, strict=True)))

    @property
    def parts(self) -> tuple[Number, Number, Number]:
        return self.matmul, self.attention, self.memory

    @property
    def total(self) -> Number:
        return plus(plus(self.matmul, self.attention), self.memory)


@dataclass(frozen=True)
class LayerWork:
    """One layer, one microbatch, one device.

    Attributes:
        forward: times of the forward pass, by the tensor they make (parallel/remat.py; ``down``
            is the layer's output).
        input_grad, weight_grad: times of the two halves of the backward pass.
        bare_forward: the forward pass with the adapters off; absent where there are none.
        experts_s: seconds of the routed and shared experts' ops, forward and backward; 0 in a
            dense layer.
        stored_elements: size of each tensor, by name; ``block_input`` among them.
        ops: ops launched in the forward pass.
    """

    forward: dict[str, Times]
    input_grad: Times
    weight_grad: Times
    bare_forward: Times
    experts_s: Number
    stored_elements: dict[str, Number]
    ops: int


@dataclass(frozen=True)
class EndWork:
    """Embedding (first stage) and head with loss (last stage), one microbatch."""

    embedding: Times
    head_forward: Times
    head_input_grad: Times
    head_weight_grad: Times


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
    share = roof.attention_share(op.keys, kernel.e_forward, kernel.s_half_forward)
    forward = roof.attention_compute_time(op.flops, kernel.peak_flop_per_s, share)
    back = roof.attention_share(op.keys, kernel.e_backward, kernel.s_half_backward)
    backward = roof.attention_compute_time(
        op.flops * kernel.backward_flops, kernel.peak_flop_per_s, back
    )
    moved = attention_bytes(op.q_tokens, op.heads, op.kv_heads, op.head_dim, op.v_head_dim)
    memory = roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)
    return (forward, memory), (backward, memory * 2)


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


def _op_times(op: Op, kernels: Kernels, stack: Stack, trainable: Number, maps: float = 0.0,
              dora: bool = False) -> tuple[Times, Times, Times]:  # fmt: skip
    """Forward, input gradient and weight gradient of one op, with the adapters on its maps."""
    if op.kind in ("matmul", "grouped_matmul"):
        kernel = matmul_kernel_of(op, kernels, stack)
        forward, into_input, into_weight = matmul_s(op, kernel)
        cast = _cast_s(op, kernels, stack)
        if op.name in MASKED:  # not weights: their gradients do not depend on what is trained
            trainable = 1.0
        if op.name == "dispatch":  # made of whole numbers: the mask has no gradient
            into_input = 0.0
        beside, back = _adapters_s(op, kernels, maps, dora)
        return (
            Times(matmul=rename(forward, f"{op.name}_forward_s"), memory=plus(cast, beside)),
            Times(matmul=rename(into_input, f"{op.name}_input_grad_s"), memory=plus(cast, back)),
            Times(matmul=rename(into_weight * trainable, f"{op.name}_weight_grad_s")),
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


@formula(unit="elements", source="a matmul's input, and its weights where they are cast with it")
def cast_elements(m: Number, n: Number, k: Number, groups: Number, casts_weights: Number
                  ) -> Number:  # fmt: skip
    """Elements that a matmul reads to make 8-bit copies: (m·k + weights·n·k) · groups."""
    return (m * k + casts_weights * n * k) * groups


def _cast_s(op: Op, kernels: Kernels, stack: Stack) -> Number:
    """Seconds to make the 8-bit copies and scales of a matmul's operands; 0 for wider dtypes."""
    if float(kernels.matmul.in_bytes) >= 2 or op.name in ("router", "lm_head"):
        return 0.0
    if op.name == "experts_down" and float(plain(stack.fused_experts)):
        return 0.0  # the kernel of the matmul before writes 8 bits
    elements = op.m * op.k * op.groups
    if not absent(stack.casts_weights):
        elements = cast_elements(op.m, op.n, op.k, op.groups, stack.casts_weights)
    moved = pass_bytes(elements, plus(stack.cast_passes, stack.range_passes), 2.0)
    seconds = roof.stream_time(moved, kernels.hbm_bytes_per_s, kernels.stream_e_hbm)
    return rename(seconds, f"{op.name}_cast_s")


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


def layer_work(layer: Layer, d_model: Number, cut: Cut, kernels: Kernels, stack: Stack,
               trainable: Number, adapters: Adapters | None = None) -> LayerWork:  # fmt: skip
    """Times and stored tensors of one layer for one microbatch.

    With ``adapters`` its own weights are frozen.
    """
    ops = layer_ops(layer, d_model, cut)
    forward: dict[str, Times] = {}
    into_input, into_weight, bare = Times(), Times(), Times()
    magnitudes = adapters is not None and adapters.dora
    experts: Number = 0.0
    for op in ops:
        maps = adapters.on(op.name) if adapters else 0.0
        f, i, w = _op_times(op, kernels, stack, trainable, maps, maps > 0 and magnitudes)
        if adapters:
            bare = bare + (_op_times(op, kernels, stack, trainable)[0] if maps else f)
        tensor = tensor_of(op.name, layer.side_by_side)
        forward[tensor] = forward.get(tensor, Times()) + f
        into_input, into_weight = into_input + i, into_weight + w
        if op.name.startswith(("experts_", "shared_")):
            experts = plus(experts, (f + i + w).total)
    stored = _stored(layer, d_model, cut, ops, stack)
    if adapters:
        stored = _kept_beside_frozen(stored, adapters)
        if adapters.dora:
            stored = _kept_for_magnitudes(stored, adapters, ops, stack, layer.side_by_side)
    experts = rename(experts, "experts_s")
    return LayerWork(forward, into_input, into_weight, bare, experts, stored, len(ops))


def _stored(layer: Layer, d_model: Number, cut: Cut, ops: list[Op], stack: Stack
            ) -> dict[str, Number]:  # fmt: skip
    """Elements of each tensor that the backward pass may read (bf16 counted as one element)."""
    stream = cut.tokens * d_model / cut.sp
    sizes: dict[str, Number] = {"block_input": stream}
    by_name = {op.name: op for op in ops}
    if layer.attention is not None:
        a = by_name["attention"]
        latent = _latent(layer.attention, cut.tokens)
        wide, v_wide = a.head_dim, a.v_head_dim
        if float(plain(stack.head_lanes)) > 1:
            wide = rename(roof.padded(wide, stack.head_lanes), "stored_head_dim")
            v_wide = rename(roof.padded(v_wide, stack.head_lanes), "stored_v_head_dim")
        qkv = a.q_tokens * (a.heads * wide + a.kv_heads * (wide + v_wide))
        # the row sums kept for the backward pass are fp32: two elements a query and head
        out = a.q_tokens * a.heads * (v_wide + 2)
        if cut.deals_heads:  # the output projection reads a copy: its tokens, all heads
            out = out + a.q_tokens * a.heads * v_wide
        sizes |= {"attention_norm": stream, "qkv": qkv + latent, "attention": out,
                  "out_proj": stream}  # fmt: skip
    if layer.mixer is not None:
        for name, elements in _of_mixer(layer.mixer, stream, cut).items():
            sizes[name] = sizes[name] + elements if name in sizes else elements
    if layer.mlp is not None:
        up: Number = 0.0
        activated: Number = 0.0
        for name in ("mlp_up", "shared_up", "experts_up"):
            if name in by_name:
                op = by_name[name]
                up = up + op.m * op.n * op.groups
                down = by_name[name.replace("_up", "_down")]
                activated = activated + down.m * down.k * down.groups
        read: Number = 0.0 if layer.side_by_side else stream
        if "masks" in by_name:
            up = up + by_name["masks"].elements * MASK_PASSES
        if "experts_up" in by_name:
            routed = by_name["experts_up"]
            rows = routed.m * routed.groups * routed.k  # permuted for the experts
            if float(plain(stack.rows_kept_with_up)):
                up = up + rows
            else:
                read = read + rows
        sizes |= {"mlp_norm": read, "up": up, "activation": activated}
    return {name: rename(size, f"{name}_elements") for name, size in sizes.items()}


READ_FOR = {
    "attention_norm": ("qkv_proj", "q_down", "q_proj", "kv_down"),
    "mlp_norm": ("mlp_up", "experts_up", "shared_up"),
    "activation": ("mlp_down", "experts_down", "shared_down"),
}
"""Tensors that the backward pass reads for weight gradients alone, and of which maps."""


def _kept_beside_frozen(stored: dict[str, Number], adapters: Adapters) -> dict[str, Number]:
    """Without the inputs of frozen maps that no adapter shares: no gradient is made of them."""
    unread = {t for t, maps in READ_FOR.items() if not any(adapters.on(op) for op in maps)}
    return {tensor: size for tensor, size in stored.items() if tensor not in unread}


def _kept_for_magnitudes(stored: dict[str, Number], adapters: Adapters, ops: list[Op],
                         stack: Stack, side_by_side: bool) -> dict[str, Number]:  # fmt: skip
    """With what DoRA keeps of its maps' outputs, by the tensor that each helps to make.

    The layer's last map goes with the activation it reads, as it runs again with it.
    """
    each = DORA_KEPT_SUMMED if stack.base == "megatron" else DORA_KEPT
    for op in ops:
        maps = adapters.on(op.name)
        if not maps:
            continue
        tensor = tensor_of(op.name, side_by_side)
        tensor = tensor if tensor in stored else "activation"
        own = dora_kept_elements(op.m * op.groups, op.n, maps, each)
        held = stored.get(tensor, 0.0)
        stored = {**stored, tensor: plus(held, rename(own, f"{op.name}_magnitudes_elements"))}
    return stored


def _of_mixer(mixer: Recurrent, stream: Number, cut: Cut) -> dict[str, Number]:
    """Elements of a recurrent mixer's tensors: what its maps and convolution make, its output."""
    made = mixer.conv_channels
    for projection in mixer.projections[:-1]:
        made = made + projection.outputs
    out = mixer.heads * mixer.value_dim
    return {"attention_norm": stream, "qkv": cut.tokens * made / cut.tp,
            "attention": cut.tokens * out / cut.tp, "out_proj": stream}  # fmt: skip


def _latent(a: Attention, tokens: Number) -> Number:
    """Elements of MLA's compressed queries and keys; 0 for plain attention."""
    if a.kv_lora_rank is None:
        return 0.0
    query = 0 if a.q_lora_rank is None else a.q_lora_rank
    rope = 0 if a.qk_rope_head_dim is None else a.qk_rope_head_dim
    return tokens * (query + a.kv_lora_rank + rope)


def end_work(model: Model, cut: Cut, kernels: Kernels, stack: Stack, trainable: Number) -> EndWork:
    """Times of embedding, head and loss for one microbatch."""
    first, last = end_ops(model, cut)
    embedding = Times()
    for op in first:
        embedding = embedding + _op_times(op, kernels, stack, trainable)[0].times(2.0)
    parts = [Times(), Times(), Times()]
    for op in last:
        for i, part in enumerate(_op_times(op, kernels, stack, trainable)):
            parts[i] = parts[i] + part
    return EndWork(embedding, parts[0], parts[1], parts[2])
