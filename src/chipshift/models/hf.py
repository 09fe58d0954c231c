"""A Hugging Face ``config.json`` read into a ``Model``; nothing in it is ever executed."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.models.architectures import CLASS_OVER_TYPE, CLASSES, DIFFUSERS, FAMILIES
from chipshift.models.checkpoint import (
    OF_TENSORS,
    UNREAD,
    Checkpoint,
    corrected,
    has_checkpoint,
    keys_of_tensors,
    read_checkpoint,
    unexplained,
    unopened,
)
from chipshift.models.fields import Fields, lines_in
from chipshift.models.heads import headed
from chipshift.models.model import Model

LARGEST_BYTES = 16 * 1024 * 1024
"""Configs above this are refused: published ones are below a tenth of it."""

Source = str | Path | Mapping[str, Any]


STATED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
"""Numbers without which a decoder of no known family cannot be told."""

STATED_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")


def read_config(
    source: Source,
    name: str = "",
    file: str = "",
    lines: Mapping[str, int] | None = None,
) -> Model:
    """The model that a config describes.

    Args:
        source: path of a ``config.json``, of a folder that holds one, or its keys. Of a
            checkpoint's folder, the tensors' shapes are the truth.
        name: what to call the model; by default the folder's or the file's name.
        file: where keys that are given came from, for messages; lines: of each dotted key there.

    Raises:
        InputError: the file cannot be read or is not such a config; a key is missing, of the
            wrong type or absurd; the architecture is not one of ``FAMILIES``.
    """
    if isinstance(source, Mapping):
        values, file = source, file or name or "config"
        called = name or str(values.get("_name_or_path") or values.get("model_type") or "model")
    else:
        path = _config_path(Path(source))
        values, file = load_keys(path), str(path)
        called = name or (path.parent.name if path.name == "config.json" else path.stem)
    _refuse_nan(values, file)
    at = (lines or {}).get if isinstance(source, Mapping) else lines_in(path)
    fields = Fields(file, values, line_of=at)
    model = _whole(fields)
    fields.refuse_slips()
    said = _own_code(fields)
    if not isinstance(source, Mapping) and os.path.isdir(source):
        if has_checkpoint(path.parent):
            model = _by_tensors(model, fields, read_checkpoint(path.parent))
        elif name_of_weights := unopened(path.parent):
            said.append((UNREAD, name_of_weights))
    defaults = (*dict(fields.defaults).items(), *model.defaults, *said)
    return replace(model, name=called or "model", defaults=defaults)


def _whole(fields: Fields) -> Model:
    """The model that its family reads, with the head that its class names."""
    read = _family(fields)
    model = read(fields)
    alone = not model.towers and read.__module__.rsplit(".", 1)[-1] not in ("encoder", "seq2seq")
    return headed(model, fields, alone)


OWN_CODE = "own code"
"""The entry of a model's ``defaults`` that names a class which comes with the checkpoint."""


def _own_code(fields: Fields) -> list[tuple[str, object]]:
    """A class of the checkpoint's own code that is not what its model type is read as."""
    own, named = fields.values.get("auto_map"), fields.values.get("architectures")
    if not isinstance(own, Mapping) or not isinstance(named, list) or not named:
        return []
    builds = any(str(key).startswith("AutoModel") for key in own)
    read = FAMILIES.get(_kind(fields.values))
    known = FAMILIES.get(_model_type(named[0]))
    if not builds or read is None or read is known or read.__module__.endswith("own_code"):
        return []
    return [(OWN_CODE, f"{str(named[0])[:80]}, counted as {_kind(fields.values)}")]


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _by_tensors(model: Model, fields: Fields, checkpoint: Checkpoint) -> Model:
    """The model as a checkpoint's tensors have it.

    Where its config leaves some of them unexplained, the numbers of a block are taken from their
    shapes, if all of them are explained then; which numbers differ is said.
    """
    found = corrected(model, checkpoint)
    heads = fields.values.get("num_attention_heads")
    if not unexplained(found) or not isinstance(heads, int):
        return found
    told = keys_of_tensors(checkpoint, heads)
    if not told:
        return found
    own = replace(fields, defaults=[], values={**fields.values, **told})
    again = corrected(_whole(own), checkpoint)
    if unexplained(again):
        return found
    usual = {"num_key_value_heads": heads, "head_dim": model.d_model // heads}
    stated = {**usual, **dict(fields.defaults), **_given(fields.values)}
    changes = [
        f"{key} of {value:,} for {stated[key]:,}"
        for key, value in told.items()
        if isinstance(stated.get(key), int) and stated[key] != value
    ]
    said = dict(again.defaults).get(OF_TENSORS)
    text = "; ".join([*([str(said)] if said else []), *changes])
    kept = tuple(pair for pair in again.defaults if pair[0] != OF_TENSORS)
    return replace(again, defaults=(*kept, (OF_TENSORS, text)))


def knows(values: Mapping[str, Any]) -> bool:
    """Whether a config is of an architecture read here."""
    return "_class_name" in values or _kind(values) in FAMILIES


def numbers_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of an unknown architecture's language model: those under ``text_config`` too."""
    text = values.get("text_config")
    return {**text, **values} if isinstance(text, Mapping) else values


def _kind(values: Mapping[str, Any]) -> str:
    """The model type: the one stated where it is read here, else the one its class name spells."""
    kind, classes = values.get("model_type"), values.get("architectures")
    named = [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []
    told = next((CLASS_OVER_TYPE[one] for one in named if one in CLASS_OVER_TYPE), kind)
    if isinstance(told, str) and told in FAMILIES:
        return told
    spelt = map(_model_type, named)
    return next((one for one in spelt if one in FAMILIES), "")


def _family(c: Fields) -> Callable[[Fields], Model]:
    """The function that reads this config's architecture, by model type, else by class name."""
    if c.has("_class_name"):
        name = c.text("_class_name")
        if name not in DIFFUSERS:
            raise c.wrong("_class_name", f"one of {', '.join(DIFFUSERS)}")
        return DIFFUSERS[name]
    stated, classes = c.text("model_type", default=""), c.values.get("architectures")
    kind = _kind(c.values)
    if kind:
        return FAMILIES[kind]
    found = stated or (str(classes[0]) if isinstance(classes, (list, tuple)) and classes else "")
    if not found:
        raise InputError(
            f"{c.file}: neither model_type nor architectures is given;"
            f" expected a model_type such as llama, qwen3_moe or deepseek_v3, one of"
            f" {len(FAMILIES)} that docs/models.md lists"
        )
    told = numbers_of(c.values)
    lacks = [f"--set model.{key}=N" for key in STATED if told.get(key) is None]
    flags = " ".join(lacks or [f"--set model.{STATED[0]}={told[STATED[0]]}"])
    raise InputError(
        f"{c.file}: the architecture {found!r} is not known{nearest(found, list(FAMILIES))};"
        f" {flags} reads it as a plain gated decoder by its numbers"
        f" ({', '.join(f'model.{key}' for key in STATED_EXPERTS)} too: as a mixture of experts),"
        " or --torch MODULE:FUNCTION reads the nn.Module that it builds"
    )


def _model_type(name: object) -> str:
    """The model type that a class's name spells: ``Qwen2MoeForCausalLM`` is qwen2_moe."""
    if not isinstance(name, str):
        return ""
    bare = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", name)
    spelt = {re.sub("[_-]", "", kind).lower(): kind for kind in FAMILIES}
    return CLASSES.get(name) or spelt.get(bare.replace("_", "").lower(), "")


def _config_path(path: Path) -> Path:
    """The file itself, or the ``config.json`` of a folder."""
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        inside = path / "config.json"
        if not inside.is_file():
            raise InputError(f"{path}: is a folder without a config.json{_adapter(path)}")
        return inside
    return path


def _adapter(folder: Path) -> str:
    """What else to give where a folder holds an adapter alone; "" where it does not."""
    if not (folder / "adapter_config.json").is_file():
        return ""
    base = load_keys(folder / "adapter_config.json").get("base_model_name_or_path")
    named = f" ({str(base)[:80]})" if isinstance(base, str) else ""
    return f"; it holds an adapter: give its model's config.json{named} beside adapter_config.json"


def load_keys(path: Path, expected: str = "a Hugging Face config.json") -> Mapping[str, Any]:
    """The keys of a JSON file.

    Raises:
        InputError: it is missing, above ``LARGEST_BYTES``, or not a JSON object.
    """
    if not os.path.isfile(path):  # never raises, unlike Path.is_file
        shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."
        raise InputError(f"{shown}: no such file; expected {expected}")
    size = path.stat().st_size
    if size > LARGEST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a config above {LARGEST_BYTES:,} is refused")
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; expected {expected}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: is not JSON at line {error.lineno} ({error.msg}); expected {expected}"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: is nested too deeply or has a number too long") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds a {type(values).__name__}; expected an object of keys")
    return values


def _refuse_nan(values: Any, file: str, at: str = "", depth: int = 0) -> None:
    """NaN is nobody's number; infinity is (Mamba's time step limit), and is refused where read."""
    if depth > 100:
        raise InputError(f"{file}: {at[:60]}... is nested too deeply")
    if isinstance(values, float) and math.isnan(values):
        raise InputError(f"{file}: {at} is NaN; expected a number")
    items = (
        values.items()
        if isinstance(values, Mapping)
        else enumerate(values)
        if isinstance(values, (list, tuple))
        else ()
    )
    for key, value in items:
        _refuse_nan(value, file, f"{at}.{key}" if at else str(key), depth + 1)
