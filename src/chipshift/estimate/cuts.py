"""Devices that share one copy of a stage's weights, gradients and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.parts import absent
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import layers_params
from chipshift.models.count import layer_params
from chipshift.parallel import memory
from chipshift.worked import plain, rename

Number = Any


@dataclass(frozen=True)
class Params:
    """Parameters on a device before they are cut over its replicas.

    Attributes:
        dense: all but the others.
        experts: of routed experts.
        whole: that every device keeps whole; 0.0 where the stack has no such thing.
    """

    dense: Number
    experts: Number
    whole: Number = 0.0


def params_of_layers(s: Setting, c: Columns, counts: list[Number]) -> Params:
    """Parameters of a stage's layers, routers apart where the stack keeps them whole."""
    dense, experts = layers_params(s, c, counts)
    if not float(plain(s.stack.whole_routers)):
        return Params(dense, experts)
    gates = [layer_params(layer, s.model.d_model).router for layer, _ in s.model.layers]
    if not any(float(plain(gate)) for gate in gates):
        return Params(dense, experts)
    each = [gate * count for gate, count in zip(gates, counts, strict=True)]
    whole = rename(sum(each[1:], each[0]), "router_params")
    return Params(dense - memory.cut_params(whole, c.tp, 1.0), experts, whole)


def state(what: str, params: Params, each: Number, cuts: tuple[Number, Number]) -> Number:
    """Bytes of weights, gradients or moments, ``each`` bytes a parameter."""
    shared_by, experts_by = cuts
    own = rename(memory.state_bytes(params.dense, each, shared_by), f"{what}_outside_experts_bytes")
    own = own + rename(
        memory.state_bytes(params.experts, each, experts_by), f"{what}_of_experts_bytes"
    )
    if absent(params.whole):
        return own
    return own + rename(params.whole * each, f"{what}_of_routers_bytes")


def weight_cuts(c: Columns) -> tuple[Number, Number]:
    """Devices that share one copy of a weight, and of an expert's."""
    if c.cp_shards:
        own = memory.expert_replicas(1.0, c.fsdp, c.cp, c.tp, c.etp, c.ep)
        return memory.gradient_replicas(1.0, c.fsdp, c.cp), np.maximum(own, 1.0)
    experts = memory.expert_shards(c.fsdp, c.cp, c.tp, c.etp, c.ep)
    return memory.weight_shards(c.fsdp, c.cp), experts


def optimizer_cuts(c: Columns, choice: Choice) -> tuple[Number, Number]:
    """Devices that share one copy of a weight's optimizer state, and of an expert's."""
    if choice.optimizer_sharding == "none":
        return weight_cuts(c)
    experts = memory.expert_replicas(c.dp, c.fsdp, c.cp, c.tp, c.etp, c.ep)
    return memory.gradient_replicas(c.dp, c.fsdp, c.cp), np.maximum(experts, 1.0)


def gradient_cuts(c: Columns, choice: Choice) -> tuple[Number, Number]:
    """Devices that share one copy of a weight's gradient, and of an expert's."""
    return optimizer_cuts(c, choice) if choice.optimizer_sharding == "zero2" else weight_cuts(c)


@dataclass(frozen=True)
class HeldCuts:
    """Devices that share one copy of weights, of their gradients and of the optimizer's state."""

    weights: tuple[Number, Number]
    gradients: tuple[Number, Number]
    optimizer: tuple[Number, Number]


def held_cuts(s: Setting, c: Columns, choice: Choice) -> HeldCuts:
    """The cuts of what a device holds.

    The compiled step (``layer_moments``) keeps one fp32 copy of the weights, the optimizer's, and
    cuts it over dp with the moments. XLA scatters each gradient to that cut as it is made, where
    fsdp cuts the weights too, and adds the microbatches' up in it.
    """
    w, g, o = weight_cuts(c), gradient_cuts(c, choice), optimizer_cuts(c, choice)
    if not one_copy(s, choice):
        return HeldCuts(w, g, o)
    o = (np.where(c.dp > 1, o[0], w[0]), np.where(c.dp > 1, o[1], w[1]))
    wider = float(s.bytes.weights) > float(s.bytes.gathered)
    return HeldCuts(o if wider else w, o, o)


def one_copy(s: Setting, choice: Choice) -> bool:
    """Whether the optimizer's copy of the weights, cut over dp, is the only wide one."""
    return choice.optimizer_sharding != "none" and float(plain(s.stack.layer_moments)) > 0
