"""Sequences cut over devices in Hugging Face's words: ParallelismConfig, and forks' own keys.

Keys and defaults: Hugging Face, Accelerate, utils/dataclasses.py and "Sequence parallel" page, and
Transformers, "Ulysses sequence parallelism" page, 2026; ModelScope, ms-swift, command-line
parameters and trainers/sequence_parallel/ulysses.py, 2026; Qihoo 360, 360-LLaMA-Factory, README,
2025.
"""

from __future__ import annotations

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Sheet

AXES = (
    ("dp", "dp_replicate_size"),
    ("fsdp", "dp_shard_size"),
    ("tp", "tp_size"),
    ("cp", "cp_size"),
)


def put_parallelism(sheet: Sheet, base: str) -> None:
    """A size for each axis; ``sp_size`` is of DeepSpeed-Ulysses, which deals heads out."""
    draft = sheet.draft
    for field, name in AXES:
        size = sheet.integer(base + name, into=field)
        if size is not None:
            draft.put(field, size)
    sheet.text(base + "sp_backend", into="what cuts the sequence", choices=("deepspeed",))
    split = sheet.integer(base + "sp_size", into="cp")
    if split is not None and split.value > 1:
        draft.put("cp", split)
        draft.put("cp_kind", Given("all_to_all", split.file, split.line))
    elif (draft.get("cp") or 1) > 1:
        exchange = sheet.text(
            base + "cp_comm_strategy",
            into="context-parallel exchange",
            choices=("allgather", "alltoall"),
        )
        if exchange is not None:
            kind = "ring" if exchange.value == "alltoall" else "allgather"
            draft.put("cp_kind", Given(kind, exchange.file, exchange.line))
        draft.assume("cp_kind", "allgather", "Accelerate's default cp_comm_strategy")
        shard = draft.values.get("fsdp")
        if isinstance(shard, Given) and shard.value == 1:
            # its FSDP shards over the joint mesh dp_shard_cp
            draft.put("cp_shards", Given(True, shard.file, shard.line))


def put_sequence_parallel(sheet: Sheet) -> None:
    """``sequence_parallel_size`` of ms-swift (Ulysses, a ring round the rest) and of a fork of
    LLaMA-Factory (a ring unless its mode says Ulysses)."""
    draft = sheet.draft
    put_parallelism(sheet, "parallelism_config.")
    size = sheet.integer("sequence_parallel_size", into="cp")
    mode = sheet.text("sequence_parallel_mode", into="context-parallel exchange")
    if size is None or size.value == 1:
        return
    draft.put("cp", size)
    if draft.format == "llamafactory":
        dealt = mode is not None and "ulysses" in mode.value.lower()
        if mode is not None:
            draft.put("cp_kind", Given("all_to_all" if dealt else "ring", mode.file, mode.line))
        draft.assume("cp_kind", "ring", "the fork's default sequence_parallel_mode, zigzag-ring")
        return
    draft.put("cp_kind", Given("all_to_all", size.file, size.line))
    draft.put("ring_of_rest", size)
