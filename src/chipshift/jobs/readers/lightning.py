"""Lightning: a script that builds a ``Trainer(...)`` or ``Fabric(...)``, read through its syntax
tree; the YAML of LightningCLI and Hydra; a command with the Trainer's arguments.

Arguments and defaults: see ``lightning_keys``.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.python_program import imported_beside, parse_program
from chipshift.jobs.python_tree import Call, Module, Unknown
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.lightning_keys import (
    ACCUMULATION,
    LENGTHS,
    STRATEGIES,
    fill_trainer,
    say_own,
)
from chipshift.jobs.readers.program_files import read_by
from chipshift.jobs.readers.ray_train import take_workers
from chipshift.jobs.readers.script_model import put_built_model, script_model
from chipshift.jobs.settings import Setting, Sheet, as_integer, unset_names
from chipshift.jobs.source import Source

_OPTIMIZER = re.compile(r"(?:^|\.)(\w*Adam\w*|SGD|Lion\w*|Adafactor|\w*Lamb|Muon)$")
_CALLERS = re.compile(r"(?:token(?:izer)?|encode\w*|batch_encode_plus|connect)$|Data(?!Loader)")
_REMAT = ("gradient_checkpointing_enable", "apply_activation_checkpointing")
_CONSTANTS = ("global_batch_size", "micro_batch_size", "batch_size", "train_batch_size")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    if not re.search(r"^[ \t]*(?:import|from)[ \t]+\w", source.text, re.M):
        from chipshift.jobs.readers import lightning_config

        return lightning_config.read(source, context)
    draft = Draft(source.path, "lightning")
    settings, module = _of_script(source, context)
    context.overrides.lay_over(settings)
    sheet = Sheet(settings, draft)
    named = sheet.raw("model")
    if not put_built_model(draft, module, context) and named is not None:
        sheet.record(*named, "model")
        if not context.model_named:
            put_model_named(draft, str(named[1].value), named[1])
    fill_trainer(sheet, context)
    why = "the adapter's weights alone are trained; full fine-tuning was taken"
    sheet.ignore(("adapter_alone",), True, why)
    _say_callbacks(draft, module)
    searched = "Lightning searches the batch by it: the one that is stated was taken"
    sheet.ignore(("auto_scale_batch_size",), True, searched)
    say_own(sheet)
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    sheet.close("Lightning")
    return draft


_CALLBACKS = {
    "BatchSizeFinder": "searches the batch: the one that is stated was taken",
    "GradientAccumulationScheduler": "changes the accumulation as training goes: it is not read",
    "BaseFinetuning": "freezes a part of the model for a time: all of it was taken as trained",
    "BackboneFinetuning": "freezes a part of the model for a time: all of it was taken as trained",
}
"""Lightning's callbacks that change a step (Lightning, "Callback" reference, 2026)."""


def _say_callbacks(draft: Draft, module: Module) -> None:
    for call in module.calls:
        why = _CALLBACKS.get(call.name.rsplit(".", 1)[-1])
        if why is not None:
            draft.ignored.append(Ignored(call.name, draft.file, call.line, True, why))


def _of_script(source: Source, context: Context) -> tuple[dict[str, Setting], Module]:
    """A script's settings and facts, over the file of settings that it reads, if given."""
    own, named = read_by(source, context, set())
    if own:
        values = {key: one.value for key, one in own.items() if not unset_names(one.value)}
        module = parse_program(imported_beside(source, context.beside), values)
        for key in own.keys() & module.constants.keys():  # a class's default, that the file is over
            module.constants[key] = own[key]
        context.consumed |= {*named}
    else:
        module = python_tree.parse(source)
    return _settings(module, source), module


def _settings(module: Module, source: Source) -> dict[str, Setting]:
    """Keyword arguments of the Trainer or Fabric and its strategy, and what calls around them say.

    Raises:
        InputError: the script builds neither.
    """
    settings: dict[str, Setting] = {}
    model = script_model(module, source.path)
    if model is not None:
        settings["model"] = model
    built: dict[str, Setting] = {}
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        if last in ("Trainer", "Fabric"):
            settings.update(call.keywords)
            built[last] = Setting(last, source.path, call.line)
        elif last in STRATEGIES:
            settings["strategy_class"] = Setting(last, source.path, call.line)
            settings.update({f"strategy.{k}": v for k, v in call.keywords.items()})
        else:
            _around(call, last, settings, source.path)
    if not built:
        raise InputError(f"{source.path} calls no Trainer(...); expected a Lightning script")
    take_workers(settings, module)
    _block(module, settings, source.path)
    _constants(module, settings)
    return settings


def _around(call: Call, last: str, settings: dict[str, Setting], file: str) -> None:
    """A loader's batch, a tokenizer's length, the optimizer, adapters, recomputation."""
    if last == "DataLoader" and "batch_size" in call.keywords:
        settings.setdefault("batch_size", call.keywords["batch_size"])
    elif last == "DataLoader" and len(call.arguments) > 1:  # DataLoader(dataset, batch_size)
        settings.setdefault("batch_size", Setting(call.arguments[1], file, call.line))
    elif last == "LoraConfig":
        settings.update({f"lora_{key}": value for key, value in call.keywords.items()})
        settings["use_peft"] = Setting(True, file, call.line)
    elif last == "BitsAndBytesConfig":
        settings.update({k: v for k, v in call.keywords.items() if k.startswith("load_in_")})
    elif last in _REMAT:
        settings["gradient_checkpointing"] = Setting(True, file, call.line)
    elif last == "mark_only_adapter_as_trainable":
        settings["adapter_alone"] = Setting(True, file, call.line)
    elif match := _OPTIMIZER.search(call.name):
        settings.setdefault("optimizer", Setting(match.group(1), file, call.line))
    elif (last in ("from_name", "from_file") and {"lora_r", "r"} & call.keywords.keys()) or (
        call.name == "lora" and "r" in call.keywords  # lit-llama's context
    ):
        from chipshift.jobs.readers.litgpt import lora_settings

        settings.update(lora_settings(call.keywords))
    elif _CALLERS.search(last):
        for key in (*LENGTHS, "batch_size", "train_batch_size"):
            known = call.keywords.get(key)
            if known is not None and not isinstance(known.value, Unknown):
                name = "batch_size" if key.endswith("batch_size") else key
                settings.setdefault(name, known)


def _block(module: Module, settings: dict[str, Setting], file: str) -> None:
    """A length that is the model's own: ``block_size=config.block_size``."""
    llama = any(call.name.startswith("LLaMA") for call in module.calls)
    for call in module.calls:
        known = call.keywords.get("block_size")
        if known is not None and str(known.value).endswith("config.block_size"):
            later = settings.get("block_size")
            if later is not None and later.line is not None and later.line > call.line:
                del settings["block_size"]  # of the data that it is tested on
            word = "LLaMA's block_size" if llama else "block_size"
            settings["model_block_size"] = Setting(word, file, known.line)


def _constants(module: Module, settings: dict[str, Setting]) -> None:
    """What the script calls its batch and length, where no call says it better."""
    unknown = [k for k in ("batch_size", *LENGTHS) if isinstance(_value(settings, k), Unknown)]
    names = (*_CONSTANTS, *ACCUMULATION, *LENGTHS)
    tables = _tables(module)
    for name in names:
        for spelling in (name, name.upper()):
            known = module.constants.get(spelling) or tables.get(spelling)
            if known is None or isinstance(known.value, (Unknown, list, dict)):
                continue
            target = "batch_size" if name == "train_batch_size" else name
            if target in LENGTHS and any(k in settings for k in (*LENGTHS, "model_block_size")):
                continue
            settings.setdefault(target, known)
    if "batch_size" in unknown and "micro_batch_size" in settings:
        settings.pop("batch_size")
    micro, whole = settings.get("micro_batch_size"), module.constants.get("batch_size")
    if micro is not None and not {"global_batch_size", *ACCUMULATION} & settings.keys():
        each, all_of_them = as_integer(micro.value), as_integer(whole.value if whole else None)
        if whole is not None and each and all_of_them and all_of_them > each:
            steps_of_it = Setting(all_of_them // each, whole.file, whole.line)
            settings["gradient_accumulation_steps"] = steps_of_it  # batch_size // micro_batch_size
    if micro is not None:
        settings.pop("batch_size", None)  # of a device between two optimizer steps
    steps = settings.get("accumulate_grad_batches")
    if isinstance(steps and steps.value, (Unknown, dict)) and "global_batch_size" in settings:
        settings.pop("accumulate_grad_batches")


def _tables(module: Module) -> dict[str, Setting]:
    """Entries of the script's own tables of settings (``config = {"batch_size": 32, ...}``), and
    what it gives the configuration of a model of its own.
    """
    found: dict[str, Setting] = {}
    for setting in module.constants.values():
        if isinstance(setting.value, dict):
            for key, value in setting.value.items():
                found.setdefault(str(key), Setting(value, setting.file, setting.line))
    for call in module.calls:
        if re.search(r"Config$|Args$|Hyper\w*Params?$", call.name):
            for key in LENGTHS:
                if key in call.keywords:
                    found.setdefault(key, call.keywords[key])
    return found


def _value(settings: dict[str, Setting], key: str) -> object:
    found = settings.get(key)
    return None if found is None else found.value
