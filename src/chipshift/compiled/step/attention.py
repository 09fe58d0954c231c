"""Causal attention: a Pallas kernel on TPU, plain JAX in query blocks elsewhere.

Shape letters: B sequences, S queries, T keys, H query heads, K key/value heads, G = H / K,
D head width.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step.axes import BATCH
from chipshift.compiled.step.config import Block, Config
from chipshift.compiled.step.sharding import gathered, on_devices

MASKED = -1e30  # not -inf: a row with no visible key must stay finite


def frequencies(block: Block, width: int) -> Any:
    """Radians that each rotary pair turns by a position."""
    rope = block.rope
    plain = rope.theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    if rope.scaling == "":
        return plain
    slow = plain / rope.factor
    if rope.scaling == "linear":
        return slow
    if rope.scaling == "llama3":
        turns = rope.length * plain / (2 * jnp.pi)
        share = (turns - rope.low) / (rope.high - rope.low)
    else:
        pair = jnp.arange(width // 2, dtype=jnp.float32)
        share = (rope.high - pair) / (rope.high - rope.low)
    kept = jnp.clip(share, 0.0, 1.0)
    return plain * kept + slow * (1.0 - kept)


def rotate(cfg: Config, block: Block, x_BSHD: Any) -> Any:
    """Rotary position embedding over the whole width of ``x``, in fp32."""
    width, length = x_BSHD.shape[-1], x_BSHD.shape[1]
    position = jnp.arange(length, dtype=jnp.float32)[:, None, None]
    angle = position * frequencies(block, width)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if block.rope.gain != 1.0:
        cos, sin = block.rope.gain * cos, block.rope.gain * sin
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
    if cfg.mesh[3] > 1:  # context parallel: a device needs all keys and values of its sequences
        k_BTKD, v_BTKD = (gathered(mesh, x, local, whole) for x in (k_BTKD, v_BTKD))
    scale = cfg.variant.query_scale or block.head_dim**-0.5
    q_BSHD = q_BSHD * jnp.asarray(scale, q_BSHD.dtype)
    if cfg.attention == "splash":
        return _splash(mesh, cfg, block, q_BSHD, k_BTKD, v_BTKD)

    run = on_devices(mesh, partial(blockwise, cfg, block), (local, whole, whole), local)
    return checkpoint_name(run(q_BSHD, k_BTKD, v_BTKD), "context")


def blockwise(cfg: Config, block: Block, q_BSHD: Any, k_BTKD: Any, v_BTKD: Any) -> Any:
    """Attention on one device in blocks of queries, so that scores of a block only are alive at
    once."""
    B, S, H, D = q_BSHD.shape
    T, K, Dv = v_BTKD.shape[1:]
    rows = next(n for n in (512, 256, 128, S) if S % n == 0)
    blocks = q_BSHD.reshape(B, S // rows, rows, K, H // K, D).transpose(1, 0, 2, 3, 4, 5)

    def one(carry: None, args: Any) -> tuple[None, Any]:
        index, q = args
        scores = jnp.einsum("bskgd,btkd->bkgst", q, k_BTKD, preferred_element_type=jnp.float32)
        if cfg.variant.attention_cap:
            scores = cfg.variant.attention_cap * jnp.tanh(scores / cfg.variant.attention_cap)
        query, key = index * rows + jnp.arange(rows)[:, None], jnp.arange(T)[None, :]
        if cfg.mesh[3] > 1:
            query = query + jax.lax.axis_index("cp") * S
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
        raise ValueError(f"splash attention: {length} / cp {cp} is no multiple of 128 positions")
    if block.window is None or block.window >= length:
        mask = masks.CausalMask((length, length))
    else:
        mask = masks.LocalMask((length, length), window_size=(block.window - 1, 0), offset=0)
    sizes = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    splash = kernel.make_splash_mha(
        masks.MultiHeadMask([mask] * block.heads),
        head_shards=tp,
        q_seq_shards=cp,
        block_sizes=kernel.BlockSizes(**dict.fromkeys(sizes, rows)),
        attn_logits_soft_cap=cfg.variant.attention_cap or None,
        residual_checkpoint_name="context",  # here alone: a name outside too would keep it twice
    )
    masked = splash.manual_sharding_spec(jax.sharding.NamedSharding(mesh, P("tp", "cp")))
    local, whole = P(BATCH, "tp", "cp", None), P(BATCH, "tp", None, None)
    heads = (masked, local, whole, whole)
    run = on_devices(mesh, lambda splash, *qkv: jax.vmap(splash)(*qkv), heads, local)
    out = run(splash, *(x.transpose(0, 2, 1, 3) for x in (q, k, v)))
    return out.transpose(0, 2, 1, 3)
