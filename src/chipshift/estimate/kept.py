"""What one layer keeps of a microbatch for its backward pass, by the tensor it is of."""

from __future__ import annotations

from typing import Any

from chipshift.estimate.op_times import MASK_PASSES
from chipshift.estimate.parts import plus
from chipshift.estimate.stack import Stack
from chipshift.models.adapters import (
    DORA_KEPT,
    DORA_KEPT_SUMMED,
    Adapters,
    dora_kept_elements,
)
from chipshift.models.model import Attention, Layer, Recurrent
from chipshift.models.ops import Cut, Op
from chipshift.parallel.remat import tensor_of
from chipshift.roofline import time as roof
from chipshift.worked import plain, rename

Number = Any


def kept_by_layer(layer: Layer, d_model: Number, cut: Cut, ops: list[Op], stack: Stack
                  ) -> dict[str, Number]:  # fmt: skip
    """Elements of each tensor that the backward pass may read (bf16 counted as one element)."""
    stream = cut.tokens * d_model / cut.sp
    sizes: dict[str, Number] = {"block_input": stream}
    by_name = {op.name: op for op in ops}
    attends = layer.cross if layer.attention is None else layer.attention
    if attends is not None:
        a = by_name["attention"]
        latent = _latent(attends, cut.tokens)
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


def kept_beside_frozen(stored: dict[str, Number], adapters: Adapters) -> dict[str, Number]:
    """Without the inputs of frozen maps that no adapter shares: no gradient is made of them."""
    unread = {t for t, maps in READ_FOR.items() if not any(adapters.on(op) for op in maps)}
    return {tensor: size for tensor, size in stored.items() if tensor not in unread}


def kept_for_magnitudes(stored: dict[str, Number], adapters: Adapters, ops: list[Op],
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
