"""Decoders with Llama's parts in another order or of another kind: norms after the halves, one norm
for both, plain feed-forwards.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import (
    gqa,
    head_counts,
    mlp,
    n_layers,
    stack,
    windows,
)
from chipshift.models.families.llama import attention_bias
from chipshift.models.fields import Fields
from chipshift.models.model import Model


def every(c: Fields, period: int) -> list[bool]:
    """Sliding layers with a full one at each multiple of the period."""
    return [(i + 1) % period != 0 for i in range(n_layers(c))]


def cohere(c: Fields) -> Model:
    """Command-R: one norm feeds attention and feed-forward side by side."""
    norm = "flat" if c.flag("use_qk_norm", default=False) else ""
    return stack(c, gqa(c, bias=attention_bias(c), norm=norm), mlp(c), norms=1, tied=True)


def cohere2(c: Fields) -> Model:
    """Command-R7B and Command-A: three sliding layers, then one that sees everything."""
    c = c.having(sliding_window=4096)
    bias = attention_bias(c)
    pattern = every(c, c.count("sliding_window_pattern", default=4))
    attention = [gqa(c, bias=bias, window=w) for w in windows(c, pattern)]
    return stack(c, attention, mlp(c), norms=1, tied=True)


def olmo(c: Fields) -> Model:
    """OLMo: norms without parameters."""
    return stack(c, gqa(c, bias=attention_bias(c)), mlp(c), norms=0, final=0)


def olmo2(c: Fields) -> Model:
    """OLMo 2: norms after the halves, and over all query and all key channels."""
    return stack(c, gqa(c, bias=attention_bias(c), norm="flat"), mlp(c))


def olmo3(c: Fields) -> Model:
    """OLMo 3: OLMo 2's block, three layers in four sliding."""
    c = c.having(sliding_window=4096)
    bias = attention_bias(c)
    attention = [gqa(c, bias=bias, norm="flat", window=w) for w in windows(c, every(c, 4))]
    return stack(c, attention, mlp(c))


def exaone4(c: Fields) -> Model:
    """EXAONE 4: norms after the halves and over heads, three layers in four sliding."""
    slides = c.has("sliding_window") or "sliding_window" not in c.values
    if slides:
        c = c.having(sliding_window=4096)
    kinds = windows(c, [slides and one for one in _lettered(c)])
    return stack(c, [gqa(c, norm="head", window=w, kv_default=32) for w in kinds], mlp(c))


def _lettered(c: Fields) -> list[bool]:
    """Which layers slide, by a period or by letters over and over: ``LLLG`` is each but the fourth.

    Raises:
        InputError: letters other than L (local) and G (global).
    """
    pattern = c.values.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        return every(c, c.count("sliding_window_pattern", default=4))
    letters = c.text("sliding_window_pattern")
    if not letters or set(letters) - {"L", "G"}:
        raise c.wrong("sliding_window_pattern", "a number, or letters L and G such as LLLG")
    return [letters[i % len(letters)] == "L" for i in range(n_layers(c))]


def glm(c: Fields) -> Model:
    """GLM-4-9B: biases on q, k and v."""
    c = c.having(head_dim=128)
    return stack(c, gqa(c, bias=attention_bias(c, "qkv", True), kv_default=2), mlp(c))


def glm4(c: Fields) -> Model:
    """GLM-4-0414: GLM's block with norms before and after each half."""
    return glm4v_text(c.having(head_dim=128))


def glm4v_text(c: Fields) -> Model:
    """GLM-4V's language model: GLM-4, its heads as wide as they divide the model."""
    return stack(c, gqa(c, bias=attention_bias(c, "qkv", True), kv_default=2), mlp(c), norms=4)


def starcoder2(c: Fields) -> Model:
    """StarCoder2: norms with biases, a plain feed-forward, biases by ``use_bias``."""
    bias = c.flag("use_bias", default=True)
    attention = gqa(c, bias="qkvo" * bias, kv_default=2, window=c.maybe("sliding_window"))
    feed_forward = mlp(c, matrices=2, bias=bias)
    return stack(c, attention, feed_forward, norms=4, final=2, tied=True)


def stablelm(c: Fields) -> Model:
    """StableLM: norms with biases; one norm where the halves stand side by side."""
    bias = "qkv" if c.flag("use_qkv_bias", default=False) else ""
    norm = "flat" if c.flag("qk_layernorm", default=False) else ""
    norms = 2 if c.flag("use_parallel_residual", default=False) else 4
    return stack(c, gqa(c, bias=bias, norm=norm, kv_default=32), mlp(c), norms=norms, final=2)


def nemotron(c: Fields) -> Model:
    """Nemotron-4 and Minitron: norms with biases, a plain squared-ReLU feed-forward."""
    feed_forward = mlp(c, matrices=2, bias=c.flag("mlp_bias", default=False))
    return stack(c, gqa(c, bias=attention_bias(c)), feed_forward, norms=4, final=2)


def phi(c: Fields) -> Model:
    """Phi-1 and Phi-2: biases everywhere, one norm for both halves, a bias on the LM head."""
    attention = gqa(c, bias="qkvo")
    if c.flag("qk_layernorm", default=False):  # weight and bias for queries and for keys
        attention = replace(attention, norm_params=4 * head_counts(c)[2])
    return stack(
        c,
        attention,
        mlp(c, matrices=2, bias=True),
        norms=2,
        final=2,
        head_bias_params=c.count("vocab_size"),
    )


def arcee(c: Fields) -> Model:
    """Arcee: Llama's block with a plain squared-ReLU feed-forward."""
    feed_forward = mlp(c, matrices=2, bias=c.flag("mlp_bias", default=False))
    return stack(c, gqa(c, bias=attention_bias(c)), feed_forward)


def ernie4_5(c: Fields) -> Model:
    """ERNIE 4.5's dense models: Llama's block with biases everywhere by ``use_bias``."""
    c = c.having(head_dim=128)
    bias = c.flag("use_bias", default=False)
    return stack(c, gqa(c, bias="qkvo" * bias, kv_default=2), mlp(c, bias=bias), tied=True)


def hunyuan_dense(c: Fields) -> Model:
    """Hunyuan's dense models: norms over query and key heads."""
    return stack(c, gqa(c, bias=attention_bias(c), norm="head"), mlp(c))


def internlm3(c: Fields) -> Model:
    """InternLM 3: biases on q, k, v and o by ``qkv_bias``, on the feed-forward by ``bias``."""
    c = c.having(head_dim=128)
    letters = "qkvo" if c.flag("qkv_bias", "attention_bias", default=False) else ""
    feed_forward = mlp(c, bias=c.flag("bias", "mlp_bias", default=False))
    return stack(c, gqa(c, bias=letters, kv_default=2), feed_forward)


def apertus(c: Fields) -> Model:
    """Apertus: a plain feed-forward, its activation with two learned numbers, normed heads."""
    feed_forward = mlp(c, matrices=2)
    if c.text("hidden_act", default="xielu") == "xielu":
        feed_forward = replace(feed_forward, bias_params=2)
    return stack(c, gqa(c, bias=attention_bias(c), norm="head"), feed_forward)
