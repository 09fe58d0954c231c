"""NeMo: version 1's YAML, and Megatron-Bridge and NeMo 2 recipes through their syntax tree.

All of them set Megatron Core's fields; they are read as the Megatron-LM arguments they equal.
Keys: NVIDIA, NeMo, "megatron_gpt_config.yaml" and "NeMo 2.0 recipes", 2025; Megatron-Bridge,
src/megatron/bridge/recipes and perf_recipes, 2026.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.readers.bridge import read_recipe
from chipshift.jobs.readers.megatron_core import PASSED, RENAMED, fill, pass_on, put_precision
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source

YAML_WORDS = frozenset(
    {
        *("model.activation", "model.bias", "model.share_embeddings_and_output_weights"),
        *("model.position_embedding_type", "model.fp8", "model.optim.name", "model.normalization"),
        *("trainer.precision", "model.tokenizer.model", "model.tokenizer.type", "name"),
    }
)
"""Keys of version 1's YAML whose values are read here rather than passed on."""

_OTHER = re.compile(r"bert|mt5|t5|clip|vit|neva|diffusion|imagen|dreambooth|retro|controlnet|nerf")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    if re.search(r"^\s*(?:import|from)\s+\w", source.text, re.M):
        return read_recipe(source, context)
    draft = Draft(source.path, "nemo", uneven_pp=False)
    found = yaml_sheet(source, context, draft).settings
    settings: dict[str, Setting] = {}
    draft.known |= {f"model.{name}" for name in PASSED | RENAMED.keys()} | YAML_WORDS
    for key, setting in found.items():
        name = key.rsplit(".", 1)[-1]
        pass_on(settings, name, setting)
        if setting.file == "--set" and (name in RENAMED or name in PASSED or key in YAML_WORDS):
            draft.reached.add(key)
    _yaml_words(settings, found)
    _other_kinds(draft, found)
    nodes, devices = found.get("trainer.num_nodes"), found.get("trainer.devices")
    sheet = Sheet(found, draft)
    if nodes is not None:
        draft.put("nodes", sheet.integer("trainer.num_nodes", into="nodes"))
    if devices is not None and str(devices.value) not in ("-1", "auto"):
        draft.put("devices_per_node", sheet.integer("trainer.devices", into="devices a node"))
    fill(settings, draft, context)
    return draft


def _yaml_words(settings: dict[str, Setting], found: dict[str, Setting]) -> None:
    """Words of NeMo 1 that are values in YAML and switches in Megatron-LM."""

    def on(key: str, argument: str, wanted: str) -> None:
        setting = found.get(key)
        if setting is not None and re.search(wanted, str(setting.value).lower()):
            settings[argument] = Setting(True, setting.file, setting.line)

    on("model.activation", "swiglu", r"swiglu|geglu|silu")
    on("model.bias", "disable-bias-linear", r"false")
    on("model.share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", r"false")
    on("model.position_embedding_type", "use-rotary-position-embeddings", r"rope")
    on("model.fp8", "fp8-format", r"true")
    on("model.optim.name", "use-distributed-optimizer", r"distributed")
    norm = found.get("model.normalization")
    if norm is not None:
        name = "RMSNorm" if "rms" in str(norm.value).lower() else "LayerNorm"
        settings["normalization"] = Setting(name, norm.file, norm.line)
    if "num-query-groups" in settings:
        groups = settings["num-query-groups"]
        settings["group-query-attention"] = Setting(True, groups.file, groups.line)
    precision = found.get("trainer.precision")
    if precision is not None:
        put_precision(settings, str(precision.value), precision)
    for key in ("model.tokenizer.model", "model.tokenizer.type"):
        tokenizer = found.get(key)
        if tokenizer is not None and isinstance(tokenizer.value, str):
            named = "/" in tokenizer.value
            settings["tokenizer-model" if named else "tokenizer-type"] = tokenizer


def _other_kinds(draft: Draft, found: dict[str, Setting]) -> None:
    """NeMo trains much besides decoders under the same keys: those are named, not misread."""
    words = [str(found[key].value) for key in ("name", "run.name") if key in found]
    for word in words:
        if match := _OTHER.search(word.lower()):
            draft.wanted_model = f"a {match.group()} of NeMo's"
    other = ("model.vision.", "model.unet", "model.first_stage", "model.decoder.", "model.mm_cfg.")
    if any(key.startswith(other) for key in found):
        draft.wanted_model = "a model of NeMo's that is not a decoder alone"
