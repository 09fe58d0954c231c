"""One optimizer step: gradients of accumulated microbatches, clipping, AdamW on fp32 masters."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step.axes import BATCH
from chipshift.compiled.step.config import Config
from chipshift.compiled.step.model import loss
from chipshift.compiled.step.sharding import Weight, constrain
from chipshift.compiled.step.weights import init, stacked, tree


def param_specs(cfg: Config, *, zero: bool = False) -> Any:
    """Where each parameter lives; layers of a segment are stacked in front, never cut there."""

    def leaf(weight: Weight, repeats: int) -> Any:
        spec = weight.spec(cfg, zero=zero)
        return P(None, *spec) if repeats else spec

    return tree(cfg, leaf)


def state_specs(cfg: Config) -> dict[str, Any]:
    """Master weights and moments; with ``zero`` they are cut over dp as well."""
    specs = param_specs(cfg, zero=cfg.zero)
    return {"params": specs, "mean": specs, "square": specs, "count": P()}


def state_shapes(cfg: Config) -> dict[str, Any]:
    def of(dtype: str) -> Any:
        return tree(cfg, lambda w, repeats: jax.ShapeDtypeStruct(stacked(w, repeats), dtype))

    dtypes = {"params": cfg.master_dtype, "mean": cfg.moment_dtype, "square": cfg.moment_dtype}
    state = {name: of(dtype) for name, dtype in dtypes.items()}
    return {**state, "count": jax.ShapeDtypeStruct((), jnp.int32)}


def init_state(cfg: Config, seed: int = 0) -> dict[str, Any]:
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), state_shapes(cfg))
    return {**zeros, "params": init(cfg, seed)}


def gradients(mesh: Mesh, cfg: Config, params: Any, ids: Any, targets: Any) -> Any:
    """Mean loss and its gradient over the microbatches of ``ids`` (accumulation, B, S)."""
    specs = param_specs(cfg)
    if cfg.zero:  # one gather over dp a step; the gradient comes back reduced and scattered
        # Both layouts are named, or XLA may gather before the cast.
        cast = jax.tree.map(
            lambda p, spec: constrain(mesh, p.astype(cfg.compute_dtype), spec),
            params,
            param_specs(cfg, zero=True),
        )
        params = jax.tree.map(partial(constrain, mesh), cast, specs)
    one = jax.value_and_grad(partial(loss, mesh, cfg))
    if cfg.accumulation == 1:
        return one(params, ids[0], targets[0])
    kept = jnp.dtype(cfg.gradient_dtype)

    def add(total: Any, batch: Any) -> tuple[Any, None]:
        new = one(params, *batch)
        return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new), None

    zero = (
        jnp.float32(0.0),
        jax.tree.map(lambda p, s: constrain(mesh, jnp.zeros(p.shape, kept), s), params, specs),
    )
    total, _ = jax.lax.scan(add, zero, (ids, targets))
    return jax.tree.map(lambda x: x / cfg.accumulation, total)


def adamw(cfg: Config, count: Any, scale: Any, p: Any, g: Any, m: Any, v: Any) -> Any:
    """New parameter and moments, computed in fp32 (Loshchilov and Hutter, 2019, algorithm 2)."""
    g, p32 = g.astype(jnp.float32) * scale, p.astype(jnp.float32)
    mean = cfg.beta1 * m.astype(jnp.float32) + (1 - cfg.beta1) * g
    square = cfg.beta2 * v.astype(jnp.float32) + (1 - cfg.beta2) * g * g
    unbiased = mean / (1 - cfg.beta1**count)
    step = unbiased / (jnp.sqrt(square / (1 - cfg.beta2**count)) + cfg.adam_eps)
    new = p32 - cfg.learning_rate * (step + cfg.weight_decay * p32)
    return new.astype(p.dtype), mean.astype(m.dtype), square.astype(v.dtype)


def train_step(mesh: Mesh, cfg: Config, state: Any, ids: Any, targets: Any) -> tuple[Any, Any]:
    """New state and metrics."""
    params = state["params"]
    value, grads = gradients(mesh, cfg, params, ids, targets)
    if cfg.zero:
        specs = param_specs(cfg, zero=True)
        grads = jax.tree.map(lambda g, spec: constrain(mesh, g, spec), grads, specs)
    squares = [jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)]
    size = jnp.sqrt(sum(squares))
    scale = jnp.minimum(1.0, cfg.clip / (size + 1e-6))
    count = state["count"] + 1
    update = partial(adamw, cfg, count.astype(jnp.float32), scale)
    new = jax.tree.map(update, params, grads, state["mean"], state["square"])
    parts = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), new)
    state = dict(zip(("params", "mean", "square"), parts, strict=True), count=count)
    return state, {"loss": value, "gradient_norm": size}


def make_step(mesh: Mesh, cfg: Config) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step and its abstract arguments, with where each lives."""

    def on_mesh(specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)

    state = on_mesh(state_specs(cfg))
    data = NamedSharding(mesh, P(None, BATCH, "cp"))
    whole = NamedSharding(mesh, P())
    step = jax.jit(
        partial(train_step, mesh, cfg),
        in_shardings=(state, data, data),
        out_shardings=(state, {"loss": whole, "gradient_norm": whole}),
        donate_argnums=0,
    )
    tokens = jax.ShapeDtypeStruct((cfg.accumulation, cfg.batch, cfg.seq_len), jnp.int32)
    return step, (state_shapes(cfg), tokens, tokens)
