"""The mesh's axes, outermost first, and what is cut over which.

``dp`` replicas hold whole weights, ``fsdp`` devices a part of each and
gather it for use, ``ep`` devices hold different experts (the axis is taken out of fsdp or dp, and
counts as part of it for everything but experts), ``cp`` devices hold parts of each sequence, ``tp``
devices parts of each matmul and, outside the matmuls, parts of the sequence.
"""

from __future__ import annotations

from chipshift.compiled.step.config import Config

MESH_AXES = ("dp", "fsdp", "ep", "cp", "tp")
BATCH = ("dp", "fsdp", "ep")
"""Sequences are cut over these."""


def seq(cfg: Config) -> tuple[str, ...]:
    """Axes over which the sequence is cut outside attention and the matmuls."""
    return ("cp", "tp") if cfg.sequence_parallel else ("cp",)


def weight_axes(cfg: Config, *, expert: bool = False, zero: bool = False) -> tuple[str, ...]:
    """Mesh axes over which a weight is kept in parts: fsdp and cp where the plan has fsdp, and dp
    as well with ``zero``: last, so that a device's part is cut out of the part that it has without
    it. An expert's weights are on ep by being another expert's."""
    _, fsdp, ep, _, _ = cfg.mesh
    sharded = fsdp * (ep if cfg.ep_from == "fsdp" else 1) > 1
    if not (sharded or zero):
        return ()
    with_ep = not expert and (cfg.ep_from == "fsdp" or zero)
    axes = ("fsdp", *(("ep",) if with_ep else ()), "cp", *(("dp",) if zero else ()))
    # Those of one device are left out, but for fsdp, by which a cut dimension is known.
    return tuple(a for a in axes if a == "fsdp" or cfg.mesh[MESH_AXES.index(a)] > 1)
