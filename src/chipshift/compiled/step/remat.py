"""The ``jax.checkpoint`` policy that moves tensors to the host."""

from __future__ import annotations

from typing import Any

import jax


def offloading(kept: tuple[str, ...], moved: tuple[str, ...]) -> Any:
    """Named tensors kept on the device and moved to the host; all others are worked out again."""
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=kept,
        names_which_can_be_offloaded=moved,
        offload_src="device",
        offload_dst="pinned_host",
    )
