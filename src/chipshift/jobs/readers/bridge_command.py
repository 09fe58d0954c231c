"""A script that starts Megatron-Bridge's ``run_recipe.py --recipe NAME key=value ...``.

The recipe's settings are the library's; options and ``key=value`` words lie over them. Options:
NVIDIA, Megatron-Bridge, scripts/training/run_recipe.py, 2026-08.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError, nearest
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import program_words, put_environment, put_machine, read_launch
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.bridge import finish, from_library
from chipshift.jobs.readers.bridge_library import LibraryRecipe, library
from chipshift.jobs.readers.bridge_options import RUNNER
from chipshift.jobs.readers.bridge_vocab import put_vocabulary
from chipshift.jobs.readers.bridge_walk import Assigned
from chipshift.jobs.readers.megatron_core import pass_on
from chipshift.jobs.settings import Setting
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)$", re.S)


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``.

    Raises:
        InputError: the recipe is not in the library's table.
    """
    draft = Draft(source.path, "megatron-bridge", uneven_pp=False, pads_vocab=False)
    launch = read_launch(source, context)
    named: Field | None = None
    words: list[Field] = []
    jobs = 0
    for command in launch.found.commands:
        own = program_words(command)
        value = _option(own, "--recipe")
        if value is not None:
            named, words, jobs = value, own, jobs + 1
    if jobs > 1:
        draft.note("jobs of the script", jobs, "the last was read")
    if named is None:
        raise InputError(f"{source.path} starts no run_recipe.py with --recipe; expected one")
    recipe = library().get(named.plain) or _tuned(named.plain, _option(words, "--peft_scheme"))
    if recipe is None:
        raise InputError(
            f"{source.path}:{named.line}: --recipe {named.shown} is not a recipe known here"
            f"{nearest(named.plain, list(library()))}; expected one, or the file that defines it"
        )
    put_machine(draft, launch)
    put_environment(draft, launch)
    settings: dict[str, Setting] = {}
    from_library(draft, settings, recipe, named.line)
    laid: list[Assigned] = []
    for key, word in _pairs(words):
        leaf = key.rsplit(".", 1)[-1]
        setting = Setting(typed(word.plain), source.path, word.line)
        if not key.startswith("tokenizer."):
            pass_on(settings, leaf, setting)
        laid.append(Assigned(key, setting))
    put_vocabulary(draft, context, settings, recipe, laid, named.line)
    finish(draft, context, settings, recipe.name, recipe.model, recipe)
    return draft


def _tuned(name: str, scheme: Field | None) -> LibraryRecipe | None:
    """``--recipe X_finetune_config --peft_scheme lora``, which was split in two in 2026."""
    kind = "sft" if scheme is None or scheme.plain.lower() in ("none", "null", "") else "peft"
    return library().get(re.sub(r"_finetune_config$", f"_{kind}_config", name))


def _option(words: list[Field], name: str) -> Field | None:
    """The value of ``--name VALUE`` or ``--name=VALUE``."""
    for at, word in enumerate(words):
        if word.plain == name and at + 1 < len(words):
            return words[at + 1]
        if word.plain.startswith(name + "="):
            return Field(word.text.partition("=")[2], word.line, word.soft)
    return None


def _pairs(words: list[Field]) -> list[tuple[str, Field]]:
    """``key=value`` words, and the runner's own options under the field they set."""
    found: list[tuple[str, Field]] = []
    for at, word in enumerate(words):
        option = re.fullmatch(r"--?([A-Za-z][\w-]*)", word.plain)
        pair = _PAIR.match(word.plain)
        if option and at + 1 < len(words):
            name = option.group(1).replace("-", "_")
            found.append((RUNNER.get(name, name), words[at + 1]))
        elif pair:
            found.append((pair.group(1), Field(word.text.partition("=")[2], word.line, word.soft)))
    return found
