"""A Hugging Face ``config.json`` read into a ``Model``; nothing in it is ever executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.models.families import deepseek, gemma, llama, moe
from chipshift.models.fields import Fields
from chipshift.models.model import Model

LARGEST_BYTES = 16 * 1024 * 1024
"""Configs above this are refused: published ones are below a tenth of it."""

FAMILIES: dict[str, Callable[[Fields], Model]] = {
    "llama": llama.llama,
    "mistral": llama.mistral,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3": gemma.gemma3,
    "gemma3_text": gemma.gemma3_text,
    "mixtral": moe.mixtral,
    "qwen2_moe": moe.qwen2_moe,
    "qwen3_moe": moe.qwen3_moe,
    "deepseek_v3": deepseek.deepseek_v3,
}
"""By ``model_type``."""

ARCHITECTURES: dict[str, str] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3",
    "MixtralForCausalLM": "mixtral",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}
"""``model_type`` by class name, for configs that lack the first."""

Source = str | Path | Mapping[str, Any]


def read_config(source: Source, name: str = "") -> Model:
    """The model that a config describes.

    Args:
        source: path of a ``config.json``, of a folder that holds one, or its keys.
        name: what to call the model; by default the folder's or the file's name.

    Raises:
        InputError: the file cannot be read or is not such a config; a key is missing, of the
            wrong type or absurd; the architecture is not one of ``FAMILIES``.
    """
    if isinstance(source, Mapping):
        values, file = source, name or "config"
        called = name or str(values.get("_name_or_path") or values.get("model_type") or "model")
    else:
        path = _config_path(Path(source))
        values, file = _load(path), str(path)
        called = name or (path.parent.name if path.name == "config.json" else path.stem)
    _refuse_nan(values, file)
    fields = Fields(file, values)
    model = _family(fields)(fields)
    defaults = tuple(dict(fields.defaults).items())
    return replace(model, name=called or "model", defaults=defaults)


def _family(c: Fields) -> Callable[[Fields], Model]:
    """The function that reads this config's architecture, by model type, else by class name."""
    kind = c.text("model_type", default="")
    if kind in FAMILIES:
        return FAMILIES[kind]
    classes = c.values.get("architectures")
    for one in classes if isinstance(classes, (list, tuple)) else ():
        if isinstance(one, str) and one in ARCHITECTURES:
            return FAMILIES[ARCHITECTURES[one]]
    found = kind or (str(classes[0]) if isinstance(classes, (list, tuple)) and classes else "")
    if not found:
        raise InputError(
            f"{c.file}: neither model_type nor architectures is given;"
            f" expected a model_type out of {', '.join(sorted(FAMILIES))}"
        )
    raise InputError(
        f"{c.file}: the architecture {found!r} is not known{nearest(found, list(FAMILIES))};"
        " give its numbers instead: hidden size (--hidden-size), layers (--layers), heads"
        " (--heads, --kv-heads, --head-dim), feed-forward width (--ffn), vocabulary (--vocab)"
        " and, of a mixture, --experts, --top-k and --expert-ffn"
    )


def _config_path(path: Path) -> Path:
    """The file itself, or the ``config.json`` of a folder."""
    if path.is_dir():
        inside = path / "config.json"
        if not inside.is_file():
            raise InputError(f"{path}: is a folder without a config.json")
        return inside
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a Hugging Face config.json")
    return path


def _load(path: Path) -> Mapping[str, Any]:
    """The keys of a JSON file."""
    size = path.stat().st_size
    if size > LARGEST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a config above {LARGEST_BYTES:,} is refused")
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; expected a Hugging Face config.json") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: is not JSON at line {error.lineno} ({error.msg});"
            " expected a Hugging Face config.json"
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
