"""However the step is cut over devices, its loss, gradients and new state are the same.

Tolerance: fp32 sums in another order; 2e-5 of a leaf's largest element.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from chipshift.compiled.step.config import Config
from tests.compiled.small import (
    DENSE,
    LATENT,
    LATENT_MOE,
    MOE,
    config,
    largest_difference,
    loss_and_gradients,
    tokens,
)

jax = pytest.importorskip("jax")

TOLERANCE = 2e-5
ALONE = (1, 1, 1, 1, 1)  # dp, fsdp, ep, cp, tp
BIASED = replace(DENSE, qkv_bias=True, qk_norm=True)
BLOCKS = {
    "dense": DENSE, "biased": BIASED, "moe": MOE, "latent": LATENT, "latent_moe": LATENT_MOE,
}  # fmt: skip


@cache
def alone(kind: str) -> tuple[float, dict[str, Any]]:
    return loss_and_gradients(config(BLOCKS[kind], ALONE))


@pytest.mark.parametrize(
    ("kind", "mesh", "settings"),
    [
        ("dense", (2, 2, 1, 1, 2), {}),
        ("dense", (1, 2, 1, 2, 2), {"remat": "selective", "loss_chunks": 2}),
        ("dense", (1, 2, 1, 1, 4), {"sequence_parallel": False, "remat": "none"}),
        ("dense", (1, 2, 1, 1, 4), {}),  # 2 key heads: whole on each of 4
        ("dense", (1, 1, 1, 2, 4), {"remat": "none"}),
        ("biased", (2, 1, 1, 1, 4), {}),
        ("dense", (2, 2, 1, 2, 1), {"zero": True}),
        ("moe", (1, 2, 2, 2, 1), {}),
        ("moe", (1, 1, 2, 2, 2), {}),  # all of fsdp taken by ep
        ("moe", (1, 1, 2, 2, 1), {"loss_chunks": 2}),
        ("moe", (2, 1, 2, 1, 2), {"ep_from": "dp"}),
        ("moe", (1, 2, 1, 2, 2), {}),
        ("moe", (2, 2, 1, 1, 2), {}),
        ("moe", (2, 2, 1, 1, 2), {"zero": True}),
        ("moe", (2, 2, 2, 1, 1), {"zero": True}),
        ("latent", (2, 2, 1, 1, 2), {}),
        ("latent", (1, 2, 1, 2, 2), {}),
        ("latent", (2, 1, 1, 2, 2), {"zero": True}),
        ("latent", (2, 2, 1, 1, 2), {"zero": True}),
        ("latent", (1, 2, 2, 1, 2), {"ep_from": "dp"}),
        ("latent", (1, 2, 1, 2, 2), {"sequence_parallel": False}),
        ("latent_moe", (1, 2, 2, 2, 1), {"zero": True, "ep_from": "dp"}),
        ("latent_moe", (2, 2, 2, 1, 1), {"zero": True, "ep_from": "dp"}),
        ("latent_moe", (1, 2, 2, 1, 2), {"zero": True, "ep_from": "dp"}),
    ],
)
def test_sharded_equals_unsharded(
    kind: str, mesh: tuple[int, int, int, int, int], settings: dict[str, Any]
) -> None:
    value, grads = loss_and_gradients(config(BLOCKS[kind], mesh, **settings))
    expected, expected_grads = alone(kind)
    assert value == pytest.approx(expected, rel=1e-6)
    assert largest_difference(expected_grads, grads) < TOLERANCE


@pytest.mark.parametrize(
    "settings", [{}, {"tied": True}, {"loss_chunks": 2}, {"sequence_parallel": False}]
)
def test_padding_of_a_vocabulary_that_tp_does_not_divide_changes_nothing(
    settings: dict[str, Any],
) -> None:
    """127 words over tp=4 are 512 rows, a multiple of 4 x 128. Whatever stands in the rows beyond,
    the loss and the gradients of the words are the unsharded step's, and theirs are none."""
    import jax.numpy as jnp

    from chipshift.compiled.step.config import table_rows
    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import gradients, init_state

    one = replace(config(DENSE, ALONE, **settings), vocab=127)
    cut = replace(config(DENSE, (1, 2, 1, 1, 4), **settings), vocab=127)
    assert (table_rows(one), table_rows(cut)) == (127, 512)
    params = init_state(one, seed=0)["params"]
    tables = {"embed": 0} | ({} if one.tied else {"head": 1})

    def padded(name: str) -> Any:
        rows = [(0, 385 if dim == tables[name] else 0) for dim in (0, 1)]
        return jnp.pad(params[name], rows, constant_values=3.0)

    def run(cfg: Config, held: Any) -> tuple[float, Any]:
        mesh = make_mesh(cfg, jax.devices()[: cfg.mesh[1] * cfg.mesh[4]])
        value, grads = jax.jit(lambda p: gradients(mesh, cfg, p, *tokens(one)))(held)
        return float(value), jax.device_get(grads)

    expected, expected_grads = run(one, params)
    value, grads = run(cut, params | {name: padded(name) for name in tables})
    assert value == pytest.approx(expected, rel=1e-6)
    for name, dim in tables.items():
        own, beyond = jnp.split(grads[name], [127], axis=dim)
        assert not beyond.any()
        grads[name] = own
    assert largest_difference(expected_grads, grads) < TOLERANCE


def test_accumulated_microbatches_equal_one_batch_of_the_same_sequences() -> None:
    """Two microbatches of 8: the mean of their gradients, each taken by itself."""
    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import gradients, init_state

    cfg = config(DENSE, (1, 4, 1, 1, 1), accumulation=2)
    one = config(DENSE, (1, 4, 1, 1, 1))
    mesh = make_mesh(cfg, jax.devices()[:4])
    params = init_state(cfg, seed=0)["params"]
    ids, targets = tokens(cfg)
    value, grads = jax.jit(lambda p: gradients(mesh, cfg, p, ids, targets))(params)
    run = jax.jit(lambda p, i, t: gradients(mesh, one, p, i, t))
    parts = [run(params, ids[n : n + 1], targets[n : n + 1]) for n in (0, 1)]
    assert float(value) == pytest.approx((float(parts[0][0]) + float(parts[1][0])) / 2, rel=1e-6)
    mean = jax.tree.map(lambda a, b: (a + b) / 2, parts[0][1], parts[1][1])
    assert largest_difference(jax.device_get(mean), jax.device_get(grads)) < TOLERANCE


def test_adamw_on_one_parameter() -> None:
    """First step from zero moments: mean = (1 - b1) g, square = (1 - b2) g^2, both unbiased to g
    and g^2, so the step is g / (|g| + eps) = 1, and p = 1 - lr (1 + 0.1 x 1) = 1 - 1.1 lr."""
    import jax.numpy as jnp

    from chipshift.compiled.step.train_step import adamw

    cfg = config(DENSE, ALONE)
    p, g, zero = jnp.float32(1.0), jnp.float32(0.5), jnp.float32(0.0)
    new, mean, square = adamw(cfg, jnp.float32(1.0), jnp.float32(1.0), p, g, zero, zero)
    assert float(new) == pytest.approx(1 - 1.1 * cfg.learning_rate, rel=1e-6)
    assert float(mean) == pytest.approx(0.1 * 0.5, rel=1e-5)
    assert float(square) == pytest.approx(0.05 * 0.25, rel=1e-5)


def test_the_step_learns_a_repeated_batch() -> None:
    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import init_state, make_step

    cfg = config(DENSE, (2, 2, 1, 1, 2), learning_rate=3e-3)
    step, _ = make_step(make_mesh(cfg, jax.devices()), cfg)
    state = init_state(cfg)
    losses = []
    for _ in range(5):
        state, metrics = step(state, *tokens(cfg))
        losses.append(float(metrics["loss"]))
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert int(state["count"]) == 5
