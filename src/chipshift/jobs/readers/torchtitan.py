"""torchtitan's TOML job files, old spellings and new.

Keys, meanings and defaults: PyTorch, torchtitan, torchtitan/config/job_config.py and
train_configs/*.toml, from 2024-06 (``training.batch_size``, ``training.data_parallel_degree``) to
2026-02 (``training.local_batch_size``, ``quantize.linear.float8``); the batch and mesh arithmetic:
torchtitan/train.py and torchtitan/distributed/parallel_dims.py, same dates.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.plan import of_some
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.torchtitan_command import run_script
from chipshift.jobs.readers.torchtitan_keys import (
    OWN,
    put_ignored,
    put_replica_groups,
    put_tokens,
)
from chipshift.jobs.readers.torchtitan_models import model_beside
from chipshift.jobs.readers.torchtitan_pipeline import put_pipeline
from chipshift.jobs.settings import Setting, Sheet, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.toml_lines import key_lines, parse
from chipshift.models.model import Model
from chipshift.models.preset import flavour, preset

MOST = 10**6  # devices on one axis
ATTENTION_VARIANTS = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope", "_fused_qkv")
FAMILY_FORKS = ("_simple_fsdp", "_ft", ".simple_fsdp", "_compiler_toolkit")
DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
FSDP_WHY = (
    "torchtitan keeps sharded weights, gradients and moments in fp32 (training.dtype float32) and "
    "gathers weights in bf16 (training.mixed_precision_param)"
)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "torchtitan", kv_replicated=False)
    started = re.search(r"--\w+\.\w+|CONFIG_FILE=", source.text)
    if started and ("[training]" not in source.text or source.text.lstrip().startswith("#!")):
        settings = run_script(source, context, draft)
    else:
        settings = flatten(parse(source), source.path, key_lines(source.text))
    return fill(settings, draft, context)


def fill(
    settings: dict[str, Setting], draft: Draft, context: Context, framework: str = "torchtitan"
) -> Draft:
    """A draft from torchtitan's keys, wherever they were written.

    Args:
        framework: whose keys they are; one of another than torchtitan's that is not known matters.
    """
    context.overrides.lay_over(settings)
    put_tokens(settings)
    sheet = Sheet(settings, draft)
    _model(sheet, context)
    _degrees(sheet)
    _batch(sheet)
    put_pipeline(sheet)
    _remat(sheet)
    _precision(sheet)
    _optimizer(sheet)
    _flags(sheet)
    put_ignored(sheet)
    sheet.close(framework, unknown_matters=framework != "torchtitan", own=OWN)
    return draft


def _model(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    name = sheet.text("model.name", into="model family")
    flavor = sheet.text("model.flavor", into="model size")
    hub = sheet.text("hf_transformers.model", "hf_model", into="model")
    if context.model_named:
        context.put_model(draft)
        return
    if hub is not None:  # Transformers' own model; the flavour cuts it down for tests alone
        put_model_named(draft, hub.value, Setting(hub.value, hub.file, hub.line))
        if flavor is not None and "debug" in flavor.value:
            draft.note("layers", "all", f"flavor {flavor.value} makes a smaller model of it")
        return
    family = name.value if name else "llama3"
    if flavor is None:
        raise InputError(
            f"{draft.file} gives no model.flavor; expected one such as '8B', or --model"
        )
    beside = model_beside(context, family, flavor.value)  # a fork's own table goes first
    if beside is None and "/" in flavor.value:  # a fork's flavours may be a hub's names
        put_model_named(draft, flavor.value, Setting(flavor.value, flavor.file, flavor.line))
        return
    model = beside or _flavour(family, flavor)
    draft.put("model", Given(model, flavor.file, flavor.line))
    if name is None:
        draft.note("model.name", "llama3", "torchtitan's default")


def _flavour(family: str, flavor: Given[str]) -> Model:
    """The preset of a flavour; attention variants (``8B_flex``) are not models of their own."""
    size = flavor.value
    for variant in ATTENTION_VARIANTS:
        size = size.removesuffix(variant)
    for fork in FAMILY_FORKS:
        family = family.removesuffix(fork)
    try:
        return flavour("llama3" if family == "llama" else family, size)
    except InputError as error:
        if family in ("llama2", "mistral", "mixtral"):
            return preset(f"{family} {size}")
        raise InputError(f"{flavor.file}:{flavor.line}: model.flavor: {error}") from None


def _degrees(sheet: Sheet) -> None:
    draft = sheet.draft

    def degree(field: str, name: str, into: str, *more: str) -> Given[int] | None:
        keys = (f"parallelism.{name}", f"training.{name}", f"experimental.{name}", *more)
        value = sheet.integer(*keys, into=into, high=MOST, none=(-1,) if field == "fsdp" else ())
        draft.put(field, value)
        return value

    degree("dp", "data_parallel_replicate_degree", "dp")
    shard = degree(
        "fsdp",
        "data_parallel_shard_degree",
        "fsdp (-1: the devices that the other degrees leave)",
        "training.data_parallel_degree",
        "parallelism.data_parallel_degree",
    )
    if shard is None:
        draft.open_axis = "fsdp"
        draft.put("fsdp", Given(1, draft.file))
    _unsharded(sheet)
    degree("tp", "tensor_parallel_degree", "tp")
    spread = sheet.boolean("parallelism.enable_sequence_parallel", into="sequence parallelism")
    draft.put("sequence_parallel", spread)
    degree("cp", "context_parallel_degree", "cp")
    degree("pp", "pipeline_parallel_degree", "pp")
    degree("ep", "expert_parallel_degree", "ep")
    degree("etp", "expert_tensor_parallel_degree", "tensor parallel of the experts")
    _experts(draft)
    if (draft.get("cp") or 1) > 1:
        rotate = sheet.text(
            "parallelism.context_parallel_rotate_method",
            "experimental.context_parallel_rotate_method",
            into="context-parallel exchange",
            choices=("allgather", "alltoall"),
        )
        kind = "ring" if rotate and rotate.value == "alltoall" else "allgather"
        if rotate:
            draft.put("cp_kind", Given(kind, rotate.file, rotate.line))
        draft.assume("cp_kind", "allgather", "torchtitan's default rotate method")
        draft.note(
            "FSDP over cp", "yes", "torchtitan shards weights over dp_shard × cp, cp included"
        )
        if shard is not None and shard.value == 1:
            draft.put("cp_shards", Given(True, shard.file, shard.line))


def _unsharded(sheet: Sheet) -> None:
    """``data_parallel_type = "ddp"`` of 2024: the degree replicates, nothing is sharded."""
    draft = sheet.draft
    kind = sheet.text("training.data_parallel_type", into="kind of data parallelism")
    if kind is None or kind.value.lower() != "ddp":
        return
    shards = draft.values.pop("fsdp", None)
    if shards is not None:
        draft.put("dp", shards)
    draft.open_axis = "dp" if draft.open_axis == "fsdp" else draft.open_axis


def _experts(draft: Draft) -> None:
    """ep means nothing for a dense model; experts are cut by tp only when etp says so."""
    model, ep = draft.get("model"), draft.get("ep") or 1
    if ep == 1:
        draft.values.pop("etp", None)
        return
    draft.assume("etp", 1, "torchtitan's default expert_tensor_parallel_degree")
    if model is not None and not any(hasattr(layer.mlp, "experts") for layer, _ in model.layers):
        draft.values.pop("ep", None)
        draft.values.pop("etp", None)
        draft.note("ep", 1, "torchtitan: expert parallelism has no effect on a dense model")


def _batch(sheet: Sheet) -> None:
    draft = sheet.draft
    local = sheet.integer(
        "training.local_batch_size", "training.batch_size", into="sequences a replica"
    )
    total = sheet.integer(
        "training.global_batch_size", into="global batch in sequences", none=(-1,)
    )
    length = sheet.integer("training.seq_len", into="sequence length", high=10**9)
    draft.put("seq_len", length)
    draft.assume("seq_len", 2048, "torchtitan's default training.seq_len")
    draft.put("global_batch", total)
    draft.put("microbatch", local)
    steps = sheet.integer("training.gradient_accumulation_steps", into="forwards a step")  # forks'
    if steps is not None and total is None:
        draft.put("accumulation", steps)
    draft.assume("microbatch", 8, "torchtitan's default training.local_batch_size")


def _remat(sheet: Sheet) -> None:
    draft = sheet.draft
    mode = sheet.text(
        "activation_checkpoint.mode",
        into="rematerialisation",
        choices=("none", "selective", "full", "memory_budget"),
    )
    option = sheet.text("activation_checkpoint.selective_ac_option", into="what is kept")
    if mode is None:
        value = _selective(option.value if option else "2")
        draft.assume("remat", value, "torchtitan's default activation_checkpoint.mode, selective")
        return
    value = mode.value
    if value == "memory_budget":
        draft.note("remat", "selective_op", "the compiler's memory budget is taken as selective")
        value = "selective_op"
    if value == "selective":
        value = _selective(option.value if option else "2")
    draft.put("remat", Given(value, mode.file, mode.line))


def _selective(option: str) -> str:
    """``op`` keeps attention and matmuls; a number recomputes every n-th layer whole."""
    if not option.isdecimal():
        return "selective_op"
    return of_some("full", 1, max(1, int(option[:6])))


def _precision(sheet: Sheet) -> None:
    draft = sheet.draft
    kept = sheet.text("training.dtype", into="dtype of weights and moments", choices=DTYPES)
    compute = sheet.text(
        "training.mixed_precision_param", into="dtype of the matmuls", choices=DTYPES
    )
    reduce_ = sheet.text(
        "training.mixed_precision_reduce", into="dtype of the gradient reduction", choices=DTYPES
    )
    resident = DTYPES[kept.value] if kept else "fp32"
    matmul = DTYPES[compute.value] if compute else "bf16"
    for field in ("weights", "gradients", "moments"):
        if kept:
            draft.put(field, Given(resident, kept.file, kept.line))
        draft.assume(field, resident, FSDP_WHY)
    draft.assume("master", "none", FSDP_WHY)
    for field, stated in (("compute", compute), ("gather", compute)):
        if stated:
            draft.put(field, Given(matmul, stated.file, stated.line))
        draft.assume(field, matmul, FSDP_WHY)
    if reduce_:
        draft.put("reduce", Given(DTYPES[reduce_.value], reduce_.file, reduce_.line))
    draft.assume("reduce", "fp32", "torchtitan's default training.mixed_precision_reduce")
    _quantised(sheet)
    _reshard(sheet)


def _reshard(sheet: Sheet) -> None:
    """``never`` keeps the gathered weights till the backward pass: gathered once, as in ZeRO-2."""
    draft = sheet.draft
    reshard = sheet.text(
        "parallelism.fsdp_reshard_after_forward",
        into="weights after the forward",
        choices=("default", "always", "never"),
    )
    kept = reshard is not None and reshard.value == "never"
    held = draft.get("gather") or draft.get("weights")
    if reshard is None or not kept:
        if (draft.get("pp") or 1) > 1 and (reshard is None or reshard.value == "default"):
            why = (
                "in a pipeline torchtitan keeps them gathered for the backward pass, a third less "
                "traffic for a whole bf16 copy on each device; estimated as resharded"
            )
            draft.note("weights after the forward pass", "resharded", why)
        return
    if (draft.get("dp") or 1) > 1:
        why = "kept whole within each replica group; estimated as resharded, a third more traffic"
        draft.note("weights after the forward pass", "resharded", why)
        return
    shards = draft.values.pop("fsdp", None)
    if shards is not None:
        draft.put("dp", shards)
    draft.open_axis = "dp" if draft.open_axis == "fsdp" else draft.open_axis
    draft.put("optimizer_sharding", Given("zero2", reshard.file, reshard.line))
    master = draft.get("weights")
    for field, value in (("weights", held), ("master", master), ("gather", "")):
        draft.put(field, Assumed(value, "gathered weights stay whole, their shards are the master"))


def _quantised(sheet: Sheet) -> None:
    """float8 and MX converters: the matmuls run in fp8, the rest as before."""
    draft = sheet.draft
    converters = sheet.strings("model.converters", into="model converters")
    names = [name.lower() for name in converters.value] if converters else []
    on = next((n for n in names if "float8" in n or "mx" in n or "fp4" in n), None)
    line = converters.line if converters else None
    linear = sheet.flag("fp8_recipe", "float8.enable_float8_linear", "training.fp8_linear")
    if on is None and not linear:
        sheet.ignore(("quantize.*", "float8.*", "mx.*"), False, "no float8 or MX converter is on")
        return
    recipe = sheet.text(
        *(("quantize.linear.mx.recipe_name", "mx.recipe_name") if on and "mx" in on else ()),
        "quantize.linear.float8.recipe_name",
        "float8.recipe_name",
        into="fp8 recipe",
    )
    draft.put("compute", Given("fp4" if on == "nvfp4" else "fp8", draft.file, line))
    if on is not None:
        draft.flag("fp8_recipe", "model.converters", f"{on} {recipe.value if recipe else ''}", line)
    gathered = sheet.boolean(
        "quantize.linear.float8.enable_fsdp_float8_all_gather",
        "float8.enable_fsdp_float8_all_gather",
        into="weights gathered in fp8",
    )
    if gathered and gathered.value:
        draft.put("gather", Given("fp8", gathered.file, gathered.line))
    sheet.ignore(
        ("quantize.*", "float8.*", "mx.*"), False, "detail of the fp8 recipe; not in the estimate"
    )


def _optimizer(sheet: Sheet) -> None:
    draft = sheet.draft
    name = sheet.text("optimizer.name", into="optimizer")
    if name:
        put_optimizer_named(draft, name, "optimizer.name")
    draft.assume("optimizer", "adamw", "torchtitan's default optimizer")
    moments = sheet.text("optimizer.state_dtype", into="dtype of the moments", choices=DTYPES)
    if moments:  # of forks: torchtitan's own moments have the dtype of the weights
        draft.put("moments", Given(DTYPES[moments.value], moments.file, moments.line))
    draft.put("stack", Given("torchtitan", draft.file))
    sheet.flag(
        "fused_optimizer",
        "optimizer.implementation",
        "optimizer.fused",
        off=("for-loop", "foreach", False),
    )
    if "loss_chunks" not in draft.values:
        draft.note("loss_chunks", 1, "torchtitan's TOML versions compute the loss at once")


def _flags(sheet: Sheet) -> None:
    sheet.flag("compile", "compile.enable", "training.compile")
    sheet.flag(
        "tp_overlap",
        "compile.enable_async_tensor_parallel",
        "parallelism.enable_async_tensor_parallel",
        "experimental.enable_async_tensor_parallel",
        "training.enable_async_tensor_parallel",
    )
    sheet.flag("attention_kernel", "model.use_flex_attn", "model.attn_type", "model.attn_mask_type")
    sheet.flag("cpu_offload", "training.enable_cpu_offload")
    forced = ("debug.moe_force_load_balance", "training.debug_moe_force_load_balance")
    sheet.flag("balanced_experts", *forced)
    put_replica_groups(sheet)
    sheet.flag(
        "custom_code",
        "job.custom_config_module",
        "experimental.custom_args_module",
        "experimental.custom_import",
        "experimental.custom_model_path",
    )
    backend = sheet.text("parallelism.expert_parallel_comm_backend", into="expert exchange")
    if backend and backend.value.lower() != "standard":
        sheet.draft.flag("expert_kernels", "expert_parallel_comm_backend", backend.value, None)
    draft = sheet.draft
    tp = draft.values.get("tp")
    if tp is not None and tp.value == 8:
        line = tp.line if isinstance(tp, Given) else None
        draft.flag("node_of_8", "parallelism.tensor_parallel_degree", 8, line)
