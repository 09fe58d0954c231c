"""The common beginning of every YAML reader."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.interpolate import interpolated
from chipshift.jobs.launch import read_launch
from chipshift.jobs.recognise import is_python, recognise
from chipshift.jobs.settings import Setting, Sheet, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse


def yaml_sheet(source: Source, context: Context, draft: Draft, inside: str = "") -> Sheet:
    """The first document's settings, references resolved and ``--set`` laid over.

    Args:
        inside: a table that a launcher puts the program's whole file in, if it is there: its keys
            are taken as if they stood at the top.

    Raises:
        InputError: not YAML, or not a table of keys.
    """
    documents = parse(source)
    tree = documents[0].tree if documents else None
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table of keys; expected a job file")
    settings = flatten(tree, source.path, documents[0].lines)
    settings |= _included(source, context, documents[0].lines)
    if inside and isinstance(tree.get(inside), dict):
        base = f"{inside}."
        own = {k.removeprefix(base): one for k, one in settings.items() if k.startswith(base)}
        settings = {**{k: one for k, one in settings.items() if not k.startswith(base)}, **own}
    context.overrides.lay_over(settings)
    fixed = {**_exported(source, context), **context.overrides.given}
    return Sheet(interpolated(settings, fixed), draft)


_INCLUDE = re.compile(
    r"^[ \t]*[\w.\"'-]+[ \t]*:[ \t]*!include[ \t]+[\"']?([\w./~-]+)[\"']?[ \t]*(?:#.*)?$"
)


def _included(source: Source, context: Context, lines: Mapping[str, int]) -> dict[str, Setting]:
    """What ``data: !include data/part.yaml`` takes in, where that file is given beside."""
    found: dict[str, Setting] = {}
    keys = {line: key for key, line in lines.items()}
    for number, text in enumerate(source.text.split("\n"), start=1):
        match = _INCLUDE.match(text)
        part = context.neighbour(match.group(1)) if match and number in keys else None
        documents = parse(part) if part is not None and part.path != source.path else []
        if part is not None and documents and isinstance(documents[0].tree, dict):
            own = flatten(documents[0].tree, part.path, documents[0].lines)
            found |= {f"{keys[number]}.{key}": setting for key, setting in own.items()}
    return found


def _exported(source: Source, context: Context) -> dict[str, str]:
    """Environment variables that the YAML asks for, by the scripts beside it that export them."""
    wanted = set(re.findall(r"env:\s*([A-Za-z_]\w*)", source.text))
    found: dict[str, str] = {}
    for base, script in context.beside.items():
        if not wanted or script is source or not re.search(r"^\s*export\s", script.text, re.M):
            continue
        if is_python(script.text) or script.path in context.reading:
            continue
        told = read_launch(script, context).found.environment.exported
        mine = {k: v.plain for k, v in told.items() if k in wanted and not v.unknown}
        if mine and not _job_of_its_own(script):
            context.consumed.add(base)
        found = {**mine, **found}
    return found


def _job_of_its_own(script: Source) -> bool:
    try:
        return bool(recognise(script))
    except InputError:
        return False  # it sets variables and starts nothing
