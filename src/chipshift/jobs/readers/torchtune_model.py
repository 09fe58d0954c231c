"""torchtune's models: a builder of one published size, or one whose arguments give the shape.

Builders and their arguments: PyTorch, torchtune, torchtune/models/*/_model_builders.py and
_component_builders.py, 2026-04.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.job import Given
from chipshift.jobs.readers.config_model import put_config_model
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.settings import Sheet, as_integer
from chipshift.models.lora import Lora

BUILDER = re.compile(r"torchtune\.models\.(\w+)\.(?:(lora|qlora)_)?(\w+)$")
FAMILIES = {
    "llama2": "llama-2",
    "llama3": "llama-3",
    "llama3_1": "llama-3.1",
    "llama3_2": "llama-3.2",
    "llama3_2_vision": "llama-3.2",
    "llama3_3": "llama-3.3",
    "llama4": "llama-4",
    "qwen2": "qwen2",
    "qwen2_5": "qwen2.5",
    "qwen2_5_vision": "qwen2.5-vl",
    "qwen3": "qwen3",
    "mistral": "mistral",
    "gemma": "gemma",
    "gemma2": "gemma-2",
    "phi3": "phi-3",
    "phi4": "phi-4",
    "smol": "smollm2",
}
"""Packages of builders and the names of what they build."""

SHAPED = {
    "llama2": "llama",
    "llama3": "llama",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "mistral": "mistral",
    "gemma": "gemma",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "llama",
}
"""Packages whose own builder takes the shape, by the architecture that it builds."""

SHAPE = {
    "model.vocab_size": "vocab_size",
    "model.num_layers": "num_hidden_layers",
    "model.num_heads": "num_attention_heads",
    "model.num_kv_heads": "num_key_value_heads",
    "model.embed_dim": "hidden_size",
    "model.intermediate_dim": "intermediate_size",
    "model.head_dim": "head_dim",
    "model.max_seq_len": "max_position_embeddings",
    "model.tie_word_embeddings": "tie_word_embeddings",
}
PARTS = ("encoder_trainable", "decoder_trainable", "fusion_trainable")
"""What a vision model trains: true or false, or frozen, lora or full."""


def put_torchtune_model(sheet: Sheet, context: Context) -> None:
    """The model and its adapters."""
    draft = sheet.draft
    component = sheet.text("model._component_", into="model")
    if component is None:
        raise InputError(f"{draft.file} gives no model._component_; expected a torchtune recipe")
    match = BUILDER.match(component.value)
    lora = _lora(sheet)
    four = sheet.boolean("model.quantize_base", into="frozen weights in 4 bits")
    parts = [f"model.{part}" for part in PARTS]
    sheet.ignore(parts, True, "which part of the model is trained: all of it was taken")
    if match is None:
        draft.wanted_model = component.value[:120]
        return
    adapter, shaped = match.group(2), match.group(1) == match.group(3)
    if shaped and match.group(1) in SHAPED and not context.model_named:
        base: dict[str, Any] = {"model_type": SHAPED[match.group(1)]}
        width = as_integer(getattr(sheet.settings.get("model.embed_dim"), "value", None))
        if width:
            base["intermediate_size"] = -(-4 * int(2 * width / 3) // 256) * 256
        put_config_model(sheet, base, SHAPE, match.group(1))
    elif not context.model_named:
        put_model_named(draft, named(match), sheet.settings["model._component_"])
    if adapter:
        draft.put("lora", Given(lora, component.file, component.line))
    if adapter == "qlora" or (adapter and four is not None and four.value):
        draft.put("quantised", Given("int4", component.file, component.line))


def _lora(sheet: Sheet) -> Lora:
    rank = sheet.integer("model.lora_rank", into="rank of the adapters")
    modules = sheet.strings("model.lora_attn_modules", into="adapted matrices")
    mlp = sheet.boolean("model.apply_lora_to_mlp", into="adapters on the feed-forward")
    head = sheet.boolean("model.apply_lora_to_output", into="an adapter on the head")
    dora = sheet.boolean("model.use_dora", into="magnitudes trained apart (DoRA)")
    targets = list(modules.value) if modules else ["q_proj", "v_proj"]
    targets += ["mlp"] if mlp and mlp.value else []
    targets += ["output"] if head and head.value else []
    return Lora(rank.value if rank else 8, tuple(targets), dora=bool(dora and dora.value))


def named(match: re.Match[str]) -> str:
    """The published name of a builder: ``llama3_2.lora_llama3_2_1b`` is llama-3.2-1b."""
    family, _, builder = match.groups()
    size = builder.removeprefix("smollm2").removeprefix(family).strip("_")
    size = re.sub(r"(?:^|_)(?:instruct|base|moe|vl)(?=_|$)", "", size).strip("_")
    size = re.sub(r"_(?=a\d+b$)", "-", size)  # qwen3_moe_235b_a22b
    size = re.sub(r"(?<=\d)_(?=\d)", ".", size).replace("_", "-")
    if family == "phi4":
        return FAMILIES[family]  # published by its one size
    if family == "llama4":
        size = size.split("-")[0]  # scout_17b_16e
    tail = "-vision" if family == "llama3_2_vision" else ""
    return f"{FAMILIES.get(family, family)}-{size}{tail}"
