"""What a PEFT config trains in full beside its adapters: modules by name, rows of tables.

Matching as PEFT 0.21 has it: a module is saved where its path ends in the name, letter by letter.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.models.count import layer_params
from chipshift.models.model import Layer, Model
from chipshift.models.module_names import NAMINGS, Naming
from chipshift.models.modules import linear_modules, naming

BLOCK_NORMS = ("input_layernorm", "post_attention_layernorm")
"""The norms of a block that has two, in the families whose maps have Llama's names."""


def saved_beside(model: Model, names: tuple[str, ...]) -> tuple[str, ...]:
    """Modules saved in full that nothing here counts."""
    return tuple(name for name in names if _saved(model, (name,)) is None and not _end(model, name))


def saved_params(model: Model, names: tuple[str, ...]) -> int:
    """Parameters of the blocks' modules, and of the last norm, that are saved in full."""
    counted = tuple(name for name in names if _saved(model, (name,)) is not None)
    return _saved(model, counted) or 0


def _end(model: Model, name: str) -> bool:
    """Whether a name is the embedding's or the head's, which the adapter's own count has."""
    return any(end.endswith(name) for end in (naming(model).embedding, naming(model).head))


def _saved(model: Model, names: tuple[str, ...]) -> int | None:
    """Parameters of all that the names end; None where they end nothing that is known."""
    n, total, found = naming(model), 0, False
    for module in linear_modules(model):
        if any(_ends_above(module.name, name) for name in names):
            total += module.inputs * module.outputs * module.copies + module.bias
            found = True
    for number, kind in enumerate(model.layer_order):
        layer = model.layers[kind][0]
        for path, size in _norms(n, layer, model.d_model):
            if any(_ends_above(f"{n.layers}.{number}.{path}", name) for name in names):
                total += size
                found = True
    last = f"{n.layers.rsplit('.', 1)[0]}.norm"
    if n is NAMINGS["llama"] and any(last.endswith(name) for name in names):
        total += model.final_norm_params
        found = True
    return total if found else None


def _ends_above(path: str, name: str) -> bool:
    """Whether a path, or that of a module above it, ends in a name."""
    parts = path.split(".")
    return any(".".join(parts[: i + 1]).endswith(name) for i in range(len(parts)))


def _norms(n: Naming, layer: Layer, width: int) -> list[tuple[str, int]]:
    """(path in a block, parameters) of its norms where their names are known."""
    if n is not NAMINGS["llama"]:
        return []
    a = layer.attention
    own = layer_params(layer, width).norms - layer.norm_params
    heads = [(f"{n.attention}.{one}_norm", own // 2) for one in "qk"] if a is not None else []
    two = [(name, width) for name in BLOCK_NORMS] if layer.norm_params == 2 * width else []
    return two + (heads if own else [])


def token_rows(
    model: Model, rows: tuple[tuple[str, tuple[int, ...]], ...], saved: tuple[str, ...]
) -> int:
    """Parameters of the rows of tables that are trained alone; a tied head's are the embedding's.

    Args:
        rows: table ("" for the embedding) and its rows.
        saved: modules trained in full.

    Raises:
        InputError: a table is not known or is saved in full, or has no such row.
    """
    n = naming(model)
    tables = {n.embedding: model.vocab, n.head: model.logits}
    found: dict[str, tuple[int, ...]] = {}
    for name, indices in rows:
        table = next((t for t in tables if t.endswith(name or n.embedding)), "")
        if not table:
            raise InputError(
                f"trainable_token_indices names {name!r}; expected {' or '.join(tables)}"
            )
        if any(table.endswith(one) for one in saved):
            raise InputError(f"trainable_token_indices: {table} is among modules_to_save already")
        if any(index >= tables[table] for index in indices):
            raise InputError(
                f"trainable_token_indices has {max(indices):,}; expected rows of {table},"
                f" below {tables[table]:,}"
            )
        found[table] = indices
    if model.tied and found.get(n.head) == found.get(n.embedding):
        found.pop(n.head, None)
    width = model.embedding_width or model.d_model
    return width * sum(map(len, found.values()))
