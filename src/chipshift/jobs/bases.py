"""Files beside a job file: the one that it is laid over (``_base_: [./default.yaml]``), idle ones.

A program's own mechanism, in the manner of OpenMMLab's: the keys of the file go before its base's.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.hydra import dumped, laid_over, tree_of
from chipshift.jobs.source import Source
from chipshift.jobs.unknown_keys import BASES, PASSING, bears

MOST_BASES = 20

WORDS = re.compile(
    r"model|batch|cutoff|length|seq|block_size|bf16|fp16|amp|float|gradient|optim|adapter|fsdp|zero|"
    r"deepspeed|device|node|gpu|attn|attention|layer|hidden|vocab|image|compile|kernel|loss|task|"
    r"stage|finetun|train_type|tuner|steps_per|accum"
)
"""Further words of a key that a job reads; with none of them a file of no format is idle."""


def on_bases(sources: list[Source]) -> list[Source]:
    """The YAML files with each laid over the bases that it names, where they are given."""
    taken: list[Source] = []
    done: dict[int, Source] = {}
    found = [_laid(one, sources, taken, (), done) for one in sources]
    return [new for one, new in zip(sources, found, strict=True) if one not in taken] or sources


def _laid(
    source: Source,
    sources: list[Source],
    taken: list[Source],
    above: tuple[Source, ...],
    done: dict[int, Source],
) -> Source:
    """A file over its bases; ``done`` holds what each came to, since several may share a base.

    Raises:
        InputError: a file is its own base, by others.
    """
    if id(source) in done:
        return done[id(source)]
    if len(sources) < 2 or not any(f"{key}:" in source.text for key in BASES):
        return source
    tree = tree_of(source)
    key = next((key for key in BASES if key in (tree or {})), "")
    bases = _named((tree or {}).get(key), sources)
    if tree is None or not bases or len(above) >= MOST_BASES:
        return source
    if any(base is source or base in above for base in bases):
        raise InputError(f"{source.path}: {key} goes in a circle; expected a base without one")
    under: dict[str, Any] = {}
    for base in bases:
        whole = _laid(base, sources, taken, (*above, source), done)
        under = laid_over(under, tree_of(whole) or {})
        taken.append(base)
    own = {name: value for name, value in tree.items() if name != key}
    laid = Source(f"{source.path} (with its base)", dumped(laid_over(under, own)))
    done[id(source)] = laid
    return laid


def _named(value: Any, sources: list[Source]) -> list[Source]:
    """The files given that a base's value names; none unless all of them are."""
    names = value if isinstance(value, list) else [value]
    found: list[Source] = []
    for name in names:
        if not isinstance(name, str):
            return []
        tail = "/" + name.replace("\\", "/").rsplit("/", 1)[-1]
        own = [one for one in sources if ("/" + one.path.replace("\\", "/")).endswith(tail)]
        if len(own) != 1 or tree_of(own[0]) is None:
            return []
        found += [] if own[0] in found else own
    return found


def idle_keys(source: Source) -> bool:
    """Whether a file is a mapping (YAML or JSON) of which no key's name bears on time or memory."""
    tree = tree_of(source)
    return tree is not None and not any(
        bears(key, value) or (WORDS.search(key.lower()) and not PASSING.search(key.lower()))
        for key, value in _flat(tree)
    )


def _flat(tree: Any, under: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [(under, tree)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else str(key), one) for key, one in value.items()]
        elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
            waiting += [(path, one) for one in value]
        else:
            found.append((path, value))
    return found
