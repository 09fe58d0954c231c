"""The decoder: one layer, all of them, the embedding and the loss; letters as for the weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step import moe
from chipshift.compiled.step.attention import MASKED, attend, rotate
from chipshift.compiled.step.axes import BATCH, seq, weight_axes
from chipshift.compiled.step.config import Block, Config
from chipshift.compiled.step.remat import offloading
from chipshift.compiled.step.remat_names import checkpoint_names
from chipshift.compiled.step.sharding import (
    Weight,
    constrain,
    gathered,
    on_devices,
    project,
    project_apart,
    project_out,
    project_over_tp,
    scattered,
)
from chipshift.compiled.step.weights import block_weights, model_weights

WHOLE = P(BATCH, "cp", None)
"""A matmul's input; HEADS and WIDE: what tp cuts, of attention and of a feed-forward."""
HEADS = P(BATCH, "cp", "tp", None)
WIDE = P(BATCH, "cp", "tp")


def norm(cfg: Config, x: Any, weight: Any) -> Any:
    """RMS norm in fp32, cast back."""
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + cfg.variant.eps)
    w = weight.astype(jnp.float32)
    if cfg.variant.unit_offset:
        w = w + 1.0
    return (x32 * scale * w).astype(x.dtype)


def activate(cfg: Config, x: Any) -> Any:
    kind = cfg.variant.activation
    return jax.nn.silu(x) if kind == "silu" else jax.nn.gelu(x, approximate=kind == "gelu_tanh")


def between(cfg: Config) -> Any:
    """Where activations lie between the matmuls."""
    return P(BATCH, seq(cfg), None)


@dataclass(frozen=True)
class Weights:
    """The parameters of one layer, used by name."""

    mesh: Mesh
    cfg: Config
    layout: dict[str, Weight]
    params: dict[str, Any]

    def small(self, name: str, dtype: Any = None) -> Any:
        """A small weight, which every device has whole."""
        return self.params[name].astype(dtype or self.cfg.compute_dtype)

    def project(self, name: str, equation: str, x: Any) -> Any:
        """``x`` times a weight that FSDP gathers for it."""
        return project(self.mesh, self.cfg, self.layout[name], equation, x, self.params[name])

    def project_all(self, names: tuple[str, ...], equation: str, x: Any) -> tuple[Any, ...]:
        """``x``, its sequence in parts, times several weights."""
        if self.cfg.mesh[4] > 1 and self.cfg.sequence_parallel:
            layouts, ws = zip(*((self.layout[n], self.params[n]) for n in names), strict=True)
            return project_over_tp(self.mesh, self.cfg, layouts, equation, x, ws)
        return tuple(self.project(name, equation, x) for name in names)

    def project_out(self, name: str, equation: str, x: Any) -> Any:
        """What tp cuts times a weight, the result's sequence in parts."""
        if self.cfg.mesh[4] > 1 and self.cfg.sequence_parallel:
            layout, w = self.layout[name], self.params[name]
            return project_out(self.mesh, self.cfg, layout, equation, x, w)
        return self.project(name, equation, x)

    def project_apart(self, name: str, x: Any) -> Any:
        """The same where every tp device has the whole weight and its part of the sequence."""
        return project_apart(self.mesh, self.cfg, self.layout[name], x, self.params[name])

    def part(self, name: str) -> tuple[Any, Any]:
        """A weight as it lives, in parts, and how it is cut; in the dtype that its gradient is
        reduced in, over dp too."""
        part = self.params[name].astype(self.cfg.reduce_dtype)
        return part, self.layout[name].spec(self.cfg)


def attention(mesh: Mesh, cfg: Config, block: Block, w: Weights, x_BSM: Any) -> Any:
    """Self-attention, its heads cut over tp."""
    if block.kv_rank is None:
        q, k, v = w.project_all(("q", "k", "v"), "bsm,mhd->bshd", x_BSM)
        if block.qkv_bias:
            copies = k.shape[2] // block.kv_heads  # where tp has more devices than there are heads
            k_bias, v_bias = (
                jnp.repeat(w.small(name), copies, axis=0) for name in ("k_bias", "v_bias")
            )
            q, k, v = q + w.small("q_bias"), k + k_bias, v + v_bias
        if block.qk_norm:
            q, k = norm(cfg, q, w.small("q_norm")), norm(cfg, k, w.small("k_norm"))
        q, k = (rotate(cfg, block, y) for y in (q, k))
    else:
        q, k, v = _latent(mesh, cfg, block, w, x_BSM)
    if block.kv_heads % cfg.mesh[4] == 0 or k.shape[2] > block.kv_heads:
        k, v = constrain(mesh, k, HEADS), constrain(mesh, v, HEADS)
    q, k, v = (checkpoint_name(y, n) for y, n in ((q, "q"), (k, "k"), (v, "v")))
    q = constrain(mesh, q, HEADS)
    context = constrain(mesh, attend(mesh, cfg, block, q, k, v), HEADS)
    if block.out_bias:
        return w.project_out("o", "bshd,hdm->bsm", context) + w.small("o_bias")
    return w.project_out("o", "bshd,hdm->bsm", context)


def _latent(mesh: Mesh, cfg: Config, block: Block, w: Weights, x: Any) -> tuple[Any, Any, Any]:
    """DeepSeek's attention: queries and keys/values through low-rank latents.

    Sequence parallel: every device has the whole down projections and makes the latents of its own
    part of the sequence; the latents, narrower than the hidden state, are gathered over tp.
    """
    nope = block.head_dim - block.rope_dim
    if block.q_rank:
        down = checkpoint_name(w.project_apart("q_down", x), "mla_q")
        latent = norm(cfg, down, w.small("q_down_norm"))
    else:
        latent = x
    latent = gathered(mesh, latent, between(cfg), WHOLE)
    q = constrain(mesh, w.project("q", "bsr,rhd->bshd", latent), HEADS)
    q = jnp.concatenate([q[..., :nope], rotate(cfg, block, q[..., nope:])], axis=-1)
    down = checkpoint_name(w.project_apart("kv_down", x), "mla_kv")
    latent, shared = jnp.split(down, [block.kv_rank], axis=-1)
    latent = gathered(mesh, norm(cfg, latent, w.small("kv_down_norm")), between(cfg), WHOLE)
    shared = gathered(mesh, shared, between(cfg), WHOLE)
    kv = constrain(mesh, w.project("kv", "bsr,rhd->bshd", latent), HEADS)
    k, v = jnp.split(kv, [nope], axis=-1)
    rope = rotate(cfg, block, shared[:, :, None, :])
    rope = constrain(mesh, jnp.broadcast_to(rope, (*k.shape[:3], block.rope_dim)), HEADS)
    return q, jnp.concatenate([k, rope], axis=-1), v


def mlp(mesh: Mesh, cfg: Config, block: Block, w: Weights, x: Any, prefix: str = "") -> Any:
    """Feed-forward, its width cut over tp."""
    names = (prefix + "gate", prefix + "up") if block.gated else (prefix + "gate",)
    hidden, *up = w.project_all(names, "bsm,mf->bsf", x)
    hidden = activate(cfg, checkpoint_name(constrain(mesh, hidden, WIDE), "gate"))
    if block.gated:
        hidden = hidden * checkpoint_name(constrain(mesh, up[0], WIDE), "up")
    hidden = checkpoint_name(hidden, "act")
    return w.project_out(prefix + "down", "bsf,fm->bsm", hidden)


def routed(mesh: Mesh, cfg: Config, block: Block, w: Weights, x: Any) -> Any:
    """Routed experts and the shared one."""
    logits = jnp.einsum("bsm,me->bse", x.astype(jnp.float32), w.small("router", jnp.float32))
    names = ("expert_gate", "expert_up", "expert_down")
    parts, cuts = zip(*(w.part(name) for name in names), strict=True)
    weights = (*parts, w.small("router_bias", jnp.float32))
    y = moe.experts(mesh, cfg, block, cuts, x, logits, weights)
    if block.shared_width:
        shared = mlp(mesh, cfg, block, w, x, "shared_")
        if block.shared_gate:
            shared = shared * jax.nn.sigmoid(jnp.einsum("bsm,mo->bso", x, w.small("shared_router")))
        y = y + shared
    return y


def layer(mesh: Mesh, cfg: Config, block: Block, params: dict[str, Any], x_BSM: Any) -> Any:
    """One decoder layer. FSDP gathers each weight where it is used."""
    w = Weights(mesh, cfg, block_weights(cfg, block), params)
    x_BSM = checkpoint_name(x_BSM, "block_input")
    h = checkpoint_name(norm(cfg, x_BSM, params["attention_norm"]), "attention_in")
    h = attention(mesh, cfg, block, w, h)
    if cfg.variant.post_norms:
        h = norm(cfg, h, params["attention_post_norm"])
    x = x_BSM + checkpoint_name(h, "attention_out")
    h = checkpoint_name(norm(cfg, x, params["mlp_norm"]), "mlp_in")
    h = routed(mesh, cfg, block, w, h) if block.experts else mlp(mesh, cfg, block, w, h)
    if cfg.variant.post_norms:
        h = norm(cfg, h, params["mlp_post_norm"])
    return constrain(mesh, x + h, between(cfg))


def embed(mesh: Mesh, cfg: Config, table: Any, ids_BS: Any) -> Any:
    """Rows of the table. Each device looks up its own part of every row for the sequences of all
    fsdp devices, then they exchange: far fewer bytes than gathering the table."""
    spec = model_weights(cfg)["embed"].spec(cfg)
    cut_vocab = cfg.mesh[4] > 1
    sharded = weight_axes(cfg)
    over = tuple(axis for axis in sharded if axis != "cp")

    def lookup(ids: Any, rows: Any) -> Any:
        if sharded:
            ids = jax.lax.all_gather(ids, over, axis=0, tiled=True)
            if cfg.mesh[3] > 1:
                ids = jax.lax.all_gather(ids, "cp", axis=1, tiled=True)
        if cut_vocab:
            ids = ids - jax.lax.axis_index("tp") * rows.shape[0]
        inside = (ids >= 0) & (ids < rows.shape[0])
        x = rows.at[jnp.where(inside, ids, rows.shape[0])].get(mode="fill", fill_value=0)
        if sharded:
            if cfg.mesh[3] > 1:
                x = jax.lax.all_to_all(x, "cp", split_axis=1, concat_axis=2, tiled=True)
            x = jax.lax.all_to_all(x, over, split_axis=0, concat_axis=2, tiled=True)
        if cut_vocab and cfg.sequence_parallel:
            return jax.lax.psum_scatter(x, "tp", scatter_dimension=1, tiled=True)
        return jax.lax.psum(x, "tp") if cut_vocab else x

    out = P(BATCH, seq(cfg) if cut_vocab else "cp", None)
    look_up = on_devices(mesh, lookup, (P(BATCH, "cp"), spec), out)
    x = look_up(ids_BS, table.astype(cfg.compute_dtype))
    if cfg.mesh[4] > 1:
        x = scattered(mesh, x, between(cfg), out)
    if cfg.variant.embed_scale != 1.0:
        x = x * jnp.asarray(cfg.variant.embed_scale, x.dtype)
    return x


def hidden_states(mesh: Mesh, cfg: Config, params: dict[str, Any], ids_BS: Any) -> Any:
    """Embedding, every layer, the last norm."""
    x = embed(mesh, cfg, params["embed"], ids_BS)
    kept, moved = checkpoint_names(cfg.remat)
    if moved:
        keep = offloading(kept, moved)
    else:
        keep = jax.checkpoint_policies.save_only_these_names(*kept)
    for (unit, repeats), stacked in zip(cfg.segments, params["segments"], strict=True):
        # A loop keeps forward and backward pass apart; without one XLA would make their gathers one
        # and keep what is gathered.
        alone = repeats == 1

        def body(x: Any, weights: Any, unit: Any = unit, alone: bool = alone) -> tuple[Any, None]:
            for block, one in zip(unit, weights, strict=True):
                run = partial(layer, mesh, cfg, block)
                x = jax.checkpoint(run, policy=keep, prevent_cse=alone)(one, x)
            return x, None

        x, _ = jax.lax.scan(body, x, stacked)
    return norm(cfg, x, params["final_norm"])


def loss(mesh: Mesh, cfg: Config, params: dict[str, Any], ids_BS: Any, targets_BS: Any) -> Any:
    """Mean cross-entropy of the next token; logits in fp32."""
    x = hidden_states(mesh, cfg, params, ids_BS)
    if cfg.mesh[4] > 1:
        x = gathered(mesh, x, between(cfg), WHOLE)
    name, equation = ("embed", "bsm,vm->bsv") if cfg.tied else ("head", "bsm,mv->bsv")
    weight = model_weights(cfg)[name]
    if cfg.loss_chunks > 1:
        return loss_in_pieces(mesh, cfg, x, params[name], targets_BS)

    def piece(total: Any, part: Any) -> tuple[Any, None]:
        h, target = part
        logits = project(mesh, cfg, weight, equation, h, params[name], jnp.float32)
        logits = constrain(mesh, logits, WIDE)
        if cfg.variant.logit_cap:
            logits = cfg.variant.logit_cap * jnp.tanh(logits / cfg.variant.logit_cap)
        if cfg.vocab % cfg.mesh[4]:
            logits = of_words(cfg, logits, 0)
        log_sum = jax.nn.logsumexp(logits, axis=-1)
        # A comparison instead of a gather: each device picks from its own part of the vocabulary.
        chosen = jnp.arange(logits.shape[-1])[None, None, :] == target[..., None]
        return total + (log_sum - jnp.where(chosen, logits, 0.0).sum(-1)).sum(), None

    total, _ = piece(jnp.float32(0.0), (x, targets_BS))
    return total / targets_BS.size


def of_words(cfg: Config, logits: Any, first: Any) -> Any:
    """Logits, the columns beyond the vocabulary out of the way; ``first``: the first's column."""
    return jnp.where(first + jnp.arange(logits.shape[-1]) < cfg.vocab, logits, MASKED)


def loss_in_pieces(mesh: Mesh, cfg: Config, x_BSM: Any, head: Any, targets_BS: Any) -> Any:
    """As ``loss`` from the last norm on, a piece of the sequence at a time.

    Written for one device: it gathers the head once, adds up the head's gradient over the pieces,
    and reduces that once; left to the partitioner, every piece would reduce its own.
    """
    weight = model_weights(cfg)["embed" if cfg.tied else "head"]
    spec, equation = weight.spec(cfg), "bsm,vm->bsv" if cfg.tied else "bsm,mv->bsv"
    whole = next((dim for dim, axes in enumerate(spec) if axes and "fsdp" in axes), None)
    over_tp = cfg.mesh[4] > 1
    n = cfg.loss_chunks

    def on_device(x: Any, head: Any, targets: Any) -> Any:
        head = head.astype(cfg.compute_dtype)
        if whole is not None:
            head = jax.lax.all_gather(head, weight_axes(cfg), axis=whole, tiled=True)

        def add_tp(y: Any) -> Any:
            return jax.lax.psum(y, "tp") if over_tp else y

        def piece(total: Any, part: Any) -> tuple[Any, None]:
            h, target = part
            logits = jnp.einsum(equation, h, head, preferred_element_type=jnp.float32)
            if cfg.variant.logit_cap:
                logits = cfg.variant.logit_cap * jnp.tanh(logits / cfg.variant.logit_cap)
            first = jax.lax.axis_index("tp") * logits.shape[-1] if over_tp else 0
            if cfg.vocab % cfg.mesh[4]:
                logits = of_words(cfg, logits, first)
            top = jax.lax.stop_gradient(logits.max(-1))
            top = jax.lax.pmax(top, "tp") if over_tp else top
            log_sum = top + jnp.log(add_tp(jnp.exp(logits - top[..., None]).sum(-1)))
            chosen = first + jnp.arange(logits.shape[-1]) == target[..., None]
            return total + (log_sum - add_tp(jnp.where(chosen, logits, 0.0).sum(-1))).sum(), None

        B, S, M = x.shape
        xs = x.reshape(B, n, S // n, M).swapaxes(0, 1)
        ts = targets.reshape(B, n, S // n).swapaxes(0, 1)
        total, _ = jax.lax.scan(jax.checkpoint(piece), jnp.float32(0.0), (xs, ts))
        return jax.lax.psum(total, (*BATCH, "cp"))

    total = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(WHOLE, spec, P(BATCH, "cp")),
        out_specs=P(),
        check_vma=False,
    )(x_BSM, head, targets_BS)
    return total / targets_BS.size
