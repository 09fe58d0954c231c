"""Parameters of a layer and of a model.

The arithmetic is branch-free and takes whole numbers, arrays or ``Worked``; whole numbers stay
whole, so that counts are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chipshift.models.model import (
    Attention,
    Conv,
    DenseMlp,
    Layer,
    Model,
    MoeMlp,
    Projection,
    Recurrent,
    Tower,
)
from chipshift.worked import formula, rename


@dataclass(frozen=True)
class LayerParams:
    """Parameters of one layer by part; ``total`` is their sum with ``one_expert`` left out.

    Attributes:
        attention: the matrices of attention, of cross-attention too.
        dense_mlp: the matrices of a feed-forward that is not routed.
        router: the gate over the experts, its bias included.
        one_expert: a routed expert, its biases included.
        experts: all routed experts.
        shared: the experts that every token visits, their gate included.
        norms: the layer's norms and those inside its mixers.
        biases: of the mixers and of a feed-forward that is not routed.
        mixer: matrices and convolution of a recurrent mixer.
        extra: the block's other linear maps and whatever multiplies nothing.
    """

    attention: int
    dense_mlp: int
    router: int
    one_expert: int
    experts: int
    shared: int
    norms: int
    biases: int
    mixer: int = 0
    extra: int = 0

    @property
    def total(self) -> int:
        return self.without_experts + self.experts

    @property
    def without_experts(self) -> int:
        """All but the routed experts: what tensor parallelism cuts."""
        return (
            self.attention
            + self.dense_mlp
            + self.router
            + self.shared
            + self.norms
            + self.biases
            + self.mixer
            + self.extra
        )


@formula(unit="parameters", source="Ainslie et al. 2023, GQA: q and o over H heads, k and v over K")
def gqa_params(
    d_model: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    v_head_dim: int,
    d_kv: int,
    gate: int = 0,
) -> int:
    """D·H·h for q and H·v·D for o; D'·K·h for k and D'·K·v for v, D' being what they read.

    An output gate's matrix adds to them.
    """
    queries = d_model * heads * (head_dim + v_head_dim)
    return queries + d_kv * kv_heads * (head_dim + v_head_dim) + gate


@formula(unit="parameters", source="DeepSeek-V2 report 2024, section 2.1: down to a latent and up")
def mla_kv_params(
    d_model: int, heads: int, head_dim: int, v_head_dim: int, kv_rank: int, rope_dim: int
) -> int:
    """D·(r + rope) down, r·H·(nope + v) up and H·v·D for o; nope = head_dim − rope."""
    down = d_model * (kv_rank + rope_dim)
    up = kv_rank * heads * (head_dim - rope_dim + v_head_dim)
    return down + up + heads * v_head_dim * d_model


@formula(unit="parameters", source="DeepSeek-V2 report 2024, section 2.1: queries with a latent")
def latent_query_params(d_model: int, heads: int, head_dim: int, q_rank: int) -> int:
    """D·r down and r·H·h up."""
    return q_rank * (d_model + heads * head_dim)


@formula(unit="parameters")
def query_params(d_model: int, heads: int, head_dim: int) -> int:
    """D·H·h."""
    return d_model * heads * head_dim


@formula(
    unit="parameters", source="Shazeer 2020, GLU variants: three matrices when gated, else two"
)
def mlp_params(d_model: int, width: int, matrices: int) -> int:
    """Matrices of D × F each."""
    return matrices * d_model * width


@formula(unit="parameters", source="DeepSeek-V4 report 2026: the output by groups of heads")
def grouped_output_params(
    d_model: int, heads: int, v_head_dim: int, o_rank: int, o_groups: int
) -> int:
    """H·v·r down (each group of heads to its own latent of r) and g·r·D up."""
    return o_rank * (heads * v_head_dim + o_groups * d_model)


def attention_params(attention: Attention, d_model: int) -> int:
    """Parameters of the matrices of attention; biases and norms are counted apart."""
    a = attention
    if a.o_rank is not None and a.q_lora_rank is not None:
        queries = latent_query_params(d_model, a.heads, a.head_dim, a.q_lora_rank)
        keys = query_params(d_model, a.kv_heads, a.head_dim)
        return (
            queries
            + keys
            + grouped_output_params(d_model, a.heads, a.v_head_dim, a.o_rank, a.o_groups)
        )
    if a.kv_lora_rank is None or a.qk_rope_head_dim is None:
        kv_heads = 0 if a.kv_shared else a.kv_heads
        d_kv = d_model if a.kv_input is None else a.kv_input
        if a.values_are_keys and not a.kv_shared:
            both = query_params(d_kv, kv_heads, a.head_dim)
            return both + gqa_params(d_model, a.heads, 0, a.head_dim, a.v_head_dim, d_kv)
        return gqa_params(d_model, a.heads, kv_heads, a.head_dim, a.v_head_dim, d_kv, a.gate_params)
    queries = (
        query_params(d_model, a.heads, a.head_dim)
        if a.q_lora_rank is None
        else latent_query_params(d_model, a.heads, a.head_dim, a.q_lora_rank)
    )
    return queries + mla_kv_params(
        d_model, a.heads, a.head_dim, a.v_head_dim, a.kv_lora_rank, a.qk_rope_head_dim
    )


def projection_params(projections: tuple[Projection, ...]) -> int:
    """Parameters of linear maps, biases included."""
    return sum(p.inputs * p.outputs + p.bias_params for p in projections)


def conv_params(convs: tuple[Conv, ...]) -> int:
    """Parameters of convolutions, biases included."""
    return sum(
        c.count * (c.inputs // c.groups * c.outputs * c.kernel + c.bias_params) for c in convs
    )


def mixer_params(mixer: Recurrent) -> int:
    """Parameters of a recurrent mixer's projections, convolution, decays and skips."""
    conv = mixer.conv_channels * mixer.conv_width
    return projection_params(mixer.projections) + conv + mixer.other_params


def _sum(values: Sequence[int]) -> int:
    """Their sum; starting from the first keeps a ``Worked`` free of a leading zero."""
    return sum(values[1:], values[0]) if values else 0


def layer_params(layer: Layer, d_model: int) -> LayerParams:
    """The parameters of one layer by part."""
    softmax = [part for part in (layer.attention, layer.cross) if part is not None]
    mixers: list[Attention | Recurrent] = list(softmax)
    mixers += [layer.mixer] if layer.mixer is not None else []
    attention = _sum([attention_params(part, d_model) for part in softmax])
    mixer = mixer_params(layer.mixer) if layer.mixer is not None else 0
    inside = [rename(part.norm_params, "mixer_norm_params") for part in mixers]
    norms = _sum([layer.norm_params, *inside])
    biases = _sum([part.bias_params for part in mixers])
    dense = router = one = experts = shared = 0
    if isinstance(layer.mlp, DenseMlp):
        dense = mlp_params(d_model, layer.mlp.width, layer.mlp.matrices)
        biases = biases + layer.mlp.bias_params
    elif isinstance(layer.mlp, MoeMlp):
        moe = layer.mlp
        router = moe.router_params
        d_expert = d_model if moe.latent_width is None else moe.latent_width
        one = rename(mlp_params(d_expert, moe.width, moe.matrices), "expert_params")
        one = one + moe.expert_bias_params
        experts = moe.experts * one
        shared = rename(mlp_params(d_model, moe.shared_width, moe.matrices), "shared_params")
        shared = shared + moe.shared_gate_params
        biases = biases + moe.shared_bias_params
    extra = projection_params(layer.projections) + layer.other_params + conv_params(layer.convs)
    return LayerParams(attention, dense, router, one, experts, shared, norms, biases, mixer, extra)


@formula(unit="parameters")
def embedding_params(vocab: int, d_model: int, extra: int) -> int:
    """V·D, and learned positions and the like."""
    return vocab * d_model + extra


def params_embedding(model: Model) -> int:
    """Parameters of the embedding tables; an LM head that is not tied is not among them."""
    width = model.d_model if model.embedding_width is None else model.embedding_width
    own = embedding_params(model.vocab, width, model.embedding_extra_params)
    return own + sum(tower.embedding_params for tower in model.towers)


def head_params(model: Model) -> int:
    """Parameters that the LM head adds: none but a bias when it is the embedding's transpose."""
    width = model.d_model if model.embedding_width is None else model.embedding_width
    weight = 0 if model.tied else model.logits * width
    return weight + model.head_bias_params


def stack_params(stack: Model | Tower) -> int:
    """Parameters of a stack's layers."""
    return _sum([layer_params(layer, stack.d_model).total * n for layer, n in stack.layers])


def tower_params(tower: Tower) -> int:
    """All parameters of a stack beside the main one, its embedding tables included."""
    maps = conv_params(tower.convs) + projection_params(tower.projections)
    return stack_params(tower) + maps + tower.embedding_params + tower.other_params


def params(model: Model) -> int:
    """All parameters, a tied head counted once; multi-token-prediction blocks are not in it."""
    ends = params_embedding(model) + head_params(model) + model.final_norm_params
    maps = conv_params(model.convs) + projection_params(model.projections)
    towers = sum(tower_params(t) - t.embedding_params for t in model.towers)
    return stack_params(model) + ends + maps + towers + model.other_params


def params_active(model: Model) -> int:
    """Parameters that one token visits: all but the (E − k) experts it is not routed to."""
    stacks: list[Model | Tower] = [model, *model.towers]
    idle = [
        (layer.mlp.experts - layer.mlp.top_k) * layer_params(layer, stack.d_model).one_expert * n
        for stack in stacks
        for layer, n in stack.layers
        if isinstance(layer.mlp, MoeMlp)
    ]
    return params(model) - _sum(idle) if idle else params(model)
