"""A record's values as the types that the reader takes; what is of none counts as not stated.

Numbers may be written as text ("1,024"), words may be anything: a record is somebody else's table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

TEXTS = ("id", "source", "chip", "chip_key", "slice_topology", "dtype", "remat", "optimizer",
         "framework", "flop_convention", "notes", "quality", "task", "stack", "dtype_class",
         "remat_class")  # fmt: skip
NUMBERS = ("n_chips", "global_batch", "tokens_per_step", "microbatch", "scored_step_time_s")
RATES = ("step_time_s", "tokens_per_s_per_chip", "tflops_per_chip", "mfu", "hbm_gb")
DEGREES = ("dp", "fsdp", "tp", "pp", "vpp", "cp", "ep", "zero")
SIZES = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "moe_d_ff", "vocab",
         "seq_len", "experts", "topk", "mlp_matrices", "moe_every", "first_dense_layers",
         "shared_experts", "sliding_window", "chunk_attn_window", "global_head_dim",
         "global_kv_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
         "v_head_dim")  # fmt: skip
LARGEST = 10**15
"""Numbers above are taken for slips: the largest that a run has are tokens."""
LARGEST_SIZE = {"layers": 10_000, "seq_len": 10**9}
LARGEST_DIM = 10**7


def typed(row: Mapping[str, Any]) -> tuple[Row, list[str]]:
    """The record with every value of its type or None, and a clause for each that could not be."""
    wrong: list[str] = []

    def number(key: str, value: object, most: float = LARGEST, *, whole: bool = False) -> Any:
        found = number_of(value)
        if found is not None and 0 <= found <= most and not (whole and found % 1):
            return int(found) if found % 1 == 0 else found
        if value is not None and value != "":
            wrong.append(f"{key} is {_short(value)}, taken as not stated")
        return None

    out: Row = {**row, **{key: _text(row.get(key)) for key in TEXTS}}
    out |= {key: number(key, row.get(key)) for key in NUMBERS}
    parts: dict[str, Mapping[str, Any]] = {
        key: value if isinstance(value := row.get(key), Mapping) else {}
        for key in ("model", "parallelism", "measured")
    }
    out["measured"] = {k: number(f"measured.{k}", parts["measured"].get(k)) for k in RATES}
    degrees = parts["parallelism"]
    stated = {k: number(f"parallelism.{k}", degrees.get(k), whole=True) for k in DEGREES}
    out["parallelism"] = {k: v for k, v in stated.items() if v is not None}
    if isinstance(degrees.get("sp"), (bool, int)):
        out["parallelism"]["sp"] = bool(degrees["sp"])
    model = parts["model"]
    out["model"] = {
        **{k: number(f"model.{k}", model.get(k), LARGEST_SIZE.get(k, LARGEST_DIM), whole=True)
           for k in SIZES},
        "name": _text(model.get("name")),
        "attention": _text(model.get("attention")),
        "tied": model.get("tied") is True,
    }  # fmt: skip
    return out, wrong


def number_of(value: object) -> float | None:
    """A finite number, from text too; None where there is none."""
    if isinstance(value, str):
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _text(value: object) -> str | None:
    """Words as they are, a number as words; None for what is neither."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 30 else text[:29] + "…"
