"""Bytes each collective takes part in: V, the whole array of one group (docs/fabric.md).

An all-gather or reduce-scatter of V bytes over n devices sends (n − 1)/n · V from each; an
all-reduce twice that; an all-to-all (n − 1)/n of the device's own part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

Number = Any


@formula(unit="B", source="weights of the layer after tensor and expert cuts, in compute dtype")
def weight_gather_bytes(layer_params: Number, weight_bytes: Number) -> Number:
    """V of FSDP's all-gather of one layer, forward and again backward."""
    return layer_params * weight_bytes


@formula(unit="B", source="gradients of what the device holds before sharding, in reduce dtype")
def gradient_reduce_bytes(device_params: Number, reduce_bytes: Number) -> Number:
    """V of the gradient reduce-scatter (FSDP, ZeRO) or all-reduce (DDP)."""
    return device_params * reduce_bytes


@formula(unit="B", source="Megatron sequence parallelism: the layer's activations, gathered")
def tensor_parallel_bytes(tokens: Number, d_model: Number, act_bytes: Number) -> Number:
    """V of one all-gather or reduce-scatter of activations over tp."""
    return tokens * d_model * act_bytes


@formula(unit="B", source="keys and values of every device of the context-parallel group")
def context_bytes(tokens: Number, kv_heads: Number, head_dims: Number, act_bytes: Number,
                  cp: Number) -> Number:  # fmt: skip
    """V of the exchange of keys and values; a ring sends V/cp to a neighbour cp − 1 times."""
    return tokens * kv_heads * head_dims * act_bytes * cp


@formula(
    unit="heads",
    source="DeepSpeed-Ulysses as ALST runs it: key/value heads fewer than the devices are repeated",
)
def dealt_kv_heads(kv_heads: Number, ranks: Number) -> Number:
    """Key/value heads on a device before they are dealt over so many: one for each at least."""
    return np.maximum(kv_heads, ranks)


@formula(
    unit="B",
    source="DeepSpeed-Ulysses (Jacobs et al. 2023, section 3): from a part of the tokens with all "
    "heads to all tokens with a part of the heads, or back",
)
def dealt_heads_bytes(tokens: Number, heads: Number, head_dim: Number, act_bytes: Number,
                      ranks: Number) -> Number:  # fmt: skip
    """V of the all-to-all of queries, of keys, of values or of attention's output.

    Args:
        tokens, heads: on each device before it.
        ranks: devices that the heads are dealt over.
    """
    return tokens * heads * head_dim * act_bytes * ranks


@formula(unit="B", source="every token goes to top-k experts: dispatch and combine move the same")
def expert_bytes(tokens: Number, top_k: Number, d_model: Number, act_bytes: Number, ep: Number,
                 sp: Number) -> Number:  # fmt: skip
    """V of one all-to-all over ep: ep devices' tokens × top-k rows."""
    return tokens * top_k * d_model * act_bytes / sp * ep


@formula(unit="1", source="expected distinct places of k uniform picks of n: n·(1 − ((n − 1)/n)^k)")
def once_per_place(top_k: Number, nodes: Number, devices: Number, applies: Number) -> Number:
    """Rows an all-to-all moves when a token goes to a place once, over top-k: DeepEP and its kin.

    The places are nodes where the group spans several (inside one a token is passed on over the
    faster links), else its devices. 1 where ``applies`` is 0.
    """
    places: Number = np.where(nodes > 1, nodes, devices)
    distinct = places * (1 - ((places - 1) / places) ** top_k) / top_k
    return np.where(applies > 0, np.minimum(distinct, 1.0), 1.0)


@formula(unit="B", source="the activations between two stages, cut by sequence parallelism")
def pipeline_bytes(tokens: Number, d_model: Number, act_bytes: Number, sp: Number) -> Number:
    """Bytes that a device sends to the next stage for one microbatch."""
    return tokens * d_model * act_bytes / sp


@formula(unit="1", source="2 all-gathers and 1 reduce-scatter against 1 all-reduce = 2 of them")
def fsdp_over_ddp(weight_bytes: Number, reduce_bytes: Number, ddp_reduce_bytes: Number,
                  microbatches: Number) -> Number:  # fmt: skip
    """Bytes FSDP sends over those DDP sends: 1.5 at equal dtypes and one microbatch."""
    return microbatches * (2 * weight_bytes + reduce_bytes) / (2 * ddp_reduce_bytes)
