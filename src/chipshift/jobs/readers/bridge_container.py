"""Megatron-Bridge's ``run_config.yaml``: the whole configuration as a run or a conversion keeps it.

Tables and fields: NVIDIA, Megatron-Bridge, src/megatron/bridge/training/config.py (ConfigContainer)
and models/gpt_provider.py, 2026-08. A table that is null was left to the run; a class stands as
``_target_``.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.bridge_shape import SHAPE, as_arguments, put_shape
from chipshift.jobs.readers.megatron_core import BLOCKWISE, fill, pass_on, put_precision
from chipshift.jobs.readers.nemo_library import MAPS
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, as_boolean
from chipshift.jobs.source import Source
from chipshift.models.lora import ALL_LINEAR, Lora

TABLES = ("model", "train", "ddp", "optimizer", "dataset")
_TOWERS = re.compile(r"vl|vision|omni|audio|llava|mimo|mamba|hybrid|diffusion|flux|wan", re.I)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``.

    Raises:
        InputError: it holds no batch, as a converted checkpoint's does not.
    """
    draft = Draft(source.path, "megatron-bridge", uneven_pp=False)
    found = yaml_sheet(source, context, draft).settings
    padded = found.get("model.should_pad_vocab")
    draft.pads_vocab = padded is not None and as_boolean(padded.value) is True
    settings: dict[str, Setting] = {}
    for key, setting in found.items():
        table, _, field = key.partition(".")
        if table in TABLES:
            _put(settings, table, field, setting)
    _precision(settings, found)
    as_arguments(settings)
    _adapters(draft, found)
    made = found.get("model._target_")
    if made is not None and _TOWERS.search(str(made.value).rsplit(".", 1)[-1]):
        draft.wanted_model = str(made.value).rsplit(".", 1)[-1]
    told = {key.replace("_", "-").rsplit(".", 1)[-1] for key in context.overrides.given}
    if not {"micro-batch-size"} & {*settings, *told}:
        raise InputError(
            f"{source.path} is a configuration of Megatron-Bridge without train.micro_batch_size, "
            "as a converted checkpoint keeps it; expected the run's own, or --set "
            "micro_batch_size=N with global_batch_size=N"
        )
    fill(settings, draft, context)
    return draft


def _put(settings: dict[str, Setting], table: str, field: str, setting: Setting) -> None:
    """One field of a table, as the argument that it equals."""
    if field.endswith("._target_") and str(setting.value).startswith("torch."):
        field = field.removesuffix("._target_")  # a dtype
        setting = Setting(str(setting.value).removeprefix("torch."), setting.file, setting.line)
    if "." in field or field == "_target_":
        return
    if table == "model" and field in SHAPE:
        put_shape(settings, field, setting)
    elif table == "ddp" and field == "grad_reduce_in_fp32":
        if as_boolean(setting.value) is False:
            settings["grad-reduce-in-bf16"] = Setting(True, setting.file, setting.line)
    elif field == "optimizer":
        settings["optimizer"] = setting
    elif table == "dataset" and field not in ("seq_length", "sequence_length"):
        return
    elif table != "model" or not field.endswith("_dtype"):
        pass_on(settings, field, setting)


def _precision(settings: dict[str, Setting], found: dict[str, Setting]) -> None:
    """``mixed_precision``, by its name or by its fields, and the model's own fp8."""
    named = found.get("mixed_precision")
    if named is not None and isinstance(named.value, str):
        put_precision(settings, named.value, named)
    for table in ("mixed_precision", "model"):
        form, recipe = found.get(f"{table}.fp8"), found.get(f"{table}.fp8_recipe")
        if form is not None and form.value:
            settings["fp8-format"] = form
            if recipe is not None and recipe.value:
                settings["fp8-recipe"] = recipe
    for half in ("bf16", "fp16"):
        stated = found.get(f"mixed_precision.{half}")
        if stated is not None and as_boolean(stated.value):
            settings[half] = stated
    reduced = found.get("mixed_precision.grad_reduce_in_fp32")
    if reduced is not None:
        settings.pop("grad-reduce-in-bf16", None)
        if as_boolean(reduced.value) is False:
            settings["grad-reduce-in-bf16"] = Setting(True, reduced.file, reduced.line)
    kept = found.get("mixed_precision.fp8_param_gather") or found.get("model.fp8_param")
    recipe = settings.get("fp8-recipe", Setting("delayed", ""))
    low = "fp8-format" in settings and not BLOCKWISE.search(str(recipe.value))
    if kept is not None and as_boolean(kept.value) and low:
        settings["fp8-param-gather"] = Setting(True, kept.file, kept.line)


def _adapters(draft: Draft, found: dict[str, Setting]) -> None:
    """``peft``: LoRA with its rank and maps."""
    made, rank = found.get("peft._target_"), found.get("peft.dim")
    if made is None or "lora" not in str(made.value).lower():
        return
    named = found.get("peft.target_modules")
    listed = named.value if named is not None and isinstance(named.value, list) else []
    maps = tuple(own for name in listed for own in MAPS.get(str(name), (str(name),)))
    size = int(rank.value) if rank is not None and isinstance(rank.value, int) else 32
    lora = Lora(rank=size, targets=maps or (ALL_LINEAR,))
    draft.put("lora", Given(lora, made.file, made.line))
    draft.put("task", Given("lora", made.file, made.line))
