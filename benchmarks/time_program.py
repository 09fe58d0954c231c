"""Loss and gradients of the step that $CHIPSHIFT_REDUCED describes, for one device of a slice."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from chipshift.compiled.request import config_from
from chipshift.compiled.step.sharding import make_mesh
from chipshift.compiled.step.train_step import gradients, state_shapes


def make_step(mesh: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function and its abstract arguments, as ``chipshift compile --entry`` takes them."""
    cfg = config_from(json.loads(os.environ["CHIPSHIFT_REDUCED"]))
    own = make_mesh(cfg, [mesh.devices.flat[0]])
    tokens = jax.ShapeDtypeStruct((cfg.accumulation, cfg.batch, cfg.seq_len), jnp.int32)
    return jax.jit(partial(gradients, own, cfg)), (state_shapes(cfg)["params"], tokens, tokens)
