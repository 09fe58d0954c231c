"""Bytes a device holds under a plan: the formulas, one each, on numbers, arrays or ``Worked``.

The classic results come out of these: mixed-precision AdamW keeps 2 + 2 + 4 + 4 + 4 = 16 bytes a
parameter with bf16 gradients, 18 with fp32 ones, and 16/N when all of it is sharded over N.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

Number = Any


@formula(
    unit="devices", source="FSDP (ZeRO-3) shards over fsdp × cp; the experts' over what ep leaves"
)
def weight_shards(fsdp: Number, cp: Number) -> Number:
    """Devices that share one copy of a weight that is not an expert's."""
    return np.where(fsdp > 1, fsdp * cp, 1)


@formula(unit="devices", source="experts are sharded over what ep leaves of the weights' shards")
def expert_shards(fsdp: Number, cp: Number, tp: Number, etp: Number, ep: Number) -> Number:
    """Devices that share one copy of an expert's weight."""
    return np.where(fsdp > 1, np.maximum(fsdp * cp * (tp / etp) / ep, 1), 1)


@formula(
    unit="devices",
    source="gradients of a weight are summed over dp × fsdp × cp, experts' over what ep leaves",
)
def gradient_replicas(dp: Number, fsdp: Number, cp: Number) -> Number:
    """Devices that each compute a gradient for the same weight, no expert's."""
    return dp * fsdp * cp


@formula(unit="devices", source="an expert's gradient is summed over dp × fsdp × cp × tp/etp / ep")
def expert_replicas(dp: Number, fsdp: Number, cp: Number, tp: Number, etp: Number, ep: Number
                    ) -> Number:  # fmt: skip
    """Devices that each compute a gradient for the same expert."""
    return dp * fsdp * cp * (tp / etp) / ep


@formula(unit="B", source="parameters × bytes / devices that share them")
def state_bytes(params: Number, bytes_per_param: Number, shards: Number) -> Number:
    """Bytes of weights, gradients or moments on one device."""
    return params * bytes_per_param / shards


@formula(unit="B", source="master weights and moments, one each a parameter")
def optimizer_bytes_per_param(master_bytes: Number, moment_bytes: Number, moments: Number
                              ) -> Number:  # fmt: skip
    """Optimizer bytes of one parameter: AdamW with an fp32 master keeps 4 + 2 × 4 = 12."""
    return master_bytes + moment_bytes * moments


@formula(unit="parameters", source="tensor parallelism cuts matrices, expert parallelism experts")
def cut_params(whole: Number, tp: Number, ep: Number) -> Number:
    """Parameters on a device before data-parallel sharding; pass ep = 1 for what is not experts."""
    return whole / (tp * ep)


@formula(unit="B", source="stored elements × 2 bytes × layers × microbatches in flight")
def stored_activation_bytes(elements: Number, layers: Number, in_flight: Number, scale: Number
                            ) -> Number:  # fmt: skip
    """Bytes of activations kept from forward to backward by one kind of layer on a stage."""
    return 2 * elements * layers * in_flight * scale


@formula(unit="B", source="what one layer's backward pass makes again, and its widest gradient")
def working_bytes(recomputed_elements: Number, widest_elements: Number, layers: Number) -> Number:
    """Bytes alive while one layer is worked on, beyond what is stored."""
    return 2 * layers * (recomputed_elements + widest_elements)


@formula(unit="B", source="tokens × vocabulary / tp, kept in the bytes that the loss needs")
def logits_bytes(tokens: Number, vocab: Number, tp: Number, bytes_per_logit: Number,
                 chunks: Number) -> Number:  # fmt: skip
    """Bytes of logits, their fp32 copy and gradient, on the last stage."""
    return tokens * vocab / tp * bytes_per_logit / chunks


@formula(unit="B", source="gathered weights of the layers at work, and one layer's gradient")
def gathered_bytes(layer_params: Number, shards: Number, layers: Number, weight_bytes: Number,
                   reduce_bytes: Number) -> Number:  # fmt: skip
    """Bytes of whole layers that FSDP holds for a moment; 0 where weights are not sharded."""
    return np.where(shards > 1, layer_params * (layers * weight_bytes + reduce_bytes), 0)


@formula(unit="B", source="a copy for each parameter where gradients are summed over replicas")
def bucket_bytes(params: Number, bytes_per_param: Number, replicas: Number) -> Number:
    """Bytes of the buckets that gradients are summed from; 0 where there is nothing to sum."""
    return params * bytes_per_param * np.where(replicas > 1, 1.0, 0.0)


@formula(unit="B", source="one flat tensor of all parts, and the device's own part of it")
def flat_gather_bytes(params: Number, bytes_per_param: Number, replicas: Number) -> Number:
    """Bytes of the buffers through which updated weights are gathered at once under ZeRO."""
    return params * bytes_per_param * (1 + 1 / replicas) * np.where(replicas > 1, 1.0, 0.0)


@formula(unit="B", source="activations of full width, gathered over tp: tokens × width × 2 bytes")
def wide_bytes(tokens: Number, d_model: Number, tensors: Number, tp: Number) -> Number:
    """Bytes of tensors of full width that tensor parallelism keeps on each device."""
    return 2 * tokens * d_model * tensors * np.where(tp > 1, 1.0, 0.0)


@formula(unit="1", source="a host that launches faster than the device computes runs ahead of it")
def share_ahead(host_s: Number, device_s: Number, pp: Number) -> Number:
    """How far the host runs ahead in a microbatch: 0 = never, 1 = all through it.

    A soft step at equal times, since some ops are shorter than their launch and some longer. A
    pipeline of more than two stages launches several forward passes before it waits for one.
    """
    return np.where(pp > 2, 1.0, 1 / (1 + (host_s / np.maximum(device_s, 1e-9)) ** 4))


@formula(unit="B", source="made after the step's activations are freed: it takes their place")
def beyond(late_bytes: Number, freed_bytes: Number) -> Number:
    """Bytes that a buffer made late in the step adds to the peak."""
    return np.maximum(late_bytes - freed_bytes, 0)


@formula(unit="B", source="runtime context, communication buffers, and the allocator's losses")
def overhead_bytes(context: Number, comm_buffer: Number, groups: Number, fragmentation: Number,
                   dynamic: Number) -> Number:  # fmt: skip
    """Bytes that are neither state nor activations."""
    return context + comm_buffer * groups + fragmentation * dynamic
