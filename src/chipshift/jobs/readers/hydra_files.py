"""A Hydra program's configuration, composed of the files that are given.

``python train.py model=llama loss=kto ++model.name_or_path=x``: the program's ``config_name``, the
file of each group that its ``defaults`` or the command choose, and the command's own values over
them. A group's file is found by its own name among those given; one that was not is said.

Source: Meta, Hydra 1.3, "The Defaults List" and "Basic Override syntax", 2026.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs import yaml_lines
from chipshift.jobs.context import Context
from chipshift.jobs.interpolate import interpolated
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

_MAIN = re.compile(r"hydra\.main\(([^)]*)\)", re.S)
_NAME = re.compile(r"config_name[ \t]*=[ \t]*[\"']([\w./-]+)[\"']")
_WORD = re.compile(r"(?:\+\+|\+|~)?([A-Za-z_][\w./@]*)=(.*)", re.S)


def composed(
    entry: Source, command: Command, context: Context
) -> tuple[dict[str, Setting], list[str]] | None:
    """The settings by dotted key, and the base names of the files; None for no Hydra program."""
    main = _MAIN.search(entry.text)
    if main is None:
        return None
    named = _NAME.search(main.group(1))
    words = [(m, word.line) for word in command.words if (m := _WORD.fullmatch(word.plain))]
    said = {m.group(1): (m.group(2), line) for m, line in words}
    asked = [word.plain for word in command.words]
    for at, word in enumerate(asked):
        if word.startswith("--config-name"):
            told = word.partition("=")[2] or (asked[at + 1] if at + 1 < len(asked) else "")
            named = re.match(r"([\w./-]+)", told) or named
    base = f"{named.group(1).rsplit('/', 1)[-1].removesuffix('.yaml')}.yaml" if named else ""
    found: dict[str, Setting] = {}
    files: list[str] = []
    chosen = {key: text for key, (text, _) in said.items()}
    _lay(base, "", context, chosen, found, files)
    for key, text in chosen.items():  # groups that the configuration's own list leaves open
        name = f"{text}.yaml"
        if "." not in key and name in context.beside and name not in files:
            _lay(name, key.partition("@")[0].replace("/", "."), context, {}, found, files)
    for key, (text, line) in said.items():
        if f"{text}.yaml" not in files:
            found[key] = Setting(_plain(text), command.file, line)
    return (interpolated(found, {}), files) if files else None


def _plain(text: str) -> Any:
    from chipshift.jobs.overrides import typed

    return typed(text.strip("'\""))


def _lay(
    name: str,
    group: str,
    context: Context,
    chosen: dict[str, str],
    found: dict[str, Setting],
    files: list[str],
) -> None:
    """Lay a file of a group over what was found, after those that its ``defaults`` name."""
    source = context.beside.get(name)
    if source is None or name in files or len(files) > 50:
        return
    files.append(name)
    try:
        documents = yaml_lines.parse(source)
    except InputError:
        return
    tree = documents[0].tree if documents else None
    if not isinstance(tree, dict):
        return
    own = {key: value for key, value in tree.items() if key != "defaults"}
    flat = flatten(own, source.path, documents[0].lines)
    under = f"{group}." if group else ""
    last = _self_first(tree.get("defaults"))
    if last:
        found.update({under + key: setting for key, setting in flat.items()})
    for other in tree.get("defaults") or []:
        inner, option = _entry(other)
        option = chosen.get(inner, option) if inner else option
        if option and option != "_self_":
            place = f"{under}{inner.replace('/', '.')}" if inner else group
            _lay(f"{option.rsplit('/', 1)[-1]}.yaml", place, context, chosen, found, files)
    if not last:
        found.update({under + key: setting for key, setting in flat.items()})


def _self_first(listed: Any) -> bool:
    return isinstance(listed, list) and bool(listed) and listed[0] == "_self_"


def _entry(entry: Any) -> tuple[str, str]:
    """``model: llama`` as its group and option; ``base`` as an option of the same group."""
    if isinstance(entry, dict) and len(entry) == 1:
        key, value = next(iter(entry.items()))
        group = str(key).replace("override ", "").replace("optional ", "").strip("/ ")
        return group.partition("@")[0], "" if value in (None, "???") else str(value)
    return "", str(entry)
