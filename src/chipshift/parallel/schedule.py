"""Pipeline schedules: the bubble, and how many microbatches' activations a stage holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

Number = Any


@formula(unit="s", source="1F1B: Narayanan et al. 2021, section 2.2; interleaved: bubble / v")
def bubble_1f1b(pp: Number, vpp: Number, forward_s: Number, backward_s: Number) -> Number:
    """Idle seconds a step: (p − 1)/v × the time of one microbatch on a stage."""
    return (pp - 1) / vpp * (forward_s + backward_s)


@formula(unit="s", source="ZB-H1: Qi et al. 2024, table 1: (p − 1)(T_F + T_B − T_W)")
def bubble_zero(pp: Number, forward_s: Number, input_grad_s: Number, weight_grad_s: Number
                ) -> Number:  # fmt: skip
    """Idle seconds a step of the zero-bubble schedule at 1F1B's memory."""
    return (pp - 1) * np.maximum(forward_s + input_grad_s - weight_grad_s, 0)


@formula(unit="microbatches", source="1F1B keeps p in flight on the first stage")
def in_flight_1f1b(pp: Number, accumulation: Number) -> Number:
    """Microbatches whose activations the first stage holds."""
    return np.minimum(pp, accumulation)


@formula(unit="microbatches", source="interleaved: p·(1 + (p − 1)/(p·v)), Korthikanti 2022, §4.2.3")
def in_flight_interleaved(pp: Number, vpp: Number, accumulation: Number) -> Number:
    """Microbatches' worth of whole-stage activations that the first stage holds."""
    return np.minimum(pp * (1 + (pp - 1) / (pp * vpp)), accumulation)


@formula(unit="microbatches", source="GPipe keeps every microbatch; one stage only its own")
def in_flight_gpipe(pp: Number, accumulation: Number) -> Number:
    """Microbatches whose activations every stage holds."""
    return np.where(pp > 1, accumulation, 1)


def in_flight(schedule: str, pp: Number, vpp: Number, accumulation: Number) -> Number:
    """Microbatches held by the first stage under a schedule."""
    if schedule == "gpipe":
        return in_flight_gpipe(pp, accumulation)
    if schedule == "interleaved":
        return in_flight_interleaved(pp, vpp, accumulation)
    return in_flight_1f1b(pp, accumulation)


def bubble(schedule: str, pp: Number, vpp: Number, forward_s: Number, input_grad_s: Number,
           weight_grad_s: Number) -> Number:  # fmt: skip
    """Idle seconds a step under a schedule; the three times are one microbatch's on a stage."""
    if schedule == "zero_bubble":
        return bubble_zero(pp, forward_s, input_grad_s, weight_grad_s)
    # MaxText goes round its stages so many times: GPipe's memory, and the bubble of chunks
    chunks = vpp if schedule in ("interleaved", "gpipe") else 1.0
    return bubble_1f1b(pp, chunks, forward_s, input_grad_s + weight_grad_s)


@formula(unit="layers", source="layers spread over p·v chunks, the fullest chunk counted")
def layers_per_stage(layers: Number, pp: Number, vpp: Number) -> Number:
    """Layers of the fullest stage."""
    return np.ceil(layers / (pp * vpp)) * vpp


@formula(unit="layers", source="stages cut by cost, the LM head counted as so many layers")
def balanced_layers_per_stage(layers: Number, head_layers: Number, pp: Number) -> Number:
    """Layers of the fullest stage where each takes blocks until it has its share of the cost."""
    return np.where(pp > 1, np.minimum(np.ceil((layers + head_layers) / pp), layers), layers)


@formula(unit="layers", source="what the stages before leave, each cut at its share of the cost")
def balanced_last_layers(layers: Number, head_layers: Number, pp: Number) -> Number:
    """Layers beside the LM head on the last stage; 0 where the head fills its share alone."""
    return np.maximum(layers - np.ceil((layers + head_layers) * (pp - 1) / pp), 0)


@formula(unit="1", source="cost of the whole model over that of its slowest stage")
def stages_in_effect(layers: Number, head_layers: Number, fullest: Number, last: Number
                     ) -> Number:  # fmt: skip
    """Stages of uneven cost as so many of the slowest: what fills and drains the pipeline."""
    return (layers + head_layers) / np.maximum(fullest, last + head_layers)


@formula(unit="layers", source="empty layer places, taken from the first and last stage")
def spare_places(layers: Number, pp: Number, vpp: Number) -> Number:
    """Layer places that stay empty on the last stage, up to one a chunk: room for the LM head."""
    return np.minimum(np.ceil(layers / (pp * vpp)) * vpp * pp - layers, 1.0)
