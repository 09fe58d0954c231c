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


ALGORITHMS = (
    *("alibi", "factorize", "fused_layernorm", "gated_linear_units", "layer_freezing", "sam"),
    *("low_precision_layernorm", "selective_backprop", "seq_length_warmup", "stochastic_depth"),
    *("progressive_resizing", "squeeze_excite", "blurpool", "ghost_batchnorm", "ema", "swa"),
)
"""Composer's methods that change a model, a step's work or what is kept (Composer, 2025)."""

QUIET = (
    *("variables.*", "tokenizer*", "train_loader.*", "eval_loader*", "scheduler.*", "optimizer.*"),
    *("algorithms.gradient_clipping*", "callbacks.*", "loggers.*", "save_*", "load_*", "eval_*"),
    *("icl_*", "seed", "global_seed", "run_name", "max_duration", "device_eval_batch_size"),
    *("progress_bar", "log_*", "console_*", "python_log_level", "dist_timeout", "data_*", "*name"),
    *("max_split_size_mb", "expandable_segments", "cuda_load_lazy", "spin_dataloaders", "metadata"),
    *("accumulate_train_batch_on_tokens", "train_subset_num_batches", "autoresume", "profiler*"),
    *("only_*", "flatten_metadata", "code_paths", "image", "cluster", "integrations", "command"),
    *("scheduling*", "compute.*", "env_variables", "dataset*", "model.init_*", "model.loss_fn"),
    *("model.use_auth_token", "model.use_train_metrics", "model.trust_remote_code", "model.emb_*"),
    *("model.pretrained", "model.additional_*", "model.should_save_peft_only", "model.device"),
    *("model.resid_pdrop", "model.verbose", "model.logit_scale", "model.attn_config.*_pdrop"),
    *("model.attn_config.softmax_scale", "model.attn_config.clip_qkv", "model.attn_config.*rope_*"),
    *("model.attn_config.alibi*", "model.attn_config.prefix_lm", "model.attn_config.attn_uses_*"),
    *("model.ffn_config.moe_l*", "model.ffn_config.memory_*", "model.ffn_config.uniform_*"),
    *("model.attn_config.rope", "model.peft_config.*", "fsdp_config.activation_*", "tp_config.*"),
    *(
        "fsdp_config.limit_*",
        "fsdp_config.verbose",
        "fsdp_config.*prefetch*",
        "fsdp_config.state_*",
    ),
    *("fsdp_config.use_orig_params", "fsdp_config.sync_module_states", "fsdp_config.load_*"),
    *("fsdp_config.auto_wrap", "fsdp_config.save_*", "fsdp_config.sharded_*", "deepspeed_config.*"),
    *("model.use_cache", "model.max_seq_len", "model.attn_config.attn_pdrop", "fsdp_config"),
    *("fsdp_config.min_params", "fsdp_config.flatten_parameters", "compile_config*", "parameters*"),
)
"""Keys of llm-foundry and Composer that change neither time nor memory, or that are read here."""


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
        _reshaped(sheet, context)
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
    eight = sheet.boolean("model.load_in_8bit", into="frozen weights in 8 bits")
    if eight is not None and eight.value:
        draft.put("quantised", Given("int8", eight.file, eight.line))
    _vocabulary(sheet)
    changing = [f"algorithms.{name}*" for name in ALGORITHMS]
    sheet.ignore(changing, True, "Composer's algorithm: what it changes is not in the numbers")
    kept = tuple(f"model.config_overrides.{key}" for key in LENGTHS)
    sheet.ignore(kept, False, "does not change the time or memory of a step")
    why = "the published shape is taken; --model with a config.json of its own settles it"
    sheet.ignore(("model.config_overrides.*",), True, why)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    sheet.close("llm-foundry")
    return draft


def _reshaped(sheet: Sheet, context: Context) -> None:
    """A published model with keys of its config replaced (``config_overrides``).

    Source: llm-foundry, llmfoundry/models/hf/hf_causal_lm.py, 2025.
    """
    from chipshift.models.preset import altered, keys_of

    found = sheet.settings.get("model.pretrained_model_name_or_path")
    under = "model.config_overrides."
    changes = {
        key.removeprefix(under): one
        for key, one in sheet.settings.items()
        if key.startswith(under) and isinstance(one.value, (int, float, bool))
    }
    kept = [re.compile(pattern.replace("*", ".*")) for pattern in LENGTHS]
    changes = {k: v for k, v in changes.items() if not any(p.fullmatch(k) for p in kept)}
    if found is None or not changes or context.model_named or sheet.draft.get("model") is None:
        return
    values = {key: one.value for key, one in changes.items()}
    published, name = keys_of(sheet.draft.get("model").name)
    width, heads = published.get("hidden_size", 0), published.get("num_attention_heads", 1)
    if published.get("head_dim") == width // heads:
        values.setdefault("head_dim", None)  # the width over the heads, as its own config leaves it
    model = altered(name, values, found.file)
    for key, one in changes.items():
        without = {k: value for k, value in values.items() if k != key}
        if key in published or altered(name, without, found.file) != model:
            sheet.raw(f"{under}{key}")
            sheet.record(f"{under}{key}", one, "model's config")
    sheet.draft.put("model", Given(model, found.file, found.line))


def _vocabulary(sheet: Sheet) -> None:
    """A tokenizer of another vocabulary, to which an untrained model's embedding is resized.

    Source: llm-foundry, llmfoundry/models/hf/hf_causal_lm.py (allow_embedding_resizing) and
    Composer, HuggingFaceModel, 2025.
    """
    started, named = sheet.settings.get("model.pretrained"), sheet.settings.get("tokenizer.name")
    model = sheet.settings.get("model.pretrained_model_name_or_path")
    grown = sheet.boolean("model.allow_embedding_resizing", into="a vocabulary that may grow")
    untrained = started is not None and str(started.value).lower() == "false"
    if named is None or model is None or str(named.value) == str(model.value):
        return
    if untrained or (grown is not None and grown.value):
        why = "its vocabulary may be larger than the model's, whose rows are counted"
        sheet.ignore(("tokenizer.name",), True, why)


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
    parts = (one for key, one in sheet.settings.items() if key.startswith("fsdp_config."))
    first = next(parts, None)
    if strategy is not None:
        put_fsdp(draft, strategy.value, Setting(strategy.value, strategy.file, strategy.line))
    elif first is not None:
        draft.put("sharding", Given("fsdp", first.file, first.line))
        draft.put("engine", Given("fsdp", first.file, first.line))
        draft.note("sharding_strategy", "FULL_SHARD", "Composer's default")
    shards = sheet.integer("fsdp_config.data_parallel_shard_degree", into="fsdp", none=(-1,))
    copies = sheet.integer("fsdp_config.data_parallel_replicate_degree", into="dp")
    if copies is not None and copies.value > 1:
        draft.put("dp", copies)
        draft.put("sharding", Given("fsdp", copies.file, copies.line))
    draft.put("fsdp", shards)
    sheet.flag("cpu_offload", "fsdp_config.cpu_offload")
    draft.assume("sharding", "ddp", "no fsdp_config: replicas hold it all")
    again = sheet.boolean("fsdp_config.activation_checkpointing", into="rematerialisation")
    if again is not None:
        draft.put("remat", Given("full" if again.value else "none", again.file, again.line))
    draft.assume("remat", "none", "llm-foundry's default")
    sheet.flag("cpu_offload", "fsdp_config.activation_cpu_offload")


def _precision(sheet: Sheet) -> None:
    """``precision``, and of FSDP's copies ``PURE``, ``DEFAULT`` (reduced in fp32) or ``FULL``.

    Source: Composer, distributed/mosaic_parallelism.py (get_mixed_precision), 2025-07: DEFAULT
    where the key is left out; FULL gathers fp32 weights, which autocast makes narrow.
    """
    draft = sheet.draft
    name = sheet.text("precision", into="mixed precision")
    dtype = (dtype_of(name.value) if name is not None else None) or "fp32"
    if name is not None:
        value = dtype if "amp" in name.value.lower() else "no"
        draft.put("mixed", Given(value, name.file, name.line))
        if dtype == "fp8":
            draft.flag("fp8_recipe", "precision", name.value, name.line)
    else:
        draft.assume("mixed", "bf16", "llm-foundry's default precision, amp_bf16")
    words = sheet.text("fsdp_config.mixed_precision", into="FSDP's dtypes")
    kept = sheet.boolean("fsdp_config.keep_low_precision_grads", into="gradients stay narrow")
    if draft.get("engine") != "fsdp" or draft.get("mixed") == "no":
        return
    said = words.value.upper() if words is not None else "DEFAULT"
    if words is not None and said in ("DEFAULT", "FULL"):
        draft.put("reduce", Given("fp32", words.file, words.line))
        if said == "FULL":
            draft.put("gather", Given("fp32", words.file, words.line))
    elif words is None and not any(k.startswith(WORDS) for k in sheet.settings):
        draft.assume("reduce", "fp32", "Composer's default mixed_precision, DEFAULT")
    if kept is not None and kept.value and draft.get("mixed") in ("bf16", "fp16"):
        draft.put("gradients", Given(draft.get("mixed"), kept.file, kept.line))


WORDS = "fsdp_config.mixed_precision."
