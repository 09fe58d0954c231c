"""LitGPT: its YAML configurations, and the command ``litgpt pretrain|finetune...``.

Keys, defaults and what each command shards: Lightning AI, LitGPT, litgpt/args.py, pretrain.py,
finetune/full.py, lora.py and adapter.py, config_hub/ and config.py, 2026-06.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.launch import as_settings, put_environment, put_machine, read_launch
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.adapter_keys import put_adapters
from chipshift.jobs.readers.config_model import put_config_model
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.lightning_keys import ALL
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse

COMMAND = re.compile(r"\blitgpt[ \t]+(?:pretrain|finetune\w*)\b")

TARGETS = {
    "lora_query": "q_proj",
    "lora_key": "k_proj",
    "lora_value": "v_proj",
    "lora_projection": "o_proj",
    "lora_mlp": "mlp",
    "lora_head": "output",
}
"""LitGPT's switches for the maps that have an adapter; query and value are on by default."""

MODEL = {
    "model_config.n_layer": "num_hidden_layers",
    "model_config.n_head": "num_attention_heads",
    "model_config.n_query_groups": "num_key_value_heads",
    "model_config.n_embd": "hidden_size",
    "model_config.head_size": "head_dim",
    "model_config.intermediate_size": "intermediate_size",
    "model_config.vocab_size": "vocab_size",
    "model_config.padded_vocab_size": "vocab_size",
    "model_config.block_size": "max_position_embeddings",
    "model_config.n_expert": "num_local_experts",
    "model_config.n_expert_per_token": "num_experts_per_tok",
}
FAMILIES = {
    "LLaMAMLP": "llama",
    "GptNeoxMLP": "gpt_neox",
    "GemmaMLP": "gemma",
    "LLaMAMoE": "mixtral",
}
"""The Hugging Face family whose shapes each ``mlp_class_name`` gives."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "litgpt")
    if COMMAND.search(source.text):
        kind, sheet = _command(source, context, draft)
    else:
        sheet = yaml_sheet(source, context, draft)
        adapted = "lora_r" in sheet.settings
        kind = "pretrain" if "model_name" in sheet.settings else "lora" if adapted else "full"
    _model(sheet, context, kind)
    _say_tasks(sheet, kind)
    _devices(sheet, kind)
    total = sheet.integer("train.global_batch_size", into="sequences a step")
    default = 512 if kind == "pretrain" else 16
    draft.put("global_batch", total)
    draft.assume("global_batch", default, "LitGPT's default train.global_batch_size")
    draft.put("microbatch", sheet.integer("train.micro_batch_size", into="sequences a device"))
    each = 4 if kind == "pretrain" else 1
    draft.assume("microbatch", each, "LitGPT's default train.micro_batch_size")
    draft.put("seq_len", sheet.integer("train.max_seq_length", into="sequence length"))
    model = draft.get("model")
    if kind == "pretrain" and model is not None and model.max_positions:
        draft.assume("seq_len", model.max_positions, "the model's block_size, LitGPT's default")
    elif kind != "pretrain":
        draft.note("sequences", "full length", "LitGPT pads to the longest of a batch")
    _precision(sheet)
    _sharding(sheet, kind)
    name = sheet.text("optimizer.class_path", "optimizer", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer")
    if kind == "lora":
        sheet.settings.update(lora_settings(sheet.settings))
        put_adapters(sheet)
    elif "adapter" in kind:
        draft.note("task", "sft", "LLaMA-Adapter's few weights are trained: counted as all")
    draft.assume("task", "pretrain" if kind == "pretrain" else "sft", f"litgpt {kind}")
    draft.assume("stack", "other", "LitGPT has no calibration of its own")
    _say_unread(sheet, model)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    sheet.close("LitGPT")
    return draft


def _say_unread(sheet: Sheet, model: object) -> None:
    """Keys of a model's shape that are not read, and a tied head beside a named model."""
    shape = [key for key in sheet.settings if key.startswith("model_config.")]
    unread = [key for key in shape if not _SAME.fullmatch(key) and _on(sheet.settings[key])]
    sheet.ignore(unread, True, "changes the model's shape, and is not in the numbers")
    tied = sheet.settings.get("train.tie_embeddings")
    if tied is not None and as_boolean(tied.value) and not (model and getattr(model, "tied", 0)):
        why = "the named model's head is counted beside its embedding"
        sheet.ignore(("train.tie_embeddings",), True, why)


def _on(setting: Setting) -> bool:
    return str(setting.value).lower() not in ("none", "false", "0", "")


_SAME = re.compile(
    r"model_config\.(?:name|hf_config.*|norm_eps|rope_.*|rotary_.*|gelu_.*|padding_multiple|"
    r"scale_embeddings|.*softcapping|attention_scores_scalar|parallel_residual|norm_class_name|"
    r"mlp_class_name|bias|routed_.*|norm_topk_prob|.*_interleave)"
)
"""Keys of a model that change neither its matrices nor its attention, or that are read."""

QUIET = (
    *("out_dir", "resume", "data*", "log*", "eval.*", "seed", "tokenizer_dir", "logger_name"),
    *(
        "initial_checkpoint_dir",
        "optimizer.init_args.*",
        "train.save_*",
        "train.log_*",
        "generate*",
    ),
    *("train.lr_*", "train.epochs", "train.max_tokens", "train.max_steps", "train.max_time"),
    *("train.max_norm", "train.min_lr", "train.tie_embeddings", "lora_*", "access_token", "config"),
    *(
        "train.learning_rate",
        "train.weight_decay",
        "train.beta*",
        "model_config*",
        "checkpoint_dir",
    ),
    *("ops*", "train.max_iters", "model_name"),
)
"""LitGPT's keys that change neither time nor memory, or that are read here."""


def _command(source: Source, context: Context, draft: Draft) -> tuple[str, Sheet]:
    """The last ``litgpt`` command that trains, its ``--config`` beneath its own arguments."""
    launch = read_launch(source, context)
    kind, settings = "", dict[str, Setting]()
    for command in launch.found.commands:
        words = list(command.words)
        at = next((i for i, w in enumerate(words) if w.plain.rsplit("/", 1)[-1] == "litgpt"), None)
        if at is None or at + 1 >= len(words):
            continue
        verb, rest = words[at + 1].plain, words[at + 2 :]
        if not verb.startswith(("pretrain", "finetune")):
            continue
        if verb == "finetune" and rest and rest[0].plain in ("lora", "full", "adapter"):
            verb, rest = f"finetune_{rest[0].plain}", rest[1:]
        kind = verb.removeprefix("finetune").strip("_") or "lora"
        settings = as_settings(rest, source.path, launch.found.environment)
        if rest and not rest[0].plain.startswith("-"):
            key = "model_name" if kind == "pretrain" else "checkpoint_dir"
            settings.setdefault(key, Setting(rest[0].plain, source.path, rest[0].line))
    if not settings:
        raise InputError(
            f"{source.path} starts no litgpt command that trains; expected one, or --set for the "
            "variable that leads to it"
        )
    named = settings.get("config")
    beside = context.neighbour(str(named.value)) if named is not None else None
    if beside is not None:
        documents = parse(beside)
        tree = documents[0].tree if documents else None
        if not isinstance(tree, dict):
            raise InputError(f"{beside.path} holds no table of keys; expected LitGPT's YAML")
        settings = flatten(tree, beside.path, documents[0].lines) | settings
    elif named is not None:
        draft.wanted_model = f"{named.value}'s model: give that file too"
    settings = {k: _typed(v) for k, v in settings.items()}
    context.overrides.lay_over(settings)
    put_machine(draft, launch)
    put_environment(draft, launch)
    return kind, Sheet(settings, draft)


def _typed(setting: Setting) -> Setting:
    if type(setting.value) is not str:
        return setting
    return Setting(typed(setting.value), setting.file, setting.line)


def _model(sheet: Sheet, context: Context, kind: str) -> None:
    draft = sheet.draft
    found = sheet.raw("model_name" if kind == "pretrain" else "checkpoint_dir")
    if found is not None and found[1].value:
        sheet.record(*found, "model")
    if context.model_named:
        return
    if any(key in sheet.settings for key in MODEL):
        mlp = sheet.text("model_config.mlp_class_name", into="feed-forward")
        family = FAMILIES.get(mlp.value if mlp else "GptNeoxMLP", "llama")
        tied = sheet.boolean("train.tie_embeddings", into="embedding and head tied")
        bias = sheet.boolean("model_config.bias", into="biases")
        base: dict[str, Any] = {"model_type": family, "vocab_size": 50254, "n_embd": 4096}
        base["tie_word_embeddings"] = family == "gemma" or bool(tied and tied.value)
        if family in ("llama", "gemma"):
            base |= {"attention_bias": not bias or bias.value, "mlp_bias": not bias or bias.value}
        width = as_integer(getattr(sheet.settings.get("model_config.n_embd"), "value", 4096))
        if family not in ("llama", "gemma") and width:  # LitGPT's own where none is given
            base["intermediate_size"] = 4 * width
        name = sheet.text("model_config.name", into="name")
        put_config_model(sheet, base, MODEL, name.value if name else "litgpt")
        return
    if found is not None and isinstance(found[1].value, str):
        put_model_named(draft, found[1].value.rstrip("/"), found[1])


def _devices(sheet: Sheet, kind: str) -> None:
    draft = sheet.draft
    devices = sheet.raw("devices")
    if devices is not None and ALL.fullmatch(str(devices[1].value)):
        sheet.record(*devices, "all devices of a node")
    elif devices is not None:
        draft.put("devices_per_node", sheet.integer("devices", into="devices a node"))
    elif kind == "pretrain":
        draft.note("devices", "all of a node", "litgpt pretrain's default devices, auto")
    else:
        draft.assume("devices_per_node", 1, "LitGPT's default devices")
    draft.put("nodes", sheet.integer("num_nodes", into="nodes"))
    draft.assume("nodes", 1, "LitGPT's default num_nodes")


def _say_tasks(sheet: Sheet, kind: str) -> None:
    """A Slurm job of several tasks a node, of which LitGPT is told nothing.

    Source: Lightning, SLURMEnvironment.validate_settings, 2026: it refuses a job whose tasks a node
    are not its devices.
    """
    draft = sheet.draft
    each = draft.get("devices_per_node")
    if kind != "pretrain" and "devices" not in sheet.settings and each and each > 1:
        why = f"1 by default, which Lightning refuses in a job of {each} tasks a node: {each} taken"
        draft.ignored.append(Ignored("devices", draft.file, None, True, why))


def _precision(sheet: Sheet) -> None:
    """``bf16-mixed`` by default; quantised weights compute in the dtype of a true precision."""
    draft = sheet.draft
    precision = sheet.text("precision", into="precision")
    word = precision.value if precision is not None else "bf16-mixed"
    dtype = dtype_of(word) or "bf16"
    true = "true" in word or dtype == "fp32"
    if precision is not None:
        draft.put("mixed", Given("no" if true else dtype, precision.file, precision.line))
        draft.put("loaded", Given(dtype if true else "fp32", precision.file, precision.line))
    draft.assume("mixed", "bf16", "LitGPT's default precision where the chip has bf16")
    draft.assume("loaded", "fp32", "LitGPT's default precision where the chip has bf16")
    quantised = sheet.text("quantize", into="dtype of the frozen weights")
    if quantised is not None and quantised.value.startswith("bnb."):
        kind = "int8" if "int8" in quantised.value else "int4"
        draft.put("quantised", Given(kind, quantised.file, quantised.line))
        draft.flag("quantised_weights", "quantize", quantised.value, quantised.line)
        _say_refused(sheet, word, quantised)


def _say_refused(sheet: Sheet, precision: str, quantised: Given[str]) -> None:
    """What LitGPT does not run: quantised weights under a mixed precision or on several devices."""
    draft = sheet.draft
    each, nodes = draft.get("devices_per_node"), draft.get("nodes") or 1
    if "mixed" in precision:
        why = f"LitGPT refuses it beside precision {precision}; bf16-true is what it runs with it"
    elif (each or 1) * nodes > 1:
        why = "LitGPT refuses it on more than one device"
    else:
        return
    draft.ignored.append(Ignored("quantize", quantised.file, quantised.line, True, why))


def _sharding(sheet: Sheet, kind: str) -> None:
    """FSDP over a node (pretraining) or all devices; one device has no strategy.

    Each program that fine-tunes recomputes every block where it shards: LitGPT,
    finetune/lora.py (parallelize_fn), lora_legacy.py, full.py and adapter.py, 2026-06.
    """
    draft = sheet.draft
    each, nodes = draft.get("devices_per_node"), draft.get("nodes") or 1
    if each is not None and each * nodes == 1:
        draft.assume("sharding", "ddp", "one device")
        draft.assume("remat", "none", "one device: LitGPT gives no checkpointing policy")
        return
    if kind == "pretrain" and nodes > 1:
        draft.assume("sharding", "hybrid", "litgpt pretrain shards in a node: HYBRID_SHARD")
    draft.assume("sharding", "fsdp", f"litgpt {kind} shards over all devices")
    draft.assume("engine", "fsdp", f"litgpt {kind} shards with FSDP")
    if kind == "lora" and draft.get("mixed") not in (None, "no"):
        narrow = "ModelParallelStrategy under a mixed precision: autocast alone casts the weights"
        draft.assume("gather", "fp32", narrow)
        draft.assume("reduce", "fp32", narrow)
    why = f"litgpt {kind}'s checkpointing policy"
    draft.assume("remat", "none" if kind == "pretrain" else "full", why)
    if kind == "pretrain":
        draft.flag("compile", "torch.compile", "litgpt pretrain compiles the model", None)


def lora_settings(given: Mapping[str, Setting]) -> dict[str, Setting]:
    """LitGPT's switches as the names of the maps that PEFT would be given.

    lit-gpt called them ``to_query`` and the like, and the rank ``r``.
    """
    spelt = {re.sub(r"^to_", "lora_", key): setting for key, setting in given.items()}
    given = spelt | {"lora_r": spelt["r"]} if "r" in spelt else spelt
    first = given.get("lora_r") or next(iter(given.values()))
    switches = {"lora_query": True, "lora_value": True}
    switches |= {key: bool(as_boolean(given[key].value)) for key in TARGETS if key in given}
    targets = [TARGETS[key] for key in TARGETS if switches.get(key)]
    rank = given.get("lora_r") or Setting(8, first.file, first.line)
    return {
        "lora_r": rank,
        "use_peft": Setting(True, first.file, first.line),
        "lora_target_modules": Setting(targets, first.file, first.line),
    }
