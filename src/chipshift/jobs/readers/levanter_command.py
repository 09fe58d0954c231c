"""Levanter's commands, and words laid over a file as draccus takes them.

Source: Stanford CRFM, Levanter, docs/Configuration-Guide.md and main/train_lm.py, 2025.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import Launch, unset
from chipshift.jobs.overrides import Overrides, Place
from chipshift.jobs.readers import levanter
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

LEVANTER = re.compile(r"levanter[./]main[./](?:train_lm|lora_lm|sft|train_dpo)(?:\.py)?$")
_DOTTED = re.compile(r"--([A-Za-z_][\w-]*(?:\.[\w-]+)+)$")


def dotted(command: Command, launch: Launch) -> dict[str, tuple[str, int]]:
    """``--trainer.train_batch_size 64``: the words by which draccus and its like lay a value over
    a file; a switch alone is true.
    """
    found: dict[str, tuple[str, int]] = {}
    for at, word in enumerate(command.words):
        match = _DOTTED.match(word.plain)
        if match is None:
            continue
        after = command.words[at + 1] if at + 1 < len(command.words) else None
        alone = after is None or after.plain.startswith("--")
        text = "true" if after is None or alone else after.plain
        if after is not None and not alone and after.unknown:
            text = unset(after, launch.found.environment)
        found[match.group(1).replace("-", "_")] = (text, word.line)
    return found


def levanter_command(
    texts: dict[str, str], places: dict[str, Place], context: Context, file: str
) -> Draft:
    """``train_lm.py --model.type llama ...`` alone: the YAML under it was not given."""
    laid = Overrides({**texts, **context.overrides.given}, places)
    draft = levanter.read(Source(file, "model: {}\n"), replace(context, overrides=laid))
    context.overrides.used |= laid.used & set(context.overrides.given)
    draft.note("settings", "of the command alone", "the YAML under them was not given")
    if "model.type" not in texts and draft.values.get("model") and not context.model_named:
        del draft.values["model"]
        draft.wanted_model = "the model of a YAML that is not given"
    return draft
