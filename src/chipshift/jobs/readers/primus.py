"""Primus's YAML: the settings of a backend inside ``modules.NAME.overrides``, and its presets.

A module names a trainer (``config: pre_trainer.yaml``) and a model (``model: llama3_8B.yaml``),
each a file that may extend others. The trainer's keys go before the model's, and the overrides
before both. Files given beside are taken; of those that are not, Primus's own stand in
``primus_presets.toml``.

Layout, order and ``${NAME:default}``: AMD, Primus, primus/core/launcher/parser.py and
primus/core/config/yaml_loader.py, at commit fd1eeab, 2026-08-22.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.overrides import typed
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.yaml_lines import parse

_FRAMEWORK = re.compile(r"modules\.([^.]+)\.framework$")
_DEFAULT = re.compile(r"\$\{(\w+)(?::-?([^{}]*))?\}|\$(\w+)")
TABLE = Path(__file__).parent / "primus_presets.toml"
OWN = "Primus's "
"""What the file of a setting begins with that stands in Primus's own presets."""

DEEPEST = 8
"""Files that a model file may extend, one after another; Primus's own stack four."""


@dataclass
class Module:
    """One module of a Primus file.

    Attributes:
        name: ``pre_trainer``, ``post_trainer`` ...
        overrides: what the file itself sets, by the framework's own keys.
        model: the model file's name without its ending, and where it stands.
        shape: settings of the model file and of those it extends.
        trainer: settings of the trainer's file and of those it extends.
        absent: files that were not given and are none of Primus's own.
    """

    name: str
    overrides: dict[str, Setting]
    model: Setting | None = None
    shape: dict[str, Setting] = field(default_factory=dict)
    trainer: dict[str, Setting] = field(default_factory=dict)
    absent: list[Setting] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Setting]:
        """All that is set, each key as the last to say it has it."""
        return {**self.shape, **self.trainer, **self.overrides}


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
        module = Module(found.group(1), {**settled(own, context), **_commanded(context)})
        for kind, part in (("modules", "config"), ("models", "model")):
            named = settings.get(base + part)
            if named is None or not isinstance(named.value, str):
                continue
            place = settled({part: named}, context)[part]
            held = _extended(str(place.value), place, (framework, kind), context, module, 0)
            if kind == "modules":
                module.trainer = held
            else:
                module.shape = held
                module.model = Setting(stem(str(place.value)), place.file, place.line)
        return module
    return None


def _commanded(context: Context) -> dict[str, Setting]:
    """What the command that starts Primus gives in ``--key value``."""
    laid = context.overrides
    laid.used |= laid.places.keys()
    return {key: Setting(typed(laid.given[key]), *laid.places[key]) for key in laid.places}


def the_module(settings: dict[str, Setting], framework: str, file: str, context: Context) -> Module:
    """As ``module_of``, for a file that is Primus's.

    Raises:
        InputError: no module of it runs on the framework.
    """
    module = module_of(settings, framework, context)
    if module is None:
        raise InputError(
            f"{file} has no module that runs on {framework}; expected 'framework: {framework}' in "
            "a table below 'modules'"
        )
    return module


def stem(name: str) -> str:
    """``models/llama3_8B.yaml`` to ``llama3_8B``."""
    return re.sub(r"\.ya?ml$", "", name).rsplit("/", 1)[-1]


def _extended(
    name: str,
    place: Setting,
    whose: tuple[str, str],
    context: Context,
    module: Module,
    depth: int,
) -> dict[str, Setting]:
    """A file's settings over those of the files it extends, given beside or Primus's own.

    Raises:
        InputError: files that extend each other.
    """
    if depth >= DEEPEST:
        raise InputError(f"{place.file} extends more than {DEEPEST} files; expected fewer")
    own = _given(name, context)
    if own is None:
        own = _preset(stem(name), whose)
    if own is None:
        if not _plumbing(name):
            module.absent.append(Setting(name, place.file, place.line))
        return {}
    more = own.pop("extends", None)
    parents = more.value if more is not None else []
    found: dict[str, Setting] = {}
    for parent in [parents] if isinstance(parents, str) else parents or []:
        assert more is not None
        found.update(_extended(str(parent), more, whose, context, module, depth + 1))
    return {**found, **settled(own, context)}


def _given(name: str, context: Context) -> dict[str, Setting] | None:
    """The settings of a file among those given, the one being read aside."""
    ending = "" if name.endswith((".yaml", ".yml")) else ".yaml"
    base = (name + ending).rsplit("/", 1)[-1]
    known = context.beside.get(base)
    if known is None or known.path in context.reading:
        return None
    beside = context.neighbour(base)
    assert beside is not None
    documents = parse(beside)
    tree = documents[0].tree if documents else None
    if not isinstance(tree, dict):
        raise InputError(f"{beside.path} holds no table of keys; expected a model of Primus")
    return flatten(tree, beside.path, documents[0].lines)


def _preset(name: str, whose: tuple[str, str]) -> dict[str, Setting] | None:
    framework, kind = whose
    keys = presets().get(framework, {}).get(kind, {}).get(name)
    if keys is None:
        return None
    file = f"{OWN}{name}.yaml"
    return {k: Setting(None if v == "null" else v, file) for k, v in keys.items()}


def _plumbing(name: str) -> bool:
    """Files of Primus that set nothing of what is read here."""
    return stem(name) in ("module_base", "primus_megatron_model", "primus_megatron_module",
                          "primus_turbo", "torch_compile", "zero_bubble", "primus_pipeline",
                          "quantize")  # fmt: skip


@cache
def presets() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Framework → ``modules`` or ``models`` → name → keys, ``extends`` among them."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def note_absent(module: Module, draft: Draft) -> None:
    """Say of files that are neither given nor Primus's own that what they set is not known."""
    for one in module.absent:
        if module.model is not None and stem(str(one.value)) == module.model.value:
            continue  # the model's name is looked up, or named in the error
        why = "neither given beside nor one of Primus's own: what it sets is not known"
        draft.ignored.append(Ignored(str(one.value), one.file, one.line, True, why))


def note_defaults(module: Module, draft: Draft, known: frozenset[str]) -> None:
    """List what the trainer's presets say and the file does not, as assumed."""
    for key, one in module.trainer.items():
        if one.file.startswith(OWN) and key in known and key not in module.overrides:
            shown = str(one.value).lower() if isinstance(one.value, bool) else str(one.value)
            draft.note(key.replace("_", "-"), shown, f"Primus's default, in {one.file[len(OWN) :]}")
