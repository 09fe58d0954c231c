"""Llama, Mistral, Qwen2 and Qwen3: pre-norm blocks of rotary attention and a gated feed-forward.

Shapes and defaults as transformers 5.24 builds them (``modeling_*.py`` of each family).
"""

from __future__ import annotations

from chipshift.models.families.decoder import assemble, d_model, gqa, mlp, n_layers, windows
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model


def llama(c: Fields) -> Model:
    """Llama 1 to 3 and everything saved as one; biases by ``attention_bias`` and ``mlp_bias``."""
    bias = "qkvo" if c.flag("attention_bias", default=False) else ""
    block = Layer(
        gqa(c, bias=bias),
        mlp(c, bias=c.flag("mlp_bias", default=False)),
        norm_params=2 * d_model(c),
    )
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def mistral(c: Fields) -> Model:
    """Mistral: Llama's block without biases; every layer slides if ``sliding_window`` is set."""
    window = c.maybe("sliding_window")
    block = Layer(gqa(c, kv_default=8, window=window), mlp(c), norm_params=2 * d_model(c))
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def qwen_windows(c: Fields) -> list[int | None]:
    """Qwen2 and Qwen3: with ``use_sliding_window``, layers from ``max_window_layers`` up slide."""
    if not c.flag("use_sliding_window", default=False):
        return [None] * n_layers(c)  # whatever the layer types say, as the reference
    first = c.count("max_window_layers", default=28, least=0)
    c = c.having(sliding_window=4096)
    return windows(c, [i >= first for i in range(n_layers(c))])


def qwen2(c: Fields) -> Model:
    """Qwen2 and Qwen2.5: biases on q, k and v."""
    feed_forward = mlp(c)
    layers = [
        Layer(gqa(c, bias="qkv", window=window, kv_default=32), feed_forward, 2 * d_model(c))
        for window in qwen_windows(c)
    ]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def qwen3(c: Fields) -> Model:
    """Qwen3: a norm over each query and key head, head width 128 unless given."""
    c = c.having(head_dim=128)
    bias = "qkvo" if c.flag("attention_bias", default=False) else ""
    feed_forward = mlp(c)
    layers = [
        Layer(
            gqa(c, bias=bias, norm="head", window=window, kv_default=32),
            feed_forward,
            2 * d_model(c),
        )
        for window in qwen_windows(c)
    ]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )
