"""Megatron-LM's arguments in YAML: ``--yaml-cfg``, test and model-zoo files.

Two layouts of the same arguments: ``language_model:`` and ``model_parallel:`` with Megatron
Core's fields, or all of them at the top; and ``MODEL_ARGS:`` or ``ARGS:`` with one key an argument.
Off and unset switches are as if they were not there; Primus's modules are in ``primus_megatron``.

FlagScale has the arguments in sections (``system:``, ``model:``, ``data:``).

Layouts: NVIDIA, Megatron-LM, examples/gpt3/gpt_config.yaml, megatron/training/yaml_arguments.py
and tests/functional_tests/test_cases, 2026, and Megatron-MoE-ModelZoo, model_configs, 2026; BAAI,
FlagScale, examples/*/conf/train, 2026.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError, slipped
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.launch import PORTING, QUIET
from chipshift.jobs.readers import megatron, primus
from chipshift.jobs.readers.megatron_core import PASSED, RENAMED
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, as_number, unknown
from chipshift.jobs.source import Source

_ARGUMENTS = re.compile(r"(?:MODEL_ARGS|ARGS)\.(?:--)?")
_CORE = re.compile(r"(?:language_model|model_parallel)\.")
_SECTIONS = re.compile(r"(?:system|model|data)\.(?:\w+\.)*")
"""FlagScale's: arguments in sections, and in sections of those."""

SHAPE = frozenset(megatron.MODEL_KEYS) - {"max-position-embeddings", "tokenizer-*"}


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "megatron", uneven_pp=False, kv_replicated=True)
    found = yaml_sheet(source, context, draft).settings
    if "experiment.runner.backend" in found:
        return _experiment(found, draft, context)
    found = primus.settled(found, context)
    _environment(found, draft)
    core = any(_CORE.match(key) for key in found)
    listed = {k: s for k, s in found.items() if _ARGUMENTS.match(k)}
    if "model.num_layers" in found and any(key.startswith("system.") for key in found):
        listed = {_SECTIONS.sub("", key): one for key, one in found.items()}
        _widen(listed)
    settings = arguments(listed or found, draft, core)
    megatron.lay_over(settings, context.overrides)
    context.put_model(draft)
    megatron.fill(Sheet(settings, draft), context.model_named)
    return draft


def _experiment(found: dict[str, Setting], draft: Draft, context: Context) -> Draft:
    """FlagScale's experiment: nodes and devices, around the ``conf/train`` file that it names.

    Raises:
        InputError: that file is not given beside.
    """
    listed = found.get("defaults")
    parts = listed.value if listed is not None and isinstance(listed.value, list) else []
    name = next((one["train"] for one in parts if isinstance(one, dict) and "train" in one), "")
    beside = context.neighbour(f"{name}.yaml") if name else None
    if beside is None or beside.path in context.reading:
        wanted = f"{name}.yaml of its conf/train" if name else "the file of its conf/train"
        raise InputError(f"{draft.file} names its job in another file; expected {wanted} beside it")
    context.reading.append(beside.path)
    made = read(beside, context)
    context.reading.pop()
    sheet = Sheet({k: s for k, s in found.items() if k.startswith("experiment.")}, made)
    for field, key in (("nodes", "nnodes"), ("devices_per_node", "nproc_per_node")):
        made.put(field, sheet.integer(f"experiment.runner.{key}", into=field.replace("_", " ")))
    for key, setting in found.items():
        name = key.removeprefix("experiment.envs.")
        for kind, pattern in PORTING:
            if name != key and pattern.match(name) and name not in QUIET:
                made.flag(kind, name, setting.value, setting.line)
    return made


def _widen(found: dict[str, Setting]) -> None:
    """FlagScale's ``multiple_of``: 8/3 of the width, times a factor, up to a multiple."""
    step, width = found.pop("multiple_of", None), found.get("hidden_size")
    factor = found.pop("hidden_dim_multiplier", None)
    every = as_integer(step.value) if step is not None else None
    hidden = as_integer(width.value) if width is not None else None
    if step is None or not every or not hidden or found.get("ffn_hidden_size") is not None:
        return
    wide = int(int(4 * hidden * 2 / 3) * ((as_number(factor.value) or 1) if factor else 1))
    found["ffn_hidden_size"] = Setting(-(-wide // every) * every, step.file, step.line)


def arguments(found: dict[str, Setting], draft: Draft, core: bool = False) -> dict[str, Setting]:
    """Keys as Megatron-LM's arguments; what is off or unset is listed as that and left out.

    Args:
        core: the keys are Megatron Core's fields, where ``num_query_groups`` alone groups queries.

    Raises:
        InputError: a key is one slip of the keyboard away from one that is read and missing.
    """
    settings: dict[str, Setting] = {}
    fields = {key: _CORE.sub("", _ARGUMENTS.sub("", key)) for key in found}
    missing = sorted((PASSED | RENAMED.keys()) - set(fields.values()))
    for key, setting in found.items():
        field = fields[key]
        if "_" in field and field not in PASSED and field not in RENAMED:
            meant = next((known for known in missing if slipped(field, known)), "")
            if meant and setting.file != "--set":
                raise unknown(field, setting, meant)
        name = RENAMED.get(field, field.replace("_", "-"))
        value = setting.value
        if name == "add-bias-linear" and as_boolean(value) is False:
            name, value = "disable-bias-linear", True
        elif name == "gated-linear-unit" and as_boolean(value):
            name = "swiglu"
        elif name == "activation-func" and isinstance(value, str):
            name, value = value.replace("_", "-"), True
        elif name == "window-size" and isinstance(value, list):
            value = str(tuple(value))
        elif name in ("moe-layer-freq", "window-attn-skip-freq") and isinstance(value, list):
            value = str(value)
        if value is None or value in ("", {}) or is_off(value):
            why = "off or not set"
            draft.ignored.append(Ignored(key, setting.file, setting.line, False, why))
            continue
        settings[name] = Setting(value, setting.file, setting.line)
        if core and name == "num-query-groups":
            settings["group-query-attention"] = Setting(True, setting.file, setting.line)
    scale = settings.get("initial-loss-scale")
    if scale is not None and "fp16" not in settings:
        why = "the loss is scaled under fp16 alone"
        ignored = Ignored("initial_loss_scale", scale.file, scale.line, False, why)
        draft.ignored.append(ignored)
        del settings["initial-loss-scale"]
    return settings


def is_off(value: object) -> bool:
    """False in any spelling but 0, which may count something."""
    return value is False or (isinstance(value, str) and value.lower() in ("false", "null", "none"))


def _environment(found: dict[str, Setting], draft: Draft) -> None:
    """``ENV_VARS``: what a port must replace."""
    for key, setting in found.items():
        name = key.removeprefix("ENV_VARS.")
        for kind, pattern in PORTING:
            if name != key and pattern.match(name):
                draft.flag(kind, name, setting.value, setting.line)
