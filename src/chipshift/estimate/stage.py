"""How many layers of each kind the slowest and fullest pipeline stage holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.setting import Setting
from chipshift.models.count import layer_params, params_embedding
from chipshift.parallel import memory
from chipshift.parallel.schedule import layers_per_stage
from chipshift.worked import formula, plain, rename

Number = Any


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
    copies = 1.0 if s.model.tied else 2.0
    tables = rename(np.where(c.pp > 1, 1.0, copies), "vocabulary_tables")
    return dense + table * tables, experts
