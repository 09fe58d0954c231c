"""Parameters of a layer and of a model.

The arithmetic is branch-free and takes whole numbers, arrays or ``Worked``; whole numbers stay
whole, so that counts are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp
from chipshift.worked import formula


@dataclass(frozen=True)
class LayerParams:
    """Parameters of one layer by part; ``total`` is their sum with ``one_expert`` left out.

    Attributes:
        attention: the projections' matrices.
        dense_mlp: the matrices of a feed-forward that is not routed.
        router: the gate over the experts, its bias included.
        one_expert: a routed expert, its biases included.
        experts: all routed experts.
        shared: the experts that every token visits, their gate included.
        norms: the layer's norms and those inside its attention.
        biases: of attention and of a feed-forward that is not routed.
    """

    attention: int
    dense_mlp: int
    router: int
    one_expert: int
    experts: int
    shared: int
    norms: int
    biases: int

    @property
    def total(self) -> int:
        return (
            self.attention
            + self.dense_mlp
            + self.router
            + self.experts
            + self.shared
            + self.norms
            + self.biases
        )


@formula(unit="parameter", source="Ainslie et al. 2023, GQA: q and o over H heads, k and v over K")
def gqa_params(d_model: int, heads: int, kv_heads: int, head_dim: int, v_head_dim: int) -> int:
    """D·H·h for q, D·K·h for k, D·K·v for v and H·v·D for o."""
    return d_model * (heads * (head_dim + v_head_dim) + kv_heads * (head_dim + v_head_dim))


@formula(unit="parameter", source="DeepSeek-V2 report 2024, section 2.1: down to a latent and up")
def mla_kv_params(
    d_model: int, heads: int, head_dim: int, v_head_dim: int, kv_rank: int, rope_dim: int
) -> int:
    """D·(r + rope) down, r·H·(nope + v) up and H·v·D for o; nope = head_dim − rope."""
    down = d_model * (kv_rank + rope_dim)
    up = kv_rank * heads * (head_dim - rope_dim + v_head_dim)
    return down + up + heads * v_head_dim * d_model


@formula(unit="parameter", source="DeepSeek-V2 report 2024, section 2.1: queries with a latent")
def latent_query_params(d_model: int, heads: int, head_dim: int, q_rank: int) -> int:
    """D·r down and r·H·h up."""
    return q_rank * (d_model + heads * head_dim)


@formula(unit="parameter")
def query_params(d_model: int, heads: int, head_dim: int) -> int:
    """D·H·h."""
    return d_model * heads * head_dim


@formula(unit="parameter", source="Shazeer 2020, GLU variants: three matrices when gated, else two")
def mlp_params(d_model: int, width: int, matrices: int) -> int:
    """Matrices of D × F each."""
    return matrices * d_model * width


def attention_params(attention: Attention, d_model: int) -> int:
    """Parameters of the matrices of attention; biases and norms are counted apart."""
    a = attention
    if a.kv_lora_rank is None or a.qk_rope_head_dim is None:
        return gqa_params(d_model, a.heads, a.kv_heads, a.head_dim, a.v_head_dim)
    queries = (
        query_params(d_model, a.heads, a.head_dim)
        if a.q_lora_rank is None
        else latent_query_params(d_model, a.heads, a.head_dim, a.q_lora_rank)
    )
    return queries + mla_kv_params(
        d_model, a.heads, a.head_dim, a.v_head_dim, a.kv_lora_rank, a.qk_rope_head_dim
    )


def layer_params(layer: Layer, d_model: int) -> LayerParams:
    """The parameters of one layer by part."""
    attention = attention_params(layer.attention, d_model) if layer.attention else 0
    norms = layer.norm_params + (layer.attention.norm_params if layer.attention else 0)
    biases = layer.attention.bias_params if layer.attention else 0
    dense = router = one = experts = shared = 0
    if isinstance(layer.mlp, DenseMlp):
        dense = mlp_params(d_model, layer.mlp.width, layer.mlp.matrices)
        biases = biases + layer.mlp.bias_params
    elif isinstance(layer.mlp, MoeMlp):
        moe = layer.mlp
        router = moe.router_params
        one = mlp_params(d_model, moe.width, moe.matrices) + moe.expert_bias_params
        experts = moe.experts * one
        shared = mlp_params(d_model, moe.shared_width, moe.matrices) + moe.shared_gate_params
    return LayerParams(attention, dense, router, one, experts, shared, norms, biases)


@formula(unit="parameter")
def embedding_params(vocab: int, d_model: int, extra: int) -> int:
    """V·D, and learned positions and the like."""
    return vocab * d_model + extra


def params_embedding(model: Model) -> int:
    """Parameters of the embedding tables; an LM head that is not tied is not among them."""
    return embedding_params(model.vocab, model.d_model, model.embedding_extra_params)


def head_params(model: Model) -> int:
    """Parameters that the LM head adds: none but a bias when it is the embedding's transpose."""
    weight = 0 if model.tied else model.vocab * model.d_model
    return weight + model.head_bias_params


def params(model: Model) -> int:
    """All parameters, a tied head counted once; multi-token-prediction blocks are not in it."""
    blocks = [layer_params(layer, model.d_model).total * n for layer, n in model.layers]
    ends = params_embedding(model) + head_params(model) + model.final_norm_params
    return sum(blocks[1:], blocks[0]) + ends if blocks else ends


def params_active(model: Model) -> int:
    """Parameters that one token visits: all but the (E − k) experts it is not routed to."""
    idle = [
        (layer.mlp.experts - layer.mlp.top_k) * layer_params(layer, model.d_model).one_expert * n
        for layer, n in model.layers
        if isinstance(layer.mlp, MoeMlp)
    ]
    return params(model) - sum(idle[1:], idle[0]) if idle else params(model)
