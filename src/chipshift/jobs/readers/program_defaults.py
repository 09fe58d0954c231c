"""What a training program's arguments are by default, under what its command gives.

A program that is given beside its command declares them itself: in data classes that a
``HfArgumentParser`` takes, or by ``add_argument``; its adapters in a ``LoraConfig(...)``.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.python_values import Absent, Module, Unknown
from chipshift.jobs.readers.hf_args import LENGTHS, MICRO
from chipshift.jobs.recognise import is_program
from chipshift.jobs.settings import Setting
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

DECLARED = (
    *MICRO,
    *("gradient_accumulation_steps", "gradient_checkpointing", "optim", "bf16", "fp16", "packing"),
    *("use_lora", "use_peft", "lora_r", "lora_rank", "lora_target_modules", "load_in_4bit"),
)
"""Arguments whose defaults are taken; of the lengths only where the command gives none."""

_ADAPTING = re.compile(r"lora|rank|target|^r$")


def lay_under(settings: dict[str, Setting], command: Command, context: Context) -> None:
    """Put the program's defaults under a command's settings, where the program is given."""
    source = _program(command, context)
    if source is None:
        return
    try:
        module = python_tree.parse(source)
    except InputError:
        return
    given = {key.replace("-", "_") for key in settings}
    for key, value in _defaults(module, any(key in given for key in LENGTHS)).items():
        if key not in given:
            settings[key] = Setting(value, source.path)


def _program(command: Command, context: Context) -> Source | None:
    """The program that the command starts, where it says nothing without its arguments."""
    name = next((word.plain for word in command.words if word.plain.endswith(".py")), "")
    source = context.beside.get(name.rsplit("/", 1)[-1]) if name else None
    return source if source is not None and is_program(source) else None


def _defaults(module: Module, long: bool) -> dict[str, object]:
    keys = DECLARED if long else (*DECLARED, *LENGTHS)
    found = {key: module.arguments[key] for key in keys if key in module.arguments}
    declared = [value for key, value in module.arguments.items() if _ADAPTING.search(key)]
    for call in module.calls:
        if call.name.rsplit(".", 1)[-1] != "LoraConfig":
            continue
        for ours, theirs in (("lora_r", "r"), ("lora_target_modules", "target_modules")):
            stated = call.keywords.get(theirs)
            if stated is not None and stated.value not in declared:  # else the argument says it
                found.setdefault(ours, stated.value)
    return {key: value for key, value in found.items() if not _open(value)}


def _open(value: object) -> bool:
    if isinstance(value, list):
        return not value or any(isinstance(part, Unknown) for part in value)
    return value is None or isinstance(value, (Unknown, Absent))
