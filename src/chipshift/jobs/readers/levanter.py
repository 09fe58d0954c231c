"""Levanter's YAML.

Keys and defaults: Stanford CRFM, Levanter, docs/reference/Configuration.md and config/*.yaml, 2025.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.readers.config_model import put_config_model
from chipshift.jobs.readers.hf_args import put_model
from chipshift.jobs.readers.levanter_models import (
    CHECKPOINTS,
    GPT2_KEYS,
    KEYS,
    default_length,
    defaults_of,
    put_own_keys,
)
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source
from chipshift.models.lora import ALL_LINEAR, Lora

QUIET = (
    *("data", "data.*", "optimizer.*", "hf_*", "id", "epoch", "eval_*", "tokenizer", "merged_*"),
    *("peft_*", "lora.alpha", "lora.dropout", "initialize_*", "log_*", "z_loss*", "out_*", "tags"),
    *(
        "trainer.wandb*",
        "trainer.tracker*",
        "trainer.checkpointer*",
        "trainer.*_axes",
        "trainer.id",
    ),
    *("trainer.axis_resources*", "trainer.*_axis_resources*", "trainer.*_axis", "trainer.max_*"),
    *(
        "trainer.num_train_steps",
        "trainer.steps_per_*",
        "trainer.per_device_eval_*",
        "trainer.ray*",
    ),
    *(
        "trainer.load_*",
        "trainer.initialize_*",
        "trainer.seed",
        "trainer.log_*",
        "trainer.shutdown*",
    ),
    *("trainer.learning_rate", "trainer.weight_decay", "trainer.warmup*", "trainer.lr_*"),
    *("model.initializer_range", "model.upcast_attn", "model.use_flash_attention", "model.rope*"),
    *("model.flash_attention_block_size", "model.scan_layers", "model.layer_norm*", "model.*pdrop"),
    *(
        "model.activation*",
        "model.reference_*",
        "model.scale_attn*",
        "model.use_qk_norm",
        "model.hybrid_norm",
        "model.use_layer_norm_weight",
        "model.input_*",
    ),
)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "levanter")
    sheet = yaml_sheet(source, context, draft)
    draft.put("stack", Given("levanter", source.path))
    for key in ("initialize_from_hf", "model.reference_checkpoint", "model_name_or_path"):
        named = sheet.settings.get(key)
        if named is not None and isinstance(named.value, str) and "@" in named.value:
            # a checkpoint's revision changes no size
            sheet.settings[key] = Setting(named.value.split("@")[0], named.file, named.line)
    _reference(sheet)
    if not context.model_named:
        _model(sheet, context)
    _length(sheet)
    _batch(sheet)
    _axes(sheet)
    _precision(sheet)
    again = sheet.raw("model.gradient_checkpointing")
    if again is not None and not _of_checkpoint(sheet):
        sheet.record(*again, "rematerialisation")
        text = str(again[1].value).lower()
        remat = (
            "none"
            if text in ("false", "none")
            else "offload:block_input"
            if "offload" in text
            else "full"
        )
        draft.put("remat", Given(remat, again[1].file, again[1].line))
    draft.assume("remat", "full", "Levanter's default gradient_checkpointing")
    name = sheet.text("optimizer.type", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer.type")
    sheet.flag("attention_kernel", "model.attn_backend")
    for kind in ("fp8", "int8"):
        if sheet.flag("fp8_recipe", f"trainer.quantization.{kind}", f"trainer.{kind}"):
            draft.put("compute", Given(kind, draft.file))
    blocks = sheet.raw("model.cross_entropy_block_size")
    if blocks is not None and blocks[1].value:
        sheet.record(*blocks, "the loss is computed in blocks of the vocabulary")
        draft.note("loss_chunks", 1, "blocks of the vocabulary are not read as pieces")
    _say(sheet)
    mesh = "axes of a mesh of the file's own are not read; --set fsdp=N and tp=N tell them"
    sheet.ignore(("trainer.mesh", "trainer.mesh.*"), True, mesh)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    sheet.close("Levanter")
    return draft


RUN_LENGTH = ("max_train_length", "train_seq_len", "max_tune_length", "max_seq_len")
MODEL_LENGTH = ("model.seq_len", "model.max_seq_len")


def _length(sheet: Sheet) -> None:
    """The run's own length, the model's otherwise, which is the checkpoint's where that is taken.

    Source: Levanter, main/train_lm.py (``use_hf_model_config`` replaces the model's configuration)
    and main/lora_lm.py, 2023 to 2026: ``from_hf_config`` takes ``max_position_embeddings``.
    """
    draft, settings = sheet.draft, sheet.settings
    taken = _of_checkpoint(sheet)
    keys = RUN_LENGTH if taken else (*RUN_LENGTH[:-1], *MODEL_LENGTH, RUN_LENGTH[-1])
    draft.put("seq_len", sheet.integer(*keys, into="length"))
    if not taken:
        family = str(getattr(settings.get("model.type"), "value", "gpt2"))
        draft.assume("seq_len", default_length(family.lower()), f"Levanter's default of {family}")
        return
    why = "use_hf_model_config takes the checkpoint's in its place"
    sheet.ignore(MODEL_LENGTH, True, f"{why}; train_seq_len would be the run's own")
    sheet.ignore(("model.*",), False, why)
    model = draft.get("model")
    if model is not None and model.max_positions:
        why = "the checkpoint's max_position_embeddings, as no train_seq_len is given"
        draft.assume("seq_len", model.max_positions, why)


def _reference(sheet: Sheet) -> None:
    """``initialize_from_hf: true`` with ``use_hf_model_config``: the kind's own checkpoint."""
    start = sheet.settings.get("initialize_from_hf")
    takes = getattr(sheet.settings.get("use_hf_model_config"), "value", None)
    if start is None or as_boolean(start.value) is not True or as_boolean(takes) is not True:
        return
    kind = str(getattr(sheet.settings.get("model.type"), "value", "gpt2")).lower()
    named = sheet.settings.get("model.reference_checkpoint")
    name = CHECKPOINTS.get(kind) if named is None else str(named.value)
    if name:
        sheet.settings["initialize_from_hf"] = Setting(name, start.file, start.line)
        sheet.draft.note("checkpoint", name, f"Levanter's reference_checkpoint of {kind}")


def _of_checkpoint(sheet: Sheet) -> bool:
    """Whether the model's configuration is that of the hub's checkpoint that it starts from."""
    start = getattr(sheet.settings.get("initialize_from_hf"), "value", None)
    takes = as_boolean(getattr(sheet.settings.get("use_hf_model_config"), "value", None)) is True
    named = isinstance(start, str) and as_boolean(start) is None
    return named and (takes or not any(key.startswith("model.") for key in sheet.settings))


def _batch(sheet: Sheet) -> None:
    """A number; a schedule of steps and numbers, whose last is taken; -1: as many as fit at once.

    Source: Levanter, docs/reference/Configuration.md ("Batch size") and trainer.py, 2025.
    """
    key = "trainer.train_batch_size"
    found = sheet.settings.get(key)
    if found is not None and isinstance(found.value, list) and found.value:
        steps = [step for step in found.value if isinstance(step, dict)]
        last = max(steps, key=lambda step: as_integer(step.get("start")) or 0, default={})
        sheet.settings[key] = Setting(last.get("value"), found.file, found.line)
        shown = ", ".join(f"{s.get('value')} from step {s.get('start')}" for s in steps[:6])
        sheet.draft.note("global batch", last.get("value"), f"the last of a schedule: {shown}")
    sheet.draft.put("global_batch", sheet.integer(key, into="global batch", none=(-1,)))
    if found is not None and found.value == -1:
        return
    sheet.draft.assume("global_batch", 512, "Levanter's default train_batch_size")


def _model(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    kind = sheet.text("model.type", into="kind of model")
    family = (kind.value if kind else "gpt2").lower()
    sheet.boolean("use_hf_model_config", into="the hub's config")
    hub = (
        *("initialize_from_hf", "model.reference_checkpoint", "data.tokenizer", "tokenizer"),
        "model_name_or_path",
    )
    start = getattr(sheet.settings.get(hub[0]), "value", None)
    named = isinstance(start, str) and as_boolean(start) is None
    _adapters(sheet)
    if _of_checkpoint(sheet):
        put_model(sheet, context, *hub[:1])
        return  # the shape is the checkpoint's, known here or not
    vocabulary = Draft(draft.file, "levanter")
    from chipshift.jobs.readers.hf_args import put_model_named

    for key in hub if named else hub[1:]:
        setting = sheet.settings.get(key)
        if setting is not None and isinstance(setting.value, str) and not vocabulary.get("model"):
            put_model_named(vocabulary, setting.value, setting)
    rows = vocabulary.get("model").vocab if vocabulary.get("model") else None
    counted = sheet.integer("data.vocab_size", into="vocabulary", high=10**8)
    rows = counted.value if counted is not None else rows
    if rows is None:
        told = sheet.integer("model.vocab_size", into="vocabulary", high=10**8)
        rows = told.value if told is not None else None
        if told is not None:
            why = "model.vocab_size: the tokenizer, whose size counts, is not known here"
            draft.note("vocabulary", told.value, why)
    base = defaults_of(family, rows)
    if base is None:
        draft.wanted_model = f"a {family} of Levanter's"
        return
    put_own_keys(sheet, base)
    keys, name = (GPT2_KEYS, "gpt2") if family == "gpt2" else (KEYS, f"levanter-{family}")
    put_config_model(sheet, base, keys, name)
    if rows is None:
        draft.note("vocabulary", base["vocab_size"], "the tokenizer's size is not known here")


def _adapters(sheet: Sheet) -> None:
    """Levanter's LoRA: rank 8 on every linear map where nothing else is said."""
    draft = sheet.draft
    start = sheet.settings.get("initialize_from_hf")
    if start is not None and start.value not in (None, False):
        draft.put("task", Given("sft", start.file, start.line))
    told = next((k for k in sheet.settings if k == "peft_save_path" or k.startswith("lora.")), "")
    if not told and _of_checkpoint(sheet) and not any(k == "model" for k in sheet.settings):
        why = (
            "no lora key; lora_lm.py, which takes such a file too, trains adapters: --set lora.r=8"
        )
        draft.note("adapters", "none", why)
    if not told:
        return
    place = sheet.settings[told]
    rank = sheet.integer("lora.r", into="rank of the adapters")
    names = sheet.strings("lora.target_modules", into="adapters")
    targets = tuple(names.value) if names else (ALL_LINEAR,)
    lora = Lora(rank=rank.value if rank else 8, targets=targets)
    draft.put("lora", Given(lora, place.file, place.line))


def _axes(sheet: Sheet) -> None:
    """The data axis takes the rest and shards weights (fsdp_axis); the model axis is tp."""
    draft = sheet.draft
    tensor = sheet.integer("trainer.model_axis_size", into="tp")
    if tensor is not None and tensor.value > 1:
        draft.put("tp", tensor)
    replicas = sheet.integer("trainer.replica_dcn_axis_size", into="dp", low=-1)
    inside = sheet.integer("trainer.replica_ici_axis_size", into="dp")
    copies = max(1, replicas.value if replicas else 1) * (inside.value if inside else 1)
    place = replicas or inside
    if copies > 1 and place is not None:
        draft.put("dp", Given(copies, place.file, place.line))
    shards = sheet.settings.get("trainer.fsdp_axis")
    free = "dp" if shards is not None and shards.value in (None, "", []) else "fsdp"
    if free == "fsdp" or copies == 1:
        draft.put(free, Given(1, draft.file, shards.line if shards is not None else None))
    draft.open_axis = free
    _unused_axis(sheet)
    each = sheet.integer("trainer.per_device_parallelism", into="sequences a device", none=(-1,))
    if each is not None:
        micro = each.value * (draft.get("tp") or 1)
        draft.put("microbatch", Given(micro, each.file, each.line))
    else:
        draft.note("accumulation", 1, "per_device_parallelism -1: the whole batch at once")


def _unused_axis(sheet: Sheet) -> None:
    """A model axis that nothing is cut over: its devices repeat one another's work.

    Source: Levanter, trainer.py (``compute_axis_mapping``), 2024 to 2025.
    """
    draft = sheet.draft
    axes = sheet.settings.get("trainer.tensor_parallel_axes")
    mapped = [
        key for key in sheet.settings if "axis_resources." in key or key.endswith("axis_resources")
    ]
    if (draft.get("tp") or 1) == 1 or mapped or (axes is not None and axes.value):
        return
    place = sheet.settings["trainer.model_axis_size"]
    why = "no tensor_parallel_axes: its devices repeat one another's work, here they share it"
    draft.ignored.append(Ignored("trainer.model_axis_size", place.file, place.line, True, why))


SAID = {
    "trainer.model_averaging*": "a second copy of the weights is not in the memory",
    "doremi*": "the reference's forward passes are not in the numbers",
    "ref_model_path": "the reference's forward passes are not in the numbers",
}
"""Keys that bear on a step and are not read."""


def _say(sheet: Sheet) -> None:
    for key, why in SAID.items():
        if any(fnmatch(k, key) and one.value for k, one in sheet.settings.items()):
            sheet.ignore((key,), True, why)


def _precision(sheet: Sheet) -> None:
    """``p=f32,c=bfloat16``: params, compute, output."""
    draft = sheet.draft
    policy = sheet.text("trainer.mp", into="mixed precision")
    parts = dict(re.findall(r"([a-z]+)=([a-z0-9]+)", policy.value if policy else ""))
    if policy is not None and not parts:
        parts = {"p": policy.value, "c": policy.value}
    params = dtype_of(parts.get("p") or parts.get("params", "float32")) or "fp32"
    compute = dtype_of(parts.get("c") or parts.get("compute", "float32")) or "fp32"
    why = "Levanter holds parameters, gradients and moments in the policy's parameter dtype"
    if policy is not None:
        draft.put("compute", Given(compute, policy.file, policy.line))
        draft.put("weights", Given(params, policy.file, policy.line))
    draft.assume("compute", compute, "Levanter's default policy is fp32")
    for field in ("weights", "gradients", "reduce", "moments"):
        draft.assume(field, params, why)
    draft.assume("gather", compute, "weights are cast before they are gathered")
    draft.assume("master", "none", why)
