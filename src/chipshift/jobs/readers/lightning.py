"""A script that builds a Lightning ``Trainer(...)``, read through its syntax tree.

Arguments and defaults: Lightning, "Trainer" reference, 2026.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.readers.hf_args import deepspeed_file, put_model_named
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source

STRATEGIES = ("FSDPStrategy", "DeepSpeedStrategy", "DDPStrategy", "ModelParallelStrategy")

WORDS = r"auto|dp|ddp\w*|fsdp\w*|deepspeed\w*|single_device|xla\w*"
"""Strategies that go by a registered name (Lightning, "What is a Strategy?", 2026)."""

SHARDS = {"SHARD_GRAD_OP": "zero2", "NO_SHARD": "ddp", "HYBRID_SHARD": "hybrid"}
"""FSDPStrategy's ``sharding_strategy`` where it is not FULL_SHARD."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "lightning")
    module = python_tree.parse(source)
    settings: dict[str, Setting] = {}
    found = False
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        if last == "Trainer":
            settings.update(call.keywords)
            found = True
        elif last in STRATEGIES:
            settings["strategy_class"] = Setting(last, source.path, call.line)
            settings.update({f"strategy.{k}": v for k, v in call.keywords.items()})
        elif last == "DataLoader" and "batch_size" in call.keywords:
            settings.setdefault("batch_size", call.keywords["batch_size"])
        elif last == "DataLoader" and len(call.arguments) > 1:  # DataLoader(dataset, batch_size)
            batch = Setting(call.arguments[1], source.path, call.line)
            settings.setdefault("batch_size", batch)
        elif last == "from_pretrained" and call.arguments and isinstance(call.arguments[0], str):
            settings.setdefault("model", Setting(call.arguments[0], source.path, call.line))
    if not found:
        raise InputError(f"{source.path} calls no Trainer(...); expected a Lightning script")
    for name in ("max_seq_length", "max_length", "block_size", "seq_len"):
        if name in module.constants:
            settings.setdefault(name, module.constants[name])
    context.overrides.lay_over(settings)
    sheet = Sheet(settings, draft)
    _fill(sheet, context)
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    return draft


def _fill(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    model = sheet.raw("model")
    if model is not None and not context.model_named:
        sheet.record(*model, "model")
        put_model_named(draft, str(model[1].value), model[1])
    devices = sheet.raw("devices", "gpus")  # gpus is what Lightning 1 called it
    if devices is not None and isinstance(devices[1].value, list):
        sheet.record(*devices, "devices a node")
        at = devices[1]
        draft.put("devices_per_node", Given(len(at.value), at.file, at.line))
    elif devices is not None and re.fullmatch(r"[\d ]*,[\d ,]*", str(devices[1].value)):
        # "0,1,2": which of them
        sheet.record(*devices, "devices a node")
        named = [part for part in str(devices[1].value).split(",") if part.strip()]
        draft.put("devices_per_node", Given(len(named), devices[1].file, devices[1].line))
    elif devices is not None and str(devices[1].value) not in ("auto", "-1"):
        draft.put("devices_per_node", sheet.integer("devices", "gpus", into="devices a node"))
    nodes = sheet.integer("num_nodes", into="nodes")
    draft.put("nodes", nodes)
    draft.assume("nodes", 1, "Lightning's default num_nodes")
    draft.put("microbatch", sheet.integer("batch_size", into="sequences a device"))
    draft.put("accumulation", sheet.integer("accumulate_grad_batches", into="accumulation"))
    draft.assume("accumulation", 1, "Lightning's default accumulate_grad_batches")
    length = sheet.integer("max_seq_length", "max_length", "block_size", "seq_len", into="length")
    draft.put("seq_len", length)
    _strategy(sheet, context)
    precision = sheet.text("precision", into="precision")
    dtype = dtype_of(precision.value) if precision is not None else None
    if precision is not None and dtype:
        true = "true" in precision.value or dtype == "fp32"
        draft.put("mixed", Given("no" if true else dtype, precision.file, precision.line))
        draft.put("loaded", Given(dtype if true else "fp32", precision.file, precision.line))
        if dtype == "fp16":
            draft.flag("loss_scaler", "precision", precision.value, precision.line)
    draft.assume("mixed", "no", "Lightning's default precision, 32-true")
    draft.assume("loaded", "fp32", "Lightning's default precision, 32-true")
    deepspeed = draft.get("engine") == "deepspeed"
    draft.assume("stack", "deepspeed" if deepspeed else "other", "Lightning has no calibration")


def _strategy(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    name = sheet.raw("strategy")
    if name is not None and re.fullmatch(WORDS, str(name[1].value).lower()):
        # a word that the Trainer is given, whatever other strategies the script builds
        for key in [key for key in sheet.settings if key.startswith(("strategy.", "strategy_"))]:
            sheet.settings.pop(key)
    made = sheet.text("strategy_class", into="strategy")
    word = made.value if made else str(name[1].value) if name else "ddp"
    if name is not None and made is None:
        sheet.record(*name, "strategy")
    line = made.line if made else name[1].line if name else None
    lowered = word.lower()
    stage = sheet.integer("strategy.stage", into="ZeRO stage", low=0, high=3)
    config = sheet.raw("strategy.config")
    if "deepspeed" in lowered:
        match = re.search(r"stage_([1-3])", lowered)
        number = stage.value if stage else int(match.group(1)) if match else 2
        kind = ("ddp", "zero1", "zero2", "fsdp")[number]
        draft.put("engine", Given("deepspeed", draft.file, line))
        draft.flag("deepspeed", "strategy", word, line)
        if config is not None and stage is None:
            deepspeed_file(sheet, context, *config)
        elif stage is None and match is None:
            draft.assume("sharding", kind, "DeepSpeedStrategy's default stage, 2")
    elif "fsdp" in lowered:
        kind = _shards(sheet)
        draft.put("engine", Given("fsdp", draft.file, line))
    elif "modelparallel" in lowered:
        kind = "fsdp"
        for field, key in (("tp", "tensor_parallel_size"), ("fsdp", "data_parallel_size")):
            degree = sheet.integer(f"strategy.{key}", into=field, none=("auto",))
            draft.put(field, degree)
        draft.put("engine", Given("fsdp", draft.file, line))
    else:
        kind = "ddp"
    if (made or name) and "sharding" not in draft.values:
        draft.put("sharding", Given(kind, draft.file, line))
    draft.assume("sharding", kind, "Lightning's default strategy")
    again = sheet.raw(
        "strategy.activation_checkpointing_policy", "strategy.activation_checkpointing"
    )
    if again is not None:
        sheet.record(*again, "rematerialisation")
        draft.put("remat", Given("full", draft.file, again[1].line))
    draft.assume("remat", "none", "no checkpointing policy is given")
    if "offload" in lowered:
        draft.flag("cpu_offload", "strategy", word, line)
    for key in ("cpu_offload", "offload_optimizer", "offload_parameters"):
        sheet.flag("cpu_offload", f"strategy.{key}")


def _shards(sheet: Sheet) -> str:
    """What FSDPStrategy shards: a name, or torch's ``ShardingStrategy.NAME``."""
    found = sheet.raw("strategy.sharding_strategy")
    if found is None:
        return "fsdp"
    sheet.record(*found, "what is sharded")
    last = str(found[1].value).rsplit(".", 1)[-1].upper()
    return SHARDS.get(last, "fsdp")
