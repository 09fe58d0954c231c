"""Seconds a step of the collectives on each axis, whole and exposed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.cuts import one_copy
from chipshift.estimate.parts import absent, plus
from chipshift.estimate.passes import Ops, Pass, Stage
from chipshift.estimate.sent_whole import optimizer_scatters_whole
from chipshift.estimate.setting import Setting
from chipshift.estimate.stack import Stack
from chipshift.estimate.stage import stage_params
from chipshift.estimate.traffic import (
    LayerTraffic,
    exposed_behind,
    exposed_beside,
    exposed_beyond,
    exposed_share,
    gradient_sum_s,
    layer_traffic,
)
from chipshift.fabric import Links, collective_time
from chipshift.parallel import remat
from chipshift.parallel.traffic import pipeline_bytes
from chipshift.worked import formula, plain, rename

Number = Any

AXES = ("tp", "cp", "ep", "fsdp", "dp", "pp")


@dataclass(frozen=True)
class Traffic:
    """Times of the collectives that no categorical choice changes; they go by the order.

    Attributes:
        comm: collectives of one layer, by kind.
        gradient_sum, transfer: seconds of the gradient sum over dp, and of one pipeline transfer.
        pp_nodes: hosts or slices that a pipeline spans.
        teacher: the same of a distillation's teacher, which sums no gradients.
    """

    comm: list[LayerTraffic]
    gradient_sum: Number
    transfer: Number
    pp_nodes: Number
    teacher: Traffic | None = None


def traffic(s: Setting, c: Columns, choice: Choice, at: Stage) -> Traffic:
    """Times of the collectives of a plan, from the links of its groups."""
    dense, experts = stage_params(s, c, at.counts)
    w = at.work
    return Traffic(
        comm=[layer_traffic(s, c, choice.sequence_parallel, choice.cp_kind, i, w.tokens, w.sp)
              for i in range(len(at.counts))],
        gradient_sum=gradient_sum_s(s, c, dense, experts),
        transfer=pipeline_s(s, w.tokens, w.sp, c.links["pp"]),
        pp_nodes=c.links["pp"].n_out,
        teacher=None if s.teacher is None or at.teacher is None
        else traffic(s.teacher, c, choice, at.teacher),
    )  # fmt: skip


def forwards_beside(s: Setting) -> Number:
    """Forward passes without gradient for each with one: of the policy, of a reference."""
    return plus(s.policy_forwards, s.reference_forwards)


def step_collectives(s: Setting, c: Columns, choice: Choice, policy: remat.Policy,
                     counts: list[Number], moved: Traffic, made: Ops,
                     ) -> tuple[dict[str, Number], dict[str, Number]]:  # fmt: skip
    """Seconds a step of collectives by axis, whole and exposed."""
    st, n, beside, one = s.stack, c.accumulation, forwards_beside(s), made.one
    own, taught = _layers(s, policy, counts, moved, beside), _taught(moved.teacher, made.teacher)
    tp, cp, ep = plus(own.tp, taught.tp), plus(own.cp, taught.cp), plus(own.ep, taught.ep)
    dealt = plus(own.dealt, taught.dealt)
    again = np.where(st.gather_each_microbatch > 0, n, 1.0)
    gather = rename(own.gather, "layers_gather_s")
    reduce = rename(own.reduce, "layers_reduce_s")
    forward_gathers = gather if absent(beside) else gather * (1 + beside)
    forward_gathers = plus(forward_gathers, taught.gather)
    hidden_gather = rename(
        exposed_behind(forward_gathers, one.forward_s, st.fsdp_overlap, st.comm_tax),
        "exposed_in_forward_s",
    )
    hidden_back = rename(
        exposed_behind(gather + reduce, one.backward_s, st.fsdp_overlap, st.comm_tax),
        "exposed_in_backward_s",
    )
    dp, dp_exposed = _over_replicas(s, c, choice, moved.gradient_sum, one)
    pp = plus(moved.transfer * plus(2, beside), taught.transfer) * n * c.vpp
    dealt = rename(dealt, "heads_dealt_s")
    total = {"tp": (tp + own.tp_back) * n, "cp": plus(cp, dealt) * n, "ep": ep * n,
             "fsdp": plus(gather * plus(2, beside) + reduce, taught.gather) * again,
             "dp": dp, "pp": pp}  # fmt: skip
    attention = one.compute.attention
    exposed = {
        "tp": rename(_tensor_exposed(st, tp, own.tp_back, one), "exposed_a_microbatch_s") * n,
        # attention waits for its heads, and what reads its output for the rest of them
        "cp": plus(exposed_behind(cp, attention, st.cp_overlap, st.comm_tax), dealt) * n,
        "ep": rename(_exchange_exposed(s, c, ep, one), "exposed_a_microbatch_s") * n,
        "fsdp": (hidden_gather + hidden_back) * again + moved.comm[0].gather,
        "dp": dp_exposed,
        "pp": exposed_share(pp, st.pp_overlap),
    }
    name = "collectives_{}_s"
    return (
        {axis: rename(v, name.format("total_" + axis)) for axis, v in total.items()},
        {axis: rename(v, name.format("exposed_" + axis)) for axis, v in exposed.items()},
    )


@dataclass(frozen=True)
class _Layers:
    """Seconds a microbatch of the collectives of the layers, by what they serve.

    Attributes:
        tp, tp_back: tensor parallelism's, forward and backward.
        dealt: all-to-alls of heads, which attention waits for. ep: the experts' all-to-alls.
        gather, reduce: weights gathered once, gradients scattered once.
    """

    tp: Number
    tp_back: Number
    cp: Number
    dealt: Number
    ep: Number
    gather: Number
    reduce: Number


def _layers(s: Setting, policy: remat.Policy, counts: list[Number], moved: Traffic,
            beside: Number) -> _Layers:  # fmt: skip
    """What the layers send, added up kind by kind."""
    ep_again = 2.0 if policy.recomputes("experts_up") else 0.0
    # of a pair the gather alone; both halves move the same
    regathers = 0.0 if absent(s.stack.tp_regathers) else s.stack.tp_regathers / 2
    cp_again = 1.0 if policy.recomputes("attention") else 0.0
    tp: Number = 0.0
    tp_back: Number = 0.0
    cp: Number = 0.0
    dealt: Number = 0.0
    ep: Number = 0.0
    gather: Number = 0.0
    reduce: Number = 0.0
    for k, t, (layer, _) in zip(counts, moved.comm, s.model.layers, strict=True):
        tp_again = tensor_pairs_again(s.stack, policy, layer.side_by_side)
        pairs = plus(tp_again * policy.every, regathers)
        tp = tp + k * t.tp_forward
        tp_back = tp_back + k * (t.tp_backward + t.tp_recompute * pairs)
        cp = cp + k * (t.cp_forward * (1 + cp_again * policy.every) + t.cp_backward)
        if not absent(t.heads_in):
            dealt = dealt + k * _dealt_heads_s(t, policy, beside)
        ep = ep + k * t.ep_each * (4 + ep_again * policy.every)
        if not absent(beside):
            tp, cp = tp + k * t.tp_forward * beside, cp + k * t.cp_forward * beside
            ep = ep + k * t.ep_each * 2 * beside
        gather = gather + k * t.gather
        reduce = reduce + k * t.reduce
    return _Layers(tp, tp_back, cp, dealt, ep, gather, reduce)


@dataclass(frozen=True)
class _Taught:
    """Seconds a microbatch of the collectives of a teacher's forward pass; 0.0 without one."""

    tp: Number = 0.0
    cp: Number = 0.0
    dealt: Number = 0.0
    ep: Number = 0.0
    gather: Number = 0.0
    transfer: Number = 0.0


def _taught(moved: Traffic | None, counts: list[Number]) -> _Taught:
    """What a distillation's teacher sends: each layer's forward pass, and its weights' gather."""
    if moved is None:
        return _Taught()
    found = _Taught(transfer=moved.transfer)
    for k, t in zip(counts, moved.comm, strict=True):
        found = replace(
            found,
            tp=plus(found.tp, k * t.tp_forward),
            cp=plus(found.cp, k * t.cp_forward),
            dealt=found.dealt
            if absent(t.heads_in)
            else plus(found.dealt, k * (t.heads_in + t.heads_out)),
            ep=plus(found.ep, k * t.ep_each * 2),
            gather=plus(found.gather, k * t.gather),
        )
    return replace(found, gather=rename(found.gather, "teacher_gather_s"))


def _dealt_heads_s(t: LayerTraffic, policy: remat.Policy, beside: Number) -> Number:
    """Seconds a microbatch of a layer's all-to-alls of heads: forward, backward, and again.

    Attention that runs again deals its inputs and its output out again; where its output is kept
    but not its inputs, those alone.
    """
    both = rename(t.heads_in + t.heads_out, "heads_forward_s")
    passes: Number = plus(2.0, beside)
    if policy.recomputes_tensor("attention"):
        return both * plus(passes, policy.every)
    if policy.recomputes_tensor("qkv"):
        return both * passes + t.heads_in * policy.every
    return both * passes


def _tensor_exposed(stack: Stack, forward_s: Number, backward_s: Number, one: Pass) -> Number:
    """Exposed seconds a microbatch of tensor parallelism's collectives.

    In the backward pass what a collective brings is read by the input gradients; a layer's weight
    gradients and the recomputation of its activations need not wait for it.
    """
    if absent(stack.tp_behind_gradients):
        return exposed_share(forward_s + backward_s, stack.tp_overlap)
    beside = (one.recompute + one.weight_grad).total * stack.tp_behind_gradients
    return exposed_share(forward_s, stack.tp_overlap) + exposed_beyond(
        backward_s, stack.tp_overlap, rename(beside, "waits_for_no_collective_s")
    )


def _exchange_exposed(s: Setting, c: Columns, ep_s: Number, one: Pass) -> Number:
    """Exposed seconds a microbatch of the expert all-to-alls."""
    if absent(ep_s):
        return ep_s
    st = s.stack
    share = expert_overlap(st.ep_overlap, st.ep_overlap_interleaved, c.vpp)
    return exposed_beside(ep_s, share, beside_exchange(one.experts_s, one.routed_s, c.vpp))


def tensor_pairs_again(stack: Stack, policy: remat.Policy, side_by_side: bool = False) -> float:
    """Pairs of tensor parallelism that a layer's rematerialisation adds.

    Each map that runs again gathers its input; where one program holds both passes
    (``regathers_once``) that gather is the one that the map's weight gradient needs anyway, and
    the scatter behind attention alone is added: nothing reads what the feed-forward's would make,
    nor attention's where the two stand side by side.
    """
    if float(plain(stack.regathers_once)):
        return 0.5 * float(policy.recomputes("out_proj", side_by_side))
    return float(policy.recomputes("qkv_proj")) + float(policy.recomputes("mlp_up"))


def _over_replicas(s: Setting, c: Columns, choice: Choice, sum_s: Number, one: Pass
                   ) -> tuple[Number, Number]:  # fmt: skip
    """Seconds a step of what replicas exchange, whole and exposed: gradients, updated weights."""
    st, n, dp = s.stack, c.accumulation, sum_s
    if not absent(st.sums_each_microbatch):
        return _over_replicas_each(s, c, choice, sum_s, one)
    if choice.optimizer_sharding == "zero2":
        # gradients live in shards: every microbatch scatters its own, weights are gathered once
        dp = dp / 2 * (1 + n)
    after_s = rename(hiding_time(one.backward_s, c.pp, c.vpp, n), "hiding_backward_s")
    if choice.optimizer_sharding == "none":
        return dp, exposed_behind(dp, after_s, st.dp_overlap, st.comm_tax)
    if float(plain(st.whole_reduction)):
        summed = exposed_behind(dp, after_s, st.dp_overlap, st.comm_tax)
        gathered = rename(gathered_after(dp, s.bytes.weights, s.bytes.reduce), "weight_gather_s")
        return dp + gathered, rename(summed, "exposed_sum_s") + gathered
    before_s = rename(hiding_time(one.forward_s, c.pp, c.vpp, n), "hiding_forward_s")
    half = rename(dp / 2, "gradient_scatter_s")
    scatter = exposed_behind(half, after_s, st.dp_overlap, st.comm_tax)
    moved = rename(half, "weight_gather_s")
    if not absent(s.bytes.tables):
        moved = rename(narrow_gather(half, s.bytes.gathered), "narrow_weight_gather_s")
        dp = dp - half + moved
    gathers = exposed_behind(moved, before_s, st.dp_overlap, st.comm_tax)
    return dp, rename(scatter, "exposed_scatter_s") + rename(gathers, "exposed_gather_s")


def _over_replicas_each(s: Setting, c: Columns, choice: Choice, sum_s: Number, one: Pass
                        ) -> tuple[Number, Number]:  # fmt: skip
    """The same of a program that sums each microbatch's gradients behind its backward pass.

    Without sharding, or where the sums over microbatches are whole on every replica, all-reduced;
    where they follow the optimizer's parts (the compiled step), scattered.
    """
    st, n = s.stack, c.accumulation
    after_s = rename(hiding_time(one.backward_s, c.pp, c.vpp, n), "hiding_backward_s")
    half = rename(sum_s / 2, "half_sum_s")
    moved = sum_s
    if choice.optimizer_sharding != "none":
        parts = choice.optimizer_sharding == "zero2" or one_copy(s, choice)
        moved = half if parts else np.where(n > 1, sum_s, half)
        if parts and one_copy(s, choice):
            whole = optimizer_scatters_whole(s, c)
            moved = half if absent(whole) else np.where(whole > 0, sum_s, half)
    each = rename(moved, "gradients_each_microbatch_s")
    exposed = exposed_behind(each, after_s, st.dp_overlap, st.comm_tax)
    total, exposed = each * n, rename(exposed, "exposed_each_microbatch_s") * n
    if choice.optimizer_sharding == "none":
        return total, exposed
    before_s = rename(hiding_time(one.forward_s, c.pp, c.vpp, n), "hiding_forward_s")
    gather = rename(half, "weight_gather_s")
    if not absent(s.bytes.tables):
        gather = rename(narrow_gather(half, s.bytes.gathered), "narrow_weight_gather_s")
    hidden = exposed_behind(gather, before_s, st.dp_overlap, st.comm_tax)
    return total + gather, exposed + rename(hidden, "exposed_gather_s")


@formula(unit="s", source="an all-gather moves half of what an all-reduce does, in its own dtype")
def gathered_after(all_reduce_s: Number, weight_bytes: Number, reduce_bytes: Number) -> Number:
    """Seconds to gather updated weights, from those of the sum of their gradients."""
    return all_reduce_s / 2 * weight_bytes / reduce_bytes


@formula(unit="s", source="weights kept in 8 bits are gathered so; a gather is timed for bf16")
def narrow_gather(gather_s: Number, weight_bytes: Number) -> Number:
    """Seconds to gather updated weights of fewer bytes, from those of bf16 ones."""
    return gather_s * weight_bytes / 2


@formula(unit="s", source="virtual stages: the first and last pp microbatches go chunk by chunk")
def hiding_time(compute_s: Number, pp: Number, vpp: Number, microbatches: Number) -> Number:
    """Compute that can hide the gradient sum: of one microbatch, or of a round of virtual stages.

    A stage's chunk is through with its last microbatch while the other chunks still have a round
    of pp microbatches before them.
    """
    return compute_s * np.where(vpp > 1, np.minimum(pp, microbatches), 1.0)


@formula(unit="1", source="virtual stages give the all-to-all another microbatch to hide behind")
def expert_overlap(plain_share: Number, interleaved_share: Number, vpp: Number) -> Number:
    """Share of the expert all-to-all that the stack hides."""
    return np.where(vpp > 1, np.maximum(plain_share, interleaved_share), plain_share)


@formula(
    unit="s",
    source="virtual stages interleave two microbatches' layers (Megatron's 1F1B "
    "overlap of expert communication); else a layer's own experts alone run beside it",
)
def beside_exchange(experts_s: Number, routed_layers_s: Number, vpp: Number) -> Number:
    """Compute of a microbatch that stands beside its expert all-to-alls."""
    return np.where(vpp > 1, routed_layers_s, experts_s)


def pipeline_s(s: Setting, tokens: Number, sp: Number, links: Links) -> Number:
    """Seconds of one transfer of a microbatch's activations to the next stage."""
    v = pipeline_bytes(tokens, s.model.d_model, s.bytes.activations, sp)
    return collective_time("permute", v, links)
