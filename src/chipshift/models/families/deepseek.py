"""DeepSeek-V3 and what is built like it: latent attention, shared experts, dense first layers.

Shapes and defaults as transformers 5.24 builds them. The router's correction bias is a buffer
there and not a parameter; multi-token-prediction blocks are not built and so not counted.
"""

from __future__ import annotations

from chipshift.models.families.decoder import assemble, d_model, mlp, n_layers
from chipshift.models.families.moe import routed
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Layer, Model


def mla(c: Fields) -> Attention:
    """Multi-head latent attention; queries have no latent where ``q_lora_rank`` is null or 0."""
    heads = c.count("num_attention_heads", most=100_000)
    nope = c.count("qk_nope_head_dim", default=128)
    rope = c.count("qk_rope_head_dim", default=64)
    value = c.count("v_head_dim", default=128)
    kv_rank = c.count("kv_lora_rank", default=512)
    given = "q_lora_rank" in c.values
    q_rank = c.maybe("q_lora_rank", least=0) if given else c.count("q_lora_rank", default=1536)
    q_rank = q_rank or None
    bias = c.flag("attention_bias", default=False)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        v_head_dim=value,
        bias_params=bias * ((q_rank or 0) + kv_rank + rope + d_model(c)),
        norm_params=(q_rank or 0) + kv_rank,
        q_lora_rank=q_rank,
        kv_lora_rank=kv_rank,
        qk_rope_head_dim=rope,
    )


def deepseek_v3(c: Fields) -> Model:
    """DeepSeek-V3 and R1: ``first_k_dense_replace`` dense layers, the rest routed and shared."""
    return latent_moe(c.having(n_routed_experts=256, moe_intermediate_size=2048))


def latent_moe(c: Fields) -> Model:
    """Latent attention in every layer, routed experts after the first dense layers."""
    count = n_layers(c)
    dense_layers = min(c.count("first_k_dense_replace", default=3, least=0), count)
    width = c.count("moe_intermediate_size")
    shared = c.count("n_shared_experts", default=1, least=0, most=100_000)
    experts = routed(
        c,
        c.count("n_routed_experts", "num_local_experts", most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=shared * width,
    )
    attention = mla(c)
    norms = 2 * d_model(c)
    layers = [Layer(attention, experts, norms)] * (count - dense_layers)
    if dense_layers:
        layers = [Layer(attention, mlp(c), norms)] * dense_layers + layers
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
        mtp_layers=c.count("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0),
    )
