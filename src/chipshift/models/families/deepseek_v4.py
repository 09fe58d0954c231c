"""DeepSeek-V4: one key a token that is its value too, a window over them beside keys of several
tokens compressed into one, and four streams that each half of a block mixes.

Shapes and defaults as transformers 5.24 builds them. What the scorer of compressed keys multiplies
is not counted, nor the mixing of the streams (4 × 4 a channel and token).
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import MOST_LAYERS, SLIDING, assemble, d_model, n_layers
from chipshift.models.families.moe import routed
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Layer, Model, Projection

CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
BY_RATIO = {0: SLIDING, 4: CSA, 128: HCA}
"""What a published config's ``compress_ratios`` call the kinds."""


def deepseek_v4(c: Fields) -> Model:
    """V4-Flash and V4-Pro: experts in every layer, the first layers' told by the token alone."""
    c = c.having(vocab_size=129_280, hidden_size=4096, num_hidden_layers=43, num_attention_heads=64)
    width, streams = d_model(c), c.count("hc_mult", default=4, most=1000)
    inner = c.count("moe_intermediate_size", default=2048)
    experts = routed(
        c,
        c.count("n_routed_experts", "num_local_experts", default=256, most=100_000),
        c.count("num_experts_per_tok", default=6),
        inner,
        shared_width=inner,
    )
    if c.flag("mlp_bias", default=False):
        raise c.wrong("mlp_bias", "false")
    base = _attention(c)
    mixed = (2 + streams) * streams
    halves = tuple(Projection(f"{half}_hc.fn", streams * width, mixed) for half in ("attn", "ffn"))
    made = {
        kind: _layer(c, kind, base, Layer(None, experts, 2 * width, projections=halves,
                                          other_params=2 * (mixed + 3)))
        for kind in set(BY_RATIO.values())
    }  # fmt: skip
    model = assemble(
        c,
        [made[kind] for kind in _kinds(c)],
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=width,
        mtp_layers=c.count("num_nextn_predict_layers", default=1, least=0),
    )
    head = Projection("hc_head.fn", streams * width, streams)
    return replace(model, projections=(head,), other_params=streams + 1)


def _attention(c: Fields) -> Attention:
    """Queries from a latent, one head of keys, the way back by groups of heads; sinks."""
    heads, head_dim = c.count("num_attention_heads", most=100_000), c.count("head_dim", default=512)
    rank, groups = c.count("q_lora_rank", default=1024), c.count("o_groups", default=8)
    if heads * head_dim % groups:
        raise c.wrong("o_groups", f"a divisor of the {heads * head_dim} outputs of the heads")
    return Attention(
        heads=heads,
        kv_heads=1,
        head_dim=head_dim,
        v_head_dim=head_dim,
        window=c.count("sliding_window", default=128),
        norm_params=rank + head_dim + heads,
        q_lora_rank=rank,
        values_are_keys=True,
        o_rank=c.count("o_lora_rank", default=1024),
        o_groups=groups,
    )


def _layer(c: Fields, kind: str, base: Attention, rest: Layer) -> Layer:
    """A layer that sees its window alone, or keys compressed by a few or by many besides."""
    if kind == SLIDING:
        return replace(rest, attention=base)
    every = _rate(c, kind)
    wide = (2 if kind == CSA else 1) * base.head_dim
    maps = _compressor("compressor", d_model(c), wide)
    other = every * wide + base.head_dim
    top = None
    if kind == CSA:
        top = c.count("index_topk", default=512)
        heads, dim = c.count("index_n_heads", default=64), c.count("index_head_dim", default=128)
        maps += (
            *_compressor("indexer", d_model(c), 2 * dim),
            Projection("indexer.q_b_proj", base.q_lora_rank or 0, heads * dim),
            Projection("indexer.weights_proj", d_model(c), heads),
        )
        other += every * 2 * dim + dim
    return replace(
        rest,
        attention=replace(base, compressed_every=every, compressed_top=top),
        projections=(*maps, *rest.projections),
        other_params=rest.other_params + other,
    )


def _compressor(name: str, width: int, outputs: int) -> tuple[Projection, ...]:
    return (
        Projection(f"{name}.kv_proj", width, outputs),
        Projection(f"{name}.gate_proj", width, outputs),
    )


def _rate(c: Fields, kind: str) -> int:
    """Tokens that one compressed key stands for."""
    usual, short = (4, "csa") if kind == CSA else (128, "hca")
    if c.has("compress_rates"):
        usual = c.part("compress_rates").count(kind, default=usual)
    return c.count(f"compress_rate_{short}", default=usual)


def _kinds(c: Fields) -> list[str]:
    """The kind of each layer: listed, by ratio, or compressed by many and by few in turn.

    Lists may go on with the layers that predict further tokens.
    """
    count = n_layers(c)
    listed = c.values.get("layer_types")
    if isinstance(listed, (list, tuple)) and count <= len(listed) <= MOST_LAYERS:
        return c.names("layer_types", tuple(BY_RATIO.values()), len(listed))[:count]
    ratios = c.counts("compress_ratios")[:count]
    if not ratios:
        return [HCA] * min(count, 2) + [CSA if i % 2 else HCA for i in range(count - 2)]
    if len(ratios) < count or not set(ratios) <= set(BY_RATIO):
        raise c.wrong("compress_ratios", f"{count} numbers out of 0, 4 and 128, one a layer")
    return [BY_RATIO[ratio] for ratio in ratios]
