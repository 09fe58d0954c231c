"""The model that a Megatron-Bridge or NeMo 2 recipe names."""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.bridge_shape import altered_model, as_arguments
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.settings import Setting

MODEL = re.compile(r"(llama|mixtral|mistral|qwen|deepseek|gemma|gpt_oss|nemotron|kimi|phi)[\w.]*")


def recipe_model(draft: Draft, context: Context, settings: dict[str, Setting], words: str) -> None:
    """``llama3_8b_pretrain_config`` names a model; NeMo 2's ``llm.llama31_70b`` too."""
    if context.model_named:
        return
    if "/" in words or "-" in words:  # a hub's or a shipped model's name, spelt out
        _put_model(draft, context, settings, words, words)
        return
    match = MODEL.search(words)
    if match is None:
        as_arguments(settings)
        return
    name = re.split(r"_(?:pretrain|finetune|sft|peft|config|recipe|\d+gpu|lora)", match.group())[0]
    spelled = re.sub(r"^llama3(\d)_", r"llama-3.\1-", name).replace("_", "-")
    _put_model(draft, context, settings, spelled, name)


def _put_model(
    draft: Draft, context: Context, settings: dict[str, Setting], name: str, shown: str
) -> None:
    model = altered_model(draft, context, name, settings)
    if model is not None:
        draft.put("model", Given(model, draft.file))
    else:
        put_model_named(draft, name, Setting(shown, draft.file))
