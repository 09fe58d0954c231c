"""A PEFT ``adapter_config.json`` given beside a job: the adapters.

Keys: Hugging Face, PEFT, LoraConfig reference, 2026.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.json_lines import parse
from chipshift.jobs.readers.hf_args import put_adapters, put_model_named
from chipshift.jobs.settings import Sheet, flatten
from chipshift.jobs.source import Source


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "peft")
    tree, lines = parse(source)
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table; expected an adapter_config.json")
    settings = flatten(tree, source.path, lines)
    sheet = Sheet(settings, draft)
    put_adapters(sheet)
    base = sheet.raw("base_model_name_or_path")
    if base is not None and isinstance(base[1].value, str):
        sheet.record(*base, "model")
        if not context.model_named:
            put_model_named(draft, base[1].value, base[1])
    sheet.ignore(("modules_to_save", "layers_to_transform", "rank_pattern"), True, "not read")
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    return draft
