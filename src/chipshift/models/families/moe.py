"""Mixtral and the Qwen mixtures: routed experts in place of the feed-forward.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from chipshift.models.families.decoder import assemble, d_model, gqa, mlp, n_layers, windows
from chipshift.models.fields import Fields
from chipshift.models.model import DenseMlp, Layer, Model, MoeMlp


def routed(
    c: Fields,
    experts: int,
    top_k: int,
    width: int,
    *,
    matrices: int = 3,
    shared_width: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    expert_bias: bool = False,
) -> MoeMlp:
    """Routed experts behind a linear router over the residual stream.

    Raises:
        InputError: a token visits more experts than there are.
    """
    if top_k > experts:
        raise c.conflict(f"a token visits {top_k} experts and there are {experts}")
    return MoeMlp(
        experts=experts,
        top_k=top_k,
        width=width,
        matrices=matrices,
        shared_width=shared_width,
        router_params=experts * (d_model(c) + router_bias),
        shared_gate_params=d_model(c) * shared_gate,
        expert_bias_params=expert_bias * ((matrices - 1) * width + d_model(c)),
    )


def mixtral(c: Fields) -> Model:
    """Mixtral: every feed-forward is routed; slides only if ``sliding_window`` is set."""
    experts = routed(
        c,
        c.count("num_local_experts", default=8, most=100_000),
        c.count("num_experts_per_tok", default=2),
        c.count("intermediate_size"),
    )
    window = c.maybe("sliding_window")
    block = Layer(gqa(c, kv_default=8, window=window), experts, 2 * d_model(c))
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def sparse_layers(c: Fields) -> list[bool]:
    """Which Qwen layers are routed: each ``decoder_sparse_step``-th not in ``mlp_only_layers``."""
    step = c.count("decoder_sparse_step", default=1)
    dense = set(c.counts("mlp_only_layers"))
    return [i not in dense and (i + 1) % step == 0 for i in range(n_layers(c))]


def qwen2_moe(c: Fields) -> Model:
    """Qwen1.5-MoE and Qwen2-MoE: a gated shared expert beside the routed ones."""
    sparse = sparse_layers(c)
    experts = routed(
        c,
        c.count("num_experts", default=60, most=100_000),
        c.count("num_experts_per_tok", default=4),
        c.count("moe_intermediate_size", default=1408),
        shared_width=c.count("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    dense = mlp(c) if not all(sparse) else None
    bias = "qkv" if c.flag("qkv_bias", default=True) else ""
    layers = [
        Layer(gqa(c, bias=bias, window=w, kv_default=16), experts if s else dense, 2 * d_model(c))
        for w, s in zip(_qwen2_moe_windows(c), sparse, strict=True)
    ]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def _qwen2_moe_windows(c: Fields) -> list[int | None]:
    """With ``use_sliding_window``, every other layer below ``max_window_layers`` slides."""
    if not c.flag("use_sliding_window", default=False):
        return [None] * n_layers(c)
    last = c.count("max_window_layers", default=28, least=0)
    c = c.having(sliding_window=4096)
    return windows(c, [i % 2 == 0 and i < last for i in range(n_layers(c))])


def qwen3_moe(c: Fields) -> Model:
    """Qwen3-MoE: routed experts only, norms over query and key heads."""
    sparse = sparse_layers(c)
    experts = routed(
        c,
        c.count("num_experts", "num_local_experts", default=128, most=100_000),
        c.count("num_experts_per_tok", default=8),
        c.count("moe_intermediate_size", default=768),
    )
    dense = mlp(c) if not all(sparse) else None
    bias = "qkvo" if c.flag("attention_bias", default=False) else ""
    window = c.maybe("sliding_window") if c.flag("use_sliding_window", default=False) else None
    attention = gqa(c, bias=bias, norm="head", window=window, kv_default=4)
    feed_forward: list[DenseMlp | MoeMlp | None] = [experts if s else dense for s in sparse]
    return assemble(
        c,
        [Layer(attention, one, 2 * d_model(c)) for one in feed_forward],
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )
