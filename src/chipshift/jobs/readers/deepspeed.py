"""DeepSpeed's JSON configuration.

Keys and defaults: DeepSpeed, "DeepSpeed Configuration JSON" and "ZeRO" pages, 2026.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import read_dtype
from chipshift.jobs.job import Given
from chipshift.jobs.json_lines import parse
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.settings import Sheet, flatten
from chipshift.jobs.source import Source

KINDS = ("ddp", "zero1", "zero2", "fsdp")
AUTO = ("auto",)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "deepspeed")
    tree, lines = parse(source)
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table; expected a DeepSpeed configuration")
    for key, line in source.twice.items():
        raise InputError(
            f"{source.path}:{line}: {key} is written twice, which DeepSpeed refuses; expected it "
            "once"
        )
    settings = flatten(tree, source.path, lines)
    context.overrides.lay_over(settings)
    left = any(s.value == "auto" for key, s in settings.items() if key.startswith(("bf16", "fp16")))
    sheet = Sheet({key: s for key, s in settings.items() if s.value != "auto"}, draft)
    draft.put("stack", Given("deepspeed", source.path))
    _fill(sheet)
    if not left:
        draft.assume("mixed", "no", "DeepSpeed's default: neither fp16 nor bf16 is enabled")
        draft.assume("loaded", "fp32", "DeepSpeed's default dtype")
    _rest(sheet)
    sheet.close("DeepSpeed")
    return draft


def read_table(sheet: Sheet, prefix: str) -> Draft | None:
    """A configuration that stands in a table of another file, if one does."""
    inner = {key: s for key, s in sheet.settings.items() if key.startswith(prefix)}
    known = ("zero_optimization", "bf16.", "fp16.", "train_micro_batch", "train_batch_size")
    if not any(key.startswith(f"{prefix}{one}") for key in inner for one in known):
        return None
    sheet.taken |= inner.keys()
    draft = Draft(sheet.draft.file, "deepspeed")
    own = Sheet({k.removeprefix(prefix): s for k, s in inner.items() if s.value != "auto"}, draft)
    _fill(own)
    _rest(own)
    own.close("DeepSpeed")
    return draft


def _fill(sheet: Sheet) -> None:
    sheet.draft.put("engine", Given("deepspeed", sheet.draft.file))
    _batch(sheet)
    put_zero(sheet)
    _precision(sheet)


def _batch(sheet: Sheet) -> None:
    draft = sheet.draft
    draft.microbatch_rule = "all"  # without one: the batch over devices and accumulation
    draft.put("global_batch", sheet.integer("train_batch_size", into="global batch"))
    draft.put(
        "microbatch", sheet.integer("train_micro_batch_size_per_gpu", into="sequences a device")
    )
    draft.put("accumulation", sheet.integer("gradient_accumulation_steps", into="accumulation"))


def put_zero(sheet: Sheet) -> None:
    """ZeRO stage, groups of sharding, offload."""
    draft = sheet.draft
    stage = sheet.integer("zero_optimization.stage", into="ZeRO stage", low=0, high=3)
    if stage is not None:
        draft.put("sharding", Given(KINDS[stage.value], stage.file, stage.line))
        draft.flag("deepspeed", "zero_optimization.stage", stage.value, stage.line)
    draft.assume("sharding", "ddp", "DeepSpeed's default ZeRO stage is 0")
    mics = sheet.integer(
        "zero_optimization.mics_shard_size", into="devices a shard group", none=(-1, 0)
    )
    if mics is not None:
        draft.put("sharding", Given("hybrid", mics.file, mics.line))
        draft.put("shard_group", mics)
    partition = sheet.integer("zero_optimization.zero_hpz_partition_size", into="hpZ group")
    if partition is not None and partition.value > 1:
        draft.put("second_copy", partition)
    for part in ("offload_optimizer", "offload_param"):
        device = sheet.text(f"zero_optimization.{part}.device", into="where it is kept")
        if device is not None and device.value.lower() not in ("none", ""):
            draft.flag("cpu_offload", f"zero_optimization.{part}.device", device.value, device.line)
            draft.note(part.replace("_", " "), "on the device", "the host's part is not modelled")
    for part in ("cpu_offload", "cpu_offload_params", "cpu_offload_param"):  # older releases' words
        sheet.flag("cpu_offload", f"zero_optimization.{part}")
    sheet.flag("quantised_collectives", "zero_optimization.zero_quantized_weights")
    sheet.flag("quantised_collectives", "zero_optimization.zero_quantized_gradients")
    sequence = sheet.integer("sequence_parallel_size", into="cp")
    draft.put("cp", sequence)
    if sequence is not None and sequence.value > 1:  # DeepSpeed-Ulysses
        draft.put("cp_kind", Given("all_to_all", sequence.file, sequence.line))
    tensor = sheet.integer("tensor_parallel.autotp_size", "tensor_parallel.tp_size", into="tp")
    if tensor is not None and tensor.value > 1:
        draft.put("tp", tensor)


def _precision(sheet: Sheet) -> None:
    draft = sheet.draft
    for key, dtype in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        on = sheet.boolean(f"{key}.enabled", into=f"{dtype} weights and matmuls")
        if on is not None and on.value:
            draft.put("mixed", Given(dtype, on.file, on.line))
            if dtype == "fp16":
                draft.flag("loss_scaler", f"{key}.enabled", "dynamic", on.line)
    for key, field in (
        ("bf16.bf16_master_weights_and_grads", "master"),
        ("bf16.bf16_optimizer_states", "moments"),
    ):
        narrow = sheet.boolean(key, into=f"dtype of the {field}")
        if narrow is not None and narrow.value:
            draft.put(field, Given("bf16", narrow.file, narrow.line))
    kept = read_dtype(sheet, "data_types.grad_accum_dtype", into="dtype of gradients")
    draft.put("gradients", kept)
    moved = read_dtype(sheet, "communication_data_type", into="dtype of the gradient reduction")
    draft.put("reduce", moved)
    sheet.flag("apex", "amp.enabled")


_UNCOUNTED = re.compile(
    r"fp16_master_weights_and_grads|zenflow|super_offload|^elasticity\.enabled$|^eigenvalue\.enabled$|"
    r"^autotuning\.enabled$|zero_quantized_nontrainable_weights|^torch_autocast\.enabled$"
)
"""Keys of a DeepSpeed file that change a step's memory, work or batch, and are not counted."""


def _on(sheet: Sheet, key: str) -> bool:
    return str(sheet.settings[key].value).lower() not in ("false", "none", "")


def _rest(sheet: Sheet) -> None:
    draft = sheet.draft
    name = sheet.text("optimizer.type", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer.type")
    sheet.flag("sparse_attention", "sparse_attention.mode")
    sheet.flag("activation_partitioning", "activation_checkpointing.partition_activations")
    sheet.flag("activation_offload", "activation_checkpointing.cpu_checkpointing")
    sheet.flag("compile", "compile.enabled", "compile.deepcompile")
    said = [key for key in sheet.settings if _UNCOUNTED.search(key) and _on(sheet, key)]
    sheet.ignore(said, True, "DeepSpeed changes what is held or run by it: not in the numbers")
    sheet.ignore(
        (
            "pipeline*",
            "moe*",
            "compression_training*",
            "curriculum*",
            "data_efficiency*",
            "progressive_layer_drop*",
        ),
        True,
        "not read from a DeepSpeed file",
    )
    quiet = (
        "zero_optimization.super_offload",
        *("zero_optimization.*", "fp16.*", "bf16.*", "bfloat16.*", "optimizer.*", "scheduler.*"),
        *("steps_per_print", "wall_clock_breakdown", "gradient_clipping", "prescale_gradients"),
        *(
            "zero_allow_untested_optimizer",
            "activation_checkpointing.*",
            "flops_profiler.*",
            "amp.*",
        ),
        *("tensorboard.*", "wandb.*", "comms_logger.*", "autotuning.*", "aio.*", "checkpoint.*"),
        *(
            "elasticity.*",
            "dump_state",
            "memory_breakdown",
            "gradient_predivide_factor",
            "compile.*",
        ),
        *("sparse_gradients", "zero_force_ds_cpu_optimizer", "hybrid_engine.*", "csv_monitor.*"),
        *("data_types.*", "seq_parallel_*", "tensor_parallel.*", "disable_allgather", "nebula*"),
    )
    sheet.ignore(quiet, False, "does not change the time or memory of a step here")
