"""Accelerate's launch YAML (``accelerate config``): FSDP 1 and 2, DeepSpeed, Megatron, DDP.

Keys: Hugging Face, Accelerate, "Fully Sharded Data Parallel", "DeepSpeed" and "Megatron-LM" usage
guides, and config_yaml_templates, 2026.
"""

from __future__ import annotations

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.readers.hf_sharding import NO_WRAP, put_fsdp, stage_named, take
from chipshift.jobs.readers.parallelism_config import put_parallelism
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean
from chipshift.jobs.source import Source

TYPES = (
    *("NO", "FSDP", "DEEPSPEED", "MEGATRON_LM", "MULTI_GPU", "MULTI_CPU", "XLA", "TP", "TPU"),
    *("MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU"),
    *("MULTI_NEURON", "MPS", "XPU"),
)
"""Accelerate's ``DistributedType``, older releases' names too; it refuses any other."""

KINDS = ("ddp", "zero1", "zero2", "fsdp")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    return read_launched(source, {}, context)


def read_launched(source: Source, laid: dict[str, Setting], context: Context) -> Draft:
    """A file, or an empty one, with what the launching command says laid over it."""
    draft = Draft(source.path, "accelerate")
    sheet = yaml_sheet(source, context, draft) if source.text else Sheet({}, draft)
    sheet.settings.update(laid)
    kind = sheet.text("distributed_type", into="how it is distributed", choices=TYPES)
    mixed = sheet.text("mixed_precision", into="mixed precision")
    if mixed is not None:
        value = dtype_of(mixed.value) or "no"
        if value != "no":  # else the Trainer's own bf16 or fp16, or its default, goes before it
            draft.put("mixed", Given(value, mixed.file, mixed.line))
        if value == "fp16":
            draft.flag("loss_scaler", "mixed_precision", "fp16", mixed.line)
        if value == "fp8":
            draft.flag("fp8_recipe", "mixed_precision", "fp8", mixed.line)
    draft.put("devices", sheet.integer("num_processes", into="devices", none=("auto",)))
    sheet.integer("num_machines", into="nodes", none=("auto",))
    name = (kind.value if kind else "NO").upper()
    if name == "NO" and kind is not None:  # accelerate launch starts one process, whatever it says
        draft.put("devices", Given(1, kind.file, kind.line))
    if name == "TP":
        why = "tensor parallelism of an older Accelerate: its size is not read; --set tp=N"
        sheet.ignore(("tp_config*",), True, why)
        draft.ignored.append(Ignored("distributed_type", draft.file, None, True, why))
    if name == "MULTI_CPU":
        draft.note("processes", "CPUs", "MULTI_CPU trains on hosts alone; read as if on devices")
    if "FSDP" in name:
        _fsdp(sheet, kind)
    elif "DEEPSPEED" in name:
        _deepspeed(sheet, kind, context)
    elif "MEGATRON" in name:
        _megatron(sheet)
    else:
        draft.assume("sharding", "ddp", "Accelerate without FSDP or DeepSpeed copies the weights")
    _parallelism(sheet)
    _environment(sheet)
    sheet.close("Accelerate")
    return draft


def _fsdp(sheet: Sheet, kind: Given[str] | None) -> None:
    draft = sheet.draft
    line = kind.line if kind else None
    draft.put("engine", Given("fsdp", draft.file, line))
    draft.put("sharding", Given("fsdp", draft.file, line))
    strategy = sheet.text(
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_config.sharding_strategy",
        into="what is sharded",
    )
    if strategy is not None:
        put_fsdp(draft, strategy.value, Setting(strategy.value, strategy.file, strategy.line))
    reshard = sheet.text(
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.reshard_after_forward",
        into="what is sharded",
    )
    if reshard is not None:
        if as_boolean(reshard.value) is False:
            draft.put("sharding", Given("zero2", reshard.file, reshard.line))
        elif as_boolean(reshard.value) is None:
            put_fsdp(draft, reshard.value, Setting(reshard.value, reshard.file, reshard.line))
    remat = sheet.boolean(
        "fsdp_config.fsdp_activation_checkpointing",
        "fsdp_config.activation_checkpointing",
        into="rematerialisation",
    )
    if remat is not None and remat.value:
        draft.put("remat", Given("full", remat.file, remat.line))
    sheet.flag("cpu_offload", "fsdp_config.fsdp_offload_params", "fsdp_config.offload_params")
    _say_whole(sheet)
    sheet.ignore(("fsdp_config.*",), False, "does not change the time or memory of a step here")


def _say_whole(sheet: Sheet) -> None:
    """What FSDP gathers at once where nothing is wrapped by layer, and what it leaves whole."""
    wrap = sheet.settings.get("fsdp_config.fsdp_auto_wrap_policy")
    if wrap is not None and str(wrap.value).upper() == "NO_WRAP":
        sheet.ignore(("fsdp_config.fsdp_auto_wrap_policy",), True, NO_WRAP)
    why = "modules that FSDP leaves whole on every device are counted as sharded"
    sheet.ignore(("fsdp_config.fsdp_ignored_modules",), True, why)


def _deepspeed(sheet: Sheet, kind: Given[str] | None, context: Context) -> None:
    draft = sheet.draft
    draft.put("engine", Given("deepspeed", draft.file, kind.line if kind else None))
    draft.put("stack", Given("deepspeed", draft.file, kind.line if kind else None))
    stage = sheet.integer("deepspeed_config.zero_stage", into="ZeRO stage", low=0, high=3)
    if stage is not None:
        draft.put("sharding", Given(KINDS[stage.value], stage.file, stage.line))
        draft.flag("deepspeed", "deepspeed_config.zero_stage", stage.value, stage.line)
    steps = sheet.integer(
        "deepspeed_config.gradient_accumulation_steps", into="accumulation", none=("auto",)
    )
    draft.put("accumulation", steps)
    for part in ("offload_optimizer_device", "offload_param_device"):
        sheet.flag("cpu_offload", f"deepspeed_config.{part}")
    if sheet.flag("fp8_recipe", "deepspeed_config.enable_msamp"):
        draft.note("MS-AMP", "not counted", "weights, gradients and moments in 8 bits are not read")
    filters = [f"deepspeed_config.deepspeed_{part}_filter" for part in ("inclusion", "exclusion")]
    sheet.ignore(filters, True, "the devices that a filter leaves are not counted; --set devices=N")
    path = sheet.text("deepspeed_config.deepspeed_config_file", into="DeepSpeed's own file")
    beside = context.neighbour(path.value) if path is not None else None
    if beside is not None:
        from chipshift.jobs.readers import deepspeed

        take(draft, deepspeed.read(beside, context))
    elif path is not None and stage is None:
        draft.assume("sharding", *stage_named(path.value))
        base = path.value.rsplit("/", 1)[-1]
        draft.miss(base, path.file, path.line, "its dtypes and batch are not in the numbers")
    draft.assume("sharding", "zero2", "Accelerate's default ZeRO stage is 2")
    sheet.ignore(("deepspeed_config.*",), False, "does not change time or memory here")


def _megatron(sheet: Sheet) -> None:
    draft = sheet.draft
    base = "megatron_lm_config.megatron_lm_"
    draft.put("stack", Given("megatron", draft.file))
    draft.put("engine", Given("megatron", draft.file))
    draft.put("tp", sheet.integer(base + "tp_degree", into="tp"))
    draft.put("pp", sheet.integer(base + "pp_degree", into="pp"))
    forwards = sheet.integer(base + "num_micro_batches", into="accumulation")
    draft.put("accumulation", forwards)
    sharded = sheet.boolean(base + "use_distributed_optimizer", into="optimizer state sharded")
    kind = "zero1" if sharded and sharded.value else "ddp"
    draft.put("sharding", Given(kind, draft.file, sharded.line if sharded else None))
    parallel = sheet.boolean(base + "sequence_parallelism", into="sequence parallelism")
    line = parallel.line if parallel else None
    draft.put("sequence_parallel", Given(bool(parallel and parallel.value), draft.file, line))
    remat = sheet.boolean(base + "recompute_activations", into="rematerialisation")
    if remat is not None and remat.value:
        draft.put("remat", Given("selective", remat.file, remat.line))
    sheet.ignore(("megatron_lm_config.*",), False, "does not change time or memory here")


def _parallelism(sheet: Sheet) -> None:
    """Accelerate's ParallelismConfig: a size for each axis."""
    put_parallelism(sheet, "parallelism_config.parallelism_config_")
    sheet.ignore(("parallelism_config.*",), False, "does not change time or memory here")


def _environment(sheet: Sheet) -> None:
    sheet.flag("compile", "dynamo_config.dynamo_backend", "dynamo_backend", off=("NO", "no", None))
    sheet.flag("tpu", "tpu_use_cluster")
    sheet.flag("fp8_recipe", "fp8_config.backend")
    quiet = (
        *("compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "machine_rank"),
        *(
            "main_*",
            "rdzv_*",
            "same_network",
            "tpu_*",
            "use_cpu",
            "command*",
            "commands",
            "gpu_ids",
        ),
        *("num_machines", "dynamo_config*", "fp8_config*", "mpirun_config*", "ipex_config*"),
        *("deepspeed_config*", "fsdp_config*", "megatron_lm_config*", "debug", "zone", "vm"),
    )
    sheet.ignore(quiet, False, "does not change the time or memory of a step")
