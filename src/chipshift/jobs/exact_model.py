"""A ``Model`` written out whole in a job file, and read back the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from chipshift.errors import InputError
from chipshift.models.model import Model, Tower

RUNS = "layer_order"
MOST_LAYERS = 100_000


def encode_model(model: Model) -> dict[str, Any]:
    """Plain tables: ``layers`` with their ``count``, ``layer_order`` as [index, how many] runs.

    Fields at their default and None are left out; ``defaults`` is history, not architecture.
    """
    return _encoded(model)


def _encoded(stack: Model | Tower) -> dict[str, Any]:
    """One stack's table; a model's towers are tables of the same kind."""
    plain = asdict(stack)
    table: dict[str, Any] = {}
    for entry in fields(stack):
        if entry.name in ("layers", RUNS, "towers", "defaults"):
            continue
        if plain[entry.name] is not None and plain[entry.name] != entry.default:
            table[entry.name] = _pruned(plain[entry.name])
    if isinstance(stack, Model) and stack.towers:
        table["towers"] = [_encoded(tower) for tower in stack.towers]
    table["layers"] = [_pruned({"count": count, **layer}) for layer, count in plain["layers"]]
    runs: list[list[int]] = []
    for index in stack.layer_order:
        if runs and runs[-1][0] == index:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    table[RUNS] = runs
    return table


def decode_model(table: Mapping[str, Any], where: str) -> Model:
    """The model that ``encode_model`` wrote.

    Raises:
        InputError: a key is missing, unknown or of the wrong type.
    """
    from pydantic import BaseModel, ConfigDict, ValidationError

    class Exact(BaseModel):
        model_config = ConfigDict(extra="forbid")  # inherited by the dataclasses inside
        exact: Model

    plain = _stack(table, where)
    towers = plain.get("towers", [])
    if isinstance(towers, list) and all(isinstance(tower, Mapping) for tower in towers):
        plain["towers"] = [_stack(tower, where) for tower in towers]
    try:
        return Exact(exact=plain).exact  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"][1:]))
        raise InputError(f"{where}: {key}: {first['msg'].lower()}") from None


def _stack(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A stack's table with its layers and their order as the dataclasses have them.

    Raises:
        InputError: the two do not belong together.
    """
    plain = dict(table)
    try:
        layers = [dict(layer) for layer in plain.pop("layers", [])]
        plain["layers"] = [(layer, layer.pop("count")) for layer in layers]
        runs = [(int(index), int(count)) for index, count in plain.pop(RUNS)]
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{where}: expected layers with a count each and layer_order as [index, count] runs"
        ) from None
    total = sum(count for _, count in plain["layers"] if isinstance(count, int))
    if sum(count for _, count in runs) != total or not 0 <= total <= MOST_LAYERS:
        raise InputError(
            f"{where}: layer_order covers {sum(c for _, c in runs)} layers and layers {total}; "
            f"expected the same number, at most {MOST_LAYERS}"
        )
    if any(not 0 <= index < len(layers) or count < 1 for index, count in runs):
        raise InputError(f"{where}: layer_order names a layer that is not there")
    plain[RUNS] = tuple(index for index, count in runs for _ in range(count))
    for layer, _ in plain["layers"]:
        layer.setdefault("attention", None)
        layer.setdefault("mlp", None)
    return plain


def _pruned(value: Any) -> Any:
    """Without None, at every depth."""
    if isinstance(value, Mapping):
        return {key: _pruned(one) for key, one in value.items() if one is not None}
    return [_pruned(one) for one in value] if isinstance(value, (list, tuple)) else value
