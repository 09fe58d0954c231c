"""Smaller families of mixtures over ordinary attention.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import d_model, gqa, n_layers, stack, windows
from chipshift.models.families.llama import attention_bias
from chipshift.models.families.moe import local_experts, mixed, routed
from chipshift.models.fields import Fields
from chipshift.models.model import Model


def afmoe(c: Fields) -> Model:
    """Trinity: a gate on attention's output, norms before and after each half, three layers in
    four sliding; the correction of the routers is learned."""
    c = c.having(head_dim=128, sliding_window=1024, moe_intermediate_size=1408)
    width = c.count("moe_intermediate_size")
    experts = routed(
        c,
        c.count("num_experts", default=64, most=100_000),
        c.count("num_experts_per_tok", default=6),
        width,
        shared_width=width * c.count("num_shared_experts", default=2, least=0, most=100_000),
        router_bias=True,
    )
    dense = c.count("num_dense_layers", default=1, least=0)
    every = c.count("global_attn_every_n_layers", default=4)
    kinds = windows(c, [(i + 1) % every != 0 for i in range(n_layers(c))])
    bias = attention_bias(c)
    base = gqa(c, bias=bias, norm="head")
    base = replace(base, gate_params=d_model(c) * base.heads * base.head_dim)
    feed = mixed(c, [i >= dense for i in range(n_layers(c))], experts)
    return stack(c, [replace(base, window=w) for w in kinds], feed, norms=4)


def flex_olmo(c: Fields) -> Model:
    """FlexOlmo: OLMo 2's norms around experts of ``intermediate_size``."""
    experts = routed(c, *local_experts(c, 7, 5))
    return stack(c, gqa(c, bias=attention_bias(c), norm="flat"), experts)


def solar_open(c: Fields) -> Model:
    """Solar Open: every layer routed, beside experts that every token visits."""
    c = c.having(head_dim=128, moe_intermediate_size=1280)
    width = c.count("moe_intermediate_size")
    experts = routed(
        c,
        c.count("n_routed_experts", default=128, most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=width * c.count("n_shared_experts", default=1, least=0, most=100_000),
    )
    bias = attention_bias(c, "qkv")
    return stack(c, gqa(c, bias=bias, kv_default=8), experts)


def hy_v3(c: Fields) -> Model:
    """Hunyuan 3: normed heads, a dense first layer, routed and shared experts."""
    c = c.having(head_dim=128, moe_intermediate_size=1536)
    width, count = c.count("moe_intermediate_size"), n_layers(c)
    experts = routed(
        c,
        c.count("num_experts", default=192, most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=width * c.count("num_shared_experts", default=1, least=0, most=100_000),
    )
    kinds = c.names("mlp_layer_types", ("dense", "sparse"), count)
    first = c.count("first_k_dense_replace", default=1, least=0)
    sparse = [kind == "sparse" for kind in kinds] or [i >= first for i in range(count)]
    bias = attention_bias(c)
    return stack(c, gqa(c, bias=bias, norm="head", kv_default=8), mixed(c, sparse, experts))
