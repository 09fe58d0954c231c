"""Small decoders for the tests that run the step: fp32, 32 positions, vocabulary 128."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chipshift.compiled.step.config import Block, Config

DENSE = Block(heads=4, kv_heads=2, head_dim=16, v_head_dim=16, mlp_width=96)
MOE = replace(DENSE, mlp_width=0, experts=4, top_k=2, expert_width=32, shared_width=48)
LATENT = replace(DENSE, kv_heads=4, head_dim=24, kv_rank=24, q_rank=20, rope_dim=8)
LATENT_MOE = replace(LATENT, mlp_width=0, experts=4, top_k=2, expert_width=32, shared_width=48)


def config(block: Block, mesh: tuple[int, int, int, int, int], **settings: Any) -> Config:
    """Two layers; every expert has room for every token, so that none is dropped."""
    return Config(
        d_model=64,
        vocab=128,
        segments=(((block,), 2),),
        mesh=mesh,
        seq_len=32,
        batch=8,
        attention="blockwise",
        compute_dtype="float32",
        reduce_dtype="float32",
        capacity=4.0,
        **settings,
    )


def tokens(cfg: Config) -> tuple[Any, Any]:
    """Token ids and the next ones, (accumulation, batch, sequence)."""
    import jax
    import jax.numpy as jnp

    shape = (cfg.accumulation, cfg.batch, cfg.seq_len)
    ids = jax.random.randint(jax.random.key(1), shape, 0, cfg.vocab)
    return ids, jnp.roll(ids, -1, axis=-1)


def loss_and_gradients(cfg: Config) -> tuple[float, dict[str, Any]]:
    """Of the same parameters and tokens whatever the mesh, gathered to the host."""
    import jax
    from jax.sharding import NamedSharding

    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import gradients, init_state, state_specs

    mesh = make_mesh(cfg, jax.devices()[: int(np.prod(cfg.mesh))])
    params = init_state(cfg, seed=0)["params"]
    specs = state_specs(cfg)["params"]
    params = jax.device_put(params, jax.tree.map(lambda s: NamedSharding(mesh, s), specs))
    ids, targets = tokens(cfg)
    value, grads = jax.jit(lambda p: gradients(mesh, cfg, p, ids, targets))(params)
    return float(value), jax.device_get(grads)


def largest_difference(a: Any, b: Any) -> float:
    """Over all leaves, relative to the leaf's largest element."""
    import jax

    def one(x: Any, y: Any) -> float:
        return float(np.max(np.abs(x - y)) / max(float(np.max(np.abs(x))), 1e-9)) if x.size else 0.0

    return max(map(one, jax.tree.leaves(a), jax.tree.leaves(b)))
