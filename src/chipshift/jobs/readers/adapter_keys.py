"""LoRA and QLoRA in the words of TRL, axolotl and LLaMA-Factory.

Keys: Hugging Face, PEFT, LoraConfig, and TRL, ModelConfig reference, 2026; axolotl, config
reference, 2026; LLaMA-Factory, "Arguments", 2026.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.jobs.job import Given
from chipshift.jobs.near_value import refuse_near
from chipshift.jobs.settings import Setting, Sheet
from chipshift.models.lora import ALL_LINEAR, Lora, read_lora

PEFT_KEYS = {
    "target_modules": (
        *("lora_target_modules", "lora_target", "target_modules", "lora_modules"),
        "trainable",
    ),
    "modules_to_save": ("lora_modules_to_save", "additional_target", "modules_to_save"),
    "layers_to_transform": ("peft_layers_to_transform", "lora_layers_to_transform"),
    "exclude_modules": ("lora_exclude_modules",),
    "target_parameters": ("lora_target_parameters", "target_parameters"),
    "bias": ("lora_bias",),
    "use_dora": ("use_dora", "peft_use_dora", "lora_use_dora"),
}
"""PEFT's names of an adapter's settings, and what TRL, axolotl and LLaMA-Factory call them."""
TRL_RANK = 16
"""``lora_r`` of TRL's ModelConfig, whose switch ``use_peft`` is; PEFT's own ``r`` is 8.

Source: Hugging Face, TRL, trainer/model_config.py, and alignment-handbook, configs.py, 2026.
"""
USED = ("use_peft", "use_lora", "use_peft_lora")
"""Switches of adapters; all but the first are names that training scripts give them."""
NAMED = ("peft_config_path", "lora_config_path", "peft_config", "lora_config", "peft_path")
"""Keys that name an adapter's settings in a file of its own."""
WAYS = (
    *("lora", "qlora", "dora", "qdora", "rslora", "adalora", "pissa", "loftq", "longlora", "ia3"),
    *("oft", "qoft", "boft", "loha", "lokr", "vera", "vblora", "galore", "lisa", "freeze", "reft"),
    *("fourierft", "prefix_tuning", "prompt_tuning", "p_tuning", "llama_adapter", "llamapro"),
)
"""Ways of training less (PEFT, axolotl, LLaMA-Factory, ms-swift, 2026)."""

FULL = ("full", "none", "", "no", "false")
_PATTERN = frozenset("()|*^$+?\\")


def _peft_keys(sheet: Sheet) -> dict[str, Any]:
    """The adapter's settings under PEFT's names; names with commas between them as a list."""
    keys: dict[str, Any] = {}
    spelt = dict(PEFT_KEYS)
    trainable = sheet.settings.get("trainable")  # Chinese-LLaMA-Alpaca's; a switch elsewhere
    if trainable is not None and not re.search(r"proj|,|_", str(trainable.value)):
        spelt["target_modules"] = spelt["target_modules"][:-1]
    for key, spellings in spelt.items():
        if key == "use_dora":
            on = sheet.boolean(*spellings, into="magnitudes trained apart (DoRA)")
            keys[key] = on is not None and on.value
            continue
        found = sheet.raw(*spellings)
        if found is None or str(found[1].value).lower() in ("none", "null"):
            continue
        sheet.record(*found, "adapters")
        value = found[1].value
        if isinstance(value, str) and not _PATTERN & set(value) and key != "bias":
            parts = [part.strip().strip("'\"") for part in value.strip("[]").split(",")]
            value = [part for part in parts if part]
            if key == "layers_to_transform" and all(part.isdecimal() for part in value):
                value = [int(part) for part in value]
        if key != "bias" and value in (["all"], ["all-linear"], "all", "linear"):
            value = ALL_LINEAR
        keys[key] = value
    prefix = "lora_rank_pattern."
    ranks = {k.removeprefix(prefix): v for k, v in sheet.settings.items() if k.startswith(prefix)}
    for key, setting in ranks.items():
        sheet.record(prefix + key, setting, "rank of some adapters")
    if ranks:
        keys["rank_pattern"] = {key: setting.value for key, setting in ranks.items()}
    return keys


AUTOCAST = "PEFT's default autocast_adapter_dtype: adapters on half-precision weights are fp32"
"""Hugging Face, PEFT, get_peft_model's reference, 2026."""


def put_adapters(sheet: Sheet) -> None:
    """LoRA and QLoRA."""
    draft = sheet.draft
    kinds = ("adapter", "finetuning_type", "peft_type", "tuner_type", "train_type", "sft_type")
    adapter = sheet.text(*kinds, into="adapters")
    if adapter is not None:
        setting = Setting(adapter.value, adapter.file, adapter.line)
        key = next(one for one in kinds if one in sheet.settings)
        refuse_near(key, setting, (*WAYS, *(one for one in FULL if one)))
    use = sheet.boolean(*USED, into="adapters")
    rank = sheet.integer("lora_r", "lora_rank", "lora_alpha_r", "r", into="rank of the adapters")
    keys = _peft_keys(sheet)
    every = sheet.boolean("lora_target_linear", into="adapters on every matrix")
    four = sheet.boolean(
        "load_in_4bit", "use_4bit_quantization", "use_4bit", into="frozen weights in 4 bits"
    )
    eight = sheet.boolean(
        "load_in_8bit", "use_8bit_quantization", "use_8bit", into="frozen weights in 8 bits"
    )
    bits = sheet.integer(
        *("quantization_bit", "load_in_bits", "load_in_kbits", "bits"),
        into="bits of the frozen weights",
        none=(None, 16, 32),
    )
    on = (adapter is not None and "lora" in adapter.value.lower()) or (use and use.value)
    if adapter is None and use is None and rank is not None:
        on = True
    if not on:
        if adapter is not None and adapter.value.lower() == "freeze" and "trained" in draft.values:
            return
        if adapter is not None and adapter.value.lower() == "freeze":
            draft.note("trainable layers", "all", "finetuning_type freeze is not read")
        elif adapter is not None and adapter.value.lower() not in FULL:
            why = f"{adapter.value} is not modelled: full fine-tuning was taken"
            draft.note("trained weights", "all", why)
        return
    stated = adapter or use or rank
    assert stated is not None
    if rank is not None:
        keys["r"] = rank.value
    if every and every.value:
        keys["target_modules"] = ALL_LINEAR
    whose = "PEFT's"
    if rank is None and "use_peft" in sheet.settings and not keys.get("r"):
        keys["r"], whose = TRL_RANK, "TRL's"
    _put_lora(sheet, read_lora(keys, stated.file), stated, None if rank is not None else whose)
    narrow = (four and four.value) or (bits and bits.value <= 4)
    if narrow or (eight and eight.value) or bits:
        quantised = four or eight or bits
        assert quantised is not None
        dtype = "int4" if narrow else "int8"
        draft.put("quantised", Given(dtype, quantised.file, quantised.line))
        draft.flag("quantised_weights", "load_in_4bit" if narrow else "load_in_8bit", "true", None)


def _put_lora(sheet: Sheet, lora: Lora, stated: Given[Any], whose: str | None) -> None:
    """The adapters; where another file is to say them, that file must win over the defaults.

    Args:
        whose: whose default the rank is; None where it is stated.
    """
    draft = sheet.draft
    elsewhere = None if whose is None else sheet.raw(*NAMED)
    if elsewhere is not None:
        key, setting = elsewhere
        sheet.record(key, setting, "adapters, by their own file")
        why = f"{whose} defaults; {key} names another file: give its adapter_config.json too"
        draft.assume("lora", lora, why)
        draft.note("adapters", f"rank {lora.rank}", why)
        return
    draft.put("lora", Given(lora, stated.file, stated.line))
    if whose is not None:
        draft.note("adapters", f"rank {lora.rank}", f"{whose} default: no rank is given")
