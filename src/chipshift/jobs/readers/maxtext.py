"""MaxText: YAML configs, and commands or scripts with ``key=value`` after base.yml.

Keys and defaults: Google, MaxText, configs/base.yml and configs/models/*.yml, 2026; the batch
arithmetic and the axes that weights are sharded over: same file's logical_axis_rules.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import read_dtype
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.near_value import near_text, refuse_near
from chipshift.jobs.readers import primus
from chipshift.jobs.readers.config_model import put_config_model
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.maxtext_command import command_sheet
from chipshift.jobs.readers.maxtext_experts import put_capacity
from chipshift.jobs.readers.maxtext_keys import put_unread
from chipshift.jobs.readers.maxtext_lora import put_lora
from chipshift.jobs.readers.maxtext_mesh import put_axes, put_batch
from chipshift.jobs.readers.maxtext_remat import POLICIES, TENSOR, UNREAD, custom_policy
from chipshift.jobs.readers.maxtext_scale import (
    OF_2023,
    SIZES,
    is_of_2023,
    put_activations,
    put_scale,
)
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.preference_keys import say_sampled
from chipshift.jobs.readers.teacher import put_teacher
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, unset_names, wrong
from chipshift.jobs.source import Source

NAMES = {
    "deepseek3-671b": "deepseek-v3",
    "deepseek2-236b": "deepseek-v2",
    "deepseek2-16b": "deepseek-v2-lite",
    "kimi-k2-1t": "kimi-k2",
}
"""MaxText's names of models that nobody else uses."""


FAMILIES = {
    "llama2": "llama",
    "llama3": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "qwen3": "qwen3",
    "qwen2": "qwen2",
    "qwen3_moe": "qwen3_moe",
    "default": "llama",
}


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "maxtext")
    if re.search(r"\b[a-z_]+=", source.text) and not re.search(
        r"^[a-z_]+[ \t]*:", source.text, re.M
    ):
        sheet = command_sheet(source, context, draft)
    else:
        sheet = _of_primus(yaml_sheet(source, context, draft), context)
    if "weights_dtype" in sheet.settings and "activations_dtype" in sheet.settings:
        raise InputError(
            f"{source.path} is a file of MaxDiffusion, whose networks are counted but not timed; "
            "expected a job that trains a language model"
        )
    draft.put("stack", Given("maxtext", source.path))
    _own_model(sheet, context, source.path)
    distilled = _student(sheet)
    _model(sheet, context)
    if distilled is not None:
        _teacher(sheet, context, distilled)
    put_axes(sheet)
    put_batch(sheet)
    _precision(sheet)
    _task(sheet)
    put_lora(sheet)
    _rest(sheet)
    named = sheet.settings.get("model_name")
    put_unread(sheet, named is not None and str(named.value) not in ("default", ""))
    return draft


def _of_primus(sheet: Sheet, context: Context) -> Sheet:
    """The settings inside a Primus file, whose own base keeps bf16 weights."""
    module = primus.module_of(sheet.settings, "maxtext", context)
    if module is None:
        return sheet
    settings = module.settings
    if module.model is not None and module.model in module.absent:
        name = str(module.model.value).replace("_", "-").lower()
        settings.setdefault("model_name", Setting(name, module.model.file, module.model.line))
    primus.note_absent(module, sheet.draft)
    primus.note_defaults(module, sheet.draft, frozenset({"weight_dtype"}))
    return Sheet(settings, sheet.draft)


def _own_model(sheet: Sheet, context: Context, path: str) -> None:
    """A model of a fork's own: ``configs/models/NAME.yml`` of ``model_name``, given beside.

    Source: MaxText, pyconfig.py: the model's file lies over base.yml, the job's own keys over it.
    """
    named = sheet.settings.get("model_name")
    if named is None or unset_names(named.value) or context.model_named:
        return
    name = f"{named.value}.yml"
    if path.rsplit("/", 1)[-1] == name or name not in context.beside:
        return
    beside = context.neighbour(name)
    if beside is None:
        return
    own = yaml_sheet(beside, context, sheet.draft).settings
    for key, setting in own.items():
        sheet.settings.setdefault(key, setting)
    del sheet.settings["model_name"]
    sheet.draft.note("model", str(named.value), f"of the shape in {name}, given beside")


def _model(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    name = sheet.raw("model_name")
    block = sheet.text("decoder_block", into="kind of layer")
    if name is not None and str(name[1].value) not in ("default", ""):
        sheet.record(*name, "model")
        if unset_names(name[1].value):
            if not context.model_named:
                raise wrong(*name, "a model's name")
        elif not context.model_named:
            own = str(name[1].value)
            put_model_named(draft, NAMES.get(own, own), name[1])
        over = sheet.boolean("override_model_config", into="keys beat the model's own")
        changed = over is not None and over.value
        why = "beats the shape of model_name, which is taken; --model with a config.json settles it"
        own_shape = ("base_emb_dim", "base_*_heads", "base_*mlp_dim", "base_num_*", "head_dim")
        sheet.ignore(own_shape, changed, why if changed else "model_name gives the shape")
        return
    if context.model_named or draft.wanted_model:
        return
    if name is not None and not str(name[1].value) and "base_emb_dim" not in sheet.settings:
        raise wrong(*name, "a model's name", ", which the script takes from its arguments")
    family = FAMILIES.get(block.value.lower() if block else "default")
    if family is None:
        draft.wanted_model = f"a {block.value if block else 'default'} of its own shape"
        return
    defaults = {
        "model_type": family,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 7168,
        "num_hidden_layers": 16,
        "head_dim": 128,
        "vocab_size": 32000,
    }
    old = is_of_2023(sheet)
    defaults |= OF_2023 if old else {}
    put_scale(sheet, defaults)
    keys = {
        **SIZES,
        "head_dim": "head_dim",
        "vocab_size": "vocab_size",
        "logits_via_embedding": "tie_word_embeddings",
        "num_experts": "num_local_experts",
        "num_experts_per_tok": "num_experts_per_tok",
    }
    if family == "qwen3_moe":
        keys |= {"base_moe_mlp_dim": "moe_intermediate_size", "num_experts": "num_experts"}
    put_config_model(sheet, defaults, keys, "maxtext-custom")
    put_activations(sheet, old)


QUANTISATIONS = (
    *("int8", "int4", "fp8", "fp8_full", "fp8_gpu", "fp8_nanoo", "intmp", "nanoo_fp8", "aqt_fp8"),
    *("te_fp8_delayedscaling", "te_fp8_currentscaling", "te_mxfp8", "te_nvfp4"),
)
"""MaxText's names for quantised matmuls (Google, MaxText, configs/base.yml, 2026-12)."""


def _precision(sheet: Sheet) -> None:
    draft = sheet.draft
    why = "MaxText's defaults: fp32 weights and moments, bf16 matmuls and gathers"
    found = {}
    for key, into in (("dtype", "dtype of the matmuls"), ("weight_dtype", "dtype of the weights")):
        found[key] = read_dtype(sheet, key, into=into)
    kept, compute = found["weight_dtype"], found["dtype"]
    for field, stated in (("compute", compute), ("gather", compute), ("weights", kept)):
        draft.put(field, stated)
    held = kept.value if kept else "fp32"
    draft.assume("compute", "bf16", why)
    draft.assume("gather", "bf16", why)
    draft.assume("weights", "fp32", why)
    draft.assume("master", "none", why)
    for key, field in (("grad_dtype", "gradients"), ("mu_dtype", "moments")):
        draft.put(field, read_dtype(sheet, key, into=field))
        draft.assume(field, held, f"MaxText's {key} follows weight_dtype")
    draft.assume("reduce", draft.get("gradients"), "as the gradients")
    old = ("int8_training", "use_int8_training", "fwd_int8")
    eight = sheet.boolean(*old, into="int8 matmuls")  # of 2023
    if eight is not None and eight.value:
        draft.put("compute", Given("int8", eight.file, eight.line))
    quantised = near_text(sheet, "quantization", into="quantised matmuls", known=QUANTISATIONS)
    if quantised is not None and quantised.value.strip():
        name = quantised.value.lower()
        kind = "fp8" if "fp8" in name else "int8" if "int8" in name else ""
        if kind:
            draft.put("compute", Given(kind, quantised.file, quantised.line))
            draft.flag("fp8_recipe", "quantization", quantised.value, quantised.line)
            _ranges(sheet)
        else:
            why = f"{quantised.value[:40]} is not known: matmuls in the job's dtype are taken"
            draft.ignored.append(Ignored("quantization", quantised.file, quantised.line, True, why))


def _ranges(sheet: Sheet) -> None:
    """Ranges of 8-bit operands: given, or found in the step (``absmax``, the default)."""
    keys = [f"{of}_quantization_calibration_method" for of in ("weight", "act")]
    stated = [sheet.text(key, into="ranges of 8-bit operands") for key in keys]
    if all(one is not None and one.value.startswith("fixed") for one in stated):
        for key, one in zip(keys, stated, strict=True):
            if one is not None:
                sheet.draft.flag("fixed_ranges", key, one.value, one.line)


def _student(sheet: Sheet) -> Setting | None:
    """Distillation: the student is trained; one of its settings where a teacher runs beside it."""
    base = "student_overrides."
    found = {key: one for key, one in sheet.settings.items() if key.startswith(base)}
    if not found:
        return None
    for key, one in found.items():
        sheet.settings[key.removeprefix(base)] = one
        del sheet.settings[key]
    kept = sheet.text("offline_data_dir", into="the teacher's logits, computed beforehand")
    if kept is not None and kept.value:
        sheet.ignore(("teacher_overrides.*", "distill_*"), False, "no teacher is run")
        return None
    return next(iter(found.values()))


def _teacher(sheet: Sheet, context: Context, student: Setting) -> None:
    """The teacher by ``teacher_overrides.model_name``; other keys of it are said."""
    key = "teacher_overrides.model_name"
    named = sheet.settings.get(key, replace(student, value=""))
    sheet.taken.add(key)
    own = str(named.value)
    put_teacher(sheet.draft, context, key, NAMES.get(own, own), named.file, named.line)
    sheet.ignore(("distill_*", "teacher_overrides.load_*"), False, "the loss's own, or a path")
    sheet.ignore(("teacher_overrides.*",), True, "the teacher runs on the student's settings")


def _task(sheet: Sheet) -> None:
    """``use_sft``, and ``use_dpo`` with the loss of ``dpo.algo``: batches count pairs then."""
    draft = sheet.draft
    tuned = sheet.boolean("use_sft", into="kind of training")
    if tuned is not None and tuned.value:
        draft.put("task", Given("sft", tuned.file, tuned.line))
    sampled = sheet.boolean("use_grpo", into="kind of training")
    if sampled is not None and sampled.value:
        say_sampled(draft, "grpo")
    pairs = sheet.boolean("use_dpo", into="kind of training")
    if pairs is None or not pairs.value:
        return
    draft.counts_examples = True
    draft.put("task", Given("sft", pairs.file, pairs.line))
    named = sheet.text("dpo.algo", into="loss", choices=("dpo", "orpo"))
    draft.put("loss", named or Given("dpo", pairs.file, pairs.line))
    held = draft.get("weights")
    draft.assume("reference", held, "the reference is kept in the dtype of the weights")


def _custom(sheet: Sheet) -> str:
    """What a custom policy does with each tensor; those left out run again."""
    places = {}
    for name in TENSOR:
        place = sheet.text(name, into="kept, moved or run again")
        if place is not None:
            places[name] = place.value
    for name in UNREAD:
        if str(sheet.settings[name].value if name in sheet.settings else "remat") != "remat":
            sheet.ignore((name,), True, "this tensor is taken as run again")
    return custom_policy(places)


def _attention(sheet: Sheet) -> None:
    """The kernel, and whether splash attention's backward pass is one kernel or two."""
    sheet.flag("attention_kernel", "attention", off=("autoselected", "", None))
    into = "kernels of attention's backward pass"
    fused = [
        sheet.boolean(key, into=into) for key in ("sa_use_fused_bwd_kernel", "use_tokamax_splash")
    ]
    kernel, hardware = sheet.settings.get("attention"), sheet.settings.get("hardware")
    splash = kernel is None or str(kernel.value) in ("flash", "autoselected")
    on_tpu = hardware is None or str(hardware.value) == "tpu"
    if splash and on_tpu and not any(one is not None and one.value for one in fused):
        line = fused[0].line if fused[0] is not None else None
        sheet.draft.flag("separate_backward", "sa_use_fused_bwd_kernel", "false", line)


def _rest(sheet: Sheet) -> None:
    for key in ("use_multimodal", "use_audio"):
        setting = sheet.settings.get(key)
        if setting is not None and str(setting.value).lower() == "true":
            why = "the encoder of images or sound that goes with it is not in the numbers"
            sheet.ignore((key,), True, why)
    draft = sheet.draft
    remat = sheet.text("remat_policy", into="rematerialisation")
    if remat is not None:
        refuse_near("remat_policy", Setting(remat.value, remat.file, remat.line), POLICIES)
        value = remat.value
        if value == "custom":
            value = _custom(sheet)
        draft.put("remat", Given(value, remat.file, remat.line))
    draft.assume("remat", "full", "MaxText's default remat_policy")
    name = sheet.text("opt_type", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "opt_type")
    draft.assume("optimizer", "adamw", "MaxText's default opt_type")
    tiles = sheet.integer("num_vocab_tiling", into="pieces of the loss")
    draft.put("loss_chunks", tiles)
    _attention(sheet)
    sheet.flag("cpu_offload", "optimizer_memory_host_offload")
    sheet.flag("cpu_offload", "parameter_memory_host_offload")
    sheet.flag("packed_documents", "packing")
    scale = sheet.settings.get("global_parameter_scale")
    if scale is not None and str(scale.value) == "1":
        sheet.ignore(("global_parameter_scale",), False, "1 leaves the shape as it is")
    put_capacity(sheet)
    zero = sheet.boolean("shard_optimizer_over_data", into="optimizer state sharded over dp")
    if zero is not None and zero.value:
        draft.put("optimizer_sharding", Given("zero1", zero.file, zero.line))
    sheet.ignore(
        ("custom_mesh_*", "global_parameter_scale"),
        True,
        "not read; the estimate takes MaxText's default",
    )
