"""The words that Hugging Face's TrainingArguments and what builds on it share.

Transformers' Trainer, TRL, axolotl and LLaMA-Factory say micro batch, accumulation, precision,
sharding, adapters and kernels in these keys or near spellings of them.

Keys and defaults: Hugging Face, Transformers, "Trainer" / TrainingArguments reference, and TRL,
SFTConfig reference, 2026; axolotl, config reference, 2026; LLaMA-Factory, "Arguments", 2026.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError, nearest
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import DTYPES, dtype_of
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.near_value import refuse_near
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.adapter_keys import AUTOCAST, USED, put_adapters
from chipshift.jobs.readers.hf_sharding import put_sharding
from chipshift.jobs.readers.hf_uncounted import model_init, say_uncounted
from chipshift.jobs.readers.offloading import put_offloading
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.parallelism_config import put_sequence_parallel
from chipshift.jobs.readers.preference_keys import put_loss
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, unset_names, wrong

MICRO = ("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size")
LENGTHS = (
    *("max_seq_length", "max_length", "sequence_len", "cutoff_len", "block_size", "max_seq_len"),
    *("model_max_length", "max_source_length", "seq_length", "seq_len"),
)
MODELS = (
    *("model_name_or_path", "model_id", "base_model", "model_name", "model", "model_path"),
    *("llm_model_name_or_path", "pretrained_model_name_or_path", "base_model_name_or_path"),
)

ENCODED = re.compile(r"t5|bart|pegasus|marian|nllb|m2m|ul2|whisper", re.I)
"""Models whose encoder has the prompt and whose decoder has the answer."""

VERSION = re.compile(
    r"(?:[-_](?:\d{4}|v\d+(?:\.\d+)?|fp8|awq|gptq|int[48]|bnb[-_]4bit|checkpoints|thinking))+$",
    re.I,
)
"""What follows a model's name without changing its architecture: ``Qwen3-4B-Instruct-2507``."""


def put_model(sheet: Sheet, context: Context, *keys: str) -> None:
    """The model by its hub name; one that is not shipped waits for a config.json beside it."""
    whole = sheet.settings.get("model")
    if whole is not None and isinstance(whole.value, str) and "/" in whole.value:
        keys = keys or ("model", "base_model")  # ms-swift's model_name is what the model says it is
    found = sheet.raw(*(keys or MODELS))
    if found is None:
        _put_untrained(sheet, context)
    if found is None or not isinstance(found[1].value, str):
        return
    key, setting = found
    sheet.record(key, setting, "model")
    if unset := unset_names(setting.value):
        sheet.draft.wanted_model = f"{setting.value} (nothing sets ${unset[0]})"
    elif not context.model_named:
        put_model_named(sheet.draft, setting.value, setting)


def _put_untrained(sheet: Sheet, context: Context) -> None:
    """A model from scratch: ``--config_name gpt2 --config_overrides n_embd=4096,n_layer=32``."""
    from chipshift.models.preset import altered

    overrides = sheet.strings("config_overrides", into="keys of the model's config")
    name = sheet.text("config_name", *(("model_type",) if overrides else ()), into="model's config")
    if name is None or context.model_named:
        return
    if overrides is None:
        put_model_named(sheet.draft, name.value, Setting(name.value, name.file, name.line))
        return
    pairs = (text.partition("=") for text in overrides.value)
    changes = {key.strip(): typed(value.strip()) for key, _, value in pairs}
    sheet.draft.put("model", Given(altered(name.value, changes, name.file), name.file, name.line))


def put_model_named(draft: Draft, name: str, setting: Setting) -> None:
    """As ``put_model``, for a name found anywhere."""
    from chipshift.models.preset import preset, without_towers

    plain = name.rstrip("/")
    for spelling in (plain, VERSION.sub("", plain), plain.replace("___", ".")):
        try:
            model = preset(spelling)
        except InputError:
            continue
        draft.put("model", Given(model, setting.file, setting.line))
        if without_towers(model):
            draft.note("towers", "not counted", f"{model.name} is the language model alone here")
        return
    draft.wanted_model = name[:120]


def put_batch(sheet: Sheet, default_micro: int = 8) -> None:
    """Sequences a device (examples, where a loss is of several), accumulation, length."""
    draft = sheet.draft
    draft.counts_examples = True
    draft.put("microbatch", sheet.integer(*MICRO, into="sequences a device", none=("auto",)))
    if default_micro:  # a program's own loop has no default
        draft.assume("microbatch", default_micro, "the trainer's default batch a device")
    steps = sheet.integer("gradient_accumulation_steps", into="accumulation", none=("auto",))
    draft.put("accumulation", steps)
    whole = {"global_batch", "tokens_per_step"} & draft.values.keys()
    if not whole and not draft.accumulates_by_engine:
        draft.assume("accumulation", 1, "the trainer's default of no accumulation")
    if not _two_lengths(sheet):
        draft.put("seq_len", sheet.integer(*LENGTHS, into="sequence length", high=10**9))


def _two_lengths(sheet: Sheet) -> bool:
    """A decoder given a prompt's and an answer's length sees one after the other; whether so."""
    source = sheet.settings.get("max_source_length")
    target = sheet.settings.get("max_target_length")
    if source is None or target is None or any(k in sheet.settings for k in LENGTHS[:-3]):
        return False
    names = [str(sheet.settings[key].value) for key in MODELS if key in sheet.settings]
    lengths = as_integer(source.value), as_integer(target.value)
    if None in lengths or any(ENCODED.search(name) for name in names):
        return False
    draft, whole = sheet.draft, sum(length or 0 for length in lengths)
    for key in ("max_source_length", "max_target_length"):
        sheet.taken.add(key)
        sheet.record(key, sheet.settings[key], "part of the sequence length")
    draft.put("seq_len", Given(whole, source.file, source.line))
    draft.note("sequence length", whole, "max_source_length + max_target_length, in one sequence")
    return True


def put_precision(sheet: Sheet) -> None:
    """Autocast, and the dtype the weights are loaded in."""
    draft = sheet.draft
    for key, dtype in (("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "fp8"), ("pure_bf16", "bf16")):
        on = _switch(sheet, key, f"{dtype} matmuls")
        if on is not None and on.value and not (key == "fp16" and _yields(sheet, on)):
            draft.put("mixed", Given(dtype, on.file, on.line))
            if key == "pure_bf16":
                draft.put("loaded", Given("bf16", on.file, on.line))
            if dtype == "fp16":
                draft.flag("loss_scaler", key, "true", on.line)
            if dtype == "fp8":
                draft.flag("fp8_recipe", key, "true", on.line)
    sheet.flag("tf32", "tf32")
    loaded = sheet.text("torch_dtype", "dtype", "bnb_4bit_compute_dtype", into="dtype loaded")
    if loaded is not None and (held := dtype_of(loaded.value)):
        draft.put("loaded", Given(held, loaded.file, loaded.line))
    elif loaded is not None and loaded.value.lower() == "auto":
        draft.assume("loaded", "bf16", f"{loaded.value}: the checkpoint's own dtype, bf16 in most")
    elif loaded is not None:
        refuse_near("torch_dtype", Setting(loaded.value, loaded.file, loaded.line), DTYPES)
        draft.assume("loaded", "fp32", f"{loaded.value[:40]} is no dtype known here")
    draft.assume("mixed", "no", "neither bf16 nor fp16 is on")
    draft.assume("loaded", "fp32", "Transformers' default torch_dtype")


def _yields(sheet: Sheet, fp16: Given[bool]) -> bool:
    """Whether ``fp16`` stands beside ``bf16``: axolotl takes bf16 where the chip has it, and
    Transformers' TrainingArguments raises on both."""
    bf16 = sheet.settings.get("bf16")
    if bf16 is None or str(bf16.value).lower() not in ("true", "auto", "full", "1"):
        return False
    why = "TrainingArguments takes one of bf16 and fp16 and stops on both; bf16 was read"
    if sheet.draft.format == "axolotl":
        why = "bf16 goes before it; on a chip without bf16 the job runs in fp16, with a loss scaler"
    sheet.draft.ignored.append(Ignored("fp16", fp16.file, fp16.line, True, why))
    return True


def _switch(sheet: Sheet, key: str, into: str) -> Given[bool] | None:
    """A switch that may also be ``auto``, which takes bf16 where the chip has it."""
    setting = sheet.settings.get(key)
    if setting is not None and str(setting.value).lower() in ("auto", "full"):
        sheet.raw(key)
        sheet.record(key, setting, into)
        return Given(key != "fp16", setting.file, setting.line)
    return sheet.boolean(key, into=into)


def put_remat(sheet: Sheet, default: str = "none") -> None:
    """Gradient checkpointing recomputes each layer whole."""
    draft = sheet.draft
    found = sheet.raw(
        "gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"
    )
    if found is not None:
        key, setting = found
        sheet.record(key, setting, "rematerialisation")
        text = str(setting.value).lower()
        switch = as_boolean(setting.value)
        words = ("offload", "offload_disk", "unsloth")
        if switch is None and setting.value not in (None, "") and text not in words:
            hint = nearest(text, ("true", "false", *words))
            raise wrong(key, setting, f"true, false or one of {', '.join(words)}", hint)
        on = text in words or bool(switch)
        remat = "offload:block_input" if text.startswith("offload") else "full" if on else "none"
        draft.put("remat", Given(remat, setting.file, setting.line))
    draft.assume("remat", default, "the trainer's default")


def put_optimizer(sheet: Sheet) -> None:
    draft = sheet.draft
    name = sheet.text("optim", "optimizer", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name)
    draft.assume("optimizer", "adamw", "the trainer's default optimizer")


FLAGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention_kernel", ("attn_implementation",)),
    ("attention_kernel", ("flash_attention",)),
    ("attention_kernel", ("flash_attn",)),
    ("attention_kernel", ("use_flash_attn",)),
    ("attention_kernel", ("use_flash_attention_2",)),
    ("attention_kernel", ("sdp_attention",)),
    ("attention_kernel", ("xformers_attention",)),
    ("attention_kernel", ("s2_attention",)),
    ("attention_kernel", ("flex_attention",)),
    ("fused_ops", ("use_liger_kernel",)),
    ("fused_ops", ("use_liger",)),
    ("fused_ops", ("enable_liger_kernel",)),
    ("fused_ops", ("use_unsloth",)),
    ("fused_ops", ("liger_fused_linear_cross_entropy",)),
    ("fused_ops", ("cut_cross_entropy",)),
    ("fused_ops", ("lora_mlp_kernel",)),
    ("compile", ("torch_compile",)),
    ("packed_documents", ("sample_packing",)),
    ("packed_documents", ("packing",)),
    ("packed_documents", ("neat_packing",)),
    ("variable_length", ("padding_free",)),
    ("variable_length", ("group_by_length",)),
    ("apex", ("half_precision_backend",)),
    ("apex", ("fp16_backend",)),
)


def put_flags(sheet: Sheet) -> None:
    """Kernels and shapes that a port must replace."""
    for kind, keys in FLAGS:
        sheet.flag(kind, *keys, off=(False, None, "", 0, "auto", "eager", "disabled"))
    packed = any(
        as_boolean(sheet.settings[key].value)
        for key in ("packing", "sample_packing", "pad_to_sequence_len", "pad_to_max_length")
        if key in sheet.settings
    )
    if not packed:
        sheet.draft.flag("variable_length", "packing", "off: padded to the longest", None)
        sheet.draft.note(
            "sequences",
            "full length",
            "neither packing nor padding to length is on: real batches are shorter",
        )


def put_task(sheet: Sheet, default: str) -> None:
    """Pretraining, fine-tuning, or training on preferences."""
    draft = sheet.draft
    _say_towers(sheet)
    stage = sheet.text("stage", "rl", into="kind of training")
    if stage is not None:
        pretrains = stage.value.lower() in ("pt", "pretrain")
        draft.put("task", Given("pretrain" if pretrains else "sft", stage.file, stage.line))
    put_loss(sheet, stage)
    draft.assume("task", default, "the trainer's usual use")


def _say_towers(sheet: Sheet) -> None:
    """LLaVA's words for a tower beside the model: its work and its images' tokens."""
    model = sheet.draft.get("model")
    if model is not None and model.towers:
        return
    why = "a tower beside the language model, and what it adds to a sequence, is not in the numbers"
    sheet.ignore(("vision_tower", "mm_vision_tower", "audio_tower", "speech_tower"), True, why)


QUIET = (
    *("learning_rate", "lr*", "warmup*", "weight_decay", "adam_*", "max_grad_norm", "num_*_epochs"),
    *(
        "num_epochs",
        "max_steps",
        "num_train_*",
        "save_*",
        "eval_*",
        "logging_*",
        "log_*",
        "output*",
    ),
    *("seed", "data_seed", "report_to", "run_name", "push_to_hub", "hub_*", "wandb*", "mlflow*"),
    *("dataset*", "datasets*", "data_*", "train_file", "validation*", "val_*", "test_*", "do_*"),
    *("per_device_eval_batch_size", "remove_unused_columns", "dataloader_*", "preprocessing_*"),
    *("tokenizer*", "trust_remote_code", "overwrite_*", "resume*", "load_best*", "metric_*"),
    *("chat_template*", "template", "special_tokens*", "tokens*", "strict", "debug", "lora_*"),
    *("use_rslora", "use_bnb_nested_quant", "use_nested_quant"),
    *("peft_*", "bnb_*", "gradient_checkpointing_kwargs*", "ddp_*", "local_rank", "use_cache"),
    *("model_revision", "model_type", "cache_dir", "token", "attn_*", "evaluation_strategy"),
    *("neftune*", "label_*", "optim_args*", "greater_*", "include_*", "disable_*", "fsdp_*"),
    *("fsdp", "deepspeed_*", "early_stopping*", "plot_loss", "stage", "is_llama*", "is_mistral*"),
    *(
        "shuffle*",
        "train_on_inputs",
        "pad_to_*",
        "beta",
        "loss_type",
        "config_name",
        "auto_resume*",
    ),
    *("accelerator_config*", "group_by_length", "lisa_*", "relora_*", "unfrozen_parameters*"),
    *("chat_*", "roles*", "field_*", "streaming", "columns*", "text_*", "max_samples", "system"),
    *("*_per_epoch", "eot_tokens", "trackio_*", "push_*", "ddp", "loss_*", "num_warmup_steps"),
    *("optimizer_*", "mixed_precision*", "plugins*", "liger_*", "hf_*", "gpu_memory_limit"),
)


_STARTED = re.compile(
    r"^(?:lora|peft|adapter)s?_?(?:model_?)?(?:weights?|ckpt|checkpoint|path|dir|folder|name_or_path)"
)
"""Keys that name adapters to start from (``lora_path_prefix``, ``lora_weights``)."""


def put_ignored(sheet: Sheet, more: tuple[str, ...] = ()) -> None:
    sheet.ignore(
        ("neft*", "lora_dropout", "lora_fan_in_fan_out"), False, "does not change time or memory"
    )
    if sheet.draft.get("lora") is None and not any(
        key in sheet.settings and as_boolean(sheet.settings[key].value) is False for key in USED
    ):
        why = "adapters of the script's own: the whole model was taken as trained"
        started = [k for k, one in sheet.settings.items() if _STARTED.search(k) and one.value]
        sheet.ignore(started, True, why)
    why = "Spectrum trains a part of the weights only: all of them were taken"
    sheet.ignore(("spectrum_*",), True, why)
    sheet.ignore((*QUIET, *more), False, "does not change the time or memory of a step")


def fill(
    sheet: Sheet,
    context: Context,
    task: str = "sft",
    default_micro: int = 8,
    *,
    adapters_keep: bool = False,
) -> None:
    """Everything that the Trainer's words say; ``adapters_keep`` as in ``put_offloading``."""
    model_init(sheet)
    put_model(sheet, context)
    put_batch(sheet, default_micro)
    put_precision(sheet)
    put_remat(sheet)
    put_optimizer(sheet)
    put_sharding(sheet, context)
    put_sequence_parallel(sheet)
    put_adapters(sheet)
    if sheet.draft.get("lora") is not None:
        sheet.draft.assume("adapter_dtype", "fp32", AUTOCAST)
    needs = "gradient_checkpointing" if adapters_keep else ""
    put_offloading(sheet, needs=needs, adapters_keep=adapters_keep)
    put_task(sheet, task)
    put_flags(sheet)
    say_uncounted(sheet, context)


def stack_of(draft: Draft) -> str:
    """DeepSpeed is a stack of its own; the Trainer's other backends are not."""
    return "deepspeed" if draft.get("engine") == "deepspeed" else "other"
