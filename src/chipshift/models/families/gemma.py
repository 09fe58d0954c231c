"""Gemma: wide heads, tied embeddings and, from the second on, alternating windows.

Shapes and defaults as transformers 5.24 builds them; the published Gemma 3 configs leave most
keys to those defaults.
"""

from __future__ import annotations

from chipshift.models.families.decoder import gqa, mlp, n_layers, stack, windows
from chipshift.models.families.llama import attention_bias
from chipshift.models.fields import Fields
from chipshift.models.model import Model


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


def gemma3(c: Fields) -> Model:
    """The language model of a Gemma 3 config, which stands under ``text_config``."""
    return gemma3_text(c.part("text_config"))


def _sandwich(c: Fields, *, every: int, norm: str) -> Model:
    """Blocks with four norms; each ``every``-th layer sees all keys."""
    bias = attention_bias(c)
    pattern = [(i + 1) % every != 0 for i in range(n_layers(c))]
    attention = [gqa(c, bias=bias, norm=norm, window=w, kv_default=4) for w in windows(c, pattern)]
    return stack(c, attention, mlp(c), norms=4, tied=True)
