"""ms-swift on Megatron-LM: ``megatron sft``, ``pt``, ``rlhf``; a hub's model in Megatron's words.

Keys and defaults: ModelScope, ms-swift, swift/megatron/arguments/megatron_args.py and
megatron_base_args.py, 2026-08-22.
"""

from __future__ import annotations

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.launch import put_environment, read_launch
from chipshift.jobs.readers import megatron
from chipshift.jobs.readers.frozen_parts import put_swift_frozen
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.megatron_yaml import arguments
from chipshift.jobs.readers.nemo_library import MAPS
from chipshift.jobs.readers.preference_keys import known_loss, say_sampled
from chipshift.jobs.readers.swift import last_training, put_processes
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source
from chipshift.models.lora import ALL_LINEAR, Lora

DEFAULTS: dict[str, int | bool | str] = {
    "micro_batch_size": 1,
    "global_batch_size": 16,
    "recompute_granularity": "selective",
    "use_distributed_optimizer": True,
    "bf16": True,
}
"""Those that differ from Megatron-LM's own; bf16 is the dtype of most checkpoints."""

QUIET = (
    *("model", "model_type", "dataset*", "load_from_cache_file", "split_dataset_ratio", "system"),
    *("val_dataset*", "seed", "data_seed"),
    *("output_dir", "*_steps", "finetune", "max_length", "packing", "padding_free", "num_train_*"),
    *("dataloader_*", "model_author", "model_name", "save_*", "tuner_type", "train_type"),
    *("lora_*", "target_modules", "merge_lora", "template", "agent_template", "loss_scale"),
    *("strict", "use_hf", "adapters", "mcore_*", "rlhf_type", "beta", "rpo_alpha", "torch_dtype"),
    *("freeze_*", "vit_*", "report_to", "num_workers", "truncation_*", "streaming", "max_epochs"),
    *("load_safetensors", "add_version", "enable_thinking", "attn_impl", "cached_*", "eval_*"),
    *("shuffle", "no_*", "task_type", "external_plugins", "check_model", "packing_*", "loss_type"),
    *("vllm_*", "reward_*", "num_generations", "temperature", "top_*", "steps_per_*", "sleep_*"),
    *("offload_*", "generation_*", "epsilon*", "log_completions", "custom_*", "sft_alpha"),
)
"""ms-swift's own keys that change neither time nor memory, or are read here."""


UNCOUNTED = {
    "mtp_num_layers": "layers that predict further tokens are not counted",
    "moe_layer_recompute": "recomputing the experts is not read; --set remat=... says it",
    "exp_avg_sq_dtype": "the second moment's dtype: both moments have the first one's here",
    "teacher_model": "the teacher's forward pass and weights are not counted",
    "num_labels": "a classification head: the vocabulary's is counted in its place",
}
"""Keys that change a step and are not in the numbers, where they are set."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "ms-swift", uneven_pp=False, kv_replicated=True)
    launch = read_launch(source, context)
    command, kind, _, settings = last_training(launch, source, "megatron")
    context.overrides.lay_over(settings)
    put_processes(draft, launch, command)
    put_environment(draft, launch)
    model = settings.get("model")
    if model is not None and not context.model_named:
        put_model_named(draft, str(model.value), model)
    _task(draft, settings, kind)
    _length(draft, settings)
    for key, value in DEFAULTS.items():
        if key not in settings and not (key == "bf16" and "fp16" in settings):
            settings[key] = Setting(value, draft.file)
            draft.note(key.replace("_", "-"), str(value).lower(), "ms-swift's default")
    sheet = Sheet(settings, draft)
    if draft.get("lora") is None:
        put_swift_frozen(sheet)
    for key, why in UNCOUNTED.items():
        found = settings.get(key)
        if found is not None and str(found.value).lower() not in ("none", "false", "0", "fp32"):
            sheet.ignore((key,), True, why)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    own = arguments({k: s for k, s in settings.items() if k not in sheet.taken}, draft)
    if str(own.get("recompute-granularity", Setting("", "")).value) == "none":
        del own["recompute-granularity"]
    megatron.lay_over(own, context.overrides)
    megatron.fill(Sheet(own, draft), True, "ms-swift")
    return draft


def _task(draft: Draft, settings: dict[str, Setting], kind: str) -> None:
    """Full fine-tuning unless ``tuner_type lora``; ``rlhf`` by its type."""
    if kind != "pt":
        draft.put("task", Given("sft", draft.file))
    tuner = settings.get("tuner_type") or settings.get("train_type")
    if tuner is not None and str(tuner.value).startswith("lora"):
        rank = settings.get("lora_rank")
        width = as_integer(rank.value) if rank is not None else 8
        draft.put("lora", Given(Lora(rank=width or 8, targets=_targets(settings)), tuner.file))
        draft.put("task", Given("lora", tuner.file, tuner.line))
    stated = settings.get("rlhf_type")
    name = str(stated.value) if stated is not None else "dpo"
    if kind != "rlhf":
        return
    if loss := known_loss({"rm": "reward"}.get(name, name)):
        draft.put("loss", Given(loss, draft.file, stated.line if stated else None))
        draft.counts_examples = True
    else:
        say_sampled(draft, name)


def _targets(settings: dict[str, Setting]) -> tuple[str, ...]:
    stated = settings.get("target_modules")
    names = stated.value if stated is not None else "all-linear"
    listed = [str(one) for one in names] if isinstance(names, list) else str(names).split()
    if "all-linear" in listed:
        return (ALL_LINEAR,)
    return tuple(dict.fromkeys(own for name in listed for own in MAPS.get(name, (name,))))


def _length(draft: Draft, settings: dict[str, Setting]) -> None:
    """``max_length``, or what is packed; padding-free batches are as long as their samples."""
    for key in ("packing_length", "max_length"):
        if key in settings:
            settings.setdefault("seq_length", settings[key])
    packed = settings.get("packing")
    if packed is not None and as_boolean(packed.value):
        draft.flag("packed_documents", "packing", "true", packed.line)
