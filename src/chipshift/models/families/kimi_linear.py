"""Kimi Linear: three layers of delta attention with a decay a channel, one of latent attention.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from chipshift.models.families.decoder import FULL, assemble, d_model, n_layers
from chipshift.models.families.deepseek import mla
from chipshift.models.families.mixers import kimi_delta
from chipshift.models.families.moe import mixed, routed
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model


def kimi_linear(c: Fields) -> Model:
    """Kimi Linear: experts in all layers but the first."""
    c = c.having(
        vocab_size=163_840,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=27,
        num_attention_heads=32,
        q_lora_rank=None,
    )
    count, width = n_layers(c), c.count("moe_intermediate_size", default=1024)
    shared = c.count("num_shared_experts", "n_shared_experts", default=1, least=0, most=100_000)
    experts = routed(
        c,
        c.count("num_experts", "num_local_experts", default=256, most=100_000),
        c.count("num_experts_per_token", "num_experts_per_tok", default=8),
        width,
        shared_width=shared * width,
    )
    listed = c.names("mlp_layer_types", ("dense", "sparse"), count)
    first = c.count("first_k_dense_replace", default=1, least=0)
    sparse = [kind == "sparse" for kind in listed] or [i >= first for i in range(count)]
    linear = c.part("linear_attn_config") if c.has("linear_attn_config") else None
    own = linear or c
    delta = kimi_delta(
        d_model(c),
        own.count("num_heads", "linear_num_heads", default=32, most=100_000),
        own.count("head_dim" if linear else "linear_head_dim", default=128),
        own.count("short_conv_kernel_size", "linear_conv_kernel_dim", default=4, most=10_000),
    )
    latent = mla(c)
    layers = [
        Layer(latent, feed, 2 * d_model(c)) if full else Layer(None, feed, 2 * d_model(c), delta)
        for full, feed in zip(_full(c, linear), mixed(c, sparse, experts), strict=True)
    ]
    return assemble(
        c,
        layers,
        tied=False,  # the reference never ties it, whatever the config says
        final_norm_params=d_model(c),
        mtp_layers=c.count("num_nextn_predict_layers", default=0, least=0),
    )


def _full(c: Fields, linear: Fields | None) -> list[bool]:
    """Which layers attend to all: listed by kind, by number from 1, or each fourth but the first.

    Raises:
        InputError: a list by number leaves a layer out.
    """
    count = n_layers(c)
    kinds = c.names("layer_types", (FULL, "linear_attention"), count)
    if kinds:
        return [kind == FULL for kind in kinds]
    if linear is None or not linear.has("full_attn_layers"):
        return [i > 0 and i % 4 == 0 for i in range(count)]
    full, others = set(linear.counts("full_attn_layers")), set(linear.counts("kda_layers"))
    if full | others != set(range(1, count + 1)):
        raise linear.wrong(
            "full_attn_layers", f"with kda_layers each number from 1 to {count} once"
        )
    return [i in full for i in range(1, count + 1)]
