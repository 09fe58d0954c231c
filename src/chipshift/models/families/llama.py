"""Llama and its closest kin: pre-norm blocks of rotary attention and a gated feed-forward.

Shapes and defaults as transformers 5.24 builds them (``modeling_*.py`` of each family).
"""

from __future__ import annotations

from chipshift.models.families.decoder import gqa, mlp, n_layers, stack, windows
from chipshift.models.fields import Fields
from chipshift.models.model import Model


def attention_bias(c: Fields, letters: str = "qkvo", default: bool = False) -> str:
    """The projections that ``attention_bias`` gives a bias."""
    return letters if c.flag("attention_bias", default=default) else ""


def llama(c: Fields) -> Model:
    """Llama 1 to 3, Granite and everything saved as one of them."""
    bias = attention_bias(c)
    return stack(c, gqa(c, bias=bias), mlp(c, bias=c.flag("mlp_bias", default=False)))


def mistral(c: Fields) -> Model:
    """Mistral: no biases; every layer slides if ``sliding_window`` is set."""
    return stack(c, gqa(c, kv_default=8, window=c.maybe("sliding_window")), mlp(c))


def ministral3(c: Fields) -> Model:
    """Ministral 3: Mistral's block, its heads 128 wide."""
    return mistral(c.having(head_dim=128))


def ministral(c: Fields) -> Model:
    """Ministral: Mistral's block, its window layer by layer where ``layer_types`` says so."""
    slides = [c.has("sliding_window")] * n_layers(c)
    return stack(c, [gqa(c, kv_default=8, window=w) for w in windows(c, slides)], mlp(c))


def phi3(c: Fields) -> Model:
    """Phi-3 and Phi-4: q, k, v fused and gate, up fused, which changes no count."""
    return stack(c, gqa(c, window=c.maybe("sliding_window")), mlp(c))


def smollm3(c: Fields) -> Model:
    """SmolLM3: some layers without rotation, which slide if ``use_sliding_window``."""
    slides = c.flag("use_sliding_window", default=False) and c.has("sliding_window")
    every = c.count("no_rope_layer_interval", default=4)
    rotates = c.counts("no_rope_layers", length=n_layers(c)) or [
        (i + 1) % every for i in range(n_layers(c))
    ]
    bias = attention_bias(c)
    attention = [
        gqa(c, bias=bias, window=w, kv_default=4)
        for w in windows(c, [slides and not rotated for rotated in rotates])
    ]
    return stack(c, attention, mlp(c, bias=c.flag("mlp_bias", default=False)), tied=True)


def seed_oss(c: Fields) -> Model:
    """Seed-OSS: biases on q, k, v and, by a key of its own, on o."""
    c = c.having(head_dim=128)
    bias = attention_bias(c, "qkv", default=True)
    bias += "o" if c.flag("attention_out_bias", default=False) else ""
    feed_forward = mlp(c, bias=c.flag("mlp_bias", default=False))
    return stack(c, gqa(c, bias=bias, kv_default=8), feed_forward)


def qwen_windows(c: Fields) -> list[int | None]:
    """Qwen2 and Qwen3: with ``use_sliding_window``, layers from ``max_window_layers`` up slide."""
    if not c.flag("use_sliding_window", default=False):
        return [None] * n_layers(c)  # whatever the layer types say, as the reference
    first = c.count("max_window_layers", default=28, least=0)
    c = c.having(sliding_window=4096)
    return windows(c, [i >= first for i in range(n_layers(c))])


def qwen2(c: Fields) -> Model:
    """Qwen2 and Qwen2.5: biases on q, k and v."""
    attention = [gqa(c, bias="qkv", window=w, kv_default=32) for w in qwen_windows(c)]
    return stack(c, attention, mlp(c))


def qwen3(c: Fields) -> Model:
    """Qwen3: a norm over each query and key head, head width 128 unless given."""
    c = c.having(head_dim=128)
    bias = attention_bias(c)
    attention = [gqa(c, bias=bias, norm="head", window=w, kv_default=32) for w in qwen_windows(c)]
    return stack(c, attention, mlp(c))
