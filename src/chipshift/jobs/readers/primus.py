"""Primus's YAML: the settings of Megatron-LM or MaxText inside ``modules.NAME.overrides``.

Layout, ``${NAME:default}`` and defaults: AMD, Primus, examples/megatron/configs,
examples/maxtext/configs and primus/configs/modules (trainer_base.yaml, pre_trainer.yaml), 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.overrides import typed
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse

_FRAMEWORK = re.compile(r"modules\.([^.]+)\.framework$")
_DEFAULT = re.compile(r"\$\{(\w+)(?::-?([^{}]*))?\}|\$(\w+)")


@dataclass
class Module:
    """One module of a Primus file.

    Attributes:
        name: ``pre_trainer``, ``sft_trainer`` ...
        settings: what it overrides, by the framework's own keys.
        model: the model file's name without its ending, and where it stands.
        shape: settings of the model file and of those it extends, where they were given beside.
    """

    name: str
    settings: dict[str, Setting]
    model: Setting | None = None
    shape: dict[str, Setting] = field(default_factory=dict)


def settled(settings: dict[str, Setting], context: Context) -> dict[str, Setting]:
    """Settings with ``${NAME:default}`` and ``${NAME}`` resolved: by ``--set``, or the default."""
    return {
        key: Setting(_value(one.value, context), one.file, one.line)
        if isinstance(one.value, str) and "$" in one.value
        else one
        for key, one in settings.items()
    }


def _value(text: str, context: Context) -> object:
    from chipshift.jobs.launch import Unset

    missing: list[str] = []

    def one(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(3)
        given = context.overrides.variable(name)
        if given is None and match.group(2) is None:
            missing.append(name)
            return match.group()
        return str(match.group(2) if given is None else given)

    made = _DEFAULT.sub(one, text)
    return Unset(made, tuple(missing)) if missing else typed(made)


def module_of(settings: dict[str, Setting], framework: str, context: Context) -> Module | None:
    """The first module that runs on a framework; None where the file is not Primus's."""
    for key, setting in settings.items():
        found = _FRAMEWORK.match(key)
        if found is None or str(setting.value).lower() != framework:
            continue
        base = f"modules.{found.group(1)}."
        inner = base + "overrides."
        own = {k.removeprefix(inner): s for k, s in settings.items() if k.startswith(inner)}
        module = Module(found.group(1), settled(own, context))
        named = settled({"model": settings[base + "model"]}, context) if (
            base + "model" in settings) else {}  # fmt: skip
        if named and isinstance(named["model"].value, str):
            place = named["model"]
            module.shape = _extended(str(place.value), context, 0)
            stem = re.sub(r"\.ya?ml$", "", str(place.value)).rsplit("/", 1)[-1]
            module.model = Setting(stem, place.file, place.line)
        return module
    return None


DEEPEST = 8
"""Files that a model file may extend, one after another; Primus's own stack four."""


def _extended(name: str, context: Context, depth: int) -> dict[str, Setting]:
    """A model file's settings over those of the files it extends, all given beside.

    Raises:
        InputError: files that extend each other.
    """
    beside: Source | None = context.neighbour(name)
    if beside is None:
        return {}
    if depth >= DEEPEST:
        raise InputError(f"{beside.path} extends more than {DEEPEST} files; expected fewer")
    documents = parse(beside)
    tree = documents[0].tree if documents else None
    if not isinstance(tree, dict):
        raise InputError(f"{beside.path} holds no table of keys; expected a model of Primus")
    own = flatten(tree, beside.path, documents[0].lines)
    more = own.pop("extends", None)
    found: dict[str, Setting] = {}
    for parent in more.value if more is not None and isinstance(more.value, list) else []:
        found.update(_extended(str(parent), context, depth + 1))
    return {**found, **settled(own, context)}
