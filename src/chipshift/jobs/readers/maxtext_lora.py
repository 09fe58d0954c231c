"""MaxText's adapters: ``lora:`` of its post-training files, or the same words by themselves.

Source: Google, MaxText, configs/types.py (``LoRA``), configs/post_train/sft.yml and
utils/lora_utils.py, 2026-08.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.settings import Sheet
from chipshift.models.lora import ALL_LINEAR, Lora

MAPS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "o_proj",
    "wi_0": "gate_proj",
    "wi_1": "up_proj",
    "wo": "down_proj",
}
"""MaxText's names of a layer's maps and the checkpoint's."""
NARROW = {
    "int4": "int4",
    "nf4": "int4",
    "int8": "int8",
    "fp8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    **dict.fromkeys(("none", "null", ""), ""),
}
"""Types of the frozen weights and the dtypes they are kept in; without one, they stay as loaded."""


def put_lora(sheet: Sheet) -> None:
    """``enable_lora`` with a rank, on the maps whose names ``lora_module_path`` holds.

    Raises:
        InputError: adapters without a rank, which MaxText refuses too.
    """
    draft = sheet.draft
    on = sheet.boolean("lora.enable_lora", "enable_lora", into="adapters")
    if on is None or not on.value:
        return
    rank = sheet.integer("lora.lora_rank", "lora_rank", into="rank of the adapters")
    if rank is None:
        where = on.file if on.line is None else f"{on.file}:{on.line}"
        raise InputError(
            f"{where}: enable_lora is true without lora_rank; expected lora_rank, a whole number "
            "of at least 1"
        )
    path = sheet.text("lora.lora_module_path", "lora_module_path", into="adapted maps")
    held = sheet.text(
        "lora.lora_weight_qtype", "lora_weight_qtype", into="frozen weights", choices=NARROW
    )
    named = path.value if path is not None else ""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in named).split())
    targets = tuple(MAPS[word] for word in MAPS if word in words) or (ALL_LINEAR,)
    if not named:
        draft.note("adapted maps", "all linear", "of MaxText's lora_module_path.yml, by model")
    lora = Lora(rank=rank.value, targets=targets)
    draft.put("lora", Given(lora, on.file, on.line))
    if held is not None and (width := NARROW[held.value]):
        draft.put("quantised", Given(width, held.file, held.line))
        why = f"frozen weights are kept and gathered in {held.value}"
        draft.put("weights", Assumed(width, why))
        draft.put("gather", Assumed("", why))
