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
from chipshift.models.checkpoint import corrected, has_checkpoint, read_checkpoint
from chipshift.models.families import (
    audio,
    conv,
    deepseek,
    diffusion,
    encoder,
    gemma,
    glm_vision,
    gpt,
    hybrid,
    kin,
    llama,
    moe,
    multimodal,
    seq2seq,
    unet,
    vision,
)
from chipshift.models.fields import Fields, lines_in
from chipshift.models.model import Model

LARGEST_BYTES = 16 * 1024 * 1024
"""Configs above this are refused: published ones are below a tenth of it."""

FAMILIES: dict[str, Callable[[Fields], Model]] = {
    "RefinedWeb": gpt.refined_web,
    "RefinedWebModel": gpt.refined_web,
    "arcee": kin.arcee,
    "bamba": hybrid.bamba,
    "bart": seq2seq.bart,
    "bert": encoder.bert,
    "bloom": gpt.bloom,
    "clip": vision.clip,
    "clip_vision_model": vision.clip_vision,
    "codegen": gpt.gptj,
    "cohere": kin.cohere,
    "cohere2": kin.cohere2,
    "convnext": conv.convnext,
    "convnextv2": conv.convnextv2,
    "deepseek_v2": deepseek.deepseek_v2,
    "deepseek_v3": deepseek.deepseek_v3,
    "deepseek_v32": deepseek.deepseek_v32,
    "dinov2": vision.dinov2,
    "dinov2_with_registers": vision.dinov2,
    "distilbert": encoder.distilbert,
    "ernie4_5_moe": moe.ernie4_5_moe,
    "exaone4": kin.exaone4,
    "exaone_moe": moe.exaone_moe,
    "falcon": gpt.falcon,
    "falcon_h1": hybrid.falcon_h1,
    "falcon_mamba": hybrid.mamba,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3": multimodal.gemma3,
    "gemma3_text": gemma.gemma3_text,
    "gemma3n": audio.gemma3n,
    "gemma3n_text": gemma.gemma3n_text,
    "glm": kin.glm,
    "glm4": kin.glm4,
    "glm4_moe": moe.glm4_moe,
    "glm4_moe_lite": deepseek.glm4_moe_lite,
    "glm4v_moe": glm_vision.glm4v_moe,
    "glm_moe_dsa": deepseek.glm_moe_dsa,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gpt_neo": gpt.gpt_neo,
    "gpt_neox": gpt.gpt_neox,
    "gpt_oss": moe.gpt_oss,
    "gptj": gpt.gptj,
    "granite": llama.llama,
    "granitemoe": moe.granitemoe,
    "granitemoehybrid": hybrid.granitemoehybrid,
    "granitemoeshared": moe.granitemoe,
    "idefics3": multimodal.smolvlm,
    "jamba": hybrid.jamba,
    "kimi_k2": deepseek.deepseek_v3,
    "kimi_k25": multimodal.kimi_k25,
    "kimi_vl": multimodal.kimi_vl,
    "lfm2": hybrid.lfm2,
    "llama": llama.llama,
    "llama4": multimodal.llama4,
    "llama4_text": moe.llama4_text,
    "llava": multimodal.llava,
    "llava_llama": multimodal.llava,
    "llava_mistral": multimodal.llava,
    "llava_next": multimodal.llava_next,
    "llava_qwen": multimodal.llava,
    "mamba": hybrid.mamba,
    "mamba2": hybrid.mamba2,
    "minimax": hybrid.minimax,
    "minimax_m2": moe.minimax_m2,
    "ministral": llama.ministral,
    "ministral3": llama.mistral,
    "mistral": llama.mistral,
    "mistral3": multimodal.mistral3,
    "mixtral": moe.mixtral,
    "modernbert": encoder.modernbert,
    "mpt": gpt.mpt,
    "mt5": seq2seq.mt5,
    "nemotron": kin.nemotron,
    "nemotron_h": hybrid.nemotron_h,
    "olmo": kin.olmo,
    "olmo2": kin.olmo2,
    "olmo3": kin.olmo3,
    "olmoe": moe.olmoe,
    "opt": gpt.opt,
    "paligemma": multimodal.paligemma,
    "phi": kin.phi,
    "phi3": llama.phi3,
    "phi4_multimodal": audio.phi4_multimodal,
    "phimoe": moe.phimoe,
    "qwen2": llama.qwen2,
    "qwen2_5_vl": multimodal.qwen2_5_vl,
    "qwen2_moe": moe.qwen2_moe,
    "qwen2_vl": multimodal.qwen2_vl,
    "qwen3": llama.qwen3,
    "qwen3_5": multimodal.qwen3_5,
    "qwen3_5_moe": multimodal.qwen3_5_moe,
    "qwen3_5_moe_text": hybrid.qwen3_5_moe,
    "qwen3_5_text": hybrid.qwen3_5,
    "qwen3_moe": moe.qwen3_moe,
    "qwen3_next": hybrid.qwen3_next,
    "qwen3_vl": multimodal.qwen3_vl,
    "qwen3_vl_moe": multimodal.qwen3_vl_moe,
    "recurrent_gemma": hybrid.recurrent_gemma,
    "resnet": conv.resnet,
    "roberta": encoder.roberta,
    "seed_oss": llama.seed_oss,
    "siglip": vision.siglip,
    "siglip_vision_model": vision.siglip_vision,
    "smollm3": llama.smollm3,
    "smolvlm": multimodal.smolvlm,
    "stablelm": kin.stablelm,
    "starcoder2": kin.starcoder2,
    "t5": seq2seq.t5,
    "umt5": seq2seq.umt5,
    "vit": vision.vit,
    "whisper": seq2seq.whisper,
    "xlm-roberta": encoder.roberta,
}
"""By ``model_type``."""

CLASSES: dict[str, str] = {
    "Gemma3ForCausalLM": "gemma3_text",
    "Llama4ForCausalLM": "llama4_text",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "LlavaLlamaForCausalLM": "llava_llama",
    "LlavaMistralForCausalLM": "llava_mistral",
    "LlavaQwenForCausalLM": "llava_qwen",
    "RWForCausalLM": "RefinedWebModel",
}
"""``model_type`` by class name, where the one is not the other in capitals."""

DIFFUSERS: dict[str, Callable[[Fields], Model]] = {
    "DiTTransformer2DModel": diffusion.dit,
    "FluxTransformer2DModel": diffusion.flux,
    "PixArtTransformer2DModel": diffusion.pixart,
    "SD3Transformer2DModel": diffusion.sd3,
    "Transformer2DModel": diffusion.dit,
    "UNet2DConditionModel": unet.unet,
}
"""By ``_class_name``, the key by which diffusers names the class."""

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
    model = _family(fields)(fields)
    fields.refuse_slips()
    if not isinstance(source, Mapping) and os.path.isdir(source) and has_checkpoint(path.parent):
        model = corrected(model, read_checkpoint(path.parent))
    defaults = (*dict(fields.defaults).items(), *model.defaults)
    return replace(model, name=called or "model", defaults=defaults)


def knows(values: Mapping[str, Any]) -> bool:
    """Whether a config is of an architecture read here."""
    return "_class_name" in values or _kind(values) in FAMILIES


def numbers_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of an unknown architecture's language model: those under ``text_config`` too."""
    text = values.get("text_config")
    return {**text, **values} if isinstance(text, Mapping) else values


def _kind(values: Mapping[str, Any]) -> str:
    """The model type: the one stated where it is read here, else the one its class name spells."""
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return kind
    classes = values.get("architectures")
    spelt = map(_model_type, classes if isinstance(classes, (list, tuple)) else ())
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
            f" expected a model_type out of {', '.join(sorted(FAMILIES))}"
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
    bare = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", name).lower()
    spelt = {kind.replace("_", ""): kind for kind in FAMILIES}
    return CLASSES.get(name) or spelt.get(bare, "")


def _config_path(path: Path) -> Path:
    """The file itself, or the ``config.json`` of a folder."""
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        inside = path / "config.json"
        if not inside.is_file():
            raise InputError(f"{path}: is a folder without a config.json")
        return inside
    return path


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
