"""MiniMax-M3: attention to blocks of keys that a small scorer picks, behind Qwen's kind of tower.

Shapes and defaults as transformers 5.24 builds them; what the scorer multiplies is not counted.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import classic, heads_of, linear
from chipshift.models.families.decoder import FULL, assemble, d_model, gqa, n_layers, runs
from chipshift.models.families.joining import alone
from chipshift.models.families.moe import routed
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, DenseMlp, Layer, Model, Projection, Tower

SPARSE = "minimax_m3_sparse"
LEGACY = {
    "index_n_heads": ("sparse_num_index_heads", 4),
    "index_head_dim": ("sparse_index_dim", 128),
    "index_block_size": ("sparse_block_size", 128),
    "index_topk_blocks": ("sparse_topk_blocks", 16),
}
"""A number's own key, its key under ``sparse_attention_config``, what it usually is."""


def minimax_m3_text(c: Fields) -> Model:
    """Grouped attention with normed heads, whole or by blocks; dense layers, then experts."""
    c = c.having(
        vocab_size=200_064,
        hidden_size=6144,
        intermediate_size=3072,
        num_hidden_layers=60,
        num_attention_heads=64,
        num_key_value_heads=4,
        head_dim=128,
    )
    count, width = n_layers(c), d_model(c)
    sparse = c.part("sparse_attention_config") if c.has("sparse_attention_config") else None
    number = {key: _number(c, sparse, key) for key in LEGACY}
    own = gqa(c, norm="head")
    picked = replace(own, window=number["index_block_size"] * number["index_topk_blocks"])
    dim = number["index_head_dim"]
    scorer = (
        Projection("indexer.q_proj", width, number["index_n_heads"] * dim),
        Projection("indexer.k_proj", width, dim),
    )
    experts = routed(
        c,
        c.count("num_local_experts", "num_experts", default=128, most=100_000),
        c.count("num_experts_per_tok", default=4),
        c.count("intermediate_size"),
        shared_width=c.count("shared_intermediate_size", default=3072),
    )
    dense = DenseMlp(c.count("dense_intermediate_size", default=12_288))
    kinds = c.names("layer_types", (FULL, SPARSE), count)
    picks = [kind == SPARSE for kind in kinds]
    if not picks and sparse is not None:
        picks = [one == 1 for one in sparse.counts("sparse_attention_freq", length=count)]
    feeds = [kind == "sparse" for kind in c.names("mlp_layer_types", ("dense", "sparse"), count)]
    feeds = (
        feeds or [one == 1 for one in c.counts("moe_layer_freq", length=count)] or [True] * count
    )
    layers = [
        Layer(picked, experts if feed else dense, 2 * width, projections=scorer,
              other_params=2 * dim)
        if pick
        else Layer(own, experts if feed else dense, 2 * width)
        for pick, feed in zip(picks or [False] * count, feeds, strict=True)
    ]  # fmt: skip
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=width,
        mtp_layers=c.count("num_nextn_predict_layers", "num_mtp_modules", default=0, least=0),
    )


def _number(c: Fields, sparse: Fields | None, key: str) -> int:
    """One of the scorer's numbers; the section's goes before the flat one."""
    legacy, usual = LEGACY[key]
    if sparse is not None and sparse.has(legacy):
        return sparse.count(legacy)
    return c.count(key, default=usual)


def minimax_m3(c: Fields) -> Model:
    """The whole: a tower over two frames at once, its patches mapped, merged by squares, mapped."""
    if not c.has("text_config", "vision_config"):
        return alone(c, minimax_m3_text(c))
    text, v = minimax_m3_text(c.part("text_config")), c.part("vision_config")
    v = v.having(hidden_size=1280, intermediate_size=5120, num_hidden_layers=32)
    width = d_model(v)
    heads = heads_of(v.having(num_attention_heads=16), width)
    kinds, order = runs([classic(width, heads, v.count("intermediate_size"))] * n_layers(v))
    pixels = v.count("temporal_patch_size", default=2, most=100)
    pixels *= v.count("patch_size", default=14, most=10_000) ** 2
    colours = v.count("num_channels", default=3)
    square = v.count("spatial_merge_size", default=2, most=100) ** 2
    inner = c.count("projector_hidden_size", default=6144)
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        convs=(Conv("patch_embed", colours, width, pixels),),
        projections=(
            linear("projector.linear_1", width, inner),
            linear("projector.linear_2", inner, text.d_model),
            linear("projector.merge_linear_1", text.d_model * square, inner, every=square),
            linear("projector.merge_linear_2", inner, text.d_model, every=square),
        ),
        other_params=2 * width,
    )
    tied = c.flag("tie_word_embeddings", default=text.tied)
    return replace(text, architecture="minimax_m3_vl", towers=(tower,), tied=tied)
