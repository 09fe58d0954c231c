"""OpenRLHF: ``deepspeed --module openrlhf.cli.train_sft`` and its kin, DeepSpeed's words.

Arguments and defaults: OpenRLHF, openrlhf/cli/train_sft.py, train_dpo.py and train_rm.py, in the
spelling with sections (2026-08) and in the one without (``--max_len``, 2024).
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.launch import as_settings, put_environment, put_machine, read_launch, unsettled
from chipshift.jobs.readers.hf_args import fill, put_ignored, stack_of
from chipshift.jobs.readers.preference_keys import known_loss, say_sampled
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

PROGRAM = re.compile(r"openrlhf[./]cli[./]train_(\w+?)(?:\.py)?$")
KINDS = {"sft": "", "dpo": "dpo", "rm": "reward", "kto": "kto"}

WORDS = {
    "max_len": "max_length",
    "batch_size": "global_batch",
    "train_batch_size": "global_batch",
    "micro_batch_size": "per_device_train_batch_size",
    "micro_train_batch_size": "per_device_train_batch_size",
    "pretrain": "model_name_or_path",
    "packing_samples": "packing",
    "gradient_checkpointing_enable": "gradient_checkpointing",
    "flash_attn": "attn_implementation",
    "rank": "lora_rank",
    "target_modules": "target_modules",
}
"""OpenRLHF's words, without their section, that the Trainer has others for."""

DEFAULTS = {
    "max_length": 512,
    "global_batch": 128,
    "per_device_train_batch_size": 8,
    "zero_stage": 2,
    "bf16": True,
}

QUIET = (
    *("save_*", "logging_*", "eval_*", "*_key", "input_template", "apply_chat_template", "ckpt_*"),
    *("steps", "split", "max_epochs", "use_wandb", "load_checkpoint", "max_samples", "adam_*"),
    *("load_enable", "disable_*", "path", "max_num", "max_mem", "key", "org", "group", "project"),
    *("param_dtype", "lr", "betas", "eps", "weight_decay", "nesterov", "momentum", "ns_steps"),
    *("label_smoothing", "ipo*", "nll_loss_coef", "overlap_comm", "zpg", "dataset*", "run_name"),
    *("attn_implementation", "multiturn", "loss_*", "grad_accum_dtype", "use_ms", "alpha"),
    *("dropout", "min_lr_ratio", "max_norm", "local_rank", "optim", "tensorboard_dir", "beta"),
    *("gradient_checkpointing_reentrant", "gradient_checkpointing_use_reentrant", "prompt_*"),
)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "openrlhf")
    launch = read_launch(source, context)
    words: list[Field] = []
    kind = ""
    for command in launch.found.commands:
        listed = [Field(part, word.line) for word in command.words for part in word.plain.split()]
        for at, word in enumerate(listed):
            if told := PROGRAM.search(word.plain):
                kind, words = told.group(1), listed[at + 1 :]
    if not kind:
        raise InputError(
            f"{source.path} starts no program of openrlhf.cli{unsettled(launch)}; expected one, or "
            "--set for the variable that leads to it"
        )
    stated = as_settings(words, source.path, launch.found.environment)
    settings = _translated(stated, draft)
    context.overrides.lay_over(settings, tuple(DEFAULTS))
    put_machine(draft, launch)
    put_environment(draft, launch)
    sheet = Sheet(settings, draft)
    kind = kind if kind in KINDS else kind.split("_", 1)[0]  # a fork's train_sft_dev
    if loss := known_loss(KINDS.get(kind, kind)):
        draft.put("loss", Given(loss, source.path))
    elif kind not in KINDS:
        say_sampled(draft, kind)
    draft.put("global_batch", sheet.integer("global_batch", into="global batch in examples"))
    fill(sheet, context)
    draft.values.pop("accumulation", None)  # as many forwards as make up the global batch
    draft.put("cp", sheet.integer("ring_attn_size", into="rings over the sequence"))
    draft.assume("cp_kind", "ring", "OpenRLHF's ring attention")
    draft.put("tp", sheet.integer("tensor_parallel_size", into="tp"))
    sheet.flag("cpu_offload", "adam_offload")
    sheet.flag("attention_kernel", "attn_implementation", off=("eager", None, ""))
    draft.assume("stack", stack_of(draft), "DeepSpeed runs it")
    put_ignored(sheet, QUIET)
    sheet.close("OpenRLHF")
    return draft


def _translated(stated: dict[str, Setting], draft: Draft) -> dict[str, Setting]:
    """The Trainer's words; what is left out as OpenRLHF has it."""
    settings: dict[str, Setting] = {}
    for key, setting in stated.items():
        section, _, name = key.rpartition(".")
        if section in ("ref", "eval", "muon", "logger.wandb", "critic", "reward"):
            name = f"{section}_{name}".replace(".", "_")
        settings[WORDS.get(name, name)] = setting
    rank = settings.get("lora_rank")
    if rank is not None and str(rank.value) != "0":
        settings["use_peft"] = Setting(True, rank.file, rank.line)
        settings.setdefault("target_modules", Setting("all-linear", draft.file))
    elif rank is not None:
        del settings["lora_rank"]
    dtype = settings.get("param_dtype")
    if dtype is not None and str(dtype.value) == "fp16":
        settings["fp16"] = Setting(True, dtype.file, dtype.line)
    for key, value in DEFAULTS.items():
        if key not in settings and not (key == "bf16" and "fp16" in settings):
            settings[key] = Setting(value, draft.file)
            draft.note(key, str(value).lower(), "OpenRLHF's default")
    return settings
