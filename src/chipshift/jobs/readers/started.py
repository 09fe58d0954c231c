"""The program that a command starts, where it is given beside the command.

Its arguments are what it declares by default, with the command's over them and the keys of a file
of settings that the command names; what its calls then say goes before both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.overrides import typed
from chipshift.jobs.python_program import imported_beside, parse_program
from chipshift.jobs.python_values import Module
from chipshift.jobs.readers.hydra_files import composed
from chipshift.jobs.readers.own_loop import trains
from chipshift.jobs.readers.own_words import TRL_CLASSES
from chipshift.jobs.readers.program_files import own_files, read_by
from chipshift.jobs.readers.script_calls import Calls, take_calls
from chipshift.jobs.settings import Setting, unset_names
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

HF_DEFAULTS: dict[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "fp16": False,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}
"""TrainingArguments of Transformers where nothing is said, for a program's own conditions."""


@dataclass(frozen=True)
class Started:
    """A program as a command starts it.

    Attributes:
        entry: the file that is started.
        module: its facts, and those of the files that it imports.
        given: the command's arguments, and keys of the files of settings that it names.
        calls: what its calls say in the Trainer's words.
        loop: it trains in a loop of its own.
        sources: all its files.
    """

    entry: Source
    module: Module
    given: dict[str, Setting]
    calls: Calls
    loop: bool
    sources: tuple[Source, ...] = ()


def program_of(command: Command, context: Context) -> Source | None:
    """The Python file that a command starts (``train.py``, ``-m package.train``), if given."""
    words = [word.plain for word in command.words]
    for at, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        if word.endswith(".py"):
            return context.beside.get(name)
        module = at > 0 and words[at - 1] in ("-m", "--module") and "." in f".{word}"
        if module and f"{word.rsplit('.', 1)[-1]}.py" in context.beside:
            return context.beside[f"{word.rsplit('.', 1)[-1]}.py"]
    return None


def start(
    command: Command, settings: dict[str, Setting], context: Context, draft: Draft
) -> Started | None:
    """The program of a command with these arguments, its files taken in.

    Returns:
        None where it was not given, or is no training program that is known here.
    """
    entry = program_of(command, context)
    if entry is None:
        return None
    hydra = composed(entry, command, context)
    if hydra is not None:
        settings.clear()  # its words are keys of the configuration, and no options
    given = {key.replace("-", "_"): setting for key, setting in settings.items()}
    own, named = hydra or own_files(command, context)
    written, more = read_by(entry, context, {*named})
    own, named = {**written, **own}, [*named, *more]
    given = {**own, **given}
    return start_with(entry, given, context, draft, named)


def start_with(
    entry: Source,
    given: dict[str, Setting],
    context: Context,
    draft: Draft,
    named: Iterable[str] = (),
) -> Started | None:
    """As ``start``, for a file and its arguments."""
    sources = imported_beside(entry, context.beside)
    values = {key: _typed(one.value) for key, one in given.items() if not unset_names(one.value)}
    try:
        module = parse_program(sources, values)
        taken = parsed_classes(module)
        if any(name.endswith("TrainingArguments") for name in taken):
            under = {k: v for k, v in HF_DEFAULTS.items() if k not in module.arguments}
            module = parse_program(sources, {**under, **values})
    except (InputError, RecursionError):
        return None
    calls = take_calls(module, draft)
    theirs = calls.trainer and (
        calls.configured or _of_trainer(taken) or _theirs(module, calls.trainer)
    )
    theirs = theirs and not _own_class(calls.trainer, sources)
    if not (theirs or trains(module) or _trains_by_name(module)):
        return None
    context.consumed |= {source.path.rsplit("/", 1)[-1] for source in sources} | {*named}
    return Started(entry, module, given, calls, not theirs, tuple(sources))


def _own_class(name: str, sources: Iterable[Source]) -> bool:
    """A Trainer that is a class of the program's own, made of no other Trainer."""
    last = re.escape(name.rsplit(".", 1)[-1])
    pattern = rf"^class {last}[ \t]*(?:\(([^)]*)\))?[ \t]*:"
    found = (re.search(pattern, source.text, re.M) for source in sources)
    return any(one is not None and "Trainer" not in (one.group(1) or "") for one in found)


def _of_trainer(parsed: set[str]) -> bool:
    """Whether a parser fills in the Trainer's arguments, or a configuration of TRL's."""
    return any(
        name.endswith("TrainingArguments") or name.removesuffix("Config") in TRL_CLASSES
        for name in parsed
    )


def _theirs(module: Module, name: str) -> bool:
    """Whether a Trainer is Transformers' or TRL's own."""
    first, _, last = name.rpartition(".")
    home = module.origin.get(last) or first
    return home.split(".", 1)[0] in ("transformers", "trl", "unsloth")


def _trains_by_name(module: Module) -> bool:
    """A Trainer of a class of the program's own, however its arguments are passed."""
    names = {call.name.rsplit(".", 1)[-1] for call in module.calls}
    return any(re.search(r"Trainer$|^train$|^fit$", name) for name in names)


def _typed(value: Any) -> Any:
    return typed(value) if isinstance(value, str) else value


def parsed_classes(module: Module) -> set[str]:
    """Names of the classes that the program's parsers fill in."""
    found: set[str] = set()
    for call in module.calls:
        if call.name.endswith("ArgumentParser") or call.name.endswith("TrlParser"):
            listed = call.arguments[0] if call.arguments else []
            listed = listed if isinstance(listed, list) else [listed]
            found |= {str(one).rsplit(".", 1)[-1] for one in listed}
            told = call.keywords.get("dataclass_types")
            found |= {str(one).rsplit(".", 1)[-1] for one in told.value} if told is not None and (
                isinstance(told.value, list)) else set()  # fmt: skip
    return found - {"ArgumentParser"}
