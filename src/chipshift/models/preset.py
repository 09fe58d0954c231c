"""Shipped configs by name: ``preset("llama-3.1-8b")``, ``flavour("llama3", "8B")``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.models.hf import load_keys, read_config
from chipshift.models.model import Model

FOLDER = Path(__file__).parent / "presets"
_TRAINED_FURTHER = re.compile(r"instruct|chat|base|(it|pt|hf)$")


@cache
def index() -> dict[str, dict[str, Any]]:
    """Preset name → {source, aliases, torchtitan}, in the order of the file."""
    return tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """Every preset's own name."""
    return list(index())


@cache
def preset(name: str) -> Model:
    """The shipped model of that name or alias, whatever its case and punctuation.

    Raises:
        InputError: there is none; the sentence names the nearest and ``--model``.
    """
    model = read_config(FOLDER / f"{_known(name)}.json")
    return replace(model, defaults=())  # ours, checked against the reference: nothing is open


def without_towers(model: Model) -> bool:
    """Whether a shipped model is the language model alone of one that also sees or hears."""
    entry = index().get(model.name, {})
    return not model.towers and "the language model alone" in str(entry.get("source", ""))


def altered(name: str, changes: Mapping[str, Any], file: str) -> Model:
    """The shipped model of that name with some keys of its config replaced, as ``file`` says.

    Raises:
        InputError: there is none, or a changed key is absurd.
    """
    keys, _ = keys_of(name)
    return read_config({**keys, **changes}, f"{name}-altered", file)


def keys_of(name: str) -> tuple[Mapping[str, Any], str]:
    """The keys of the shipped config of that name or alias, and the preset's own name.

    Raises:
        InputError: there is none.
    """
    known = _known(name)
    return load_keys(FOLDER / f"{known}.json"), known


def _known(name: str) -> str:
    key = _bare(name.rsplit("/", 1)[-1])
    known = _spellings()
    found = known.get(key) or known.get(_TRAINED_FURTHER.sub("", key))
    if found is None:
        hint = nearest(name.rsplit("/", 1)[-1].lower(), names())
        raise InputError(
            f"{name!r} is not a shipped model; give its config.json with --model PATH{hint}"
        )
    return found


def flavour(family: str, size: str) -> Model:
    """torchtitan's model of that name and flavour, such as ``("llama3", "8B")``.

    Raises:
        InputError: no preset stands for it.
    """
    flavours = {
        tuple(_bare(part) for part in pair.split(" ", 1)): (name, pair)
        for name, entry in index().items()
        for pair in entry.get("torchtitan", ())
    }
    found = flavours.get((_bare(family), _bare(size)))
    if found is None:
        choices = [pair for _, pair in flavours.values()]
        raise InputError(
            f"torchtitan's flavour {size!r} of {family!r} is not a shipped model"
            f"{nearest(f'{family} {size}', choices)}; give its config.json with --model PATH"
        )
    return preset(found[0])


@cache
def _spellings() -> dict[str, str]:
    """Bare spelling → preset name; own names win over aliases."""
    aliases = {
        _bare(alias): name for name, entry in index().items() for alias in entry.get("aliases", ())
    }
    return aliases | {_bare(name): name for name in index()}


def _bare(name: str) -> str:
    """Letters, digits and the points between digits, in lower case."""
    return re.sub(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.]", "", name.lower())
