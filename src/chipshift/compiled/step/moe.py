"""Mixture of experts: route, send tokens to their experts' devices, multiply, send them back.

Shape letters: N tokens of a device, M model width, E experts, C slots an expert keeps for the
tokens of one device, F expert width.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step.axes import BATCH, seq
from chipshift.compiled.step.config import Block, Config, Variant
from chipshift.compiled.step.sharding import fsdp_gathered, gathered


def choose(variant: Variant, block: Block, logits_E: Any, bias_E: Any) -> tuple[Any, Any]:
    """Weights and indices of each token's experts, in fp32."""
    logits = logits_E.astype(jnp.float32)
    if variant.router == "topk_softmax":
        best, index = jax.lax.top_k(logits, block.top_k)
        return jax.nn.softmax(best, axis=-1), index
    if variant.router == "softmax":
        scores = ranked = jax.nn.softmax(logits, axis=-1)
    else:
        scores = jax.nn.sigmoid(logits)
        ranked = scores + jax.lax.stop_gradient(bias_E)
    if variant.expert_groups > 1:
        ranked = _best_groups(variant, ranked)
    _, index = jax.lax.top_k(ranked, block.top_k)
    weights = jnp.take_along_axis(scores, index, axis=-1)
    if variant.renormalise:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return weights * variant.router_scale, index


def _best_groups(variant: Variant, ranked: Any) -> Any:
    """DeepSeek: only experts of the best groups may be chosen; a group is ranked by its best expert
    (V2), or by the sum of its two best (V3)."""
    groups = ranked.reshape(*ranked.shape[:-1], variant.expert_groups, -1)
    best = jax.lax.top_k(groups, 2 if variant.router == "sigmoid" else 1)[0].sum(-1)
    _, chosen = jax.lax.top_k(best, variant.top_groups)
    allowed = jax.nn.one_hot(chosen, variant.expert_groups).sum(-2) > 0
    return jnp.where(allowed[..., None], groups, 0.0).reshape(ranked.shape)


def experts(
    mesh: Mesh, cfg: Config, block: Block, cuts: Any, x: Any, logits: Any, weights: Any
) -> Any:
    """``x`` (B, S, M) through its experts. ``weights``: gate, up, down, of which a device has its
    part as ``cuts`` says, and the routing bias."""
    whole, cut = P(BATCH, "cp", None), P(BATCH, seq(cfg), None)
    x = gathered(mesh, x, cut, whole)
    logits = gathered(mesh, logits, cut, whole)
    return jax.shard_map(
        partial(_on_device, cfg, block, cuts),
        mesh=mesh,
        in_specs=(whole, whole, *cuts, P()),
        out_specs=cut,
        check_vma=False,
    )(x, logits, *weights)


def _on_device(
    cfg: Config, block: Block, cuts: Any, x: Any, logits: Any, *weights_and_bias: Any
) -> Any:
    """What one device does with its own tokens and its own experts."""
    *parts, bias = weights_and_bias
    gate, up, down = (fsdp_gathered(cfg, spec, w) for spec, w in zip(cuts, parts, strict=True))
    B, S, M = x.shape
    N, E, ep = B * S, block.experts, cfg.mesh[2]
    weights, chosen = choose(cfg.variant, block, logits.reshape(N, E), bias)
    C = max(1, math.ceil(N * block.top_k / E * cfg.capacity))
    # A token's slot at its expert is the number of earlier tokens that chose the same expert.
    flat = chosen.reshape(-1)
    mine = jax.nn.one_hot(flat, E, dtype=jnp.int32)
    slot = ((jnp.cumsum(mine, axis=0) - 1) * mine).sum(-1)
    place = jnp.where(slot < C, flat * C + slot, E * C)  # beyond the last slot: dropped
    token = jnp.arange(N * block.top_k) // block.top_k
    source = jnp.full((E * C,), N, jnp.int32).at[place].set(token, mode="drop")
    sent = x.reshape(N, M).at[source].get(mode="fill", fill_value=0).reshape(ep, E // ep, C, M)

    got = jax.lax.all_to_all(sent, "ep", split_axis=0, concat_axis=0, tiled=True)
    got = got.transpose(1, 0, 2, 3).reshape(E // ep, ep * C, M)
    got = checkpoint_name(got, "expert_in")
    hidden = checkpoint_name(jnp.einsum("ecm,emf->ecf", got, gate), "gate")
    kind = cfg.variant.activation
    hidden = jax.nn.silu(hidden) if kind == "silu" else jax.nn.gelu(hidden, kind == "gelu_tanh")
    if block.gated:
        hidden = hidden * checkpoint_name(jnp.einsum("ecm,emf->ecf", got, up), "up")
    hidden = checkpoint_name(hidden, "expert_act")
    out = jnp.einsum("ecf,efm->ecm", hidden, down)
    out = out.reshape(E // ep, ep, C, M).transpose(1, 0, 2, 3)
    out = jax.lax.all_to_all(out, "ep", split_axis=0, concat_axis=0, tiled=True)

    back = out.reshape(E * C, M).at[place].get(mode="fill", fill_value=0)
    y = (back.reshape(N, -1, M) * weights[..., None].astype(x.dtype)).sum(1).reshape(B, S, M)
    if cfg.sequence_parallel:
        return jax.lax.psum_scatter(y, "tp", scatter_dimension=1, tiled=True)
    return jax.lax.psum(y, "tp")
