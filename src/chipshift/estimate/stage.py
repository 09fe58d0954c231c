"""How many layers of each kind the slowest and fullest pipeline stage holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.setting import Setting
from chipshift.models.count import layer_params, params_embedding
from chipshift.models.ops import Cut, layer_ops
from chipshift.parallel import memory
from chipshift.parallel.schedule import (
    balanced_last_layers,
    balanced_layers_per_stage,
    layers_per_stage,
    spare_places,
    stages_in_effect,
)
from chipshift.worked import Worked, formula, leaf, plain, rename

Number = Any


@dataclass(frozen=True)
class Held:
    """What the stages of a pipeline hold.

    Attributes:
        on_stage: layers of the heaviest stage.
        counts: its layers by kind, in the order of ``model.layers``.
        last: those of the last stage, which also has the head.
        kept: work of the last stage's layers over the heaviest stage's.
    """

    on_stage: Number
    counts: list[Number]
    last: list[Number]
    kept: Number


def held_layers(s: Setting, c: Columns, choice: Choice) -> Held:
    """The stages as the plan lays them out, or spread evenly where it does not say."""
    if choice.stage_layers:
        return _laid_out(s, int(plain(c.pp)), choice.stage_layers)
    on_stage, counts = stage_layers(s, c.pp, c.vpp)
    if balanced(s):
        share = rename(_last_share(s, c.pp, on_stage), "last_stage_layers_share")
        return Held(on_stage, counts, [n * share for n in counts], share)
    spare = np.where(c.pp > 1, spare_places(s.model.n_layers * 1.0, c.pp, c.vpp), 0.0)
    return Held(on_stage, counts, counts, rename(1 - spare / on_stage, "last_stage_layers_share"))


def _laid_out(s: Setting, pp: int, chunks: tuple[int, ...]) -> Held:
    """Stages of the given chunks; the heaviest is the one of most forward FLOPs."""
    kinds = len(s.model.layers)
    stages = [[0.0] * kinds for _ in range(pp)]
    at = 0
    for number, size in enumerate(chunks):
        for kind in s.model.layer_order[at : at + size]:
            stages[number % pp][kind] += 1.0
        at += size
    cut = Cut(1.0, float(plain(s.document_len)))
    costs = [
        sum(float(plain(op.flops)) for op in layer_ops(layer, s.model.d_model, cut))
        for layer, _ in s.model.layers
    ]
    work = [sum(n * cost for n, cost in zip(one, costs, strict=True)) for one in stages]
    heaviest = max(range(pp), key=work.__getitem__)
    share: Number = work[-1] / work[heaviest] if work[heaviest] else 1.0
    held, last = list(stages[heaviest]), list(stages[-1])
    if isinstance(s.seq_len, Worked):
        held, last = _laid_out_leaves(s, held, heaviest), _laid_out_leaves(s, last, pp - 1)
        share = leaf(share, "1", "last_stage_layers_share", "forward FLOPs of the last stage's "
                     "layers over the heaviest stage's, by the plan's layout")  # fmt: skip
    return Held(sum(held[1:], held[0]), held, last, share)


def _laid_out_leaves(s: Setting, counts: list[Number], stage: int) -> list[Number]:
    """A stage's layers as leaves that name the layout."""
    where = f"counted in the plan's layout of stages: stage {stage}"
    return [
        leaf(n, "layers", f"{kind}layers_on_stage", where)
        for n, kind in zip(counts, s.model.kind_prefixes, strict=True)
    ]


@formula(unit="layers", source="where kinds stand in runs a stage may hold only the heaviest kind")
def heaviest_on_stage(stage_layers: Number, kind_layers: Number) -> Number:
    """Layers of the heaviest kind on the stage that holds most of them."""
    return np.minimum(stage_layers, kind_layers)


@formula(unit="layers", source="the rest of the stage, in the proportions of the model")
def others_on_stage(stage_layers: Number, heaviest: Number, kind_layers: Number,
                    other_layers: Number) -> Number:  # fmt: skip
    """Layers of another kind on that stage."""
    return (stage_layers - heaviest) * kind_layers / other_layers


@formula(unit="layers", source="kinds alternate: every stage has the model's mix")
def mixed_on_stage(stage_layers: Number, kind_layers: Number, layers: Number) -> Number:
    """Layers of one kind on each stage."""
    return stage_layers * kind_layers / layers


def stage_layers(s: Setting, pp: Number, vpp: Number) -> tuple[Number, list[Number]]:
    """Layers of the fullest stage, in all and by kind (in the order of ``model.layers``)."""
    kinds = [count for _, count in s.model.layers]
    whole = sum(kinds[1:], kinds[0])
    if balanced(s):
        on_stage = balanced_layers_per_stage(whole * 1.0, head_layers(s), pp)
    else:
        on_stage = layers_per_stage(whole, pp, vpp)
    if len(kinds) == 1:
        return on_stage, [on_stage]
    if not s.heavy_first:
        return on_stage, _named_counts(s, [mixed_on_stage(on_stage, n, whole) for n in kinds])
    heavy = heaviest_kind(s)
    top = heaviest_on_stage(on_stage, kinds[heavy])
    others = [n for i, n in enumerate(kinds) if i != heavy]
    rest = sum(others[1:], others[0])
    counts = [
        top if i == heavy else others_on_stage(on_stage, top, n, rest) for i, n in enumerate(kinds)
    ]
    return on_stage, _named_counts(s, counts)


def balanced(s: Setting) -> bool:
    """Whether the stack cuts stages by cost, with the LM head among the layers."""
    return float(plain(s.stack.head_in_stages)) > 0


@formula(unit="layers", source="the LM head's matrix over those of a layer")
def head_in_layers(vocab: Number, d_model: Number, layer_matrices: Number) -> Number:
    """Layers whose matrices are as many parameters as the LM head's."""
    return vocab * d_model / layer_matrices


def head_layers(s: Setting) -> Number:
    """The LM head as so many layers of the heaviest kind."""
    p = layer_params(s.model.layers[heaviest_kind(s)][0], s.model.d_model)
    return head_in_layers(s.model.logits, s.model.d_model, p.total - p.norms)


def _last_share(s: Setting, pp: Number, on_stage: Number) -> Number:
    """Layers of the last stage over those of the fullest, where stages are cut by cost."""
    return balanced_last_layers(s.model.n_layers * 1.0, head_layers(s), pp) / on_stage


def stages_to_fill(s: Setting, pp: Number, on_stage: Number) -> Number:
    """Stages that a pipeline fills and drains, each of the slowest one's cost."""
    if not balanced(s):
        return pp
    last = on_stage * _last_share(s, pp, on_stage)
    return stages_in_effect(s.model.n_layers * 1.0, head_layers(s), on_stage, last)


def _named_counts(s: Setting, counts: list[Number]) -> list[Number]:
    names = s.model.kind_prefixes
    return [rename(n, f"{kind}layers_on_stage") for n, kind in zip(counts, names, strict=True)]


def heaviest_kind(s: Setting) -> int:
    """Index of the kind of layer with most parameters."""
    sizes = [
        float(plain(layer_params(layer, s.model.d_model).total)) for layer, _ in s.model.layers
    ]
    return max(range(len(sizes)), key=sizes.__getitem__)


def device_params(s: Setting, c: Columns, kind: int) -> tuple[Number, Number]:
    """Parameters of one layer on a device before sharding: all but experts, and experts."""
    p = layer_params(s.model.layers[kind][0], s.model.d_model)
    name = s.model.kind_prefixes[kind]
    return (
        rename(memory.cut_params(p.without_experts, c.tp, 1.0), f"{name}layer_params"),
        rename(memory.cut_params(p.experts, c.etp, c.ep), f"{name}layer_expert_params"),
    )


def layers_params(s: Setting, c: Columns, counts: list[Number]) -> tuple[Number, Number]:
    """Parameters of a stage's layers on a device before sharding: all but experts, experts."""
    dense: Number = 0.0
    experts: Number = 0.0
    for kind, k in enumerate(counts):
        d, e = device_params(s, c, kind)
        dense, experts = dense + d * k, experts + e * k
    return dense, experts


def stage_params(s: Setting, c: Columns, counts: list[Number]) -> tuple[Number, Number]:
    """Parameters of the fullest stage on a device before sharding: all but experts, experts.

    The embedding is counted where it stands with the head (pp = 1) or alone on its stage.
    """
    dense, experts = layers_params(s, c, counts)
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    # a scalar head is one row, not a table
    copies = 1.0 if s.model.tied or s.model.head_outputs is not None else 2.0
    tables = rename(np.where(c.pp > 1, 1.0, copies), "vocabulary_tables")
    return dense + table * tables, experts
