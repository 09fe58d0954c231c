"""DeepSeek-V3 and what is built like it: latent attention, shared experts, dense first layers, in
V3.2 and GLM-5 sparse attention.

Shapes and defaults as transformers 5.24 builds them. The router's correction bias is a buffer
there and not a parameter; multi-token-prediction blocks are not built and so not counted.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import assemble, d_model, mlp, n_layers, stack
from chipshift.models.families.moe import mixed, routed
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Layer, Model, Projection


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
    """DeepSeek-V3 and R1, Kimi K2: ``first_k_dense_replace`` dense layers, the rest routed."""
    return latent_moe(c.having(n_routed_experts=256, moe_intermediate_size=2048), dense=3)


def deepseek_v2(c: Fields) -> Model:
    """DeepSeek-V2 and V2-Lite: as V3 with other defaults."""
    c = c.having(n_routed_experts=64, moe_intermediate_size=1407, n_shared_experts=2)
    return latent_moe(c, dense=0)


def minicpm3(c: Fields) -> Model:
    """MiniCPM 3: latent attention before dense feed-forwards."""
    c = c.having(q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32)
    c = c.having(v_head_dim=d_model(c) // c.count("num_attention_heads", most=100_000))
    feed_forward = mlp(c, bias=c.flag("mlp_bias", default=False))
    return stack(c, mla(c), feed_forward, tied=True)


def glm4_moe_lite(c: Fields) -> Model:
    """GLM-4.7-Flash: GLM's experts over latent attention, the first layer dense unless listed."""
    kinds = c.names("mlp_layer_types", ("dense", "sparse"), n_layers(c))
    first = kinds.index("sparse") if "sparse" in kinds else 1
    c = c.having(n_routed_experts=64, moe_intermediate_size=1536, num_experts_per_tok=4)
    c = c.having(qk_nope_head_dim=192, v_head_dim=256)
    if "q_lora_rank" not in c.values:  # a null is none
        c = c.having(q_lora_rank=768)
    return latent_moe(c.replaced(first_k_dense_replace=first), dense=1)


def deepseek_v32(c: Fields) -> Model:
    """DeepSeek-V3.2: V3 whose queries attend to ``index_topk`` keys, picked in every layer."""
    c = c.having(n_routed_experts=256, moe_intermediate_size=2048, index_n_heads=64)
    return _indexed(c, [True] * n_layers(c))


def glm_moe_dsa(c: Fields) -> Model:
    """GLM-5: the same, the keys picked in some layers and shared by those that follow."""
    c = c.having(
        q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256, moe_intermediate_size=2048,
        n_routed_experts=256, index_n_heads=32,
    )  # fmt: skip
    count = n_layers(c)
    kinds = c.names("mlp_layer_types", ("dense", "sparse"), count)
    if "sparse" in kinds:
        c = c.replaced(first_k_dense_replace=kinds.index("sparse"))
    picks = [kind == "full" for kind in c.names("indexer_types", ("full", "shared"), count)]
    if not picks:
        every = c.count("index_topk_freq", default=1)
        offset = c.count("index_skip_topk_offset", default=2, least=0)
        picks = [max(i - offset + 1, 0) % every == 0 for i in range(count)]
    return _indexed(c, picks)


def _indexed(c: Fields, picks: list[bool]) -> Model:
    """Latent MoE with sparse attention: a small scorer in each layer that ``picks`` its keys.

    The scorer's maps and norm are counted; its scores, which multiply activations, are not: of
    GLM-5 at 4,096 tokens 1.5 % of such a layer's FLOPs (2 × 32 × 128 × 2,048 of a forward pass).
    """
    width, dim = d_model(c), c.count("index_head_dim", default=128)
    heads = c.count("index_n_heads", most=100_000)
    attention = mla(c)
    attention = replace(attention, window=c.count("index_topk", default=2048), latent_keys=True)
    queries = attention.q_lora_rank or width
    maps = (
        Projection("indexer.wq_b", queries, heads * dim),
        Projection("indexer.wk", width, dim),
        Projection("indexer.weights_proj", width, heads),
    )
    plain = latent_moe(c, dense=3)
    feed_forward = [plain.layers[kind][0].mlp for kind in plain.layer_order]
    layers = [
        Layer(attention, mlp, 2 * width, projections=maps, other_params=2 * dim)
        if pick
        else Layer(attention, mlp, 2 * width)
        for pick, mlp in zip(picks, feed_forward, strict=True)
    ]
    return assemble(
        c, layers, tied=plain.tied, final_norm_params=width, mtp_layers=plain.mtp_layers
    )


def latent_moe(c: Fields, dense: int) -> Model:
    """Latent attention in every layer, routed experts after the first dense layers."""
    count = n_layers(c)
    first = c.count("first_k_dense_replace", default=dense, least=0)
    width = c.count("moe_intermediate_size")
    shared = c.count("n_shared_experts", default=1, least=0, most=100_000)
    experts = routed(
        c,
        c.count("n_routed_experts", "num_local_experts", most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=shared * width,
    )
    return stack(
        c,
        mla(c),
        mixed(c, [i >= first for i in range(count)], experts),
        mtp_layers=c.count("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0),
    )
