"""Memory of a device, part by part, on the pipeline stage that holds most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.backward import backward, gathered_at_loss
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.cuts import (
    Params,
    held_cuts,
    one_copy,
    params_of_layers,
    state,
    weight_cuts,
)
from chipshift.estimate.idle import host_s
from chipshift.estimate.planned import (
    PLANNED,
    TOGETHER,
    Moment,
    cast,
    head_held,
    heads_at_loss,
    in_tiles,
    logit_bytes,
    reduced_whole,
)
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, heaviest_kind
from chipshift.estimate.work import Times, absent, plus
from chipshift.models.count import head_params, params_embedding
from chipshift.parallel import memory, schedule
from chipshift.parallel.remat import Policy
from chipshift.worked import plain, rename

Number = Any

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "collectives", "overhead")


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


def _weights(s: Setting, params: Params, cuts: tuple[Number, Number]) -> Number:
    """Bytes of the policy's weights, and of a reference's own, which are cut as they are."""
    own = state("weights", params, s.bytes.weights, cuts)
    if absent(s.bytes.reference):
        return own
    frozen = state("reference", params, s.bytes.reference, cuts)
    return rename(own, "policy_bytes") + rename(frozen, "reference_bytes")


def _stage_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, counts: list[Number],
                 w: Any, *, last: bool, moment: Moment) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the first stage (embedding, most in flight) or the last (head, logits)."""
    stage = f"{moment.name}{'last' if last else 'first'}_stage"
    held_params = _params(s, c, counts, last)
    dense = rename(held_params.dense, f"{stage}_params")
    experts = rename(held_params.experts, f"{stage}_expert_params")
    params = Params(dense, experts, held_params.whole)
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
    alone = float(plain(s.stack.layer_moments)) > 0
    working = backward(s, c, policy, w) if moment.backward and alone else None
    if working:
        stored = stored + rename(working.around + working.feed_forward, "layer_backward_bytes")
    elif moment.backward:
        stored = stored + _working(s, policy, w)
    if moment in PLANNED and moment.loss:
        stream = rename(w.tokens * s.model.d_model / w.sp, "stream_elements")
        beside_logits = memory.working_bytes(0.0, stream, s.stack.streams_at_loss)
        stored = stored + rename(beside_logits, "streams_at_loss_bytes")
        if alone:
            stored = stored + gathered_at_loss(w.tokens, s.model.d_model, w.sp)
    activations = rename(stored, f"{stage}_activations_bytes")
    tokens_logits = w.tokens if last else w.tokens * one_stage
    if not moment.loss:
        tokens_logits = tokens_logits * 0.0
    logits = memory.logits_bytes(
        tokens_logits, s.model.logits, c.tp, logit_bytes(s, c, weights_by[0]), s.loss_chunks
    )
    if not absent(plus(s.policy_forwards, s.reference_forwards)):
        beside = memory.logits_bytes(
            tokens_logits, s.model.logits, c.tp, s.bytes.activations, s.loss_chunks
        )
        logits = rename(logits, "policy_logits_bytes") + rename(beside, "forward_logits_bytes")
    logits = rename(logits, f"{stage}_logits_bytes")
    gathered = _gathered(s, c, *weights_by, moment)
    if moment in PLANNED and moment.backward:
        gathered = gathered + head_held(s, c, weights_by[0], w.tokens)
    if moment in PLANNED and moment.loss:
        gathered = plus(gathered, heads_at_loss(s, c, weights_by[0]))
    if working:
        wide = reduced_whole(s, c, weights_by[0])
        gathered = (
            gathered if absent(wide) else gathered + memory.beyond(wide, working.feed_forward)
        )
    gathered = rename(gathered, f"{moment.name}gathered_bytes")
    groups = sum(np.where(g > 1, 1.0, 0.0) for g in (c.tp, c.cp, c.ep, c.pp, c.dp * c.fsdp))
    live = _live_gradients(s, c, moment)
    each: Number = b.gradients * live
    if working and one_copy(s, choice):  # a microbatch's own are of the bf16 weights it reads
        each = np.where(c.dp > 1, each - (b.gradients - b.gathered), each)
    gradient_bytes = rename(each * s.trainable, "gradient_bytes_per_param")
    context = s.stack.context_bytes + s.stack.workspace_bytes
    context = plus(context, s.stack.pool_bytes)
    if moment in PLANNED:
        read = params if one_copy(s, choice) else params_of_layers(s, c, counts)
        context = context + rename(cast(s, c, read, weights_by), "cast_bytes")
    cuts = held_cuts(s, c, choice)
    summed = _summed(s, c, counts, params, cuts.gradients) if working else params
    gradients = state("gradients", summed, gradient_bytes, cuts.gradients)
    if moment in TOGETHER:
        whole = _made_late(s, c, params, cuts.gradients, activations + logits)
        gradients = plus(gradients, whole)
    held = _beside(s, c, choice, dense / weights_by[0] + experts / weights_by[1], w.tokens)
    stranded = _stranded(s, c, choice, policy, counts, w)
    gathered = plus(gathered, held.wide)
    if not absent(held.flat):
        gathered = gathered + memory.beyond(held.flat, activations + logits)
    parts = {
        "weights": _weights(s, params, cuts.weights),
        "gradients": plus(gradients, held.buckets),
        "optimizer": state("optimizer", params, kept, cuts.optimizer),
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
    for one, count in zip(w.layers, counts, strict=False):
        forward = Times()
        for times in one.forward.values():
            forward = forward + times
        device = plus(device, (forward + one.input_grad + one.weight_grad).total * count)
        launches = launches + s.stack.ops_per_layer * count
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
    params = _params(s, c, counts, last=False)
    by, cuts, b = weight_cuts(c), held_cuts(s, c, choice), s.bytes
    kept = memory.optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable
    gradients = b.gradients * s.trainable
    beside = _beside(s, c, choice, params.dense / by[0] + params.experts / by[1], tokens)
    held = (
        _weights(s, params, cuts.weights)
        + state("gradients", params, gradients, cuts.gradients)
        + state("optimizer", params, kept, cuts.optimizer)
        + s.stack.workspace_bytes
    )
    for more in (beside.buckets, beside.flat, beside.wide):
        held = plus(held, more)
    return rename(held, "update_bytes")


def _last_in_flight(choice: Choice, c: Columns) -> Number:
    """Microbatches the last stage holds: all of them under GPipe, else one."""
    return c.accumulation * 1.0 if choice.schedule == "gpipe" else 1.0


def _params(s: Setting, c: Columns, counts: list[Number], last: bool) -> Params:
    layers = params_of_layers(s, c, counts)
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    head = rename(memory.cut_params(head_params(s.model), c.tp, 1.0), "head_params")
    head = head + s.model.final_norm_params
    if last:
        # a tied head on another stage than the embedding is a copy of it
        ends = head + np.where(c.pp > 1, table if s.model.tied else 0.0, table)
    else:
        ends = table + np.where(c.pp > 1, 0.0, head)
    return Params(layers.dense + ends, layers.experts, layers.whole)


def _summed(s: Setting, c: Columns, counts: list[Number], params: Params,
            cuts: tuple[Number, Number]) -> Params:  # fmt: skip
    """Parameters whose gradients a planned backward pass holds: the layers', in tiles; those of
    the embedding and the head only where microbatches are summed."""
    layers = params_of_layers(s, c, counts)
    tiled = in_tiles(s, layers, cuts)
    ends = np.where(c.accumulation > 1, params.dense - layers.dense, 0.0)
    return Params(tiled.dense + ends, tiled.experts, tiled.whole)


def _live_gradients(s: Setting, c: Columns, moment: Moment) -> Number:
    """Copies of all gradients alive at a moment.

    Sums over several microbatches live all through the step; one microbatch's only at its end.
    """
    if moment in TOGETHER:
        return np.where(c.accumulation > 1, 1.0, s.stack.gradients_at_peak)
    return np.where(c.accumulation > 1, 1.0, 0.0) + moment.backward


def _made_late(s: Setting, c: Columns, params: Params, cuts: tuple[Number, Number],
               freed: Number) -> Number:  # fmt: skip
    """Bytes of gradients beyond the activations that the backward pass frees before they are made.

    Layer by layer one grows as the other shrinks, so that the larger of the two decides. 0.0 where
    gradients stand from the step's start, or where microbatches are summed.
    """
    late = 1 - s.stack.gradients_at_peak
    if float(plain(late)) == 0:
        return 0.0
    whole = state("gradients_made", params, s.bytes.gradients * s.trainable, cuts)
    made = rename(memory.beyond(whole, freed) * late, "gradients_made_late_bytes")
    return np.where(c.accumulation > 1, 0.0, made)


def _working(s: Setting, policy: Policy, w: Any) -> Number:
    """What one layer's backward pass holds beyond the stored activations."""
    heavy = w.layers[heaviest_kind(s)].stored_elements
    whole, kept = kept_elements(heavy, policy)
    again = rename(whole - kept, "recomputed_elements")
    widest = heavy.get("up", heavy["block_input"])
    return memory.working_bytes(again, widest, s.stack.working_layers)


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
