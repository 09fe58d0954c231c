"""Hydra: a configuration in several files, laid over one another as its defaults list says.

Source: Hydra, "The Defaults List" and "Packages" (``# @package _global_``), 2026. A file of a group
stands under the group's name; what a later entry says goes before an earlier one's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.recognise import recognise
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse

_LIST = re.compile(r"^defaults:[ \t]*(?:#.*)?$", re.M)
_PACKAGE = re.compile(r"^#[ \t]*@package[ \t]+(\S+)", re.M)
MOST_PARTS = 100


def composed(sources: list[Source]) -> list[Source]:
    """The files with those that one configuration is made of in its place.

    Nothing is done where no file has a defaults list, or where none of what it lists is given.
    """
    listing = [one for one in sources if _LIST.search(one.text[:20_000]) and tree_of(one)]
    if not listing or len(sources) < 2:
        return sources
    named = {id(part) for one in listing for part, _, _ in _parts(one, sources)}
    free = [one for one in listing if id(one) not in named]
    # an experiment, which the command chooses, overrides; what it is laid over does not
    chosen_by = [one for one in free if any(over for _, _, over in _parts(one, sources))]
    tops = [one for one in free if one not in chosen_by] or free
    if len(tops) != 1 or not named or _has_a_reader(tops[0]):
        return sources
    taken: list[Source] = []
    chosen = {
        group: part for one in listing for part, group, override in _parts(one, sources) if override
    }
    tree = _compose(tops[0], sources, chosen, taken)
    for one in chosen_by:
        if one not in taken:
            tree = laid_over(tree, _compose(one, sources, chosen, taken))
    if len(taken) < 2:
        return sources
    whole = Source(f"{tops[0].path} (with its defaults)", dumped(tree))
    return [whole, *(one for one in sources if all(one is not part for part in taken))]


def _has_a_reader(source: Source) -> bool:
    """Whether a format's own reader lays the parts together (FlagScale's, NeMo's)."""
    try:
        return recognise(source) != "lightning"
    except InputError:
        return False


def _compose(
    top: Source,
    sources: list[Source],
    chosen: dict[str, Source | None],
    taken: list[Source],
) -> dict[str, Any]:
    """A file's own keys over, or where ``_self_`` stands, its defaults' keys.

    Args:
        chosen: the file of each group that some list overrides.
    """
    taken.append(top)
    own = {key: value for key, value in (tree_of(top) or {}).items() if key != "defaults"}
    layers: list[dict[str, Any]] = []
    stands = False
    for listed, group, override in _parts(top, sources, True, chosen):
        part = chosen.get(group) or listed
        if listed is None or part is None:
            layers.append(own)
            stands = True
        elif not override and part not in taken and len(taken) < MOST_PARTS:
            inner = _compose(part, sources, chosen, taken)
            package = _PACKAGE.search(part.text[:2_000])
            under = package.group(1) if package else group.replace("/", ".")
            layers.append(inner if under in ("_global_", "") else _nested(under, inner))
    if not stands:
        layers.append(own)
    tree: dict[str, Any] = {}
    for layer in layers:
        tree = laid_over(tree, layer)
    return tree


def _parts(
    source: Source,
    sources: list[Source],
    with_self: bool = False,
    chosen: Mapping[str, Source | None] | None = None,
) -> list[tuple[Source | None, str, bool]]:
    """(file, group, whether it overrides) of each entry whose file is given; None: ``_self_``."""
    listed = (tree_of(source) or {}).get("defaults")
    found: list[tuple[Source | None, str, bool]] = []
    for entry in listed if isinstance(listed, list) else []:
        pairs = entry.items() if isinstance(entry, dict) else [("", entry)]
        for key, name in pairs:
            if not isinstance(name, str):
                continue
            if name == "_self_":
                found += [(None, "", False)] if with_self else []
                continue
            words = str(key).split()
            group = (words[-1] if words else "").split("@")[0].strip("/")
            if not group and "/" in name:
                group, _, name = name.strip("/").rpartition("/")
            part = _given(group, name, sources) or (chosen or {}).get(group)
            if part is not None and part is not source:
                found.append((part, group, "override" in words))
    return found


def _given(group: str, name: str, sources: list[Source]) -> Source | None:
    """The file ``group/name.yaml`` among those given, by its folder where two bear its name."""
    base = name.removesuffix(".yaml").removesuffix(".yml")
    wanted = f"/{group}/{base}." if group else f"/{base}."
    paths = {id(one): "/" + one.path.replace("\\", "/") for one in sources}
    whole = [one for one in sources if wanted in paths[id(one)]]
    if whole:
        return whole[0]
    alone = [one for one in sources if f"/{base}." in paths[id(one)]]
    return alone[0] if len(alone) == 1 and group else None


def tree_of(source: Source) -> dict[str, Any] | None:
    """The mapping that a YAML (or JSON) file is; None where it is another thing."""
    try:
        documents = parse(source)
    except InputError:
        return None
    tree = documents[0].tree if documents else None
    return tree if isinstance(tree, dict) else None


def _nested(path: str, tree: dict[str, Any]) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        tree = {part: tree}
    return tree


def laid_over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Two mappings as one, level by level: what ``over`` says goes before ``under``'s."""
    merged = dict(under)
    for key, value in over.items():
        mine = merged.get(key)
        both = isinstance(mine, dict) and isinstance(value, dict)
        merged[key] = laid_over(mine, value) if both and isinstance(mine, dict) else value
    return merged


def dumped(tree: dict[str, Any]) -> str:
    """A mapping as the YAML of one file."""
    import yaml

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=10_000))
