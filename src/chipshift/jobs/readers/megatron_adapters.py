"""Low-rank adapters of Megatron-LM's forks: ``--lora-r 16 --lora-target-modules linear_qkv``.

Source: Huawei, MindSpeed-LLM, mindspeed_llm/training/arguments.py (``_add_lora_args``) and
docs of its LoRA fine-tuning, 2024 to 2026: the base stays as it is, and has no gradients.
"""

from __future__ import annotations

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Sheet
from chipshift.models.lora import ALL_LINEAR, Lora

MAPS = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "dense": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "dense_h_to_4h": ("gate_proj", "up_proj"),
    "gate_proj": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
    "dense_4h_to_h": ("down_proj",),
}
"""Megatron's names of a layer's maps and the checkpoint's."""


def put_adapters(sheet: Sheet) -> None:
    """The adapters that the arguments name, on every linear map where they name none known."""
    rank = sheet.integer("lora-r", into="rank of the adapters")
    if rank is None:
        return
    named = sheet.strings("lora-target-modules", into="adapted maps")
    words = named.value if named is not None else []
    targets = tuple(dict.fromkeys(own for word in words for own in MAPS.get(word, ())))
    lora = Lora(rank=rank.value, targets=targets or (ALL_LINEAR,))
    sheet.draft.put("lora", Given(lora, rank.file, rank.line))
    sheet.ignore(("lora-alpha", "lora-fusion", "lora-load", "lora-ckpt-*", "lora-modules-to-save",
                  "lora-register-forward-hook"), False,
                 "does not change the time or memory of a step")  # fmt: skip
