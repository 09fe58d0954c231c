"""A PEFT ``adapter_config.json`` given beside a job: the adapters.

Keys: Hugging Face, PEFT, LoraConfig reference, 2026.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.json_lines import parse
from chipshift.jobs.readers.adapter_keys import AUTOCAST
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.settings import Sheet, flatten
from chipshift.jobs.source import Source
from chipshift.models.lora import read_lora

ADAPTER = (
    *("target_modules", "exclude_modules", "target_parameters", "modules_to_save"),
    *("layers_to_transform", "rank_pattern", "bias", "use_dora"),
)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "peft")
    tree, lines = parse(source)
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table; expected an adapter_config.json")
    settings = flatten(tree, source.path, lines)
    sheet = Sheet(settings, draft)
    kind = sheet.text("peft_type", into="adapters")
    rank = sheet.integer("r", into="rank of the adapters")
    for key in ADAPTER:
        for name, setting in settings.items():
            if name == key or name.startswith(f"{key}."):
                sheet.record(name, setting, "adapters")
    stated = rank or kind
    line = stated.line if stated is not None else None
    draft.put("lora", Given(read_lora(tree, source.path, lines), source.path, line))
    draft.assume("adapter_dtype", "fp32", AUTOCAST)
    base = sheet.raw("base_model_name_or_path")
    if base is not None and isinstance(base[1].value, str):
        sheet.record(*base, "model")
        if not context.model_named:
            put_model_named(draft, base[1].value, base[1])
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    return draft
