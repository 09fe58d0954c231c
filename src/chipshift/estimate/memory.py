"""Memory of a device, part by part, on the pipeline stage that holds most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.idle import host_s
from chipshift.estimate.passes import launched_ops
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, heaviest_kind, layers_params
from chipshift.estimate.work import Times, absent, plus
from chipshift.models.count import head_params, params_embedding
from chipshift.parallel import memory, schedule
from chipshift.parallel.remat import Policy
from chipshift.worked import plain, rename

Number = Any

WIDE = 64
"""Devices that share a weight from which libtpu moves it by all-reduces (docs/compile.md)."""

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "collectives", "overhead")


def weight_cuts(c: Columns) -> tuple[Number, Number]:
    """Devices that share one copy of a weight, and of an expert's."""
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
class Moment:
    """What is held at one moment of a step: 1 = the loss's, or the layers' backward pass's."""

    name: str
    loss: float
    backward: float


TOGETHER = (Moment("", 1.0, 1.0),)
"""An allocator that keeps what it once took: as if all were held at once."""

PLANNED = (Moment("loss_", 1.0, 0.0), Moment("backward_", 0.0, 1.0))
"""XLA places every buffer before the run: the logits' room is the backward pass's afterwards."""


def memory_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, counts: list[Number],
                 counts_last: list[Number], w: Any) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the stage and at the moment that holds most, and their total.

    The first stage is taken to hold ``counts``, the heaviest stage's layers, by kind.
    """
    moments = PLANNED if float(plain(s.stack.plans_buffers)) else TOGETHER
    most: dict[str, Number] = {}
    for last, held in ((False, counts), (True, counts_last)):
        for moment in moments:
            one = _stage_parts(s, c, choice, policy, held, w, last=last, moment=moment)
            most = _larger(most, one, f"{moment.name}{'last' if last else 'first'}_stage")
    parts = {name: rename(most[name], f"{name}_bytes") for name in PARTS}
    parts["total"] = rename(_total(parts), "memory_bytes")
    return parts


def first_stage_parts(s: Setting, c: Columns, choice: Choice, policy: Policy,
                      counts: list[Number], w: Any) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the first stage, and their total: what the job's first rank reports."""
    moments = PLANNED if float(plain(s.stack.plans_buffers)) else TOGETHER
    most: dict[str, Number] = {}
    for moment in moments:
        one = _stage_parts(s, c, choice, policy, counts, w, last=False, moment=moment)
        most = _larger(most, one, f"{moment.name}first_stage")
    return most | {"total": rename(_total(most), "first_stage_bytes")}


def _larger(most: dict[str, Number], one: dict[str, Number], name: str) -> dict[str, Number]:
    """Whichever of two accounts holds more, part by part."""
    if not most:
        return one
    total_most = rename(_total(most), "most_bytes")
    total_one = rename(_total(one), f"{name}_bytes")
    holds_more = rename(total_most > total_one, f"holds_more_than_{name}")
    return {part: np.where(holds_more, most[part], one[part]) for part in PARTS}


def _total(parts: dict[str, Number]) -> Number:
    whole = parts[PARTS[0]]
    for name in PARTS[1:]:
        whole = whole + parts[name]
    return whole


def _state(what: str, dense: Number, experts: Number, each: Number,
           cuts: tuple[Number, Number]) -> Number:  # fmt: skip
    """Bytes of weights, gradients or moments: of all parameters but experts', and of experts'."""
    shared_by, experts_by = cuts
    own = rename(memory.state_bytes(dense, each, shared_by), f"{what}_outside_experts_bytes")
    return own + rename(memory.state_bytes(experts, each, experts_by), f"{what}_of_experts_bytes")


def _weights(s: Setting, dense: Number, experts: Number, cuts: tuple[Number, Number]) -> Number:
    """Bytes of the policy's weights, and of a reference's own, which are cut as they are."""
    own = _state("weights", dense, experts, s.bytes.weights, cuts)
    if absent(s.bytes.reference):
        return own
    frozen = _state("reference", dense, experts, s.bytes.reference, cuts)
    return rename(own, "policy_bytes") + rename(frozen, "reference_bytes")


def _stage_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, counts: list[Number],
                 w: Any, *, last: bool, moment: Moment) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the first stage (embedding, most in flight) or the last (head, logits)."""
    stage = f"{moment.name}{'last' if last else 'first'}_stage"
    dense, experts = _params(s, c, counts, last)
    dense = rename(dense, f"{stage}_params")
    experts = rename(experts, f"{stage}_expert_params")
    weights_by = weight_cuts(c)
    b = s.bytes
    kept = memory.optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable
    one_stage = np.where(c.pp > 1, 0.0, 1.0)
    flying = (
        np.where(c.pp > 1, _last_in_flight(choice, c), 1.0)
        if last
        else schedule.in_flight(choice.schedule, c.pp, c.vpp, c.accumulation)
    )
    flying = rename(flying, f"{stage}_in_flight")
    stored = stored_bytes(s, policy, counts, w.layers, flying)
    if moment.backward:
        stored = stored + _working(s, policy, w)
    if moment in PLANNED and moment.loss:
        stream = rename(w.tokens * s.model.d_model / w.sp, "stream_elements")
        beside_logits = memory.working_bytes(0.0, stream, s.stack.streams_at_loss)
        stored = stored + rename(beside_logits, "streams_at_loss_bytes")
    activations = rename(stored, f"{stage}_activations_bytes")
    tokens_logits = w.tokens if last else w.tokens * one_stage
    if not moment.loss:
        tokens_logits = tokens_logits * 0.0
    logits = memory.logits_bytes(
        tokens_logits, s.model.logits, c.tp, _logit_bytes(s, c, weights_by[0]), s.loss_chunks
    )
    if not absent(plus(s.policy_forwards, s.reference_forwards)):
        beside = memory.logits_bytes(
            tokens_logits, s.model.logits, c.tp, s.bytes.activations, s.loss_chunks
        )
        logits = rename(logits, "policy_logits_bytes") + rename(beside, "forward_logits_bytes")
    logits = rename(logits, f"{stage}_logits_bytes")
    gathered = _gathered(s, c, *weights_by, moment)
    if moment in PLANNED and moment.backward:
        gathered = gathered + _head_held(s, c, weights_by[0], w.tokens)
    if moment in PLANNED:
        gathered = gathered + _reduced_whole(s, c, weights_by[0], moment)
    gathered = rename(gathered, f"{moment.name}gathered_bytes")
    groups = sum(np.where(g > 1, 1.0, 0.0) for g in (c.tp, c.cp, c.ep, c.pp, c.dp * c.fsdp))
    live = _live_gradients(s, c, moment)
    gradient_bytes = rename(b.gradients * s.trainable * live, "gradient_bytes_per_param")
    context = s.stack.context_bytes + s.stack.workspace_bytes
    context = plus(context, s.stack.pool_bytes)
    if moment in PLANNED:
        context = context + rename(_cast(s, c, counts, weights_by), "cast_bytes")
    gradients = _state("gradients", dense, experts, gradient_bytes, gradient_cuts(c, choice))
    held = _beside(s, c, choice, dense / weights_by[0] + experts / weights_by[1], w.tokens)
    stranded = _stranded(s, c, choice, policy, counts, w)
    gathered = plus(gathered, held.wide)
    if not absent(held.flat):
        gathered = gathered + memory.beyond(held.flat, activations + logits)
    parts = {
        "weights": _weights(s, dense, experts, weights_by),
        "gradients": plus(gradients, held.buckets),
        "optimizer": _state("optimizer", dense, experts, kept, optimizer_cuts(c, choice)),
        "activations": activations,
        "logits": logits,
        "collectives": gathered,
        "overhead": plus(memory.overhead_bytes(
            context, s.stack.comm_buffer_bytes, groups,
            plus(s.stack.fragmentation, s.stack.margin_share),
            activations + logits + gathered,
        ), stranded),
    }  # fmt: skip
    return {name: rename(part, f"{stage}_{name}_bytes") for name, part in parts.items()}


@dataclass(frozen=True)
class _Beside:
    """Bytes of a stage beside state and activations; 0.0 where the stack has no such thing.

    Attributes:
        buckets: that gradients are summed from.
        flat: that updated weights are gathered through, after the activations are gone.
        wide: activations of full width, kept throughout.
    """

    buckets: Number
    flat: Number
    wide: Number


def _beside(s: Setting, c: Columns, choice: Choice, params: Number, tokens: Number) -> _Beside:
    """What stacks of PyTorch's DDP and plain tensor parallelism hold beside."""
    st, trained = s.stack, params * s.trainable
    replicas = memory.gradient_replicas(c.dp, c.fsdp, c.cp)
    buckets: Number = 0.0
    flat: Number = 0.0
    if not absent(st.bucket_copy_bytes):
        buckets = memory.bucket_bytes(trained, st.bucket_copy_bytes, replicas)
    if not absent(st.flat_gather_bytes) and choice.optimizer_sharding != "none":
        flat = memory.flat_gather_bytes(trained, st.flat_gather_bytes, replicas)
    wide: Number = 0.0
    if not absent(st.wide_tensors):
        wide = memory.wide_bytes(tokens, s.model.d_model, st.wide_tensors, c.tp)
    return _Beside(buckets, flat, wide)


def _stranded(s: Setting, c: Columns, choice: Choice, policy: Policy, counts: list[Number],
              w: Any) -> Number:  # fmt: skip
    """Bytes of gathered activations that the allocator may not hand out again yet.

    A collective on a stream of its own reads them: the further the host runs ahead of the device,
    the more of them are asked for before the first is done with.
    """
    if absent(s.stack.stranded_tensors):
        return 0.0
    device: Number = 0.0
    launches: Number = 0.0
    for (layer, _), one, count in zip(s.model.layers, w.layers, counts, strict=False):
        forward = Times()
        for times in one.forward.values():
            forward = forward + times
        device = plus(device, (forward + one.input_grad + one.weight_grad).total * count)
        launches = launches + launched_ops(layer, c.ep, s.stack) * count
    host = host_s(s, c, choice, policy, launches, sum(counts[1:], counts[0]))
    ahead = rename(memory.share_ahead(host, device, c.pp), "share_ahead")
    whole = memory.wide_bytes(w.tokens, s.model.d_model, s.stack.stranded_tensors, c.tp)
    return rename(ahead * whole, "stranded_bytes")


def update_bytes(s: Setting, c: Columns, choice: Choice, counts: list[Number], tokens: Number
                 ) -> Number:  # fmt: skip
    """Bytes allocated on the first stage at the end of the optimizer step, without activations.

    Weights, gradients and optimizer state, the buckets and buffers beside them, the libraries'
    workspace.
    """
    dense, experts = _params(s, c, counts, last=False)
    cuts, b = weight_cuts(c), s.bytes
    kept = memory.optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable
    gradients = b.gradients * s.trainable
    beside = _beside(s, c, choice, dense / cuts[0] + experts / cuts[1], tokens)
    held = (
        _weights(s, dense, experts, cuts)
        + _state("gradients", dense, experts, gradients, gradient_cuts(c, choice))
        + _state("optimizer", dense, experts, kept, optimizer_cuts(c, choice))
        + s.stack.workspace_bytes
    )
    for more in (beside.buckets, beside.flat, beside.wide):
        held = plus(held, more)
    return rename(held, "update_bytes")


def _last_in_flight(choice: Choice, c: Columns) -> Number:
    """Microbatches the last stage holds: all of them under GPipe, else one."""
    return c.accumulation * 1.0 if choice.schedule == "gpipe" else 1.0


def _params(s: Setting, c: Columns, counts: list[Number], last: bool) -> tuple[Number, Number]:
    dense, experts = layers_params(s, c, counts)
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    head = rename(memory.cut_params(head_params(s.model), c.tp, 1.0), "head_params")
    head = head + s.model.final_norm_params
    if last:
        # a tied head on another stage than the embedding is a copy of it
        head = head + np.where(c.pp > 1, table if s.model.tied else 0.0, table)
        return dense + head, experts
    return dense + table + np.where(c.pp > 1, 0.0, head), experts


def _hybrid(c: Columns) -> Number:
    """Whether weights are sharded over fsdp and replicated over dp."""
    return (c.dp > 1) & (c.fsdp > 1)


def _logit_bytes(s: Setting, c: Columns, shards: Number) -> Number:
    """Bytes kept for a logit: fewer where the head's matmul is not windowed, so that XLA makes the
    logits' gradient inside it: under hybrid sharding, over two devices, over many."""
    kept, whole = s.stack.logit_memory_bytes, s.stack.unwindowed_logit_bytes
    if float(plain(whole)) == 0:
        return kept
    both = _hybrid(c)
    unwindowed = both | (shards == 2) | (shards >= WIDE)
    single = np.where(both, s.stack.hybrid_logit_bytes_of_one, kept)
    return np.where(c.microbatch > 1, np.where(unwindowed, whole, kept), single)


def _live_gradients(s: Setting, c: Columns, moment: Moment) -> Number:
    """Copies of all gradients alive at a moment.

    Sums over several microbatches live all through the step; one microbatch's only at its end.
    """
    if moment in TOGETHER:
        return np.where(c.accumulation > 1, 1.0, s.stack.gradients_at_peak)
    return np.where(c.accumulation > 1, 1.0, 0.0) + moment.backward


def _working(s: Setting, policy: Policy, w: Any) -> Number:
    """What one layer's backward pass holds beyond the stored activations."""
    heavy = w.layers[heaviest_kind(s)].stored_elements
    whole, kept = kept_elements(heavy, policy)
    again = rename(whole - kept, "recomputed_elements")
    widest = heavy.get("up", heavy["block_input"])
    return memory.working_bytes(again, widest, s.stack.working_layers)


def _head_held(s: Setting, c: Columns, shards: Number, tokens: Number) -> Number:
    """What the loss leaves to the layers' backward pass: the logits' gradient, from which the
    head's is made at the end, or the logits themselves where that gradient is made inside a matmul;
    of a loss in pieces the gathered head and its gradient."""
    if float(plain(s.loss_chunks)) > 1:
        table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
        whole = memory.gathered_bytes(table, shards, 1.0, s.bytes.gathered, 0.0)
        return rename(2 * whole, "head_and_gradient_bytes")
    each: Number = s.bytes.gathered
    if float(plain(s.stack.hybrid_logit_bytes_held)):
        each = np.where(_hybrid(c), s.stack.hybrid_logit_bytes_held, each)
    logits = memory.logits_bytes(tokens, s.model.logits, c.tp, each, s.loss_chunks)
    return rename(np.where(shards > 1, logits, 0.0), "logits_held_bytes")


def _reduced_whole(s: Setting, c: Columns, shards: Number, moment: Moment) -> Number:
    """Whole arrays more where libtpu sums them by all-reduces: the head's gradient under hybrid
    sharding, and over many devices a gather's zero-padded operand and a layer's gradients."""
    heads, layers = s.stack.hybrid_heads, s.stack.wide_layers
    if moment.loss and float(plain(heads)):
        part = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
        whole = memory.gathered_bytes(part, shards, heads, s.bytes.gathered, 0.0)
        return rename(np.where(_hybrid(c), whole, 0.0), "hybrid_heads_bytes")
    if moment.backward and float(plain(layers)):
        part, _ = device_params(s, c, heaviest_kind(s))
        whole = memory.gathered_bytes(part, shards, layers, s.bytes.gathered, 0.0)
        return rename(np.where(shards >= WIDE, whole, 0.0), "reduced_whole_bytes")
    return 0.0


def _cast(s: Setting, c: Columns, counts: list[Number], cuts: tuple[Number, Number]) -> Number:
    """Bytes of the layers' weights in compute dtype: each device casts its part of all of them
    once, before the loop over layers, where the weights themselves are wider."""
    if float(plain(s.stack.cast_copies)) == 0 or float(s.bytes.weights) <= float(s.bytes.gathered):
        return 0.0
    dense, experts = layers_params(s, c, counts)
    return _state("cast", dense, experts, s.stack.cast_copies * s.bytes.gathered, cuts)


def kept_elements(sizes: dict[str, Number], policy: Policy) -> tuple[Number, Number]:
    """Elements of all of a layer's tensors, and of those that a policy keeps on the device."""
    whole: Number = 0.0
    kept: Number = 0.0
    for tensor, size in sizes.items():
        whole = whole + size
        stays = tensor in policy.saved or tensor == "block_input"
        if stays and tensor not in policy.offloaded:
            kept = kept + size
    return whole, kept


def stored_bytes(s: Setting, policy: Policy, counts: list[Number], layers: Any, flying: Number
                 ) -> Number:  # fmt: skip
    """Activations kept from forward to backward by the layers of a stage."""
    stored: Number = 0.0
    kinds = s.model.kind_prefixes  # name derivations only: the search asks for one kind at a time
    for one, count, kind in zip(layers, counts, kinds, strict=False):
        whole, kept = kept_elements(one.stored_elements, policy)
        mixed = rename(kept * policy.every + whole * (1 - policy.every), "stored_elements")
        held = memory.stored_activation_bytes(mixed, count, flying, activation_scale(s))
        stored = stored + rename(held, f"{kind}layers_stored_bytes")
    return stored


def activation_scale(s: Setting) -> Number:
    """Stored activations over the bf16 tensors that parallel/remat.py names."""
    narrow = s.stack.narrow_activations if float(s.bytes.compute) < 2 else 1.0
    return s.stack.activation_memory_scale * narrow


def _gathered(s: Setting, c: Columns, wd: Number, we: Number, moment: Moment) -> Number:
    """Whole layers that FSDP has gathered, the embedding's table where that is larger."""
    dense, experts = device_params(s, c, heaviest_kind(s))
    b = s.bytes
    held, reduced = s.stack.gathered_layers, b.reduce * s.stack.whole_gradient_layers
    layers = memory.gathered_bytes(dense, wd, held, b.gathered, reduced)
    own = memory.gathered_bytes(experts, we, held, b.gathered, reduced)
    layers = rename(layers, "layers_gathered_bytes") + rename(own, "experts_gathered_bytes")
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    whole = memory.gathered_bytes(table, wd, 1.0, b.gathered, reduced)
    whole = rename(whole, "embedding_gathered_bytes")
    if not moment.backward:
        return whole
    return np.maximum(layers, whole) if moment.loss else layers
