"""A script that starts ``nemo llm pretrain --factory RECIPE key=value ...``.

The command builds the recipe that the library's own function returns and lays its words over it,
which is how the same lines of Python read. Source: NVIDIA, NeMo 2.6, "Parallelisms" and the
recipes' own examples, 2025-09.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import put_environment, put_machine, read_launch
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.bridge import read_recipe
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

COMMAND = re.compile(r"\bnemo[ \t]+llm[ \t]+(?:pretrain|finetune)\b")
_FACTORY = re.compile(r"([A-Za-z_]\w*)(\(.*\))?", re.S)
_PAIR = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)=(.+)", re.S)


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``.

    Raises:
        InputError: no such command in it, or one without a recipe.
    """
    launch = read_launch(source, context)
    for command in reversed(launch.found.commands):
        words = list(command.words)
        plain = [word.plain for word in words]
        if "nemo" in plain and "llm" in plain[plain.index("nemo") :]:
            own = words[plain.index("llm", plain.index("nemo")) + 1 :]
            text = _as_python(own, source.path)
            draft = read_recipe(Source(source.path, text), context)
            put_environment(draft, launch)
            if not draft.given("nodes"):
                put_machine(draft, launch)
            return draft
    raise InputError(f"{source.path} starts no 'nemo llm' command; expected one")


def _as_python(words: list[Field], file: str) -> str:
    """The recipe's call and what is laid over it, on the command's own line."""
    kind = words[0].plain if words else ""
    named = _option(words, "--factory")
    match = _FACTORY.fullmatch(named.plain.strip()) if named is not None else None
    if named is None or match is None:
        raise InputError(
            f"{file} starts 'nemo llm {kind}' without a recipe; expected --factory NAME"
        )
    arguments = match.group(2) or "()"
    statements = [
        "from nemo.collections import llm",
        f"recipe = llm.{match.group(1)}.{kind}_recipe{arguments}",
    ]
    for word in words:
        pair = _PAIR.fullmatch(word.plain)
        if pair is not None:
            statements.append(f"recipe.{pair.group(1)} = {typed(pair.group(2))!r}")
    return "\n" * (named.line - 1) + "; ".join(statements)


def _option(words: list[Field], name: str) -> Field | None:
    for at, word in enumerate(words):
        if word.plain == name and at + 1 < len(words):
            return words[at + 1]
        if word.plain.startswith(f"{name}="):
            return Field(word.text.partition("=")[2], word.line, word.soft)
    return None
