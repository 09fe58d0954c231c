"""Rematerialisation: which named tensors of a layer are kept for the backward pass.

A layer's input is always kept. Everything not named here is worked out again in the backward pass;
gathered weights and gathered activations never are kept, so FSDP gathers twice a step.
"""

from __future__ import annotations

from typing import Any

import jax

MATMULS = ("q", "k", "v", "context", "attention_out", "gate", "up", "mla_q", "mla_kv")
NORMS = ("attention_in", "mlp_in", "act", "expert_in", "expert_act")

KEPT: dict[str, tuple[str, ...]] = {
    "full": (),
    "selective": MATMULS,
    "none": MATMULS + NORMS,
    # MaxText's policies, by their names there.
    "save_qkv_proj": ("q", "k", "v"),
    "save_out_proj": ("attention_out",),
    "save_dot_except_mlpwi": ("q", "k", "v", "attention_out", "mla_q", "mla_kv"),
    "save_dot_except_mlp": ("q", "k", "v", "attention_out", "mla_q", "mla_kv"),
    "save_dot_with_context_except_mlp": (
        "q", "k", "v", "context", "attention_out", "mla_q", "mla_kv",
    ),
    "minimal": tuple(name for name in MATMULS if name != "context"),
    "minimal_with_context": MATMULS,
    "minimal_flash": MATMULS,
}  # fmt: skip

OFFLOADED: dict[str, tuple[str, ...]] = {
    "qkv_proj_offloaded": ("q", "k", "v"),
    "minimal_offloaded": tuple(name for name in MATMULS if name != "context"),
}


def policy(remat: str) -> Any:
    """The ``jax.checkpoint`` policy of a name above; ``offload:a,b`` sends tensors to the host."""
    offloaded = OFFLOADED.get(remat, ())
    if remat.startswith("offload:"):
        offloaded = tuple(remat.removeprefix("offload:").split(","))
    if offloaded:
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(offloaded),
            offload_src="device",
            offload_dst="pinned_host",
        )
    if remat not in KEPT:
        known = ", ".join([*KEPT, *OFFLOADED])
        raise ValueError(f"unknown remat policy '{remat}': expected one of {known}")
    return jax.checkpoint_policies.save_only_these_names(*KEPT[remat])
