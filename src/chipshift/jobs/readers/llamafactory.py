"""LLaMA-Factory's YAML.

Keys and defaults: LLaMA-Factory, examples/README and src/llamafactory/hparams, 2026.
"""

from __future__ import annotations

from collections.abc import Sequence

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.frozen_parts import put_factory_frozen
from chipshift.jobs.readers.hf_args import fill, put_ignored, stack_of
from chipshift.jobs.readers.own_words import put_scheduler
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean
from chipshift.jobs.source import Source


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "llamafactory")
    sheet = yaml_sheet(source, context, draft, inside="llamafactory")
    _version_1(sheet)
    trains = {"stage", "do_train", "per_device_train_batch_size", "num_train_epochs", "dataset"}
    if "export_dir" in sheet.settings and not trains & sheet.settings.keys():
        place = sheet.settings["export_dir"].where
        raise InputError(
            f"{place}: export_dir merges or converts a checkpoint and trains nothing; expected the "
            "file of a training run"
        )
    off = sheet.boolean("disable_gradient_checkpointing", into="rematerialisation")
    if off is not None:
        draft.put("remat", Given("none" if off.value else "full", off.file, off.line))
    sheet.flag("cpu_offload", "use_unsloth_gc")  # recomputes, and keeps layers' inputs on the host
    put_factory(sheet.settings, draft)
    put_scheduler(sheet)
    for field in ("tensor", "pipeline", "context", "expert"):
        size = sheet.integer(f"{field}_model_parallel_size", f"{field}_parallel_size", into=field)
        if size is not None and size.value > 1:
            draft.put(
                {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}[field], size
            )
    draft.put("devices", sheet.integer("ray_num_workers", into="devices"))
    muon = sheet.boolean("use_muon", into="optimizer")
    if muon is not None and muon.value:
        draft.put("optimizer", Given("muon", muon.file, muon.line))
    put_factory_frozen(sheet)
    fill(sheet, context)
    if draft.get("global_batch") and "gradient_accumulation_steps" not in sheet.settings:
        draft.values.pop("accumulation", None)  # it follows from the global batch
    draft.assume("seq_len", 2048, "LLaMA-Factory's default cutoff_len")
    if (kept := sheet.settings.get("infer_dtype")) is not None:
        sheet.raw("infer_dtype")
        sheet.record("infer_dtype", kept, "of inference only")
    draft.assume("stack", stack_of(draft), "LLaMA-Factory has no calibration of its own")
    more = (
        *("image_*", "video_*", "audio_*", "pref_*", "freeze_*", "dpo_*", "simpo_*", "ppo_*"),
        *("adapter_name*", "export_*", "infer_*", "upcast_*", "double_*", "quantization_*"),
        *("reward_*", "ray_*", "mix_*", "swanlab*", "cutoff*", "mask_history", "visual*"),
    )
    few = (
        *("use_galore", "use_badam", "use_apollo", "use_llama_pro", "mixture_of_depths"),
        *("shift_attn", "use_adam_mini", "peft_config.freeze_*"),
        *("oft_rank", "oft_block_size", "oft_target", "use_kt", "kt_optimize_rule"),
    )
    why = "changes what is trained or kept; the whole model's was taken"
    sheet.ignore([key for key in few if sheet.settings.get(key, OFF).value is not False], True, why)
    put_ignored(sheet, more)
    sheet.close("LLaMA-Factory")
    return draft


def put_factory(settings: dict[str, Setting], draft: Draft) -> None:
    """LLaMA-Factory's own defaults, of its YAML and of a command with its arguments."""
    off = settings.get("disable_gradient_checkpointing")
    why = "LLaMA-Factory recomputes each layer unless told not to"
    draft.assume("remat", "none" if off is not None and as_boolean(off.value) else "full", why)
    kind = str(getattr(settings.get("finetuning_type"), "value", "lora"))
    if "finetuning_type" not in settings and not any(key.startswith("peft_") for key in settings):
        settings["finetuning_type"] = Setting("lora", draft.file, _first_line(settings))
        draft.note("finetuning_type", "lora", "LLaMA-Factory's default")
    if kind == "lora":
        stated = settings.get("finetuning_type", OFF)
        settings.setdefault("lora_target", Setting("all", draft.file, stated.line))
    half = next((key for key in ("bf16", "fp16") if _on(settings.get(key))), "")
    if half and kind != "full":
        draft.assume("loaded", half, "LLaMA-Factory holds frozen weights in the compute dtype")
    elif kind != "full":
        draft.assume("loaded", "bf16", "the checkpoint's own dtype, bf16 in most")
    elif half:
        draft.assume("reference", half, "LLaMA-Factory loads a reference in the compute dtype")


def _first_line(settings: dict[str, Setting]) -> int | None:
    """Where the first of the settings stands, for those that they leave to a default."""
    return min((one.line for one in settings.values() if one.line), default=None)


def put_length(draft: Draft, words: Sequence[str]) -> None:
    """Its default cutoff_len: 2048, but 1024 while its program was train_bash.py (until 0.7)."""
    old = any(word.endswith("train_bash.py") for word in words)
    which = " while its program was train_bash.py" if old else ""
    draft.assume("seq_len", 1024 if old else 2048, f"LLaMA-Factory's default cutoff_len{which}")


def _on(setting: Setting | None) -> bool:
    return setting is not None and bool(as_boolean(setting.value))


OFF = Setting(None, "")
RENAMED = {
    "peft_config.r": "lora_rank",
    "peft_config.target_modules": "lora_target",
    "peft_config.use_dora": "use_dora",
    "quant_config.quantization_bit": "quantization_bit",
    "optim_config.name": "optim",
    "enable_activation_checkpointing": "gradient_checkpointing",
    "cp_size": "context_parallel_size",
    "dist_config.config_file": "deepspeed",
}
"""Version 1's keys and what they were called before."""


def _version_1(sheet: Sheet) -> None:
    """The keys of version 1 in the older words; bf16 and recomputation are on by default.

    Source: LLaMA-Factory, src/llamafactory/v1/config/training_args.py and
    v1/plugins/model_plugins/peft.py, 2026.
    """
    settings, draft = sheet.settings, sheet.draft
    kind, dist = settings.get("peft_config.name"), settings.get("dist_config.name")
    if kind is None and dist is None and "model_class" not in settings:
        return
    for old, new in RENAMED.items():
        if old in settings:
            settings.setdefault(new, settings.pop(old))
    adapted = kind is not None and "lora" in str(kind.value)
    first = kind or dist or settings["model_class"]
    if kind is not None:
        settings.setdefault("finetuning_type", settings.pop("peft_config.name"))
    else:
        settings.setdefault("finetuning_type", Setting("full", first.file, first.line))
    if adapted and kind is not None:
        settings.setdefault("lora_rank", Setting(8, kind.file, kind.line))
    if "bf16" not in settings:
        draft.assume("mixed", "bf16", "LLaMA-Factory's default bf16, version 1")
    if dist is not None and "fsdp" in str(dist.value):
        sheet.raw("dist_config.name")
        sheet.record("dist_config.name", dist, "FSDP")
        draft.put("sharding", Given("fsdp", dist.file, dist.line))
        draft.put("engine", Given("fsdp", dist.file, dist.line))
    replicas = sheet.integer("mp_replicate_size", into="dp")
    if replicas is not None and replicas.value > 1:
        draft.put("dp", replicas)
        draft.put("fsdp", sheet.integer("mp_shard_size", into="fsdp"))
    draft.put("global_batch", sheet.integer("global_batch_size", into="sequences a step"))
    draft.assume("microbatch", 1, "LLaMA-Factory's default micro_batch_size, version 1")
