"""What Lightning's Trainer and Fabric arguments say, whatever file they stand in.

Arguments and defaults: Lightning, "Trainer" and "Fabric Arguments" references, "What is a
Strategy?", and the strategies' and precision plugins' own pages, 2026-07.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.near_value import FSDP_WORDS, refuse_near
from chipshift.jobs.readers.adapter_keys import put_adapters
from chipshift.jobs.readers.hf_sharding import deepspeed_file
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.ray_train import put_workers
from chipshift.jobs.settings import Setting, Sheet

STRATEGIES = (
    *("FSDPStrategy", "DeepSpeedStrategy", "DDPStrategy", "ModelParallelStrategy"),
    *("RayFSDPStrategy", "RayDeepSpeedStrategy", "RayDDPStrategy"),
)

WORDS = r"auto|dp|ddp\w*|fsdp\w*|deepspeed\w*|single_device|xla\w*|none"
"""Strategies that go by a registered name (Lightning, "What is a Strategy?", 2026)."""

SHARDS = {"SHARD_GRAD_OP": "zero2", "NO_SHARD": "ddp", "HYBRID_SHARD": "hybrid"}
"""FSDPStrategy's ``sharding_strategy`` where it is not FULL_SHARD."""

ALL = re.compile(r"auto|-1|.*(?:device_count|is_available|DeviceCount|n_gpu\b).*", re.S)
"""All devices of a node, or as many as a run counts there."""

OFF = ("none", "false", "", "0")
"""What switches recomputation off."""

ACCUMULATION = ("accumulate_grad_batches", "gradient_accumulation_iters",
                "gradient_accumulation_steps", "gradient_acc_steps", "grad_accum_steps",
                "grad_acc_steps", "grad_accumulation_steps", "accumulation_steps",
                "accumulate_grad_steps", "grad_accum")  # fmt: skip
LENGTHS = ("max_seq_length", "max_length", "block_size", "seq_len", "seq_length", "context_length",
           "max_len", "max_seq_len", "sequence_length", "model_max_length",
           "max_source_length", "tokenizer_max_len", "max_token_len",
           "max_input_length")  # fmt: skip


_SAID = re.compile(
    r"checkpointing|recompute|remat(?!ch)|offload|(?:^|[._])q?lora(?![a-z])|freeze|frozen|quanti[sz]|fp8|"
    r"sequence_parallel|context_parallel|(?:^|[._])ema(?:$|[._])|plugins$|mixed_precision|device_mesh"
)
"""Words of a key of a module's, a callback's or a strategy's own that bears on time or memory."""


def say_own(sheet: Sheet) -> None:
    """Keys of a module's own that nothing took and whose name says that they bear on the numbers.

    Its shapes and data are its own; ``--model`` and ``--set`` say these.
    """
    off = ("none", "false", "0", "", "[]", "{}", "no")
    own = [
        key
        for key, setting in sheet.settings.items()
        if key not in sheet.taken
        and setting.file != "--set"
        and _SAID.search(key)
        and not re.search(r"(?:alpha|dropout|ckpt|path|dir|kwargs|reentrant)$|rate|decay", key)
        and str(setting.value).lower() not in off
    ]
    sheet.ignore(own, True, "not read: what it changes is not in the numbers")


def fill_trainer(sheet: Sheet, context: Context) -> None:
    """Devices, batch, length, strategy, precision, adapters and optimizer from the settings."""
    draft = sheet.draft
    workers = put_workers(sheet)
    _devices(sheet, workers)
    total = sheet.integer("global_batch_size", into="sequences a step")
    draft.put("global_batch", total)
    micro = ("micro_batch_size", "batch_size")
    draft.put("microbatch", sheet.integer(*micro, into="sequences a device"))
    steps = sheet.integer(*ACCUMULATION, into="accumulation")
    if total is None or draft.get("microbatch") is None:
        draft.put("accumulation", steps)
    if total is None:
        draft.assume("accumulation", 1, "Lightning's default accumulate_grad_batches")
    draft.put("seq_len", sheet.integer(*LENGTHS, into="length"))
    _model_length(sheet)
    _precision(sheet)
    _strategy(sheet, context)
    name = sheet.text("optimizer", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer")
    put_adapters(sheet)
    sheet.flag("compile", "compile", "torch_compile")
    deepspeed = draft.get("engine") == "deepspeed"
    draft.assume("stack", "deepspeed" if deepspeed else "other", "Lightning has no calibration")


def _model_length(sheet: Sheet) -> None:
    """``block_size=config.block_size``: as long as the model's positions reach."""
    found, model = sheet.raw("model_block_size"), sheet.draft.get("model")
    if found is None or "seq_len" in sheet.draft.values or model is None:
        return
    length = 2048 if "LLaMA" in str(found[1].value) else model.max_positions
    if length:
        sheet.draft.assume("seq_len", length, "the model's own block_size")


def _devices(sheet: Sheet, workers: bool) -> None:
    draft = sheet.draft
    devices = sheet.raw("devices", "gpus")  # gpus is what Lightning 1 called it
    if devices is not None and not workers:
        key, setting = devices
        text = str(setting.value)
        if isinstance(setting.value, list):
            sheet.record(key, setting, "devices a node")
            draft.put("devices_per_node", Given(len(setting.value), setting.file, setting.line))
        elif re.fullmatch(r"[\d ]*,[\d ,]*", text):  # "0,1,2": which of them
            sheet.record(key, setting, "devices a node")
            named = [part for part in text.split(",") if part.strip()]
            draft.put("devices_per_node", Given(len(named), setting.file, setting.line))
        elif ALL.fullmatch(text):
            sheet.record(key, setting, "all devices of a node")
        elif setting.value is not None:
            draft.put("devices_per_node", sheet.integer("devices", "gpus", into="devices a node"))
    draft.put("nodes", sheet.integer("num_nodes", into="nodes"))
    if not workers:
        draft.assume("nodes", 1, "Lightning's default num_nodes")


def _precision(sheet: Sheet) -> None:
    """``16`` and ``bf16`` are mixed precision; ``bf16-true`` holds everything in bf16."""
    draft = sheet.draft
    found = sheet.settings.get("precision")
    if found is not None and "default_supported_precision" in str(found.value):
        sheet.raw("precision")
        draft.assume("mixed", "bf16", "LitGPT's default precision where the chip has bf16")
        draft.assume("loaded", "fp32", "LitGPT's default precision where the chip has bf16")
        return
    precision = sheet.text("precision", into="precision")
    if precision is not None and precision.value.startswith("transformer-engine"):
        draft.put("mixed", Given("fp8", precision.file, precision.line))
        draft.put("loaded", Given("bf16", precision.file, precision.line))
        draft.flag("fp8_recipe", "precision", precision.value, precision.line)
    dtype = dtype_of(precision.value) if precision is not None else None
    if precision is not None and dtype:
        true = "true" in precision.value or dtype == "fp32"
        draft.put("mixed", Given("no" if true else dtype, precision.file, precision.line))
        draft.put("loaded", Given(dtype if true else "fp32", precision.file, precision.line))
        if dtype == "fp16":
            draft.flag("loss_scaler", "precision", precision.value, precision.line)
    draft.assume("mixed", "no", "Lightning's default precision, 32-true")
    draft.assume("loaded", "fp32", "Lightning's default precision, 32-true")


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
    config = sheet.raw("strategy.config", "ds_config")
    stage = sheet.integer("strategy.stage", into="ZeRO stage", low=0, high=3)
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
        _mesh(sheet)
        if draft.get("mixed") not in (None, "no"):  # autocast alone: what is gathered is not cast
            why = "ModelParallelStrategy leaves FSDP2 without a mixed-precision policy"
            draft.assume("gather", "fp32", why)
            draft.assume("reduce", "fp32", why)
        draft.put("engine", Given("fsdp", draft.file, line))
    else:
        kind = "ddp"
    if draft.get("engine") == "deepspeed":
        _half(sheet)
    if (made or name) and "sharding" not in draft.values:
        draft.put("sharding", Given(kind, draft.file, line))
    draft.assume("sharding", kind, "Lightning's default strategy")
    _remat(sheet)
    if "offload" in lowered:
        draft.flag("cpu_offload", "strategy", word, line)
        draft.note("offload", "on the device", "the host's part is not modelled")
    for key in ("cpu_offload", "offload_optimizer", "offload_parameters"):
        sheet.flag("cpu_offload", f"strategy.{key}")


def _half(sheet: Sheet) -> None:
    """Under DeepSpeed ``bf16-true`` turns on its own bf16, as ``bf16-mixed`` does.

    Source: Lightning, src/lightning/fabric/strategies/deepspeed.py (_format_precision_config),
    2026: fp32 master weights and moments are kept in either.
    """
    draft = sheet.draft
    held = draft.values.get("loaded")
    if draft.get("mixed") == "no" and isinstance(held, Given) and held.value in ("bf16", "fp16"):
        draft.put("mixed", held)


def _remat(sheet: Sheet) -> None:
    draft = sheet.draft
    for key in ("strategy.activation_checkpointing_policy", "strategy.activation_checkpointing",
                "gradient_checkpointing"):  # fmt: skip
        again = sheet.raw(key)
        if again is not None and str(again[1].value).lower() not in OFF:
            sheet.record(*again, "rematerialisation")
            draft.put("remat", Given("full", draft.file, again[1].line))
    draft.assume("remat", "none", "no checkpointing policy is given")


def _mesh(sheet: Sheet) -> None:
    """ModelParallelStrategy: by default tensor parallel in a node, data parallel between nodes."""
    draft = sheet.draft
    for field, key in (("tp", "tensor_parallel_size"), ("fsdp", "data_parallel_size")):
        degree = sheet.integer(f"strategy.{key}", into=field, none=("auto",))
        draft.put(field, degree)
    each = draft.get("devices_per_node")
    rest = draft.get("fsdp")
    if each is not None and rest is None and not draft.given("tp"):
        draft.assume("tp", each, "ModelParallelStrategy's default: the devices of a node")


def _shards(sheet: Sheet) -> str:
    """What FSDPStrategy shards: a name, or torch's ``ShardingStrategy.NAME``."""
    found = sheet.raw("strategy.sharding_strategy")
    if found is None:
        return "fsdp"
    sheet.record(*found, "what is sharded")
    last = str(found[1].value).rsplit(".", 1)[-1].upper()
    refuse_near(found[0], Setting(last, found[1].file, found[1].line), FSDP_WORDS)
    return SHARDS.get(last, "fsdp")
