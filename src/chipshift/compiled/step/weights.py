"""The decoder's weights, which dimension of each the axes cut, and their random values.

Shape letters: B sequences, S positions, M model width, H query heads, K key/value heads,
D head width, F feed-forward width, E experts, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from chipshift.compiled.step.config import Block, Config, table_rows
from chipshift.compiled.step.sharding import Weight

EMBED_INIT = 0.02


def block_weights(cfg: Config, block: Block) -> dict[str, Weight]:
    """The weights of one layer, and which dimension each axis cuts."""
    M, H, K = cfg.d_model, block.heads, block.kv_heads
    D, Dv = block.head_dim, block.v_head_dim
    w = {"attention_norm": Weight((M,)), "mlp_norm": Weight((M,))}
    if cfg.variant.post_norms:
        w |= {"attention_post_norm": Weight((M,)), "mlp_post_norm": Weight((M,))}
    if block.kv_rank is None:
        heads: int | None = 1
        if K % cfg.mesh[4]:  # too few key heads: whole on every tp device
            heads = None
        w["q"] = Weight((M, H, D), tp=1, fsdp=0)
        w["k"] = Weight((M, K, D), tp=heads, fsdp=0)
        w["v"] = Weight((M, K, Dv), tp=heads, fsdp=0)
        if block.qk_norm:
            w |= {"q_norm": Weight((D,)), "k_norm": Weight((D,))}
        if block.qkv_bias:
            w |= {"q_bias": Weight((H, D), tp=0)}
            on_heads = None if heads is None else 0
            w |= {"k_bias": Weight((K, D), tp=on_heads), "v_bias": Weight((K, Dv), tp=on_heads)}
    else:
        nope = D - block.rope_dim
        if block.q_rank:
            w["q_down"] = Weight((M, block.q_rank), fsdp=0)
            w["q_down_norm"] = Weight((block.q_rank,))
            w["q"] = Weight((block.q_rank, H, D), tp=1, fsdp=0)
        else:
            w["q"] = Weight((M, H, D), tp=1, fsdp=0)
        w["kv_down"] = Weight((M, block.kv_rank + block.rope_dim), fsdp=0)
        w["kv_down_norm"] = Weight((block.kv_rank,))
        w["kv"] = Weight((block.kv_rank, H, nope + Dv), tp=1, fsdp=0)
    w["o"] = Weight((H, Dv, M), tp=0, fsdp=2)
    if block.out_bias:
        w["o_bias"] = Weight((M,))
    if block.mlp_width:
        w |= _mlp_weights(cfg, block, block.mlp_width, "")
    if block.experts:
        E, F = block.experts, block.expert_width
        w["router"] = Weight((M, E))
        w["router_bias"] = Weight((E,))
        w["expert_gate"] = Weight((E, M, F), ep=0, fsdp=1, tp=2)
        w["expert_up"] = Weight((E, M, F if block.gated else 0), ep=0, fsdp=1, tp=2)
        w["expert_down"] = Weight((E, F, M), ep=0, fsdp=2, tp=1)
        if block.shared_width:
            w |= _mlp_weights(cfg, block, block.shared_width, "shared_")
        if block.shared_gate:
            w["shared_router"] = Weight((M, 1))
    return w


def _mlp_weights(cfg: Config, block: Block, F: int, prefix: str) -> dict[str, Weight]:
    M = cfg.d_model
    w = {prefix + "gate": Weight((M, F), tp=1, fsdp=0)}
    if block.gated:
        w[prefix + "up"] = Weight((M, F), tp=1, fsdp=0)
    w[prefix + "down"] = Weight((F, M), tp=0, fsdp=1)
    return w


def model_weights(cfg: Config) -> dict[str, Weight]:
    """The weights outside the layers."""
    rows = cfg.vocab
    if cfg.vocab % cfg.mesh[4]:
        rows = table_rows(cfg)
    w = {
        "embed": Weight((rows, cfg.d_model), tp=0, fsdp=1),
        "final_norm": Weight((cfg.d_model,)),
    }
    if not cfg.tied:
        w["head"] = Weight((cfg.d_model, rows), tp=1, fsdp=0)
    return w


def tree(cfg: Config, leaf: Any) -> dict[str, Any]:
    """``leaf(weight, repeats)`` for every parameter; repeats 0 outside the scanned segments."""
    outside = {name: leaf(weight, 0) for name, weight in model_weights(cfg).items()}
    segments = [
        [{n: leaf(w, repeats) for n, w in block_weights(cfg, block).items()} for block in unit]
        for unit, repeats in cfg.segments
    ]
    return {**outside, "segments": segments}


def stacked(weight: Weight, repeats: int) -> tuple[int, ...]:
    """The shape of a segment's weights; repeats 0 outside the segments."""
    return (repeats, *weight.shape) if repeats else weight.shape


def init(cfg: Config, seed: int) -> dict[str, Any]:
    """Random parameters: normal matrices, norms at their identity."""
    keys = iter(jax.random.split(jax.random.key(seed), 4096))

    def leaf(weight: Weight, repeats: int) -> Any:
        shape, dtype = stacked(weight, repeats), jnp.dtype(cfg.master_dtype)
        if len(weight.shape) == 1:
            return jnp.full(shape, 0.0 if cfg.variant.unit_offset else 1.0, dtype)
        return EMBED_INIT * jax.random.normal(next(keys), shape, dtype)

    return tree(cfg, leaf)
