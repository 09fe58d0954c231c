"""The ``jax.checkpoint`` policies behind the names of remat_names.py."""

from __future__ import annotations

from typing import Any

import jax

from chipshift.compiled.step.remat_names import TENSORS, choice


def policy(remat: str) -> Any:
    """The ``jax.checkpoint`` policy of that name."""
    kept, moved = (
        [name for group in groups for name in TENSORS[group]] for groups in choice(remat)
    )
    if not moved:
        return jax.checkpoint_policies.save_only_these_names(*kept)
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=kept,
        names_which_can_be_offloaded=moved,
        offload_src="device",
        offload_dst="pinned_host",
    )
