"""Rematerialisation: which named tensors of a layer are kept for the backward pass.

A layer's input is always kept. Everything not named here is worked out again in the backward pass;
gathered weights and gathered activations never are kept, so FSDP gathers twice a step.
"""

from __future__ import annotations

TENSORS: dict[str, tuple[str, ...]] = {
    "block_input": ("block_input",),
    "attention_norm": ("attention_in",),
    "qkv": ("q", "k", "v", "mla_q", "mla_kv"),
    "attention": ("context",),
    "out_proj": ("attention_out",),
    "mlp_norm": ("mlp_in", "expert_in"),
    "up": ("gate", "up"),
    "activation": ("act", "expert_act"),
}
"""Groups of tensors, with the ``checkpoint_name``s in them."""

ALL = tuple(name for name in TENSORS if name != "block_input")
DOTS = ("qkv", "out_proj", "up")

KEPT: dict[str, tuple[str, ...]] = {
    "full": (),
    "none": ALL,
    "selective": tuple(name for name in ALL if name != "attention"),  # Megatron's
    "selective_op": (*DOTS, "attention"),  # torchtitan's
    # MaxText's policies, by their names there.
    "minimal": DOTS,
    "minimal_with_context": (*DOTS, "attention"),
    "minimal_flash": (*DOTS, "attention"),
    "save_dot_except_mlp": ("qkv", "out_proj"),
    "save_dot_except_mlpwi": ("qkv", "out_proj"),
    "save_dot_with_context_except_mlp": ("qkv", "attention", "out_proj"),
    "save_qkv_proj": ("qkv",),
    "save_out_proj": ("out_proj",),
}

OFFLOADED: dict[str, tuple[str, ...]] = {"qkv_proj_offloaded": ("qkv",), "minimal_offloaded": DOTS}


def choice(remat: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Groups kept on the device and groups moved to the host.

    Besides the names above: ``offload:A+B`` and ``custom:saved=A+B,offload=C``.

    Raises:
        ValueError: an unknown policy or group.
    """
    kept, moved = KEPT.get(remat, ()), OFFLOADED.get(remat, ())
    if remat.startswith("offload:"):
        moved = tuple(remat.removeprefix("offload:").split("+"))
    elif remat.startswith("custom:"):
        parts = dict(part.split("=") for part in remat.removeprefix("custom:").split(",") if part)
        kept = tuple(filter(None, parts.get("saved", "").split("+")))
        moved = tuple(filter(None, parts.get("offload", "").split("+")))
    elif remat not in KEPT and remat not in OFFLOADED:
        known = ", ".join([*KEPT, *OFFLOADED])
        raise ValueError(f"unknown remat policy '{remat}': expected one of {known}")
    unknown = (set(kept) | set(moved)) - set(TENSORS)
    if unknown:
        raise ValueError(
            f"remat '{remat}': no tensors '{sorted(unknown)[0]}' ({', '.join(TENSORS)})"
        )
    return kept, moved


def checkpoint_names(remat: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``choice`` by the ``checkpoint_name`` of each tensor."""
    kept, moved = choice(remat)

    def of(groups: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for group in groups for name in TENSORS[group])

    return of(kept), of(moved)
