"""Low-rank adapters of Megatron-LM's forks: ``--lora-r 16 --lora-target-modules linear_qkv``.

Source: Huawei, MindSpeed-LLM, mindspeed_llm/training/arguments.py (``_add_lora_args``) and
docs of its LoRA fine-tuning, 2024 to 2026: the base stays as it is, and has no gradients.
"""

from __future__ import annotations

from chipshift.jobs.job import Given, Ignored
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


DEFAULT_RANK = 16


def put_adapters(sheet: Sheet) -> None:
    """Adapters on the maps that ``lora-target-modules`` names; without any, there are none.

    Source: the same, mindspeed_llm/tasks/posttrain/lora/utils.py (``is_enable_lora``).
    """
    draft = sheet.draft
    named = sheet.strings("lora-target-modules", into="adapted maps")
    if named is None or not named.value:
        why = "no lora-target-modules: every weight is trained"
        sheet.ignore(("lora-r", "lora-alpha"), True, why)
        return
    rank = sheet.integer("lora-r", into="rank of the adapters")
    if rank is None:
        draft.note("rank of the adapters", DEFAULT_RANK, "MindSpeed-LLM's default lora-r")
    targets = tuple(dict.fromkeys(own for word in named.value for own in MAPS.get(word, ())))
    if unread := [word for word in named.value if word not in MAPS]:
        taken = "it gets no adapters here" if targets else "adapters on every linear map are taken"
        why = f"{', '.join(unread)} is not known as a map of a layer: {taken}"
        entry = Ignored("lora-target-modules", named.file, named.line, True, why)
        draft.ignored.append(entry)
    width = rank.value if rank is not None else DEFAULT_RANK
    lora = Lora(rank=width, targets=targets or (ALL_LINEAR,))
    draft.put("lora", Given(lora, named.file, named.line))
    sheet.ignore(("lora-alpha", "lora-fusion", "lora-load", "lora-ckpt-*", "lora-modules-to-save",
                  "lora-register-forward-hook"), False,
                 "does not change the time or memory of a step")  # fmt: skip
