"""What the publishers of fine-tuning runs fine-tune: documents, adapters, frozen weights.

Records say "LoRA" and "packed" in their notes and leave the rest to the recipe that they name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chipshift.models.adapters import Adapters
from chipshift.validate.case import fill
from chipshift.validate.rows import Row

SQUAD_TOKENS = 200
"""Tokens of a SQuAD example: paragraphs of about 120 words (Rajpurkar et al. 2016), question,
answer and template, 1.3 tokens a word. Attention within it is 5 % of that over 4,096 tokens."""

ATTENTION = Adapters((("out_proj", 1.0), ("qkv_proj", 1.0)))
QUERIES = Adapters((("qkv_proj", 1.0),))
EVERY_LINEAR = Adapters((("mlp_down", 1.0), ("mlp_up", 2.0), ("out_proj", 1.0), ("qkv_proj", 3.0)))


@dataclass(frozen=True)
class FineTuning:
    """What a recipe fine-tunes.

    Attributes:
        adapters: None where every weight is trained.
        document_len: tokens of a packed document, 0 where attention runs over whole sequences.
        weights: dtype of frozen weights, '' = the stack's.
        remat: the recipe's rematerialisation, '' where it is not known.
    """

    adapters: Adapters | None = None
    document_len: int = 0
    weights: str = ""
    remat: str = ""
    inferred: tuple[tuple[str, str, str], ...] = ()


def fine_tuning(row: Row) -> FineTuning:
    """What a record's publisher fine-tunes, by the recipe that its table names.

    MLPerf's LoRA: adapters on attention's maps, packed rows without boundaries, frozen weights in 8
    bits under fp8 (NVIDIA, training_results_v4.0, llama2_70b_lora, 2024-06: ``target_modules``,
    ``packed_sequence_return_cu_seqlen``, ``fp8_params``; the reference's are the same maps).
    NeMo and Megatron-Bridge: SQuAD packed with its boundaries, adapters on the fused queries, keys
    and values alone (NeMo ``llama3_70b.finetune_recipe`` in performance mode, Megatron-Bridge
    ``perf_recipes/llama``, dgxc-benchmarking ``llama3/finetune``, 2025 and 2026). AutoModel: mock
    sequences without padding, adapters on ``*_proj``, and every layer checkpointed on more than one
    device (its ``examples/llm_benchmark`` and ``performance-summary``, 2026-06).
    """
    task, notes = str(row["task"]), str(row.get("notes"))
    if task == "pretrain":
        return FineTuning()
    lora, stack = task == "lora", str(row["stack"])
    if "MLPerf" in notes:
        narrow = lora and str(row["dtype_class"]) != "bf16" and "NVIDIA" in str(row["source"])
        return _told(ATTENTION if lora else None, 0, "fp8" if narrow else "", "", "MLPerf's recipe")
    if stack == "automodel":
        remat = "full" if lora and int(row["n_chips"]) > 1 else ""
        return _told(EVERY_LINEAR if lora else None, 0, "", remat, "AutoModel's recipes")
    packed = stack == "megatron" or re.search(r"\bpacked\b", notes) is not None
    on = (QUERIES if stack == "megatron" else EVERY_LINEAR) if lora else None
    return _told(on, SQUAD_TOKENS if packed else 0, "", "", "NVIDIA's recipes: SQuAD, packed")


def _told(
    adapters: Adapters | None, document_len: int, weights: str, remat: str, why: str
) -> FineTuning:
    """The same with what was filled in."""
    filled: list[tuple[str, str, str]] = []
    if adapters:
        fill(filled, "adapters on", ", ".join(op for op, _ in adapters.maps), why)
    if document_len:
        fill(filled, "document_len", document_len, why)
    if weights:
        fill(filled, "frozen weights", weights, why)
    if remat:
        fill(filled, "remat", remat, why)
    return FineTuning(adapters, document_len, weights, remat, tuple(filled))
