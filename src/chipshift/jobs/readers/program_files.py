"""Files of settings that a program reads itself: those of its command, and of its own text.

A framework's own files (DeepSpeed's JSON, Accelerate's YAML, a model's config.json, an
adapter_config.json) are left to their readers.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs import json_lines, yaml_lines
from chipshift.jobs.context import Context
from chipshift.jobs.launch import program_words
from chipshift.jobs.python_program import imported_beside
from chipshift.jobs.recognise import recognise
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

_FRAMEWORKS = ("deepspeed", "hf_config", "accelerate", "peft")
_OWN = ("", "transformers")
"""Forms of a program's own file: none, or the Trainer's words, which many programs take."""
_NAMED = re.compile(r"[\"']([\w./-]+\.(?:ya?ml|json))[\"']")
_LOADS = re.compile(
    r"\b(?:json|yaml|OmegaConf|pyjson5)\.(?:safe_|full_|unsafe_)?load\(|"
    r"\bparse_(?:json|yaml)_file\(|\bload_(?:config|yaml|json)\w*\("
)
"""Calls that read a file of settings."""


def own_files(command: Command, context: Context) -> tuple[dict[str, Setting], list[str]]:
    """Keys of the files of settings that the command names and no framework reads, by dots."""
    found: dict[str, Setting] = {}
    named: list[str] = []
    for word in program_words(command):
        name = word.plain.rsplit("=", 1)[-1].rsplit("/", 1)[-1]
        source = context.beside.get(name)
        if source is None or not re.search(r"\.(?:json|ya?ml)$", name):
            continue
        if form_of(source) in _FRAMEWORKS:
            continue
        tree, lines = _table(source, name)
        if isinstance(tree, dict):
            found |= flatten(tree, source.path, lines)
            named.append(name)
    return found, named


def read_by(
    entry: Source, context: Context, named: set[str]
) -> tuple[dict[str, Setting], list[str]]:
    """Keys of the files that a program reads, by dots, and the files' names.

    Those that its text names; where it names none and a command none (``named``), the one file of
    settings beside it, if it loads any.
    """
    texts = [source.text for source in imported_beside(entry, context.beside)]
    words = {word for text in texts for word in _NAMED.findall(text)}
    told = sorted({word.rsplit("/", 1)[-1] for word in words} & {*context.beside} - named)
    loads = any(_LOADS.search(text) for text in texts)
    if not told and not named and loads:
        told = [name for name in context.beside if re.search(r"\.(?:json|ya?ml)$", name)]
        told = [name for name in told if form_of(context.beside[name]) in _OWN]
        told = told if len(told) == 1 else []
    found: dict[str, Setting] = {}
    files: list[str] = []
    for name in told:
        source = context.beside[name]
        if form_of(source) in _FRAMEWORKS:
            continue
        tree, lines = _table(source, name)
        if isinstance(tree, dict):
            found |= flatten(tree, source.path, lines)
            files.append(name)
    return found, files


def _table(source: Source, name: str) -> tuple[Any, dict[str, int]]:
    """A JSON's or YAML's first table, and the lines of its keys; None where it is broken."""
    try:
        if name.endswith(".json"):
            return json_lines.parse(source)
        first = yaml_lines.parse(source)[:1]
    except InputError:
        return None, {}
    return (first[0].tree, dict(first[0].lines)) if first else (None, {})


def form_of(source: Source) -> str:
    """The format of a file; "" where it is in none."""
    try:
        return recognise(source)
    except InputError:
        return ""
