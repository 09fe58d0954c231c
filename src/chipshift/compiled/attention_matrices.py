"""Attention's matrices as the step cuts them: elements on a device before fsdp, and how they lie.

A matrix of heads lies by their width where that is whole tiles of 128, else by the width that
fsdp cuts: then its gradient is scattered by its last dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chipshift.compiled.step.config import Block, Config
from chipshift.fabric.lowering import Laid, in_whole_tiles


@dataclass(frozen=True)
class Matrix:
    """One matrix: its elements, what of its layout decides how its gradient is scattered, the heads
    that it has on a device (0: none), and the share of it that a device uses."""

    elements: float
    laid: Laid
    heads: float = 0.0
    used: float = 1.0


def into_latents(cfg: Config, block: Block) -> list[Matrix]:
    """Latent attention's matrices into its latents, which tp does not cut."""
    if block.kv_rank is None:
        return []
    ranks = [rank for rank in (block.q_rank, block.kv_rank + block.rope_dim) if rank]
    return [
        Matrix(cfg.d_model * rank, Laid(along=0 if in_whole_tiles(rank) else cfg.d_model))
        for rank in ranks
    ]


def into_heads(cfg: Config, block: Block) -> list[Matrix]:
    """Queries', keys' and values', or those from the latents."""
    M, tp, H = cfg.d_model, cfg.mesh[4], block.heads
    if block.kv_rank is not None:
        wide = block.head_dim - block.rope_dim + block.v_head_dim  # of a head's key and value
        return [
            Matrix(cut * H * width / tp, _laid(cut, width), H / tp)
            for cut, width in ((block.q_rank or M, block.head_dim), (block.kv_rank, wide))
        ]
    queries = Matrix(M * H * block.head_dim / tp, _laid(M, block.head_dim), H / tp)
    copies = block.kv_heads % tp > 0  # fewer key heads than devices: whole on each, which uses one
    used = 1 / block.kv_heads if copies and tp > 1 and cfg.sequence_parallel else 1.0
    laid = replace(_laid(M, block.head_dim), behind_one=_one_head(block, tp))
    return [
        queries,
        *(
            Matrix(
                M * block.kv_heads * width / (1 if copies else tp), laid, block.kv_heads / tp, used
            )
            for width in (block.head_dim, block.v_head_dim)
        ),
    ]


def out_of_heads(cfg: Config, block: Block) -> Matrix:
    """The matrix behind attention."""
    elements = block.heads * block.v_head_dim * cfg.d_model / cfg.mesh[4]
    return Matrix(elements, Laid(along=cfg.d_model, heads=cfg.d_model))


def _laid(cut: float, head: int) -> Laid:
    """An array of heads of which fsdp cuts ``cut``."""
    return Laid(heads=cut, along=0 if in_whole_tiles(head) else cut)


def _one_head(block: Block, tp: int) -> str:
    return "head" if block.kv_heads <= tp else ""
