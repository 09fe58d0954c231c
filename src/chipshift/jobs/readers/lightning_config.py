"""Lightning's settings outside a script: LightningCLI's and Hydra's YAML, and a command line.

Sources: Lightning, "Configure hyperparameters from the CLI" (``class_path`` and ``init_args``),
2026; Hydra, "Instantiating objects" (``_target_``), 2025.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import (
    as_settings,
    program_words,
    put_environment,
    put_machine,
    read_launch,
)
from chipshift.jobs.readers.hf_args import MODELS, put_model_named
from chipshift.jobs.readers.lightning_keys import LENGTHS, fill_trainer, say_own
from chipshift.jobs.readers.preference_keys import put_class
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source

COMMAND = re.compile(
    r"--(?:accumulate_grad_batches|trainer\.\w+)\b|--strategy[ =]+\"?(?:deepspeed|ddp|fsdp)"
)
"""Arguments of a command that tell Lightning's Trainer."""

_CLASS = re.compile(r"^(?:(?:trainer|fabric)\.)?strategy\.(?:class_path|_target_)$")
_NAMES = ("pretrained_model_name_or_path", "pretrained_model_path", "pretrained_model_name",
          "pretrained_name", "hf_path", "hf_model", "hf_model_name", "hf_model_path",
          "model_type", *MODELS)  # fmt: skip
RECOMPUTES = ("gradient_checkpointing", "enable_gradient_checkpointing",
              "use_gradient_checkpointing", "activation_checkpointing")  # fmt: skip
"""What modules call the switch that recomputes each layer."""

_BATCHES = ("batch_size", "train_batch_size", "train_batchsize", "per_device_batch_size")


def read(source: Source, context: Context) -> Draft:
    """Read one YAML file or script; see ``readers/__init__``."""
    draft = Draft(source.path, "lightning")
    if COMMAND.search(source.text) and not re.search(r"^trainer:", source.text, re.M):
        sheet = _command(source, context, draft)
    else:
        sheet = yaml_sheet(source, context, draft)
    renamed = _rename(sheet)
    _model(sheet, context)
    _loss(sheet)
    fill_trainer(sheet, context)
    for old, new in renamed.items():
        if new in draft.reached:
            draft.reached.add(old)
        draft.known.add(old)
    own = ("*model_parallel*", "*tensor_parallel*", "*pipeline_parallel*")
    sheet.ignore(own, True, "not an argument of Lightning's Trainer; --set tp=N says it")
    say_own(sheet)
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    sheet.close("Lightning")
    return draft


def _command(source: Source, context: Context, draft: Draft) -> Sheet:
    launch = read_launch(source, context)
    best: dict[str, Setting] = {}
    for command in launch.found.commands:
        settings = as_settings(program_words(command), source.path, launch.found.environment)
        told = any(COMMAND.match(f"--{key} {value.value}") for key, value in settings.items())
        if told and len(settings) >= len(best):
            best = settings
    if not best:
        raise InputError(
            f"{source.path} starts no command with the Trainer's arguments; expected one, or "
            "--set for the variable that leads to it"
        )
    context.overrides.lay_over(best)
    put_machine(draft, launch)
    put_environment(draft, launch)
    _written_deepspeed(best, launch.found.environment.files, context, source.path)
    return Sheet(best, draft)


def _written_deepspeed(
    settings: dict[str, Setting], files: dict[str, str], context: Context, file: str
) -> None:
    """A DeepSpeed file that the script writes: Lightning takes it by an environment variable."""
    for name, text in files.items():
        if '"zero_optimization"' in text:
            context.beside = {**context.beside, name: Source(f"{file} ({name})", text)}
            settings.setdefault("ds_config", Setting(name, file))
            settings.setdefault("strategy", Setting("deepspeed", file))


def _rename(sheet: Sheet) -> dict[str, str]:
    """The Trainer's own words in place of the file's paths to them; {path: word}."""
    renamed: dict[str, str] = {}
    for key, setting in list(sheet.settings.items()):
        new = _word(key)
        if new == key or new in sheet.settings or setting.value is None:
            continue
        value = setting.value
        if new == "strategy_class":
            value = str(value).rsplit(".", 1)[-1]
        del sheet.settings[key]
        sheet.settings[new] = Setting(value, setting.file, setting.line)
        renamed[key] = new
    if str(getattr(sheet.settings.get("strategy"), "value", "")).startswith(("{", "$")):
        del sheet.settings["strategy"]
    return renamed


def _loss(sheet: Sheet) -> None:
    """The loss that the module's class is named after: ``class_path: package.DPO``."""
    for key, setting in sheet.settings.items():
        if re.fullmatch(r"(?:model|module|lightning_module)\.(?:class_path|_target_)", key):
            put_class(sheet.draft, str(setting.value), setting.line)
            return


def _word(key: str) -> str:
    parts = key.split(".")
    last = parts[-1]
    if _CLASS.match(key):
        return "strategy_class"
    if parts[0] in ("trainer", "fabric") and len(parts) == 2:
        return last
    if "strategy" in parts[:2] and len(parts) > 2:
        return f"strategy.{last}"
    if re.fullmatch(r"(?:.*\.)?optim(?:izer)?(?:\.init_args)?\.(?:class_path|_target_|name)", key):
        return "optimizer"
    if last in ("optimizer_class", "optimizer_name") and len(parts) > 1:
        return "optimizer"
    if last in RECOMPUTES and len(parts) > 1 and parts[0] not in ("trainer", "data"):
        return "gradient_checkpointing"
    if last in _BATCHES and (len(parts) == 1 or not re.match(r"eval|val|test|model", parts[0])):
        return "batch_size"
    if last == "global_batch_size":
        return last
    if last in LENGTHS and len(parts) > 1:
        return last
    return key


def _model(sheet: Sheet, context: Context) -> None:
    for key, setting in list(sheet.settings.items()):
        parts = key.split(".")
        inside = len(parts) == 1 or parts[0] in ("model", "module", "lightning_module", "backbone")
        if inside and parts[-1] in _NAMES and isinstance(setting.value, str):
            sheet.raw(key)
            sheet.record(key, setting, "model")
            if not context.model_named:
                put_model_named(sheet.draft, setting.value.rstrip("/"), setting)
            return
    classes = [
        (key, str(setting.value))
        for key, setting in sheet.settings.items()
        if re.fullmatch(r"(?:.*\.)?(?:class_path|_target_|_name_)", key)
    ]
    inner = [value for key, value in classes if re.search(r"backbone|network|\bnet\b", key)]
    outer = [value for key, value in classes if key.split(".")[0] in ("model", "module")]
    sheet.draft.wanted_model = next(iter(inner or outer), "")[:120]
