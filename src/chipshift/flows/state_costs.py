"""What settings of state cost on the target: sharding, offload, scaling, quantised weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice
from chipshift.estimate.cuts import gradient_cuts, optimizer_cuts
from chipshift.estimate.stage import stage_params
from chipshift.estimate.update import optimizer_s
from chipshift.flows.port import Cost, Port, difference, step_of, unaffected, with_bytes
from chipshift.jobs.job import Flag
from chipshift.parallel.memory import optimizer_bytes_per_param
from chipshift.roofline.time import stream_time
from chipshift.worked import formula, rename

Number = Any


def _held(p: Port, cuts: tuple[Number, Number], name: str) -> Number:
    """Parameters on the fullest stage's device, shared by ``cuts`` devices (experts' apart)."""
    dense, experts = stage_params(p.s, p.c, p.counts)
    own = rename(dense, "stage_params") / cuts[0]
    return rename(own + rename(experts, "stage_expert_params") / cuts[1], name)


@formula(unit="B", source="unscaled in place and checked for what is not finite: read and written")
def scaler_bytes(gradient_params: Number, gradient_bytes: Number) -> Number:
    """HBM bytes of a loss scaler's pass over the gradients."""
    return 2 * gradient_params * gradient_bytes


def scaler_pass_s(p: Port) -> Number:
    """Seconds of a loss scaler's pass over the gradients that a device holds."""
    held = _held(p, gradient_cuts(p.c, p.choice), "gradient_params")
    moved = scaler_bytes(held, p.s.bytes.gradients)
    rate = p.s.kernels.stream_e_hbm * p.s.stack.memory_scale
    return rename(stream_time(moved, p.s.kernels.hbm_bytes_per_s, rate), "scaler_pass_s")


def loss_scaler(p: Port, flag: Flag | None) -> Cost:
    """The scaler's own pass; in bf16 it falls away, kept it reads a value on the host as well."""
    del flag
    return Cost(scaler_pass_s(p), "a pass over the gradients, read and written, once a step; the "
                "host's reading of its verdict is not in it")  # fmt: skip


@formula(unit="B", source="fp32 weights read, half-precision copies written")
def cast_bytes(params: Number) -> Number:
    """HBM bytes of casting master weights once a step."""
    return (4 + 2) * params


def apex(p: Port, flag: Flag) -> Cost:
    """apex.amp: its scaler's pass over the gradients and its cast of the weights."""
    del flag
    own = _held(p, gradient_cuts(p.c, p.choice), "weight_params")
    rate = p.s.kernels.stream_e_hbm * p.s.stack.memory_scale
    cast = stream_time(cast_bytes(own), p.s.kernels.hbm_bytes_per_s, rate)
    seconds = scaler_pass_s(p) + rename(cast, "weight_cast_s")
    return Cost(seconds, "apex.amp's pass over the gradients and its cast of the weights")


def deepspeed(p: Port, flag: Flag) -> Cost:
    """The update of whole state on every replica, against the plan's share of it."""
    del flag
    c = replace(p.c, dp=p.c.dp * p.c.fsdp, fsdp=1.0)
    whole = optimizer_s(p.s, c, Choice(remat=p.choice.remat), p.counts)
    own = rename(p.target.time["optimizer"], "optimizer_sharded_s")
    return Cost(difference(rename(whole, "optimizer_whole_s"), own),
                "the update of the whole state on every replica against the plan's share of it: "
                "what ZeRO's sharding is worth there")  # fmt: skip


@formula(unit="B", source="optimizer state to the device and back")
def host_state_bytes(params: Number, state_bytes: Number) -> Number:
    """Bytes a step over a device's host link."""
    return 2 * params * state_bytes


@formula(unit="s", source="bytes over the host link")
def host_s(moved_bytes: Number, link_bytes_per_s: Number) -> Number:
    """Seconds over the host link."""
    return moved_bytes / link_bytes_per_s


def cpu_offload(p: Port, flag: Flag) -> Cost:
    """Optimizer state on the host: it crosses the host link both ways every step."""
    del flag
    b = p.s.bytes
    kept = optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param)
    moved = host_state_bytes(_held(p, optimizer_cuts(p.c, p.choice), "params_owned"), kept)
    return Cost(host_s(moved, p.s.host_link_bytes_per_s),
                "optimizer state kept on the host crosses the host link both ways a step; none of "
                "it hidden")  # fmt: skip


@formula(unit="s", source="what compute does not hide of the transfers to the host and back")
def unhidden_s(transfer_s: Number, compute_s: Number) -> Number:
    """Exposed seconds of activations that go to the host."""
    return np.maximum(transfer_s - compute_s, 0)


def activation_offload(p: Port, flag: Flag) -> Cost:
    """The plan's activations to the host and back, behind its own compute."""
    del flag
    t = p.target
    moved = rename(t.memory["activations"] * 2 * p.c.accumulation, "moved_bytes")
    seconds = rename(host_s(moved, p.s.host_link_bytes_per_s), "transfer_s")
    busy = rename(t.time["matmul"] + t.time["attention"] + t.time["memory_bound"], "compute_s")
    return Cost(unhidden_s(seconds, busy), "the plan's activations over the host link both ways, "
                "less what its compute hides")  # fmt: skip


def quantised_weights(p: Port, flag: Flag) -> Cost:
    """The step with base weights in bf16, against as they are stored now."""
    del flag
    wide = p.given(2.0, "B", "bf16_bytes_each", "base weights in bf16")
    bf16 = with_bytes(p, weights=wide, gathered=wide)
    seconds = difference(rename(step_of(bf16), "step_in_bf16_s"),
                         rename(p.target.step_time_s, "step_as_stored_s"))  # fmt: skip
    return Cost(seconds, "the step with base weights gathered in bf16 against as they are stored; "
                "their unpacking on the GPU is not in either")  # fmt: skip


def quantised_optimizer(p: Port, flag: Flag) -> Cost:
    """The step with fp32 moments, against the moments as the job keeps them."""
    del flag
    wide = p.given(4.0, "B", "fp32_bytes_each", "moments in fp32")
    narrow = p.given(1.0, "B", "narrow_bytes_each", "moments in 8 bits")
    seconds = difference(
        rename(step_of(with_bytes(p, moments=wide)), "step_with_fp32_moments_s"),
        rename(step_of(with_bytes(p, moments=narrow)), "step_with_8_bit_moments_s"),
    )
    return Cost(seconds, "the step with fp32 moments against 8-bit ones: their traffic")


@formula(unit="s", source="what is lost for each second of progress at this goodput")
def restart_share(step_time_s: Number, goodput: Number) -> Number:
    """Seconds a step that checkpoints, restarts and failures take."""
    return step_time_s * (1 / goodput - 1)


def fault_tolerance(p: Port, flag: Flag) -> Cost:
    """Replica groups that outlive a failure, against a slice that restarts: the goodput's share."""
    del flag
    goodput = p.given(p.goodput, "1", "goodput", "--goodput, a stated assumption")
    return Cost(restart_share(p.target.step_time_s, goodput), "all that checkpoints and restarts "
                "take at the assumed goodput; --goodput sets it")  # fmt: skip


def cuda_graph(p: Port, flag: Flag) -> Cost:
    """Launches that a graph hides: a compiled step is one program, launched once."""
    del flag
    return unaffected(p, "a compiled step is launched once: its estimate has no launches of ops "
                      "that a graph would hide")  # fmt: skip
