"""The vocabulary that NeMo 2 pretrains: that of the data's tokenizer.

A model's configuration states none, but for those below, and takes the rows of the tokenizer that
its data brings, padded; the mock data of the library's recipes brings GPT-2's where the script
gives no other. Fine-tuning keeps the checkpoint's. Source: NVIDIA, NeMo 2.6.0rc0,
nemo/collections/llm/gpt/model/base.py (configure_model), gpt/data/mock.py and api.py (pretrain),
2025-09-20.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.python_tree import Call, Unknown
from chipshift.jobs.readers.bridge_walk import Assigned, Event
from chipshift.jobs.readers.megatron_model import TOKENIZERS
from chipshift.jobs.settings import Setting, as_integer
from chipshift.models.preset import preset

PRESET = re.compile(r"gemma-?[23]|gpt-?oss|llama-?4|phi-?3|t5|mamba|hyena|nemotron-?h", re.I)
"""Models whose configurations state a vocabulary of their own, or whose recipes a tokenizer."""

DIVISORS = (("deepseek-?v3", 1280), ("deepseek", 3200), ("chatglm", 65024))
"""Rows that a model's configuration pads to a multiple of, where they are not 128."""

GPT2 = TOKENIZERS["gpt2bpetokenizer"]
_DATA = re.compile(r"(?:^|\.)data$|^data\b")


def put_nemo_vocabulary(
    draft: Draft,
    context: Context,
    settings: dict[str, Setting],
    model: str,
    pretrains: bool,
    events: Iterable[Event],
) -> None:
    """The vocabulary as ``vocab-size``, where the script's data tells its tokenizer.

    Args:
        model: the name of the model that is trained.
        pretrains: one of the library's recipes that starts from no checkpoint was called.
    """
    if context.model_named or "vocab-size" in settings or PRESET.search(model):
        return
    told: tuple[int, str, int | None] | None = None
    unknown = not pretrains
    if pretrains:
        told = (GPT2, "GPT-2's, which the recipe's mock data brings", None)
    for event in events:
        if isinstance(event, Assigned):
            if _DATA.search(event.path) and _replaces(event):
                told, unknown = None, True
            continue
        if (size := _rows(event.call)) is not None:
            told = size
        elif event.call.name.endswith("MockDataModule") and "tokenizer" not in event.call.keywords:
            told = (GPT2, "GPT-2's, which mock data without a tokenizer brings", event.call.line)
    if told is None or (unknown and told[0] == GPT2 and not pretrains and told[2] is None):
        return
    rows, why, line = told
    settings["vocab-size"] = Setting(rows, draft.file, line)
    divisor = next((n for name, n in DIVISORS if re.search(name, model, re.I)), None)
    if divisor is not None:
        settings.setdefault("make-vocab-size-divisible-by", Setting(divisor, draft.file))
    draft.note("vocabulary", rows, why)


def _replaces(event: Assigned) -> bool:
    """``recipe.data = ...`` of the script's own, not a switch of the recipe's."""
    return isinstance(event.setting.value, Unknown) and "Mock" not in str(event.setting.value)


def _rows(call: Call) -> tuple[int, str, int | None] | None:
    """The rows of the tokenizer that a call makes; None where it makes none that is known."""
    last = call.name.rsplit(".", 1)[-1]
    words = [*call.arguments, None, None]
    if last == "AutoTokenizer" or call.name.endswith("AutoTokenizer.from_pretrained"):
        named = call.keywords.get("pretrained_model_name")
        return _of_hub(named.value if named is not None else words[0], call.line)
    if last != "get_nmt_tokenizer":
        return None
    library, name = (
        call.keywords[key].value if key in call.keywords else words[at]
        for at, key in enumerate(("library", "model_name"))
    )
    if str(library) == "null":
        size = call.keywords.get("vocab_size")
        count = as_integer(size.value) if size is not None else None
        said = "the null tokenizer's and an end of document"
        return None if count is None else (count + 1, said, call.line)
    if str(library) == "megatron" and str(name).lower() in TOKENIZERS:
        return TOKENIZERS[str(name).lower()], f"that of {name}", call.line
    return _of_hub(name, call.line) if str(library) == "huggingface" else None


def _of_hub(name: object, line: int) -> tuple[int, str, int | None] | None:
    if not isinstance(name, str) or isinstance(name, Unknown):
        return None
    try:
        return preset(name).vocab, f"that of the tokenizer {name}", line
    except InputError:
        return None
