"""Gemma: wide heads, tied embeddings and, from the second on, alternating windows.

Shapes and defaults as transformers 5.24 builds them; the published Gemma 3 configs leave most
keys to those defaults.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import (
    assemble,
    d_model,
    gqa,
    mlp,
    n_layers,
    stack,
    windows,
)
from chipshift.models.families.llama import attention_bias
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, DenseMlp, Layer, Model, Projection


def gemma(c: Fields) -> Model:
    """Gemma 1: Llama's block with a head width of 256 unless given."""
    c = c.having(head_dim=256)
    return stack(c, gqa(c, bias=attention_bias(c), kv_default=16), mlp(c), tied=True)


def gemma2(c: Fields) -> Model:
    """Gemma 2: norms before and after each half, every other layer slides, the first one too."""
    c = c.having(head_dim=256, sliding_window=4096)
    return _sandwich(c, every=2, norm="")


def gemma3_text(c: Fields) -> Model:
    """Gemma 3: norms over query and key heads; five sliding layers, then one that sees all."""
    c = c.having(
        vocab_size=262_208,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
    )
    every = c.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _sandwich(c, every=every, norm="head")


def gemma3n_text(c: Fields) -> Model:
    """Gemma 3n: four copies of the stream mixed by AltUp, a low-rank side path and an embedding
    of its own a layer, keys and values of the upper layers borrowed from below."""
    c = c.having(
        vocab_size=262_400, num_attention_heads=8, num_key_value_heads=2, head_dim=256
    ).having(sliding_window=512, laurel_rank=64, hidden_size_per_layer_input=256)
    count, width = n_layers(c), d_model(c)
    inputs, side = c.count("altup_num_inputs", default=4, most=64), c.count("laurel_rank")
    own = c.count("hidden_size_per_layer_input")
    shared = c.count("num_kv_shared_layers", default=15, least=0)
    maps = (
        Projection("altup.modality_router", width, inputs),
        Projection("altup.prediction_coefs", inputs, inputs * inputs),
        Projection("altup.correction_coefs", inputs, inputs),
        Projection("laurel.linear_left", width, side),
        Projection("laurel.linear_right", side, width),
        Projection("per_layer_input_gate", width, own),
        Projection("per_layer_projection", own, width),
    )
    kinds = windows(c, [(i + 1) % 5 != 0 for i in range(count)])
    widths = c.counts("intermediate_size", least=1, length=count) if _listed(c) else []
    widths = widths or [c.count("intermediate_size")] * count
    layers = [
        Layer(
            _borrowing(gqa(c, bias=attention_bias(c), norm="head", window=w), i >= count - shared),
            DenseMlp(widths[i]),
            7 * width,  # the block's four, the router's, the side path's, the own embedding's
            projections=maps,
            other_params=width,  # the scale of what is corrected
        )
        for i, w in enumerate(kinds)
    ]
    streams = tuple(
        Projection(f"altup_{way}.{i}", width, width)
        for way in ("projections", "unembed_projections")
        for i in range(inputs - 1)
    )
    tables = c.count("vocab_size_per_layer_input", default=262_144) * count * own
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=width + own,
        embedding_extra_params=tables,
        projections=(Projection("per_layer_model_projection", width, count * own), *streams),
    )


def _listed(c: Fields) -> bool:
    return isinstance(c.values.get("intermediate_size"), (list, tuple))


def _borrowing(attention: Attention, borrows: bool) -> Attention:
    """Attention that reads an earlier layer's keys: no k and v, and no norm over keys."""
    if not borrows:
        return attention
    a = attention
    keyed = a.kv_heads * (a.head_dim + a.v_head_dim) if a.bias_params else 0
    return replace(
        a, kv_shared=True, norm_params=a.norm_params // 2, bias_params=a.bias_params - keyed
    )


def _sandwich(c: Fields, *, every: int, norm: str) -> Model:
    """Blocks with four norms; each ``every``-th layer sees all keys."""
    bias = attention_bias(c)
    pattern = [(i + 1) % every != 0 for i in range(n_layers(c))]
    attention = [gqa(c, bias=bias, norm=norm, window=w, kv_default=4) for w in windows(c, pattern)]
    return stack(c, attention, mlp(c), norms=4, tied=True)
