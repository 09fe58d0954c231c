"""What one layer costs a device for one microbatch: op times, by the tensor they make.

This part of the estimate depends only on the cut (tp, cp, ep, microbatch), so that a table of
plans computes it once for each distinct cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chipshift.estimate.kept import kept_beside_frozen, kept_by_layer, kept_for_magnitudes
from chipshift.estimate.op_times import op_times
from chipshift.estimate.parts import Times, plus
from chipshift.estimate.stack import Stack
from chipshift.models.adapters import Adapters
from chipshift.models.model import Layer, Model
from chipshift.models.ops import Cut, end_ops, layer_ops
from chipshift.parallel.remat import tensor_of
from chipshift.roofline.kernels import Kernels
from chipshift.worked import rename

Number = Any


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
        f, i, w = op_times(op, kernels, stack, trainable, maps, maps > 0 and magnitudes)
        if adapters:
            bare = bare + (op_times(op, kernels, stack, trainable)[0] if maps else f)
        tensor = tensor_of(op.name, layer.side_by_side)
        forward[tensor] = forward.get(tensor, Times()) + f
        into_input, into_weight = into_input + i, into_weight + w
        if op.name.startswith(("experts_", "shared_")):
            experts = plus(experts, (f + i + w).total)
    stored = kept_by_layer(layer, d_model, cut, ops, stack)
    if adapters:
        stored = kept_beside_frozen(stored, adapters)
        if adapters.dora:
            stored = kept_for_magnitudes(stored, adapters, ops, stack, layer.side_by_side)
    experts = rename(experts, "experts_s")
    return LayerWork(forward, into_input, into_weight, bare, experts, stored, len(ops))


def end_work(model: Model, cut: Cut, kernels: Kernels, stack: Stack, trainable: Number) -> EndWork:
    """Times of embedding, head and loss for one microbatch."""
    first, last = end_ops(model, cut)
    embedding = Times()
    for op in first:
        embedding = embedding + op_times(op, kernels, stack, trainable)[0].times(2.0)
    parts = [Times(), Times(), Times()]
    for op in last:
        for i, part in enumerate(op_times(op, kernels, stack, trainable)):
            parts[i] = parts[i] + part
    return EndWork(embedding, parts[0], parts[1], parts[2])
