"""Smaller decoder families: Llama's block with a norm more or less, and plain ones.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import (
    assemble,
    d_model,
    gqa,
    head_counts,
    mlp,
    n_layers,
    stack,
    windows,
)
from chipshift.models.families.llama import attention_bias
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model


def bitnet(c: Fields) -> Model:
    """BitNet: a norm more before the way back of attention and of the feed-forward."""
    attention = gqa(c, bias=attention_bias(c), kv_default=5)
    attention = replace(attention, norm_params=d_model(c))
    feed_forward = mlp(c)
    layer = Layer(attention, feed_forward, 2 * d_model(c) + feed_forward.width)
    tied = c.flag("tie_word_embeddings", default=False)
    return assemble(c, [layer] * n_layers(c), tied=tied, final_norm_params=d_model(c))


def cwm(c: Fields) -> Model:
    """Code World Model: three sliding layers after one that sees everything."""
    c = c.having(head_dim=128, sliding_window=8192)
    kinds = windows(c, [i % 4 != 0 for i in range(n_layers(c))])
    feed_forward = mlp(c, bias=c.flag("mlp_bias", default=False))
    return stack(c, [gqa(c, window=w, kv_default=8) for w in kinds], feed_forward)


def helium(c: Fields) -> Model:
    """Helium: Llama's block with no bias on the way back of attention."""
    c = c.having(head_dim=128, num_key_value_heads=20)
    bias = attention_bias(c, "qkv")
    return stack(c, gqa(c, bias=bias), mlp(c, bias=c.flag("mlp_bias", default=False)))


def jais2(c: Fields) -> Model:
    """Jais 2: norms with biases, a plain feed-forward, biases on all maps."""
    attention = gqa(c, bias=attention_bias(c, default=True))
    feed_forward = mlp(c, matrices=2, bias=c.flag("mlp_bias", default=True))
    return stack(c, attention, feed_forward, norms=4, final=2)


def minicpm(c: Fields) -> Model:
    """MiniCPM 1, 2 and 4: Llama's block, its sums and logits scaled, its head tied."""
    bias = attention_bias(c)
    return stack(c, gqa(c, bias=bias), mlp(c), tied=True)


def nanochat(c: Fields) -> Model:
    """nanochat: norms without parameters, a plain feed-forward."""
    return stack(c, gqa(c, bias=attention_bias(c)), mlp(c, matrices=2), norms=0, final=0)


def persimmon(c: Fields) -> Model:
    """Persimmon: biases everywhere, norms with biases, over heads too."""
    attention = gqa(c, bias="qkvo")
    if c.flag("qk_layernorm", default=True):  # weight and bias for queries and for keys
        attention = replace(attention, norm_params=4 * head_counts(c)[2])
    return stack(c, attention, mlp(c, matrices=2, bias=True), norms=4, final=2)


def vaultgemma(c: Fields) -> Model:
    """VaultGemma: Gemma 2 with one norm before each half, every other layer slides."""
    c = c.having(head_dim=256, sliding_window=4096)
    kinds = windows(c, [(i + 1) % 2 != 0 for i in range(n_layers(c))])
    bias = attention_bias(c)
    attention = [gqa(c, bias=bias, window=w, kv_default=4) for w in kinds]
    return stack(c, attention, mlp(c), tied=True)


def xglm(c: Fields) -> Model:
    """XGLM: biases everywhere, positions by a formula."""
    c = c.replaced(
        hidden_size=c.count("d_model", default=1024),
        num_attention_heads=c.count("attention_heads", default=16, most=100_000),
        intermediate_size=c.count("ffn_dim", default=4096),
    )
    feed_forward = mlp(c, matrices=2, bias=True)
    return stack(c, gqa(c, bias="qkvo"), feed_forward, norms=4, final=2, tied=True)
