"""NeMo 1's engines: torch FSDP, its distributed Adam, and keys that are said to be left out.

Source: NVIDIA, NeMo 2.4, nemo/collections/nlp/parts/nlp_overrides.py (``NLPFSDPStrategy``),
models/language_modeling/megatron_base_model.py (``setup_optimization``) and
examples/nlp/language_modeling/conf, 2025.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Assumed, Given, Ignored
from chipshift.jobs.settings import Sheet, as_boolean
from chipshift.jobs.unknown_keys import bears

REMAINDERS_WHY = (
    "distributed_fused_adam keeps of each fp32 master weight the 16 bits that its bf16 weight lacks"
)
PARTIAL = "layers of some microbatches are kept; all are taken as recomputed"
SAID = {
    "model.num_micro_batches_with_partial_activation_checkpoints": PARTIAL,
    "model.activations_checkpoint_layers_per_pipeline": PARTIAL,
    "model.kd_teacher_restore_from_path": "the teacher's passes are not in the numbers",
    "model.drop_layers": "layers that are left out are counted",
    "model.hyena.order": "layers other than attention and feed-forward are not read",
}
"""Keys that bear on a step and are not read."""
OFF = ("none", "null", "false", "", "0", "[]")


def put_engine(sheet: Sheet) -> None:
    """What shards the weights, what the optimizer keeps, and what waits on the host."""
    sheet.flag("cpu_offload", "model.cpu_offloading")
    on = sheet.boolean("model.fsdp", into="PyTorch FSDP")
    if on is not None and on.value:
        _fsdp(sheet, on)
        return
    _adam(sheet)


def _fsdp(sheet: Sheet, on: Given[bool]) -> None:
    """Weights in fp32 over the data-parallel devices, gathered in half precision."""
    draft = sheet.draft
    kinds = ("full", "grad", "hybrid")
    kind = sheet.text("model.fsdp_sharding_strategy", into="what is sharded", choices=kinds)
    reduced = sheet.text("model.fsdp_grad_reduce_dtype", into="dtype of the gradient reduction")
    draft.values.pop("dp", None)
    draft.values.pop("optimizer_sharding", None)
    half = draft.get("compute") if draft.get("compute") in ("bf16", "fp16") else "fp32"
    why = "FSDP keeps fp32 shards and gathers in the precision of the matmuls"
    if kind is not None and kind.value == "grad":
        draft.open_axis = "dp"
        draft.put("dp", Given(1, on.file, on.line))
        draft.put("optimizer_sharding", Given("zero2", kind.file, kind.line))
        held = {"weights": half, "gather": "", "master": "fp32"}
    else:
        draft.open_axis = "fsdp"
        draft.put("fsdp", Given(1, on.file, on.line))
        held = {"weights": "fp32", "gather": half, "master": "none"}
    moved = (dtype_of(reduced.value) if reduced is not None else None) or "fp32"
    held |= {"gradients": "fp32", "moments": "fp32", "reduce": moved}
    for field, dtype in held.items():
        draft.put(field, Assumed(dtype, why))


def _adam(sheet: Sheet) -> None:
    """The state of ``distributed_fused_adam`` beside weights held in bf16."""
    draft = sheet.draft
    name = sheet.settings.get("model.optim.name")
    if name is None or "distributed" not in str(name.value) or draft.get("weights") != "bf16":
        return
    told = sheet.text("model.optim.dtype", into="dtype of the optimizer's state")
    kept = dtype_of(told.value) if told is not None else "fp32"
    if kept == "bf16" and told is not None:
        draft.put("moments", Given("bf16", told.file, told.line))
        draft.put("master", Assumed("none", "the optimizer's state has the dtype of the weights"))
    elif draft.get("master") == "fp32" and not any(f.kind == "fp8_params" for f in draft.flags):
        draft.put("master", Assumed("bf16", REMAINDERS_WHY))


@cache
def own() -> frozenset[str]:
    """Last words of the keys in NeMo 1's own configurations of decoders."""
    text = (Path(__file__).parent / "nemo_keys.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def say_unread(sheet: Sheet) -> None:
    """Keys that bear on a step and are not read, and those of a fork by their names."""
    draft = sheet.draft
    taken = {entry.key for entry in draft.ignored} | {one.key for one in draft.understood}
    for key, setting in sheet.settings.items():
        if setting.file == "--set" or key in sheet.taken:
            continue
        table, last = key.split(".", 1)[0], key.rsplit(".", 1)[-1]
        if key in SAID and str(setting.value).lower() not in OFF:
            draft.ignored.append(Ignored(key, setting.file, setting.line, True, SAID[key]))
        elif (
            table in ("model", "trainer")
            and key.count(".") == 1
            and last not in own()
            and not {key, last, last.replace("_", "-")} & taken
            and not draft.known & {key}
            and as_boolean(setting.value) is not False
            and bears(last, setting.value)
        ):
            why = "not known as a key of NeMo: what it changes is not in the numbers"
            draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))
