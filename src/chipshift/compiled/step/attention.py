"""Causal attention: a Pallas kernel on TPU, plain JAX in query blocks elsewhere.

Shape letters: B sequences, S queries, T keys, H query heads, K key/value heads, G = H / K,
D head width.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step.config import Block, Config
from chipshift.compiled.step.sharding import BATCH, gathered

MASKED = -1e30  # not -inf: a row with no visible key must stay finite


def frequencies(block: Block, width: int) -> Any:
    """Radians that each rotary pair turns by a position."""
    plain = block.rope_theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    if block.rope_scaling == "":
        return plain
    slow = plain / block.rope_factor
    if block.rope_scaling == "linear":
        return slow
    if block.rope_scaling == "llama3":
        turns = block.rope_length * plain / (2 * jnp.pi)
        share = (turns - block.rope_low) / (block.rope_high - block.rope_low)
    else:
        pair = jnp.arange(width // 2, dtype=jnp.float32)
        share = (block.rope_high - pair) / (block.rope_high - block.rope_low)
    kept = jnp.clip(share, 0.0, 1.0)
    return plain * kept + slow * (1.0 - kept)


def rotate(cfg: Config, block: Block, x_BSHD: Any) -> Any:
    """Rotary position embedding over the whole width of ``x``, in fp32."""
    width, length = x_BSHD.shape[-1], x_BSHD.shape[1]
    position = jnp.arange(length, dtype=jnp.float32)[:, None, None]
    angle = position * frequencies(block, width)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if block.rope_gain != 1.0:
        cos, sin = block.rope_gain * cos, block.rope_gain * sin
    x = x_BSHD.astype(jnp.float32)
    if cfg.variant.interleaved_rope:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BSHD.dtype)


def attend(mesh: Mesh, cfg: Config, block: Block, q_BSHD: Any, k_BTKD: Any, v_BTKD: Any) -> Any:
    """Scaled, masked softmax attention; heads cut over tp, queries over cp, keys whole."""
    tp = cfg.mesh[4]
    # Fewer key heads than tp devices: a copy for each, where there is none yet.
    if block.kv_heads % tp and k_BTKD.shape[2] == block.kv_heads:
        repeat = tp // block.kv_heads
        k_BTKD, v_BTKD = (jnp.repeat(x, repeat, axis=2) for x in (k_BTKD, v_BTKD))
    local, whole = P(BATCH, "cp", "tp", None), P(BATCH, None, "tp", None)
    # Context parallel: every device needs all keys and values of its sequences.
    k_BTKD, v_BTKD = (gathered(mesh, x, local, whole) for x in (k_BTKD, v_BTKD))
    scale = cfg.variant.query_scale or block.head_dim**-0.5
    q_BSHD = q_BSHD * jnp.asarray(scale, q_BSHD.dtype)
    if cfg.attention == "splash":
        return _splash(mesh, cfg, block, q_BSHD, k_BTKD, v_BTKD)

    def local_attention(q: Any, k: Any, v: Any) -> Any:
        start = jax.lax.axis_index("cp") * q.shape[1]
        return blockwise(cfg, block, q, k, v, start)

    context = jax.shard_map(
        local_attention,
        mesh=mesh,
        in_specs=(local, whole, whole),
        out_specs=local,
        check_vma=False,
    )(q_BSHD, k_BTKD, v_BTKD)
    return checkpoint_name(context, "context")


def blockwise(cfg: Config, block: Block, q_BSHD: Any, k_BTKD: Any, v_BTKD: Any, start: Any) -> Any:
    """Attention in blocks of queries, the first at position ``start``, so that scores of a block
    only are alive at once."""
    B, S, H, D = q_BSHD.shape
    T, K, Dv = v_BTKD.shape[1:]
    rows = next(n for n in (512, 256, 128, S) if S % n == 0)
    blocks = q_BSHD.reshape(B, S // rows, rows, K, H // K, D).transpose(1, 0, 2, 3, 4, 5)

    def one(carry: None, args: Any) -> tuple[None, Any]:
        index, q = args
        scores = jnp.einsum("bskgd,btkd->bkgst", q, k_BTKD, preferred_element_type=jnp.float32)
        if cfg.variant.attention_cap:
            scores = cfg.variant.attention_cap * jnp.tanh(scores / cfg.variant.attention_cap)
        query = start + index * rows + jnp.arange(rows)[:, None]
        key = jnp.arange(T)[None, :]
        visible = key <= query
        if block.window is not None:
            visible &= key > query - block.window
        weights = jax.nn.softmax(jnp.where(visible, scores, MASKED), axis=-1).astype(q.dtype)
        return carry, jnp.einsum("bkgst,btkd->bskgd", weights, v_BTKD)

    _, out = jax.lax.scan(jax.checkpoint(one), None, (jnp.arange(S // rows), blocks))
    return out.transpose(1, 0, 2, 3, 4, 5).reshape(B, S, H, Dv)


def _splash(mesh: Mesh, cfg: Config, block: Block, q: Any, k: Any, v: Any) -> Any:
    """The Pallas kernel. Its blocks must divide the sequence and be multiples of 128."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    cp, tp = cfg.mesh[3], cfg.mesh[4]
    length = q.shape[1]
    rows = next((n for n in (512, 256, 128) if (length // cp) % n == 0), 0)
    if not rows:
        raise ValueError(
            f"splash attention needs each device's part of the sequence ({length} / cp {cp}) "
            "to be a multiple of 128"
        )
    shape = (length, length)
    if block.window is None or block.window >= length:
        mask = masks.CausalMask(shape)
    else:
        mask = masks.LocalMask(shape, window_size=(block.window - 1, 0), offset=0)
    splash = kernel.make_splash_mha(
        masks.MultiHeadMask([mask] * block.heads),
        head_shards=tp,
        q_seq_shards=cp,
        block_sizes=kernel.BlockSizes(
            block_q=rows,
            block_kv=rows,
            block_q_dkv=rows,
            block_kv_dkv=rows,
            block_q_dq=rows,
            block_kv_dq=rows,
        ),
        attn_logits_soft_cap=cfg.variant.attention_cap or None,
        residual_checkpoint_name="context",  # here alone: a name outside too would keep it twice
    )
    local, whole = P(BATCH, "tp", "cp", None), P(BATCH, "tp", None, None)
    heads_first = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    out = jax.shard_map(
        lambda splash, q, k, v: jax.vmap(splash)(q, k, v),
        mesh=mesh,
        in_specs=(
            splash.manual_sharding_spec(jax.sharding.NamedSharding(mesh, P("tp", "cp"))),
            local,
            whole,
            whole,
        ),
        out_specs=local,
        check_vma=False,
    )(splash, *heads_first)
    return out.transpose(0, 2, 1, 3)
