"""One microbatch on the slowest stage of a pipeline: the costs of a cut, put together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.parts import Times, absent, plus
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import held_layers
from chipshift.estimate.work import EndWork, LayerWork, end_work, layer_work
from chipshift.models.model import MoeMlp
from chipshift.models.ops import Cut
from chipshift.parallel import remat
from chipshift.worked import formula, rename

Number = Any


@dataclass(frozen=True)
class Work:
    """The costs that depend on the cut alone: layers by kind, and the ends; a teacher's beside."""

    layers: list[LayerWork]
    ends: EndWork
    tokens: Number
    sp: Number
    teacher: Work | None = None


@formula(unit="tokens", source="microbatch × seq_len / cp")
def device_tokens(microbatch: Number, seq_len: Number, cp: Number) -> Number:
    """Rows of activations on a device in one forward pass."""
    return microbatch * seq_len / cp


def work(s: Setting, tp: Number, cp: Number, ep: Number, etp: Number, microbatch: Number,
         sequence_parallel: bool, ulysses: Number = 1.0) -> Work:  # fmt: skip
    """Op times and stored tensors for distinct cuts."""
    tokens = device_tokens(microbatch, s.seq_len, cp)
    sp = tp if sequence_parallel else 1.0
    imbalance = np.where(ep > 1, s.stack.moe_imbalance, 1.0)
    cut = Cut(tokens, s.document_len, tp, ep, sp, imbalance, etp, ulysses)
    layers = [
        layer_work(layer, s.model.d_model, cut, s.kernels, s.stack, s.trainable, s.adapters)
        for layer, _ in s.model.layers
    ]
    ends = end_work(s.model, cut, s.kernels, s.stack, s.trainable)
    if s.teacher is None:
        return Work(layers, ends, tokens, sp)
    taught = work(s.teacher, tp, cp, ep, etp, microbatch, sequence_parallel, ulysses)
    # the embedding's time is of both directions: a forward pass is half of it
    forward_ends = replace(taught.ends, embedding=taught.ends.embedding.times(0.5))
    return Work(layers, ends, tokens, sp, replace(taught, ends=forward_ends))


@dataclass(frozen=True)
class Stage:
    """What every choice and every order of the same rows have in common.

    Attributes:
        counts: layers of the heaviest stage, by kind.
        last: layers of the last stage, by kind.
        kept: work of the last stage's layers over the heaviest stage's.
        teacher: the same of a distillation's teacher.
    """

    work: Work
    counts: list[Number]
    last: list[Number]
    kept: Number
    teacher: Stage | None = None


def stage(s: Setting, c: Columns, choice: Choice, w: Work) -> Stage:
    """What the stages hold, beside the costs of a cut; remat and sharding do not change it.

    A layout is the student's: the teacher's layers are spread evenly over the same stages.
    """
    held = held_layers(s, c, choice)
    if s.teacher is None or w.teacher is None:
        return Stage(w, held.counts, held.last, held.kept)
    taught = stage(s.teacher, c, replace(choice, stage_layers=()), w.teacher)
    return Stage(w, held.counts, held.last, held.kept, taught)


@dataclass(frozen=True)
class Pass:
    """Times of one microbatch on the slowest stage.

    Attributes:
        forward: passes without gradient (a reference's, a teacher's) among it.
        ops, more_ops: launched by a forward pass, and by those without gradient.
        routed_s: seconds of its layers of routed experts, all their ops; experts_s: of the
            experts' own among them. 0 where there are none.
    """

    forward: Times
    recompute: Times
    input_grad: Times
    weight_grad: Times
    ops: Number
    offload: Number
    routed_s: Number
    experts_s: Number
    more_ops: Number = 0.0

    @property
    def forward_s(self) -> Number:
        return rename(self.forward.total, "microbatch_forward_s")

    @property
    def backward_s(self) -> Number:
        back = self.recompute + self.input_grad + self.weight_grad
        return rename(back.total, "microbatch_backward_s")

    @property
    def compute_s(self) -> Number:
        return rename(self.forward_s + self.backward_s, "microbatch_compute_s")

    @property
    def compute(self) -> Times:
        return self.forward + self.recompute + self.input_grad + self.weight_grad


_DIRECTIONS = ("forward", "recompute", "input_grad", "weight_grad")


def stage_pass(s: Setting, c: Columns, at: Stage, policy: remat.Policy) -> Pass:
    """One microbatch through the slowest stage: its layers, and the head where that is slower."""
    body = _layers_pass(s, at, policy)
    forward, recompute, input_grad, weight_grad = _slowest(s, c, at, body.parts)
    own = Pass(
        forward, recompute, input_grad, weight_grad,
        ops=body.ops,
        offload=body.moved_bytes * 2 / s.host_link_bytes_per_s if policy.offloaded else 0.0,
        routed_s=rename(body.routed_s, "routed_layers_s"),
        experts_s=rename(body.experts_s, "stage_experts_s"),
        more_ops=body.more_ops,
    )  # fmt: skip
    if s.teacher is None or at.teacher is None:
        return own
    taught = stage_pass(s.teacher, c, at.teacher, policy)
    both = own.forward + taught.forward.named("teacher_forward")
    return replace(
        own, forward=both.named("stage_forward"), more_ops=plus(own.more_ops, taught.ops)
    )


@dataclass(frozen=True)
class _Layers:
    """What the layers of the heaviest stage come to in one microbatch.

    Attributes:
        parts: their times in each of ``_DIRECTIONS``.
        moved_bytes: sent to the host by a forward pass, and brought back by the backward pass.
        ops, more_ops, routed_s, experts_s: as in ``Pass``.
    """

    parts: list[Times]
    ops: Number
    more_ops: Number
    moved_bytes: Number
    routed_s: Number
    experts_s: Number


def _layers_pass(s: Setting, at: Stage, policy: remat.Policy) -> _Layers:
    """The layers of the heaviest stage, added up kind by kind."""
    parts = [Times(), Times(), Times(), Times()]
    ops: Number = 0.0
    more: Number = 0.0
    moved: Number = 0.0
    routed: Number = 0.0
    experts: Number = 0.0
    launched = s.stack.ops_per_layer
    if s.adapters:
        launched = launched + s.adapters.launches
    for (layer, _), one, count, kind in zip(
        s.model.layers, at.work.layers, at.counts, s.model.kind_prefixes, strict=True
    ):
        for i, times in enumerate(_layer_times(s, one, policy, kind)):
            whole = times.named(f"{kind}layer_{_DIRECTIONS[i]}").times(count)
            parts[i] = parts[i] + whole
            if isinstance(layer.mlp, MoeMlp):
                routed = plus(routed, whole.total)
        experts = plus(experts, 0.0 if absent(one.experts_s) else one.experts_s * count)
        ops = ops + count * launched
        if not absent(s.policy_forwards):
            more = plus(more, count * launched * s.policy_forwards)
        if not absent(s.reference_forwards):
            more = plus(more, count * s.stack.ops_per_layer * s.reference_forwards)
        for tensor in policy.offloaded:
            moved = moved + one.stored_elements.get(tensor, 0.0) * 2 * count * policy.every
    return _Layers(parts, ops, more, moved, routed, experts)


def _layer_times(s: Setting, one: LayerWork, policy: remat.Policy, kind: str) -> tuple[Times, ...]:
    """Times of one layer in each of ``_DIRECTIONS``, the passes without gradient among them."""
    forward, again = Times(), Times()
    for tensor, times in one.forward.items():
        forward = forward + times
        if policy.recomputes_tensor(tensor):
            again = again + times
    bare = one.bare_forward if s.adapters else forward
    forward = with_forwards(s, forward, bare, f"{kind}layer")
    return forward, again.times(policy.every), one.input_grad, one.weight_grad


def _slowest(s: Setting, c: Columns, at: Stage, parts: list[Times]) -> list[Times]:
    """The heaviest stage's layers, or the last stage's with the head where those take longer."""
    layers = [part.named(f"layers_{name}") for part, name in zip(parts, _DIRECTIONS, strict=True)]
    made, none = at.work.ends, Times()
    head_forward = with_forwards(s, made.head_forward, made.head_forward, "head")
    ends = (head_forward, none, made.head_input_grad, made.head_weight_grad)
    heads = [part.named(f"head_{name}") for part, name in zip(ends, _DIRECTIONS, strict=True)]
    body = rename((layers[0] + layers[1] + layers[2] + layers[3]).total, "layers_s")
    head = rename((heads[0] + heads[2] + heads[3]).total, "head_s")
    last_is_slower = rename(body * at.kept + head > body, "last_stage_is_slower")
    embed = rename(np.where(c.pp > 1, 0.0, 1.0), "embedding_on_stage")
    # its time is of both directions: a forward pass is half of it
    half = made.embedding.times(0.5)
    looked_up = with_forwards(s, made.embedding, half, "embedding", half)
    chosen: list[Times] = []
    for i, (a, b) in enumerate(zip(layers, heads, strict=True)):
        first = looked_up.times(embed) if i == 0 else none
        slowest = [
            x if absent(x) and absent(y) else np.where(last_is_slower, plus(x * at.kept, y), x)
            for x, y in zip(a.parts, b.parts, strict=True)
        ]
        chosen.append((Times(*slowest) + first).named(f"stage_{_DIRECTIONS[i]}"))
    return chosen


def with_forwards(s: Setting, forward: Times, bare: Times, what: str, policy: Times | None = None
                  ) -> Times:  # fmt: skip
    """A forward pass and those without gradient that the loss asks for beside it.

    Args:
        bare: the same pass through the reference, whose adapters are off.
        policy: the same pass through the policy, where ``forward`` is more than that.
    """
    total = forward
    if not absent(s.policy_forwards):
        again = (forward if policy is None else policy).times(s.policy_forwards)
        total = total + again.named(f"{what}_policy_forwards")
    if not absent(s.reference_forwards):
        total = total + bare.times(s.reference_forwards).named(f"{what}_reference_forwards")
    return total


@dataclass(frozen=True)
class Ops:
    """Times that a choice gives a row whatever the order of its axes: a microbatch, optimizer.

    ``teacher`` counts the layers of a distillation's teacher on the heaviest stage, by kind.
    """

    one: Pass
    optimizer: Number
    teacher: list[Number] = field(default_factory=list)
