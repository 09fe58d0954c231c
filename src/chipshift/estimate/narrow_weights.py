"""Weights that Transformer Engine keeps in 8 bits between steps: bytes held and bytes sent.

Megatron's ``--fp8-param-gather`` (Megatron-Bridge's ``fp8_param``) keeps no bf16 copy of the linear
maps' weights; embedding, head, norms and router stay bf16. Sources: NVIDIA, Megatron-Bridge,
docs/performance-guide.md ("FP8 data-parallel parameter AllGather", for per-tensor scaling);
Megatron-LM, core/distributed/param_and_grad_buffer.py (MXFP8 is gathered in bf16 through the
gradients' buffer); Transformer Engine, pytorch/csrc/quantizer.cpp (which copies a quantizer makes),
2026-08.
"""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.jobs.job import TrainJob

UNTRANSPOSED = frozenset({"b200", "b300", "gb200", "gb300"})
"""Chips whose 8-bit matmuls take either layout; on others a transposed copy is kept beside."""

BLOCK, BLOCK_SCALE_BYTES = 32, 1.0
"""MXFP8: values that share a scale, and its bytes (OCP, Microscaling formats 1.0, 2023)."""
TILE, TILE_SCALE_BYTES = 128 * 128, 4.0
"""The same of Transformer Engine's blockwise recipe for weights."""


@dataclass(frozen=True)
class NarrowWeights:
    """Bytes of a linear map's weight: as held, all copies, and as gathered over replicas."""

    held: float
    gathered: float


def narrow_weights(job: TrainJob, chip: str, stack: str) -> NarrowWeights | None:
    """What the job keeps in 8 bits under Megatron; None where its weights stay wide."""
    recipe = next((flag.value.lower() for flag in job.flags if flag.kind == "fp8_params"), None)
    if recipe is None or stack.partition("@")[0] != "megatron":
        return None
    if "mx" in recipe:  # the columns' scales are not the rows': both copies, whatever the chip
        return NarrowWeights(2 * (1 + BLOCK_SCALE_BYTES / BLOCK), 2.0)
    copies = 1 if chip in UNTRANSPOSED else 2
    if "block" in recipe:
        each = 1 + TILE_SCALE_BYTES / TILE
        return NarrowWeights(2 * each, each)
    return NarrowWeights(float(copies), 1.0)
