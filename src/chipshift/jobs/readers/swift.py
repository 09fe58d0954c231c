"""ms-swift: ``swift sft``, ``pt`` and ``rlhf``, the Trainer's words with defaults of its own.

Keys and defaults: ModelScope, ms-swift, swift/trainers/arguments.py, swift/arguments
(sft_args.py, tuner_args.py, base_args/model_args.py, rlhf_args.py), swift/cli/main.py and
swift/config/*.json, 2026-08-22.
"""

from __future__ import annotations

import math
import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    put_environment,
    put_machine,
    read_launch,
    unsettled,
)
from chipshift.jobs.readers.frozen_parts import put_swift_frozen
from chipshift.jobs.readers.hf_args import fill, put_ignored, stack_of
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.shell.found import Command
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

KINDS = ("sft", "pt", "rlhf")
PROGRAM = re.compile(r"(?:^|/)swift/cli/(?:_megatron/)?(sft|pt|rlhf)\.py$")
BATCH = 16
"""Sequences a step that accumulation makes up where a file does not give it."""

OWN_WORDS = (
    *("model_author", "model_name", "model_kwargs", "system", "split_dataset_ratio", "max_pixels"),
    *("load_from_cache_file", "acc_strategy", "check_model", "strict", "add_version", "use_hf"),
    *("freeze_*", "trainable_parameters*", "vit_*", "aligner_lr", "init_weights", "truncation_*"),
    *("interleave_prob", "enable_thinking", "add_non_thinking_prefix", "callbacks", "metric"),
    *("create_checkpoint_symlink", "external_plugins", "custom_*", "agent_template", "norm_bbox"),
    *("use_chat_template", "load_args", "swanlab_*", "ddp_*", "rlhf_type", "vllm_*", "reward_*"),
    *("device_groups.*", "use_ray", "attn_impl", "task_type", "num_labels", "max_new_tokens"),
    *("temperature", "top_*", "repetition_penalty", "num_generations", "epsilon*", "async_*"),
    *("offload_*", "sleep_level", "move_model_batches", "log_completions", "dynamic_sample"),
    *("group_by_length", "quant_*", "gradient_accumulation_steps", "padding_side", "cached_*"),
    *("adapters", "use_swift_lora", "merge_lora", "max_shard_size", "bnb_4bit_*", "experts_impl"),
    *(
        "adalora_*",
        "packing_*",
        "init_strategy",
        "use_flash_ckpt",
        "use_logits_to_keep",
        "use_rslora",
    ),
    *("lorap_*", "stop_words", "advantage_*", "ref_*"),
)
"""Keys that do not change the time or memory of a step here, or that are read elsewhere."""


UNCOUNTED = {
    "lisa_activated_layers": "LISA trains a few layers at a time: all of them were taken",
    "target_regex": "adapters on the modules of an expression: all-linear was taken",
    "zero_hpz_partition_size": "a second copy of the weights in each node is not counted",
    "teacher_model": "the teacher's forward pass and weights are not counted",
    "device_map": "layers dealt over the devices of one process are not read",
    "max_memory": "layers dealt over the devices of one process are not read",
    "num_labels": "a classification head: the vocabulary's is counted in its place",
}
"""Keys that change a step and are not in the numbers, where they are set."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "ms-swift")
    if re.search(r"^[A-Za-z_]+[ \t]*:", source.text, re.M) and not _commands(source.text):
        sheet, kind = yaml_sheet(source, context, draft), "sft"
        _workers(sheet)
    else:
        sheet, kind = _command(source, context, draft)
    _below(sheet)
    _kind(sheet, kind)
    _dtype(sheet, context)
    _quantised(sheet)
    fill(sheet, context, "pretrain" if kind == "pt" else "sft", default_micro=1)
    if draft.get("lora") is None:
        put_swift_frozen(sheet, by_default=not OLD & sheet.settings.keys())
    _sharded(sheet)
    _accumulation(sheet)
    _length(sheet, context)
    draft.assume("stack", stack_of(draft), "Hugging Face's Trainer has no calibration of its own")
    for key, why in UNCOUNTED.items():
        found = sheet.settings.get(key)
        if found is not None and str(found.value).lower() not in ("none", "false", "0", "", "auto"):
            sheet.ignore((key,), True, why)
    put_ignored(sheet, OWN_WORDS)
    sheet.close("ms-swift")
    return draft


def _commands(text: str) -> bool:
    return bool(re.search(r"\bswift[ \t]+(?:sft|pt|rlhf)\b|swift/cli/(?:sft|pt|rlhf)\.py", text))


def _command(source: Source, context: Context, draft: Draft) -> tuple[Sheet, str]:
    """The last command that starts a training, its arguments over a YAML named beside."""
    launch = read_launch(source, context)
    command, kind, words, settings = last_training(launch, source, "swift")
    named = settings.pop("config", None)
    path = str(named.value) if named is not None else words[0].plain if words else ""
    if path.endswith((".yaml", ".yml")) and (beside := context.neighbour(path)) is not None:
        settings = {**yaml_sheet(beside, context, draft).settings, **settings}
    context.overrides.lay_over(settings)
    put_processes(draft, launch, command)
    put_environment(draft, launch)
    return Sheet(settings, draft), kind


def last_training(
    launch: Launch, source: Source, program: str
) -> tuple[Command, str, list[Field], dict[str, Setting]]:
    """The last command that starts a training: it, its kind, the words behind it, its settings.

    Args:
        program: ``swift`` or ``megatron``.

    Raises:
        InputError: the script starts none.
    """
    for command in reversed(launch.found.commands):
        kind, words = subcommand(command, program)
        if kind:
            return command, kind, words, as_settings(words, source.path, launch.found.environment)
    raise InputError(
        f"{source.path} starts no {program} sft, pt or rlhf{unsettled(launch)}; expected one, or "
        "--set for the variable that leads to it"
    )


def subcommand(command: Command, program: str) -> tuple[str, list[Field]]:
    """``sft`` and the words behind ``swift sft``, or ``torchrun .../swift/cli/sft.py``."""
    words = list(command.words)
    for at, word in enumerate(words):
        following = words[at + 1].plain if at + 1 < len(words) else ""
        if word.plain.rsplit("/", 1)[-1] == program and following in KINDS:
            return following, words[at + 2 :]
        if (told := PROGRAM.search(word.plain)) and ("_megatron" in word.plain) == (
            program == "megatron"
        ):
            return told.group(1), words[at + 1 :]
    return "", []


def put_processes(draft: Draft, launch: Launch, command: Command) -> None:
    """``NPROC_PER_NODE`` and ``NNODES``; without both one process trains, on however many GPUs."""
    variables = {**launch.found.environment.exported, **dict(command.environment)}
    for name, option in (("NPROC_PER_NODE", "nproc_per_node"), ("NNODES", "nnodes")):
        if name in variables:
            launch.options.setdefault(option, variables[name])
    torchrun = any(word.plain.rsplit("/", 1)[-1] == "torchrun" for word in command.words)
    if not {"nproc_per_node", "nnodes", "num_processes"} & set(launch.options) and not torchrun:
        draft.assume("nodes", 1, "neither NPROC_PER_NODE nor NNODES: swift starts one process")
        draft.assume("devices_per_node", 1, "neither NPROC_PER_NODE nor NNODES is set")
        shown = variables.get("CUDA_VISIBLE_DEVICES")
        if shown is not None and shown.plain.count(",") and not shown.unknown:
            count = shown.plain.count(",") + 1
            why = f"{count} GPUs hold one process's layers, one after another: counted as one"
            draft.note("devices", 1, why)
    put_machine(draft, launch)


def _workers(sheet: Sheet) -> None:
    """Ray's ``device_groups``."""
    count = sheet.integer("device_groups.nproc_per_node", into="devices a node")
    if count is not None:
        sheet.draft.put("devices_per_node", count)
        sheet.draft.assume("nodes", 1, "the ranks of one node")


RENAMED = {
    "model_id_or_path": "model",
    "batch_size": "per_device_train_batch_size",
    "dtype": "torch_dtype",
    "lora_target_modules": "target_modules",
    "quantization_bit": "quant_bits",
}
"""Keys of version 2 and what version 3 calls them (ms-swift 2.6, "Command-line parameters")."""


OLD = {"sft_type", "model_id_or_path", "model_cache_dir"}
"""Keys that version 2 alone has."""


def _version_2(settings: dict[str, Setting], draft: Draft) -> None:
    """Version 2's keys in version 3's words; its ``model_type`` names one model.

    It writes a point as an underscore: ``qwen2-1_5b-instruct``.
    """
    if not OLD & settings.keys():
        return
    for old, new in RENAMED.items():
        if old in settings:
            settings.setdefault(new, settings.pop(old))
    kind = settings.get("model_type")
    if "model" not in settings and kind is not None and isinstance(kind.value, str):
        name = re.sub(r"(?<=\d)_(?=\d)", ".", kind.value)
        settings["model"] = Setting(name, kind.file, kind.line)
    if str(getattr(settings.get("torch_dtype"), "value", "")).upper() == "AUTO":
        del settings["torch_dtype"]
    aimed = settings.get("target_modules")
    if aimed is not None and str(aimed.value).upper() == "ALL":
        settings["target_modules"] = Setting("all-linear", aimed.file, aimed.line)
    draft.assume("seq_len", 2048, "ms-swift's default max_length, version 2")


def _below(sheet: Sheet) -> None:
    """ms-swift's own defaults, under what the file says."""
    settings, draft = sheet.settings, sheet.draft
    for key in [key for key in settings if "-" in key]:
        settings.setdefault(key.replace("-", "_"), settings.pop(key))
    _version_2(settings, draft)
    kinds = ("tuner_type", "train_type", "sft_type")
    if not any(key in settings for key in kinds):
        settings["tuner_type"] = Setting("lora", draft.file)
        draft.note("tuner_type", "lora", "ms-swift's default")
    if "gradient_checkpointing" not in settings:
        settings["gradient_checkpointing"] = Setting(True, draft.file)
        draft.note("gradient_checkpointing", "true", "ms-swift's default")
    if all(str(settings[key].value).lower() == "full" for key in kinds if key in settings):
        return
    for key, value in (("lora_rank", 8), ("target_modules", "all-linear")):
        if key not in settings:
            settings[key] = Setting(value, draft.file)
            draft.note(key, value, "ms-swift's default")


def _kind(sheet: Sheet, kind: str) -> None:
    """``rlhf`` trains on preferences, by DPO where ``rlhf_type`` does not say otherwise."""
    if kind != "rlhf":
        return
    stated = sheet.settings.get("rlhf_type")
    name = str(stated.value) if stated is not None else "dpo"
    place = stated or Setting(name, sheet.draft.file)
    sheet.settings["rl"] = Setting({"rm": "reward"}.get(name, name), place.file, place.line)
    if stated is None:
        sheet.draft.note("rlhf_type", "dpo", "ms-swift's default")


def _dtype(sheet: Sheet, context: Context) -> None:
    """The weights' dtype is the checkpoint's, and mixed precision follows it: fp16 for fp32."""
    settings, draft = sheet.settings, sheet.draft
    stated = settings.get("torch_dtype")
    held = dtype_of(str(stated.value)) if stated is not None else None
    if held is None:
        told = _checkpoint_dtype(context)
        held = told or "bf16"
        settings["torch_dtype"] = Setting(held, draft.file)
        where = "its config.json" if told else "most checkpoints'; config.json beside settles it"
        draft.note("torch_dtype", held, f"ms-swift takes the checkpoint's: {where}")
    mixed = "bf16" if held == "bf16" else "fp16"
    other = "fp16" if mixed == "bf16" else "bf16"
    stated = settings.get(other)
    if mixed not in settings and not (stated is not None and as_boolean(stated.value)):
        settings[mixed] = Setting(True, draft.file)
        draft.note(mixed, "true", f"ms-swift's default for weights in {held}")


def _checkpoint_dtype(context: Context) -> str | None:
    for source in context.beside.values():
        found = re.search(r'"(?:torch_)?dtype"\s*:\s*"(\w+)"', source.text[:100_000])
        if found and '"model_type"' in source.text[:100_000]:
            return dtype_of(found.group(1))
    return None


def _quantised(sheet: Sheet) -> None:
    """``quant_bits 4``: bitsandbytes, or another method's, weights that stay frozen."""
    bits = sheet.settings.get("quant_bits")
    count = as_integer(bits.value) if bits is not None else None
    if bits is not None and count in (4, 8):
        sheet.settings[f"load_in_{count}bit"] = Setting(True, bits.file, bits.line)


def _sharded(sheet: Sheet) -> None:
    """``deepspeed zero3_offload``, ``fsdp2``, sequence parallelism and DeepSpeed's AutoTP."""
    draft, settings = sheet.draft, sheet.settings
    named = settings.get("deepspeed")
    if named is not None and str(named.value).endswith("offload"):
        draft.flag("cpu_offload", "deepspeed", named.value, named.line)
    fsdp = settings.get("fsdp")
    if fsdp is not None and str(fsdp.value) == "fsdp2":
        draft.put("remat", Given("full", fsdp.file, fsdp.line))
    draft.put("tp", sheet.integer("deepspeed_autotp_size", into="tp"))
    sheet.flag("attention_kernel", "attn_impl", off=(None, "", "eager", "sdpa"))


def _accumulation(sheet: Sheet) -> None:
    """As many forwards as make up 16 sequences, where the file gives none."""
    draft = sheet.draft
    if draft.given("accumulation"):
        return
    world = (draft.get("nodes") or 1) * (draft.get("devices_per_node") or 0)
    if not world:
        return
    count = max(1, math.ceil(BATCH / (draft.get("microbatch") or 1) / world))
    draft.values.pop("accumulation", None)
    draft.assume("accumulation", count, f"ms-swift makes up a batch of {BATCH} on {world} devices")


def _length(sheet: Sheet, context: Context) -> None:
    """Packed sequences are as long as the model takes; others as long as the data are.

    Raises:
        InputError: neither a length nor packing is given.
    """
    draft = sheet.draft
    packed = sheet.settings.get("packing")
    rows = sheet.integer("packing_length", into="sequence length")
    if rows is not None and packed is not None and as_boolean(packed.value):
        draft.put("seq_len", rows)
    if draft.get("seq_len") is not None or "seq_len" in context.overrides.given:
        return
    if packed is not None and as_boolean(packed.value):
        why = "packed as long as the model takes, which its config tells"
    else:
        why = "samples are as long as the data are"
    raise InputError(
        f"{draft.file} gives no max_length, and without it {why}; expected --set seq_len=N"
    )
