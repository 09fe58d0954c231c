"""Names of rematerialisation policies; what each keeps stands in parallel/remat.py."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.errors import InputError, nearest
from chipshift.jobs.plan import SHARE

TENSORS = ("attention_norm", "qkv", "attention", "out_proj", "mlp_norm", "up", "activation")
"""What a layer's backward pass reads: the op whose output it is names the tensor."""

REMATS = (
    *("none", "full", "selective", "selective_op"),
    *("minimal", "minimal_with_context", "minimal_flash", "save_dot_except_mlp"),
    *("save_dot_except_mlpwi", "save_dot_with_context_except_mlp", "save_qkv_proj"),
    *("save_out_proj", "qkv_proj_offloaded", "minimal_offloaded"),
    *("offload:block_input", "offload:qkv"),
)
"""None, all, Megatron's and torchtitan's selective ones, MaxText's named ones, and to the host."""


@dataclass(frozen=True)
class Remat:
    """A policy's name taken apart.

    Attributes:
        base: one of ``REMATS``, or ``custom``.
        every: share of the layers that it is applied to.
        saved, offloaded: the tensors of a custom one, ``block_input`` among those moved.
    """

    base: str
    every: float = 1.0
    saved: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()


def parse_remat(name: str) -> Remat:
    """A policy's name: of ``REMATS``, ``full:12/32`` of these, or ``custom:saved=a+b,offload=c``.

    Raises:
        InputError: no such policy, or no such tensor in a custom one.
    """
    if name.startswith("custom:"):
        return _custom(name)
    shared = SHARE.fullmatch(name)
    if shared and shared.group(1) in REMATS:
        layers, of = int(shared.group(2)), int(shared.group(3))
        if not 0 < layers <= of:
            raise InputError(
                f"remat '{name}' applies to {layers} of every {of} layers; "
                f"expected a share such as {shared.group(1)}:1/2"
            )
        return Remat(shared.group(1), every=layers / of)
    if name not in REMATS:
        raise InputError(
            f"remat '{name}' is not a known policy{nearest(name.partition(':')[0], REMATS)} "
            f"(expected one of {', '.join(REMATS)}, full:N/M, "
            "or custom:saved=...,offload=...)"
        )
    return Remat(name)


def _custom(name: str) -> Remat:
    sets: dict[str, frozenset[str]] = {"saved": frozenset(), "offload": frozenset()}
    for part in filter(None, name.removeprefix("custom:").split(",")):
        key, _, tensors = part.partition("=")
        names = frozenset(filter(None, tensors.split("+")))
        unknown = names - frozenset(TENSORS) - {"block_input"}
        if key not in sets or unknown:
            wrong = ", ".join(sorted(unknown)) if key in sets else key
            choices = TENSORS if key in sets else tuple(sets)
            raise InputError(
                f"remat '{name}': '{wrong}' is not known{nearest(wrong, choices)} "
                f"(expected custom:saved=A+B,offload=C with tensors of {', '.join(TENSORS)})"
            )
        sets[key] = names
    return Remat("custom", 1.0, sets["saved"] - {"block_input"}, sets["offload"])
