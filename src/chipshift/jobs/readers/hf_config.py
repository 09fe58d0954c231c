"""A Hugging Face or diffusers ``config.json`` beside a job: the model, and nothing else."""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.json_lines import parse
from chipshift.jobs.source import Source

KINDS = ("model_type", "architectures", "_class_name")
"""Keys that name the kind of model."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    from chipshift.models.hf import read_config

    draft = Draft(source.path, "config.json")
    tree, lines = parse(source)
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table; expected a config.json")
    parts = source.path.replace("\\", "/").rsplit("/", 2)
    named = str(tree.get("_name_or_path") or "") or (parts[-2] if len(parts) > 1 else "")
    key = next((one for one in KINDS if one in lines), KINDS[0])
    if not context.model_named:
        model = read_config(tree, name=named, file=source.path, lines=lines)
        draft.put("model", Given(model, source.path, lines.get(key)))
    shown = str(tree.get(key, ""))[:60]
    entry = Understood(key, shown, source.path, lines.get(key), "model: the whole file")
    draft.understood.append(entry)
    return draft
