"""The plan as numbers: one plan (floats or sourced leaves) or a table of plans (arrays)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Number = Any

GROUPS = ("tp", "cp", "ep", "weights", "expert_weights", "dp", "expert_dp", "pp")
"""Groups that communicate: ``weights`` shares one copy of a weight (FSDP's fsdp × cp),
``dp`` sums what those shards leave unsummed (dp × cp where nothing is sharded)."""


@dataclass(frozen=True)
class Columns:
    """Degrees and batch of one plan or many, and the links of each group that communicates.

    Attributes:
        etp: tensor parallel devices of an expert (tp itself unless the plan says otherwise).
        ulysses: devices of cp that an all-to-all deals heads over; 1 where none does.
        cp_shards: cp shares each weight though fsdp is 1, in all rows.
        links: for each of GROUPS the links it runs over (fabric.Links, numbers of equal length);
            ``heads`` and ``around`` are the parts of cp where an all-to-all takes one of them.
    """

    dp: Number
    fsdp: Number
    tp: Number
    cp: Number
    ep: Number
    etp: Number
    pp: Number
    vpp: Number
    microbatch: Number
    accumulation: Number
    links: Mapping[str, Any]
    ulysses: Number = 1.0
    cp_shards: Number = False


@dataclass(frozen=True)
class Choice:
    """The categorical part of a plan: rows of one table share it.

    Attributes:
        stage_layers: layers of each model chunk as ``Plan`` has them, () = spread evenly.
    """

    remat: str = "none"
    optimizer_sharding: str = "none"
    schedule: str = "1f1b"
    cp_kind: str = "ring"
    sequence_parallel: bool = True
    stage_layers: tuple[int, ...] = ()
