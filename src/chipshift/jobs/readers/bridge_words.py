"""A command that starts a program of somebody's own with Megatron-Bridge's words:
``train.py model.seq_length=2048 train.global_batch_size=8``.

Bridge's programs take such words over the fields of the recipe that they build (NVIDIA,
Megatron-Bridge, scripts/training/README.md, 2026-08). The recipe of a program that is not given is
not known: the words alone are read, the model by the program's name where that names one.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.bridge import finish
from chipshift.jobs.readers.bridge_shape import SHAPE, put_shape
from chipshift.jobs.readers.megatron_core import argument_of, pass_on, put_precision
from chipshift.jobs.settings import Setting
from chipshift.jobs.shell.found import Command
from chipshift.jobs.unknown_keys import bears

_PAIR = re.compile(r"\+{0,2}([a-z]\w*)((?:\.\w+)*)=(.*)", re.S)
SECTIONS = ("model", "train", "dataset", "optimizer", "ddp", "comm_overlap", "dist")
PRECISION = ("mixed_precision", "precision_config")


def bridge_words(command: Command, context: Context, file: str) -> Draft | None:
    """The draft of the command's words; None where they are not Bridge's."""
    settings: dict[str, Setting] = {}
    others: dict[str, Setting] = {}
    sections: set[str] = set()
    for word in command.words:
        match = _PAIR.fullmatch(word.plain)
        if match is None:
            continue
        section, path, text = match.groups()
        setting = Setting(typed(text), file, word.line)
        if section in PRECISION and not path:
            put_precision(settings, text, setting)
        elif section in SECTIONS and path:
            sections.add(section)
            leaf = path.rsplit(".", 1)[-1]
            if leaf in SHAPE and section == "model":
                put_shape(settings, leaf, setting)
            elif section == "model" and not argument_of(leaf):
                others[leaf] = setting
            else:
                pass_on(settings, leaf, setting)
    if not {"model", "train"} <= sections:
        return None
    program = next((w.plain for w in command.words if w.plain.endswith(".py")), "")
    name = program.rsplit("/", 1)[-1].removesuffix(".py")
    draft = Draft(file, "megatron-bridge", uneven_pp=False, pads_vocab=False)
    whose = f"the recipe of {name or 'the program'}"
    draft.note("settings", "of the command alone", f"{whose} was not given")
    finish(draft, context, settings, name, "")
    model = draft.get("model")
    if model is not None and not context.model_named:
        draft.note("model", model.name, f"the program's name, {name}")
    for leaf, one in others.items():
        why = "no field of the model's that is read here"
        key = f"model.{leaf}"
        draft.ignored.append(Ignored(key, file, one.line, bears(leaf, True), why))
    return draft
