"""A training loop of a program's own: what its calls say, in the Trainer's words.

Accelerate's ``Accelerator(...)``, ``deepspeed.initialize``, PyTorch's FSDP, DDP, autocast and
optimizers, a loader's batch and a tokenizer's length.

Sources: Hugging Face, Accelerate, "Accelerator" reference, 2026; DeepSpeed, "Training API", 2026;
PyTorch, "FullyShardedDataParallel", "Automatic Mixed Precision" and "torch.optim" pages, 2026.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.optimizers import optimizer_named
from chipshift.jobs.python_values import Call, Module, Unknown
from chipshift.jobs.readers.hf_args import LENGTHS
from chipshift.jobs.settings import Setting, Sheet

TRAINS = re.compile(r"\.backward$|\.step$|^loss\.backward|\.fit$")
_HELD_OUT = re.compile(r"val|eval|test|dev_", re.I)
_OPTIM = re.compile(r"(?:^|\.)(?:optim|optimizers?|bnb|apex|adam)\.|^[A-Z]\w*$")
_CUTTING = re.compile(r"token|collat|dataset|dataloader|loader|pack|chunk|group|prepar", re.I)
_LENGTH_WORDS = (*LENGTHS, "max_len", "seqlen", "context_length", "context_len", "ctx_len")


DEGREES = {
    "tp": ("tensor_parallel_size", "tensor_model_parallel_size", "model_parallel_size", "tp_size",
           "tp_degree", "tp"),
    "pp": ("pipeline_parallel_size", "pipeline_model_parallel_size", "pipe_parallel_size",
           "pp_size", "pp_degree", "pp"),
    "cp": ("context_parallel_size", "seq_parallel_size", "sp_size", "cp_size", "cp"),
}  # fmt: skip
"""What programs call the devices that a layer, the layers or a sequence are cut over."""


def put_own_degrees(sheet: Sheet) -> None:
    """Degrees by the program's own words for them; each is said."""
    draft = sheet.draft
    for field, names in DEGREES.items():
        known = [name for name in names if name in sheet.settings]
        if not known or draft.given(field):
            continue
        size = sheet.integer(*known, into=field, low=0, none=(0, -1, None))
        if size is not None and size.value > 1:
            draft.put(field, size)
            draft.note(field, size.value, f"the program's own --{known[0]}, taken as {field}")


def trains(module: Module) -> bool:
    """Whether a program goes backward and updates its weights itself."""
    names = {call.name for call in module.calls}
    builds = {name.rsplit(".", 1)[-1] for name in names} & {"Accelerator", "DeepSpeedPlugin"}
    return bool(builds) or any(
        name.endswith((".backward", "deepspeed.initialize")) for name in names
    )


def loop_settings(module: Module, draft: Draft) -> dict[str, Setting]:
    """The Trainer's words for what a loop's calls say; nothing where they say nothing."""
    found: dict[str, Setting] = {}
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        place = call.file or draft.file
        if last == "Accelerator":
            _accelerator(found, call)
        elif last in ("FullyShardedDataParallel", "FSDP"):
            _fsdp(found, call, module, place)
        elif last == "fully_shard":
            found.setdefault("fsdp", Setting("full_shard auto_wrap", place, call.line))
        elif last in ("DistributedDataParallel", "DDP"):
            found.setdefault("_ddp", Setting(True, place, call.line))
        elif call.name.endswith("deepspeed.initialize"):
            _deepspeed(found, call, place)
        elif last == "DeepSpeedPlugin":
            named = call.keywords.get("hf_ds_config")
            if named is not None and isinstance(named.value, str):
                found["deepspeed"] = named
        elif last == "autocast":
            _autocast(found, call, place)
        elif last in ("to", "bfloat16", "half") and "model" in call.name.lower():
            _held(found, call, last, place)
        elif _optimizer(call):
            found.setdefault("optim", Setting(last, place, call.line))
    put_loader(found, module)
    return found


def _accelerator(found: dict[str, Setting], call: Call) -> None:
    mixed = call.keywords.get("mixed_precision")
    if mixed is not None and (half := dtype_of(str(mixed.value))) and half != "fp32":
        found[half] = Setting(True, mixed.file, mixed.line)
    steps = call.keywords.get("gradient_accumulation_steps")
    if steps is not None and not isinstance(steps.value, Unknown):
        found["gradient_accumulation_steps"] = steps


def _fsdp(found: dict[str, Setting], call: Call, module: Module, place: str) -> None:
    strategy = call.keywords.get("sharding_strategy")
    word = str(strategy.value).rsplit(".", 1)[-1].lower() if strategy is not None else ""
    known = word if word in _STRATEGIES else "full_shard"
    wraps = " auto_wrap" if "auto_wrap_policy" in call.keywords or call.splats else ""
    found["fsdp"] = Setting(f"{known}{wraps}", place, call.line)
    for other in module.calls:
        if other.name.rsplit(".", 1)[-1] in ("MixedPrecision", "MixedPrecisionPolicy"):
            dtype = other.keywords.get("param_dtype")
            if dtype is not None and (half := dtype_of(str(dtype.value))) and half != "fp32":
                found[half] = Setting(True, dtype.file, dtype.line)


_STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "_hybrid_shard_zero2")


def _deepspeed(found: dict[str, Setting], call: Call, place: str) -> None:
    """``deepspeed.initialize(config="ds.json")``, or a table written out."""
    named = call.keywords.get("config") or call.keywords.get("config_params")
    if named is None:
        return
    if (isinstance(named.value, str) and not isinstance(named.value, Unknown)) or isinstance(
        named.value, dict
    ):
        found["deepspeed"] = named


def _autocast(found: dict[str, Setting], call: Call, place: str) -> None:
    """``torch.autocast("cuda", dtype=torch.bfloat16)``; CUDA's own default is fp16."""
    off = call.keywords.get("enabled")
    if off is not None and off.value is False:
        return
    parts: list[Any] = [*call.arguments]
    if "dtype" in call.keywords:
        parts.append(call.keywords["dtype"].value)
    half = next((d for one in parts if (d := dtype_of(str(one))) in ("bf16", "fp16")), None)
    unknown = any(isinstance(one, Unknown) and "type" in str(one) for one in parts)
    if half is None and ("dtype" in call.keywords or unknown):
        return
    found.setdefault(half or "fp16", Setting(True, place, call.line))


def _held(found: dict[str, Setting], call: Call, last: str, place: str) -> None:
    """``model.to(torch.bfloat16)``, ``model.half()``."""
    told = {"bfloat16": "bf16", "half": "fp16"}.get(last)
    parts = [*call.arguments, *(one.value for one in call.keywords.values())]
    told = told or next((d for one in parts if (d := dtype_of(str(one)))), None)
    if told is not None:
        found["torch_dtype"] = Setting(told, place, call.line)


def _optimizer(call: Call) -> bool:
    if not _OPTIM.search(call.name) or ("." in call.name and call.name[0] == "_"):
        return False
    known = optimizer_named(call.name.rsplit(".", 1)[-1])
    given = bool(call.arguments) or bool({"params", "lr"} & call.keywords.keys())
    return known is not None and given


_DIVIDED = re.compile(
    r"\b(?:args|cfg|config|self|hparams|opt)?\.?(\w*batch_size|bsz?)[ \t]*//?[ \t]*\(?[\w. *()]*"
    r"(?:world_size|num_processes|num_gpus|n_gpus?|device_count|get_world_size)"
)


def divided_batch(text: str) -> str:
    """The argument that a program divides over its devices (``args.batch_size // world_size``)."""
    found = _DIVIDED.search(text)
    return found.group(1) if found else ""


def put_loader(found: dict[str, Setting], module: Module) -> None:
    """The training loader's batch; the one length that tokenizing and collating are given."""
    lengths: dict[int, Setting] = {}
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        held_out = _HELD_OUT.search(call.name) or any(
            _HELD_OUT.search(str(one)) for one in call.arguments[:1] if isinstance(one, Unknown)
        )
        if last == "DataLoader" and not held_out and "batch_size" in call.keywords:
            batch = call.keywords["batch_size"]
            if isinstance(batch.value, int):
                found.setdefault("per_device_train_batch_size", batch)
        if held_out or not (_CUTTING.search(call.name) or last == "partial"):
            continue
        for key in _LENGTH_WORDS:
            setting = call.keywords.get(key)
            if setting is not None and type(setting.value) is int and setting.value >= 16:
                lengths.setdefault(setting.value, setting)
            elif setting is not None and str(setting.value).endswith("max_position_embeddings"):
                found["_positions"] = setting
    if len(lengths) == 1:
        found["_length"] = next(iter(lengths.values()))
