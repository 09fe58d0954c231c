"""Which part of a model is trained where the rest of it is frozen: what share of its parameters.

Norms and biases are left out of what names select: they are a thousandth of a layer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chipshift.errors import InputError
from chipshift.models.count import head_params, layer_params, params, tower_params
from chipshift.models.count import projection_params as maps_params
from chipshift.models.model import Model
from chipshift.models.modules import linear_modules, naming

TOWERS, PROJECTOR, LANGUAGE = "towers", "projector", "language"


@dataclass(frozen=True)
class Trained:
    """What is trained of a model.

    Attributes:
        frozen: parts that are not: ``towers``, their ``projector`` into the language model, or
            ``language``.
        layers: the language model's layers that are trained alone, from the last (below 0: from
            the first); 0 for all of it.
        names: regular expressions for the names of the parameters that are trained alone, as
            checkpoints have them; none for all.
        ratio: share of the parameters, from the bottom, that is frozen.
    """

    frozen: tuple[str, ...] = ()
    layers: int = 0
    names: tuple[str, ...] = ()
    ratio: float = 0.0


def trained_share(model: Model, trained: Trained) -> float:
    """Trained parameters over all of them.

    Raises:
        InputError: the names are asked for and the family's module names are not known, or an
            expression cannot be read.
    """
    whole = params(model)
    projectors = sum(maps_params(tower.projections) for tower in model.towers)
    towers = sum(tower_params(tower) for tower in model.towers) - projectors
    language = whole - towers - projectors
    own: float = language
    if trained.names:
        own = _named_params(model, trained.names)
    elif trained.layers:
        own = _layers_params(model, trained.layers)
    own = 0.0 if LANGUAGE in trained.frozen else min(own, language)
    alone = bool(trained.names)  # an expression selects of all parameters, a tower's among them
    own += 0 if alone or TOWERS in trained.frozen else towers
    own += 0 if alone or PROJECTOR in trained.frozen else projectors
    return own * (1 - trained.ratio) / whole


def _layers_params(model: Model, count: int) -> float:
    order = model.layer_order[-count:] if count > 0 else model.layer_order[:-count]
    return sum(layer_params(model.layers[kind][0], model.d_model).total for kind in order)


_STACKED = {"gate_up_proj": ("gate_proj", "up_proj", "w1", "w3"), "down_proj": ("down_proj", "w2")}
"""Experts' maps in one parameter, by the names that checkpoints give them one by one."""


def _named_params(model: Model, patterns: tuple[str, ...]) -> float:
    """Parameters of the maps, the embedding and the head that an expression finds."""
    try:
        found = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise InputError(f"a name of a trained parameter is no expression: {error}") from None
    names = naming(model)
    total = 0.0
    for module in linear_modules(model):
        size = module.inputs * module.outputs * module.copies
        total += size * _matched(module.name, module.copies, found)
    width = model.embedding_width or model.d_model
    if any(one.search(f"{names.embedding}.weight") for one in found):
        total += model.vocab * width
    if not model.tied and any(one.search(f"{names.head}.weight") for one in found):
        total += head_params(model)
    return total


def _matched(path: str, copies: int, patterns: list[re.Pattern[str]]) -> float:
    """The share of a map, or of stacked experts' maps, that the expressions find."""
    base, _, last = path.rpartition(".")
    parts = _STACKED.get(last, ()) if copies > 1 else ()
    if not parts:
        name = path if path.endswith(".weight") else f"{path}.weight"
        spelt = (name, name.replace(".mlp.", ".block_sparse_moe."))
        return float(any(one.search(each) for one in patterns for each in spelt))
    spelt = (base, base.replace(".mlp.", ".block_sparse_moe."))
    halves = [parts[:1] + parts[2:3], parts[1:2] + parts[3:]] if len(parts) == 4 else [parts]
    hits = 0
    for half in halves:
        for expert in range(copies):
            all_names = [f"{b}.{expert}.{part}.weight" for b in spelt for part in half]
            hits += any(one.search(name) for one in patterns for name in all_names)
    return hits / (copies * len(halves))
