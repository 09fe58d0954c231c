"""Memory of a device, part by part, on the pipeline stage that holds most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.activations import layer_working_bytes, stored_bytes
from chipshift.estimate.backward import Working, backward, gathered_at_loss
from chipshift.estimate.beside import beside, stranded
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.cuts import (
    Params,
    held_cuts,
    one_copy,
    params_of_layers,
    state,
    weight_cuts,
)
from chipshift.estimate.head import (
    first_layer_out,
    head_again,
    head_held,
    heads_at_loss,
    logit_bytes,
)
from chipshift.estimate.parts import absent, plus
from chipshift.estimate.passes import Stage
from chipshift.estimate.planned import (
    PLANNED,
    TOGETHER,
    Moment,
    cast,
    in_tiles,
    inputs_turned,
    layers_gathered,
    reduced_whole,
)
from chipshift.estimate.setting import Setting
from chipshift.models.count import head_params, params_embedding
from chipshift.parallel import memory, schedule
from chipshift.parallel.remat import Policy
from chipshift.worked import plain, rename

Number = Any

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "collectives", "overhead")


def memory_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, at: Stage
                 ) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the stage and at the moment that holds most, and their total.

    The first stage is taken to hold the heaviest stage's layers.
    """
    moments = PLANNED if float(plain(s.stack.plans_buffers)) else TOGETHER
    most: dict[str, Number] = {}
    for last in (False, True):
        for moment in moments:
            one = _stage_parts(s, c, choice, policy, at, last=last, moment=moment)
            most = _larger(most, one, f"{moment.name}{'last' if last else 'first'}_stage")
    parts = {name: rename(most[name], f"{name}_bytes") for name in PARTS}
    parts["total"] = rename(_total(parts), "memory_bytes")
    return parts


def first_stage_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, at: Stage
                      ) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the first stage, and their total: what the job's first rank reports."""
    moments = PLANNED if float(plain(s.stack.plans_buffers)) else TOGETHER
    most: dict[str, Number] = {}
    for moment in moments:
        one = _stage_parts(s, c, choice, policy, at, last=False, moment=moment)
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


def _weights(s: Setting, c: Columns, params: Params, cuts: tuple[Number, Number],
             taught: Params | None, last: bool) -> Number:  # fmt: skip
    """Bytes of the policy's weights, and of a reference's own, which are cut as they are.

    Embedding and head stay in 16 bits where the other weights are kept in 8.

    A teacher's have the dtype of the student's; no optimizer shards them further.
    """
    own = state("weights", params, s.bytes.weights, cuts)
    if not absent(s.bytes.tables):
        more = s.bytes.tables - s.bytes.weights
        wider = memory.state_bytes(_ends(s, c, last), more, cuts[0])
        own = rename(own, "as_if_all_narrow_bytes") + rename(wider, "wide_tables_bytes")
    if taught is not None:
        frozen = state("teacher", taught, s.bytes.weights, weight_cuts(c))
        own = rename(own, "student_bytes") + rename(frozen, "teacher_bytes")
    if absent(s.bytes.reference):
        return own
    frozen = state("reference", params, s.bytes.reference, cuts)
    return rename(own, "policy_bytes") + rename(frozen, "reference_bytes")


@dataclass(frozen=True)
class _Place:
    """One stage at one moment, and what of it the parts share.

    Attributes:
        name: of both, in a derivation.
        last: the last stage (head, logits), not the first (embedding, most in flight).
        counts: its layers, by kind.
        params: of a device, before they are cut over its replicas; ``taught``: a teacher's.
        working: one layer's backward pass, where it is counted moment by moment.
    """

    name: str
    last: bool
    moment: Moment
    counts: list[Number]
    params: Params
    taught: Params | None
    working: Working | None

    @property
    def planned(self) -> bool:
        return self.moment in PLANNED


def _stage_parts(s: Setting, c: Columns, choice: Choice, policy: Policy, stage: Stage, *,
                 last: bool, moment: Moment) -> dict[str, Number]:  # fmt: skip
    """Bytes by part on the first stage or on the last."""
    at, w = _place(s, c, policy, stage, last, moment), stage.work
    by, cuts = weight_cuts(c), held_cuts(s, c, choice)
    activations = _activations(s, c, choice, policy, w, at)
    logits = _logits(s, c, choice, w.tokens, at)
    gathered = _whole(s, c, choice, w.tokens, at)
    sharded = at.params.dense / by[0] + at.params.experts / by[1]
    held = beside(s, c, choice, sharded, w.tokens)
    gathered = plus(gathered, held.wide)
    if not absent(held.flat):
        gathered = gathered + memory.beyond(held.flat, activations + logits)
    gradients = _gradients(s, c, choice, at, activations + logits)
    parts = {
        "weights": _weights(s, c, at.params, cuts.weights, at.taught, at.last),
        "gradients": plus(gradients, held.buckets),
        "optimizer": state("optimizer", at.params, optimizer_each(s), cuts.optimizer),
        "activations": activations,
        "logits": logits,
        "collectives": gathered,
        "overhead": plus(
            _overhead(s, c, choice, at, activations + logits + gathered),
            stranded(s, c, choice, policy, at.counts, w),
        ),
    }
    if at.planned and moment.loss:
        again = head_again(s, c, by[0], one_copy(s, choice), _total(parts))
        parts["collectives"] = plus(gathered, again)
    return {name: rename(part, f"{at.name}_{name}_bytes") for name, part in parts.items()}


def _place(s: Setting, c: Columns, policy: Policy, stage: Stage, last: bool, moment: Moment
           ) -> _Place:  # fmt: skip
    counts = stage.last if last else stage.counts
    name = f"{moment.name}{'last' if last else 'first'}_stage"
    held = _params(s, c, counts, last)
    dense = rename(held.dense, f"{name}_params")
    experts = rename(held.experts, f"{name}_expert_params")
    alone = moment.backward and float(plain(s.stack.layer_moments)) > 0
    working = backward(s, c, policy, stage.work) if alone else None
    params = Params(dense, experts, held.whole)
    return _Place(name, last, moment, counts, params, _taught(s, c, stage, last), working)


def _taught(s: Setting, c: Columns, stage: Stage, last: bool) -> Params | None:
    """Parameters of a distillation's teacher on the stage; None without one."""
    if s.teacher is None or stage.teacher is None:
        return None
    return _params(s.teacher, c, stage.teacher.last if last else stage.teacher.counts, last)


def _activations(s: Setting, c: Columns, choice: Choice, policy: Policy, w: Any, at: _Place
                 ) -> Number:  # fmt: skip
    """What is stored between the passes, and what the moment's own pass works on."""
    flying = (
        np.where(c.pp > 1, _last_in_flight(choice, c), 1.0)
        if at.last
        else schedule.in_flight(choice.schedule, c.pp, c.vpp, c.accumulation)
    )
    flying = rename(flying, f"{at.name}_in_flight")
    stored = stored_bytes(s, policy, at.counts, w.layers, flying)
    if at.working:
        own = rename(at.working.around + at.working.feed_forward, "layer_backward_bytes")
        stored = stored + own
        stored = plus(stored, _turned(s, c, choice, w.tokens, at))
    elif at.moment.backward:
        stored = stored + layer_working_bytes(s, policy, w)
    if at.planned and at.moment.loss:
        stream = rename(w.tokens * s.model.d_model / w.sp, "stream_elements")
        beside_logits = memory.working_bytes(0.0, stream, s.stack.streams_at_loss)
        stored = stored + rename(beside_logits, "streams_at_loss_bytes")
        if float(plain(s.stack.layer_moments)) > 0:
            stored = stored + gathered_at_loss(w.tokens, s.model.d_model, w.sp)
        out = first_layer_out(s, c, w.tokens)
        if not absent(out):
            stored = stored + rename(backward(s, c, policy, w).around * out, "first_layer_bytes")
    return rename(stored, f"{at.name}_activations_bytes")


def _turned(s: Setting, c: Columns, choice: Choice, tokens: Number, at: _Place) -> Number:
    """Bytes more where the layers' inputs are turned. XLA then takes the first layer's backward
    pass out of the loop: beside what the loss leaves, and before the other layers' gradients are
    made, of which over several microbatches only the sums stand then."""
    turned = inputs_turned(s, c, tokens * s.model.d_model, at.counts)
    if absent(turned):
        return 0.0
    each = _own_gradient_bytes(s, c, choice)
    made = state("gradients_made", at.params, each, held_cuts(s, c, choice).gradients)
    left = head_held(s, c, weight_cuts(c)[0], tokens, one_copy(s, choice))
    apart = np.where(c.accumulation > 1, made, np.minimum(made, left))
    return rename(np.where(turned > 0, turned - apart, 0.0), "inputs_turned_bytes")


def _own_gradient_bytes(s: Setting, c: Columns, choice: Choice) -> Number:
    """Bytes a parameter of one microbatch's gradients: with one fp32 copy of the weights, those of
    the bf16 ones that it reads."""
    b = s.bytes
    own = np.where(c.dp > 1, b.gathered, b.gradients) if one_copy(s, choice) else b.gradients
    return own * s.trainable


def _logits(s: Setting, c: Columns, choice: Choice, tokens: Number, at: _Place) -> Number:
    """The head's outputs and their gradient, and those of one pass without gradient beside."""
    if not at.last:
        tokens = tokens * np.where(c.pp > 1, 0.0, 1.0)
    if not at.moment.loss:
        tokens = tokens * 0.0
    each = logit_bytes(s, c, weight_cuts(c)[0], one_copy(s, choice))
    logits = memory.logits_bytes(tokens, s.model.logits, c.tp, each, s.loss_chunks)
    if not absent(plus(s.policy_forwards, s.reference_forwards)):
        own = memory.logits_bytes(tokens, s.model.logits, c.tp, s.bytes.activations, s.loss_chunks)
        logits = rename(logits, "policy_logits_bytes") + rename(own, "forward_logits_bytes")
    if s.teacher is not None:
        own = memory.logits_bytes(
            tokens, s.teacher.model.logits, c.tp, s.bytes.activations, s.loss_chunks
        )
        logits = rename(logits, "student_logits_bytes") + rename(own, "teacher_logits_bytes")
    return rename(logits, f"{at.name}_logits_bytes")


def _whole(s: Setting, c: Columns, choice: Choice, tokens: Number, at: _Place) -> Number:
    """Weights that are gathered from their shards, and gradients that are still whole."""
    by, moment = weight_cuts(c), at.moment
    gathered = _gathered(s, c, *by, moment)
    if at.planned and moment.backward:
        gathered = gathered + head_held(s, c, by[0], tokens, one_copy(s, choice))
    if at.planned and moment.loss:
        gathered = plus(gathered, heads_at_loss(s, c, by[0], tokens, one_copy(s, choice)))
        out = first_layer_out(s, c, tokens)
        if not absent(out):
            layer = rename(layers_gathered(s, c, *by), "first_layer_gathered_bytes")
            gathered = gathered + layer * out
    if at.working:
        wide = reduced_whole(s, c, by[0])
        if not absent(wide):
            gathered = gathered + memory.beyond(wide, at.working.feed_forward)
    return rename(gathered, f"{moment.name}gathered_bytes")


def _gradients(s: Setting, c: Columns, choice: Choice, at: _Place, freed: Number) -> Number:
    """Gradients alive at the moment; ``freed``: bytes that a late backward pass frees first."""
    b, params = s.bytes, at.params
    each: Number = b.gradients * _live_gradients(s, c, at.moment)
    if at.working and one_copy(s, choice):  # a microbatch's own are of the bf16 weights it reads
        each = np.where(c.dp > 1, each - (b.gradients - b.gathered), each)
    each = rename(each * s.trainable, "gradient_bytes_per_param")
    cuts = held_cuts(s, c, choice).gradients
    summed = _summed(s, c, at.counts, params, cuts) if at.working else params
    gradients = state("gradients", summed, each, cuts)
    if at.planned:
        return gradients
    return plus(gradients, _made_late(s, c, params, cuts, freed))


def _overhead(s: Setting, c: Columns, choice: Choice, at: _Place, moving: Number) -> Number:
    """The context, buffers of the groups, and what the allocator loses of ``moving`` bytes."""
    groups = sum(np.where(g > 1, 1.0, 0.0) for g in (c.tp, c.cp, c.ep, c.pp, c.dp * c.fsdp))
    context = s.stack.context_bytes + s.stack.workspace_bytes
    context = plus(context, s.stack.pool_bytes)
    if at.planned:
        read = at.params if one_copy(s, choice) else params_of_layers(s, c, at.counts)
        context = context + rename(cast(s, c, read, weight_cuts(c)), "cast_bytes")
    lost = plus(s.stack.fragmentation, s.stack.margin_share)
    return memory.overhead_bytes(context, s.stack.comm_buffer_bytes, groups, lost, moving)


def optimizer_each(s: Setting) -> Number:
    """Bytes of optimizer state a parameter: the master copy and the moments of what is trained."""
    b = s.bytes
    return memory.optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable


def update_bytes(s: Setting, c: Columns, choice: Choice, stage: Stage) -> Number:
    """Bytes allocated on the first stage at the end of the optimizer step, without activations.

    Weights, gradients and optimizer state, the buckets and buffers beside them, the libraries'
    workspace.
    """
    params, tokens = _params(s, c, stage.counts, last=False), stage.work.tokens
    by, cuts, b = weight_cuts(c), held_cuts(s, c, choice), s.bytes
    gradients = b.gradients * s.trainable
    around = beside(s, c, choice, params.dense / by[0] + params.experts / by[1], tokens)
    held = (
        _weights(s, c, params, cuts.weights, _taught(s, c, stage, last=False), last=False)
        + state("gradients", params, gradients, cuts.gradients)
        + state("optimizer", params, optimizer_each(s), cuts.optimizer)
        + s.stack.workspace_bytes
    )
    for more in (around.buckets, around.flat, around.wide):
        held = plus(held, more)
    return rename(held, "update_bytes")


def _last_in_flight(choice: Choice, c: Columns) -> Number:
    """Microbatches the last stage holds: all of them under GPipe, else one."""
    return c.accumulation * 1.0 if choice.schedule == "gpipe" else 1.0


def _params(s: Setting, c: Columns, counts: list[Number], last: bool) -> Params:
    layers = params_of_layers(s, c, counts)
    return Params(layers.dense + _ends(s, c, last), layers.experts, layers.whole)


def _ends(s: Setting, c: Columns, last: bool) -> Number:
    """Parameters of embedding and head on the first stage or on the last."""
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    head = rename(memory.cut_params(head_params(s.model), c.tp, 1.0), "head_params")
    head = head + s.model.final_norm_params
    if last:
        # a tied head on another stage than the embedding is a copy of it
        return head + np.where(c.pp > 1, table if s.model.tied else 0.0, table)
    return table + np.where(c.pp > 1, 0.0, head)


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


def _gathered(s: Setting, c: Columns, wd: Number, we: Number, moment: Moment) -> Number:
    """Whole layers that FSDP has gathered, the embedding's table where that is larger."""
    b = s.bytes
    layers = layers_gathered(s, c, wd, we)
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    # no embedding is gathered in fewer than 16 bits
    each = b.gathered if float(plain(b.gathered)) >= 2 else 2.0
    reduced = b.reduce * s.stack.whole_gradient_layers
    whole = memory.gathered_bytes(table, wd, 1.0, each, reduced)
    whole = rename(whole, "embedding_gathered_bytes")
    if not moment.backward:
        return whole
    return np.maximum(layers, whole) if moment.loss else layers
