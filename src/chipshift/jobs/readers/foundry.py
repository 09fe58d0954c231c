"""llm-foundry's (Composer's) YAML.

Keys and defaults: Databricks Mosaic, llm-foundry, scripts/train/README.md and
scripts/train/yamls/*, 2025; Composer, "FSDP" (its mixed-precision words), 2025.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.readers import deepspeed
from chipshift.jobs.readers.config_model import put_config_model
from chipshift.jobs.readers.foundry_mpt import put_mpt
from chipshift.jobs.readers.hf_args import put_model
from chipshift.jobs.readers.hf_sharding import put_fsdp
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source
from chipshift.models.lora import read_lora

LENGTHS = ("max_seq_len", "max_position_embeddings", "attn_config*", "use_cache", "rope_*")
"""``config_overrides`` that leave a published model's shape as it is."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "llm-foundry")
    sheet = yaml_sheet(source, context, draft, inside="parameters")
    _platform(sheet)
    draft.put("stack", Given("llm-foundry", source.path))
    kind = sheet.text("model.name", into="kind of model")
    if not context.model_named and kind is not None and "mpt" in kind.value:
        put_mpt(sheet)
    else:
        put_model(sheet, context, "model.pretrained_model_name_or_path")
        if kind is not None and draft.get("model") is None and not context.model_named:
            _of_a_fork(sheet, kind.value)
    draft.microbatch_rule = "at_most"  # Composer cuts a device's share into equal parts
    draft.put("global_batch", sheet.integer("global_train_batch_size", into="global batch"))
    micro = sheet.raw("device_train_microbatch_size", "device_train_grad_accum")
    if micro is not None and str(micro[1].value) != "auto":
        draft.put("microbatch", sheet.integer("device_train_microbatch_size", into="microbatch"))
    elif micro is not None:
        sheet.record(*micro, "microbatch: as large as fits")
        draft.assume("microbatch", 1, "auto: Composer takes as many as fit; one is taken here")
    draft.put("seq_len", sheet.integer("max_seq_len", "variables.max_seq_len", into="length"))
    _deepspeed(sheet)
    _fsdp(sheet)
    draft.put("tp", sheet.integer("tp_config.tensor_parallel_degree", into="tp"))
    _precision(sheet)
    loader = sheet.text("train_loader.name", into="kind of training")
    if loader is not None and "finetun" in loader.value:
        draft.put("task", Given("sft", loader.file, loader.line))
    _adapters(sheet)
    name = sheet.text("optimizer.name", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer.name")
    sheet.flag("attention_kernel", "model.attn_config.attn_impl")
    sheet.flag("attention_kernel", "model.use_flash_attention_2")
    sheet.flag("transformer_engine", "model.fc_type", off=("torch", None))
    sheet.ignore(("peft_config*",), True, "adapters are not read from these keys")
    kept = tuple(f"model.config_overrides.{key}" for key in LENGTHS)
    sheet.ignore(kept, False, "does not change the time or memory of a step")
    why = "the published shape is taken; --model with a config.json of its own settles it"
    sheet.ignore(("model.config_overrides.*",), True, why)
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    sheet.close("llm-foundry")
    return draft


def _platform(sheet: Sheet) -> None:
    """A run of MosaicML's platform: the YAML is its ``parameters``, its GPUs are all nodes'.

    Source: Databricks Mosaic, llm-foundry, mcli/README.md (compute.gpus, gpu_type), 2024.
    """
    draft = sheet.draft
    draft.put("devices", sheet.integer("compute.gpus", into="devices"))
    kind = sheet.text("compute.gpu_type", into="chip")
    chip = next((CHIPS[w] for w in re.split(r"[^a-z0-9]+", kind.value.lower()) if w in CHIPS),
                None) if kind else None  # fmt: skip
    if kind is not None and chip is not None:
        draft.put("chip", Given(chip, kind.file, kind.line))


def _adapters(sheet: Sheet) -> None:
    """``model.peft_config``: PEFT's own words; its defaults where they are left out."""
    base = "model.peft_config."
    kind = sheet.text(base + "peft_type", into="adapters")
    if kind is None or kind.value.lower() != "lora":
        return
    keys: dict[str, Any] = {}
    for key in ("target_modules", "modules_to_save", "layers_to_transform", "bias"):
        found = sheet.raw(base + key)
        if found is not None:
            sheet.record(*found, "adapters")
            keys[key] = found[1].value
    dora = sheet.boolean(base + "use_dora", into="magnitudes trained apart (DoRA)")
    if dora is not None:
        keys["use_dora"] = dora.value
    rank = sheet.integer(base + "r", into="rank of the adapters")
    keys["r"] = rank.value if rank else 8
    lora = read_lora(keys, sheet.draft.file)
    sheet.draft.put("lora", Given(lora, kind.file, kind.line))


def _deepspeed(sheet: Sheet) -> None:
    """``deepspeed_config`` in place of ``fsdp_config``: Composer passes it on."""
    base = "deepspeed_config."
    found = {key: one for key, one in sheet.settings.items() if key.startswith(base)}
    if not found:
        return
    first = next(iter(found.values()))
    inner = {key.removeprefix(base): one for key, one in found.items() if one.value != "auto"}
    deepspeed.put_zero(Sheet(inner, sheet.draft))
    sheet.taken.update(found)
    sheet.draft.put("engine", Given("deepspeed", first.file, first.line))


_LLAMA = {
    "model.d_model": "hidden_size",
    "model.n_layers": "num_hidden_layers",
    "model.n_heads": "num_attention_heads",
    "model.intermediate_size": "intermediate_size",
    "model.vocab_size": "vocab_size",
}
"""Keys that say all of a Llama's shape."""


def _of_a_fork(sheet: Sheet, kind: str) -> None:
    """A model that a fork registers: a Llama by its sizes, else by its name."""
    if "llama" in kind.lower() and all(key in sheet.settings for key in _LLAMA):
        put_config_model(sheet, {"model_type": "llama"}, _LLAMA, kind)
        sheet.draft.note("model", kind, "a fork's model: a Llama of the sizes that the file gives")
    elif not sheet.draft.wanted_model:
        sheet.draft.wanted_model = kind[:120]


def _fsdp(sheet: Sheet) -> None:
    draft = sheet.draft
    strategy = sheet.text("fsdp_config.sharding_strategy", into="what is sharded")
    if strategy is not None:
        put_fsdp(draft, strategy.value, Setting(strategy.value, strategy.file, strategy.line))
    draft.assume("sharding", "ddp", "no fsdp_config: replicas hold it all")
    again = sheet.boolean("fsdp_config.activation_checkpointing", into="rematerialisation")
    if again is not None:
        draft.put("remat", Given("full" if again.value else "none", again.file, again.line))
    draft.assume("remat", "none", "llm-foundry's default")
    sheet.flag("cpu_offload", "fsdp_config.activation_cpu_offload")


def _precision(sheet: Sheet) -> None:
    """``PURE`` gathers and reduces in 16 bits, ``DEFAULT`` reduces in fp32."""
    draft = sheet.draft
    name = sheet.text("precision", into="mixed precision")
    dtype = (dtype_of(name.value) if name is not None else None) or "fp32"
    if name is not None:
        value = dtype if "amp" in name.value.lower() else "no"
        draft.put("mixed", Given(value, name.file, name.line))
        if dtype == "fp8":
            draft.flag("fp8_recipe", "precision", name.value, name.line)
    words = sheet.text("fsdp_config.mixed_precision", into="FSDP's dtypes")
    if words is not None and words.value.upper() == "DEFAULT":
        draft.put("reduce", Given("fp32", words.file, words.line))
