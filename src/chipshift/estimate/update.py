"""Time of the optimizer step, and of adding gradients up for it."""

from __future__ import annotations

from typing import Any

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.cuts import optimizer_cuts, weight_cuts
from chipshift.estimate.parts import absent
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import stage_params
from chipshift.parallel.memory import optimizer_bytes_per_param
from chipshift.roofline.time import stream_time
from chipshift.worked import formula, rename

Number = Any


def optimizer_s(s: Setting, c: Columns, choice: Choice, counts: list[Number]) -> Number:
    """Seconds of the optimizer: its state read and written once through HBM."""
    dense, experts = stage_params(s, c, counts)
    kept = optimizer_bytes_per_param(s.bytes.master, s.bytes.moments, s.bytes.moments_per_param)
    moved = optimizer_traffic_bytes(kept, s.bytes.gradients, s.bytes.weights, s.trainable)
    shared_by, experts_by = optimizer_cuts(c, choice)
    owned = rename(dense, "stage_params") / shared_by
    owned = owned + rename(experts, "stage_expert_params") / experts_by
    owned = rename(owned, "params_owned")
    seconds = stream_time(
        owned * moved * s.stack.optimizer_passes, s.kernels.hbm_bytes_per_s, s.kernels.stream_e_hbm
    )
    if absent(s.stack.accumulate_bytes):
        return rename(seconds, "optimizer_s")
    w, we = weight_cuts(c)
    held = dense / w + experts / we
    added = added_gradient_bytes(held, s.stack.accumulate_bytes, c.accumulation) * s.trainable
    rate = s.kernels.stream_e_hbm * s.stack.memory_scale
    adding = stream_time(added, s.kernels.hbm_bytes_per_s, rate)
    return rename(seconds + rename(adding, "gradients_added_s"), "optimizer_s")


@formula(unit="B", source="gradient and sum read, sum written")
def added_gradient_bytes(params: Number, bytes_per_param: Number, microbatches: Number) -> Number:
    """HBM bytes of adding gradients up over microbatches: bf16 into fp32 is 2 + 4 + 4 each."""
    return params * bytes_per_param * microbatches


@formula(unit="B", source="state read and written, gradient read, weights written")
def optimizer_traffic_bytes(state: Number, gradient: Number, weight: Number, trainable: Number
                            ) -> Number:  # fmt: skip
    """HBM bytes of the optimizer for one parameter: AdamW with an fp32 master 2·12 + 4 + 2."""
    return (2 * state + gradient + weight) * trainable
