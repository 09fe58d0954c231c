"""axolotl's YAML.

Keys and defaults: axolotl, "Config Reference", 2026; its examples folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.near_value import near_text
from chipshift.jobs.readers.frozen_parts import put_unfrozen
from chipshift.jobs.readers.hf_args import fill, put_ignored, stack_of
from chipshift.jobs.readers.offloading import put_checkpointing_offload, put_selective
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "axolotl")
    sheet = yaml_sheet(source, context, draft)
    for field, key in (
        ("fsdp", "dp_shard_size"),
        ("dp", "dp_replicate_size"),
        ("tp", "tensor_parallel_size"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_parallel_size"),
    ):
        size = sheet.integer(key, into=field)
        if size is not None and size.value > 1:
            draft.put(field, size)
    if (legacy := sheet.integer("sequence_parallel_degree", into="cp")) and legacy.value > 1:
        draft.put("cp", legacy)
    _exchange(sheet)
    version = sheet.settings.get("fsdp_version")
    if version is not None and "fsdp_config" in " ".join(sheet.settings):
        sheet.raw("fsdp_version")
        sheet.record("fsdp_version", version, "FSDP")
        draft.put("sharding", Given("fsdp", version.file, version.line))
        draft.put("engine", Given("fsdp", version.file, version.line))
    _expert_axis(sheet)
    _ray(sheet)
    for key in ("bfloat16", "float16"):
        sheet.boolean(key, into="dtype of everything")
    for key, dtype in (
        *(("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")),
    ):
        setting = sheet.settings.get(key)
        if setting is not None and str(setting.value).lower() in ("true", "auto", "full"):
            draft.assume("loaded", dtype, f"axolotl loads the model in {dtype} when {key} is on")
            break
    if not any(key in sheet.settings for key in ("bf16", "bfloat16", "fp16", "float16")):
        why = "axolotl's default bf16: auto"
        draft.assume("loaded", "bf16", why)
        if not as_boolean(sheet.settings["fp8"].value if "fp8" in sheet.settings else False):
            draft.assume("mixed", "bf16", why)
    rows = sheet.raw("pretraining_dataset")
    if rows is not None and rows[1].value:
        draft.put("task", Given("pretrain", rows[1].file, rows[1].line))
    gathered = sheet.boolean("fp8_enable_fsdp_float8_all_gather", into="weights gathered in fp8")
    if gathered is not None and gathered.value:
        draft.put("gather", Given("fp8", gathered.file, gathered.line))
    put_checkpointing_offload(sheet)
    _whole_batch(sheet)
    _pieces(sheet)
    fill(sheet, context, default_micro=1, adapters_keep=True)
    put_selective(sheet)
    put_unfrozen(sheet)
    why = "frozen layers that wait on the host are counted as if they stayed on the device"
    if sheet.flag("cpu_offload", "layer_offloading"):
        draft.note("layer_offloading", "on the device", why)
    _packed(draft, sheet.settings)
    for keys, why in UNCOUNTED.items():
        on = [key for key in sheet.settings if _matches(key, keys) and _on(sheet.settings[key])]
        sheet.ignore(on, True, why)
    draft.assume("stack", stack_of(draft), "axolotl has no calibration of its own")
    put_ignored(
        sheet,
        ("plugins*", "dataset_*", "shuffle*", "sample_*", "is_*", "device_map", "gptq*", "kd_*"),
    )
    sheet.close("axolotl")
    return draft


UNCOUNTED = {
    (
        "tiled_mlp",
    ): "the feed-forward goes over parts of a sequence: its activations are whole here",
    ("lisa_n_layers",): "LISA trains a few layers at a time: all of them were taken",
    ("peft_layer_replication",): "layers that are repeated are not counted",
    ("model_config.", "overrides_of_model_config."): "changes the model, whose own shape is taken",
    ("qat.",): "quantisation-aware training: its passes over weights are not counted",
    ("deepspeed_config.",): "no key of axolotl, which takes a file's name under 'deepspeed'",
    ("fp8_config.",): "how fp8 is scaled is not read",
}
"""Keys, or tables, that change a step and are not in the numbers, where they are on."""
_KEPT = ("model_config.rope_", "model_config.max_position")
"""What leaves a model's shape as it is."""


def _matches(key: str, starts: tuple[str, ...]) -> bool:
    alike = any(key == one or (one.endswith(".") and key.startswith(one)) for one in starts)
    return alike and not key.startswith(_KEPT)


def _on(setting: Setting) -> bool:
    return str(setting.value).lower() not in ("none", "false", "0", "")


def _whole_batch(sheet: Sheet) -> None:
    """``batch_size``, the older word: of a device between two steps, over the microbatch.

    Source: axolotl, utils/config/__init__.py (normalize_config), 2026-07.
    """
    whole = sheet.settings.get("batch_size")
    micro = sheet.settings.get("micro_batch_size")
    if whole is None or "gradient_accumulation_steps" in sheet.settings:
        return
    count, each = as_integer(whole.value), as_integer(micro.value if micro else 1)
    if count and each and count >= each:
        sheet.raw("batch_size")
        sheet.record("batch_size", whole, "accumulation, over micro_batch_size")
        sheet.draft.put("accumulation", Given(count // each, whole.file, whole.line))


def _pieces(sheet: Sheet) -> None:
    """``chunked_cross_entropy``: eight parts by default (axolotl, monkeypatch/loss/chunked.py)."""
    on = sheet.boolean("chunked_cross_entropy", into="pieces of the loss")
    count = sheet.integer("chunked_cross_entropy_num_chunks", into="pieces of the loss")
    if on is not None and on.value:
        sheet.draft.put("loss_chunks", count or Given(8, on.file, on.line))


def _exchange(sheet: Sheet) -> None:
    """``ring_attn_func``: Llama 3's gathers keys and values, the batch forms pass them round.

    Source: axolotl, "Sequence Parallelism", and utils/schemas/validation.py, 2026-12.
    """
    known = ("varlen_llama3", "batch_ring", "batch_zigzag", "batch_stripe")
    into = "exchange of context parallelism"
    named = near_text(sheet, "ring_attn_func", into=into, known=known)
    if named is not None:
        kind = "allgather" if "llama3" in named.value.lower() else "ring"
        sheet.draft.put("cp_kind", Given(kind, named.file, named.line))
    elif sheet.draft.get("cp"):
        packing = sheet.settings.get("sample_packing")
        packed = packing is not None and bool(as_boolean(packing.value))
        why = "axolotl's default ring_attn_func, " + ("varlen_llama3" if packed else "batch_ring")
        sheet.draft.assume("cp_kind", "allgather" if packed else "ring", why)


def _expert_axis(sheet: Sheet) -> None:
    """Experts lie on an axis of its own, whose devices replicate the rest: world = ep × shard."""
    draft = sheet.draft
    experts = draft.values.get("ep")
    if isinstance(experts, Given):
        copies = draft.get("dp") or 1
        draft.put("dp", Given(copies * experts.value, experts.file, experts.line))


def _ray(sheet: Sheet) -> None:
    """``use_ray``: a worker a device."""
    on = sheet.boolean("use_ray", into="Ray's workers")
    workers = sheet.integer("ray_num_workers", into="devices")
    if on is not None and on.value and workers is not None:
        sheet.draft.put("devices", workers)


def _packed(draft: Draft, settings: Mapping[str, Setting]) -> None:
    """What axolotl pads: to the sequence length with packing, to the longest without."""
    packed = settings.get("sample_packing")
    if packed is not None and as_boolean(packed.value):
        draft.note("packing", "full rows", "sample_packing fills each row to sequence_len")
