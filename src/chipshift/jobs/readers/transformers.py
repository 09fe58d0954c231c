"""Hugging Face TrainingArguments and TRL: JSON, YAML, a command line, or a script that builds it.

Keys and defaults: see ``hf_args``. A script is read through its syntax tree: the keyword arguments
of ``TrainingArguments(...)``, ``SFTConfig(...)`` and their kin, ``LoraConfig(...)``,
``from_pretrained("...")``.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs import json_lines, python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    program_words,
    put_environment,
    put_machine,
    read_launch,
    unsettled,
)
from chipshift.jobs.python_values import Absent
from chipshift.jobs.readers import deepspeed_chat
from chipshift.jobs.readers.accelerate_command import launched
from chipshift.jobs.readers.frozen_parts import put_factory_frozen
from chipshift.jobs.readers.hf_args import LENGTHS, MODELS, fill, put_ignored, stack_of
from chipshift.jobs.readers.hf_sharding import take
from chipshift.jobs.readers.llamafactory import put_factory, put_length
from chipshift.jobs.readers.own_words import (
    TRL_CUTS,
    hoist,
    put_own_words,
    put_trl_defaults,
    runs_trl,
)
from chipshift.jobs.readers.preference_keys import put_configured, put_program
from chipshift.jobs.readers.program_defaults import lay_under
from chipshift.jobs.readers.ray_train import put_workers, take_workers
from chipshift.jobs.readers.script_model import put_built_model, script_model
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.recognise import is_python, own_command
from chipshift.jobs.settings import Setting, Sheet, flatten, unset_names
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

ARGUMENTS = re.compile(
    r"(?:^|\.)(?:(?:Seq2Seq|SFT|DPO|ORPO|KTO|BCO|CPO|(?:Async)?GRPO|Reward|PPO|RLOO|Online\w*|GKD)?"
    r"(?:TrainingArguments|Config))$"
)
NOT_ARGUMENTS = ("LoraConfig", "BitsAndBytesConfig", "AutoConfig", "GenerationConfig")
TELLTALES = ("--per_device_train_batch_size", "--per_gpu_train_batch_size", "--model_name_or_path")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "transformers")
    text = source.text.lstrip()
    if text.startswith("{"):
        sheet = _json(source, context, draft)
    elif not is_python(source.text) and (
        any(flag in text for flag in TELLTALES) or own_command(source.text)
    ):
        sheet = _command(source, context, draft)
    elif re.search(r"^\s*(import|from)\s+\w", text, re.M):
        sheet = _script(source, context, draft)
    else:
        sheet = yaml_sheet(source, context, draft)
        hoist(sheet)
    _rename(sheet)
    deepspeed_chat.translate(sheet.settings, draft)
    put_workers(sheet)
    fill(sheet, context)
    draft.assume("stack", stack_of(draft), "Hugging Face's Trainer has no calibration of its own")
    put_ignored(sheet)
    sheet.close("Transformers")
    return draft


def _rename(sheet: Sheet) -> None:
    """Dashes for underscores (``--model-name-or-path``), and one common table for all."""
    for key in [key for key in sheet.settings if "-" in key]:
        sheet.settings.setdefault(key.replace("-", "_"), sheet.settings.pop(key))


def _json(source: Source, context: Context, draft: Draft) -> Sheet:
    tree, lines = json_lines.parse(source)
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table of keys; expected training arguments")
    settings = flatten(tree, source.path, lines)
    context.overrides.lay_over(settings)
    sheet = Sheet(settings, draft)
    hoist(sheet)
    return sheet


def _command(source: Source, context: Context, draft: Draft) -> Sheet:
    """A shell script whose last and fullest command has the Trainer's arguments."""
    launch = read_launch(source, context)
    best: dict[str, Setting] = {}
    starting: Command | None = None
    for command in launch.found.commands:
        if command.words and command.words[0].plain.startswith("--"):
            _say_orphan(draft, command)
            continue
        settings = as_settings(program_words(command), source.path, launch.found.environment)
        dashed = {f"--{key.replace('-', '_')}" for key in settings}
        told = dashed & set(TELLTALES) or (own_command(source.text) and {
            key.replace("-", "_") for key in settings} & {*MODELS})  # fmt: skip
        if told and len(settings) >= len(best):
            best, starting = settings, command
            put_program(draft, command, source.path)
    if not best:
        raise InputError(
            f"{source.path} starts no command with training arguments{unsettled(launch)}; expected "
            "one, or --set for the variable that leads to it"
        )
    if starting is not None:
        lay_under(best, starting, context)
    context.overrides.lay_over(best)
    keys = {key.replace("-", "_") for key in best}
    if not keys & {one.strip("-") for one in TELLTALES[:2]}:
        put_own_words(best, draft)
    words = [word.plain for word in starting.words] if starting is not None else []
    factory = bool({"stage", "finetuning_type"} <= keys or "llamafactory-cli" in words)
    if factory:
        put_factory(best, draft)
        put_length(draft, words)
    if runs_trl(words):
        plain = {key.replace("-", "_"): setting for key, setting in best.items()}
        put_trl_defaults(plain, draft, cuts=not {"grpo", "rloo", "online_dpo"} & {*words})
    put_machine(draft, launch)
    put_environment(draft, launch)
    _say_spmd(draft, launch)
    by = launched(starting, launch, context, source.path) if starting is not None else None
    if by is not None:
        take(draft, by)
    _written_config(best, context, launch.found.environment.files)
    sheet = Sheet(best, draft)
    if factory:
        put_factory_frozen(sheet)
    return sheet


def _say_spmd(draft: Draft, launch: Launch) -> None:
    """PyTorch/XLA's SPMD, under which one process has all of a host's chips as one device.

    Source: PyTorch/XLA, "PyTorch/XLA SPMD User Guide", 2026.
    """
    on = launch.found.environment.exported.get("XLA_USE_SPMD")
    if on is not None and on.plain not in ("", "0", "false", "False"):
        why = (
            "under SPMD a process is one device of all its chips: per_device_train_batch_size is "
            "the whole process's batch and was taken as a chip's; --set sequences_per_step=N"
        )
        draft.ignored.append(Ignored("XLA_USE_SPMD", draft.file, on.line, True, why))


def _say_orphan(draft: Draft, command: Command) -> None:
    """Arguments with no program: a comment or a lost backslash ended the command before them."""
    first = command.words[0]
    why = (
        "no program stands before it: a comment or a line without a backslash ends the command "
        "above, which gets none of these arguments"
    )
    draft.ignored.append(Ignored(first.plain[:60], draft.file, first.line, True, why))


def _written_config(settings: dict[str, Setting], context: Context, files: dict[str, str]) -> None:
    """A DeepSpeed file that the script itself writes with ``cat <<EOF`` counts as given."""
    named = settings.get("deepspeed")
    if named is None:
        return
    base = str(named.value).rsplit("/", 1)[-1]
    if base in files and base not in context.beside:
        written = Source(f"{named.file} ({base})", files[base])
        context.beside = {**context.beside, base: written}


def _script(source: Source, context: Context, draft: Draft) -> Sheet:
    module = python_tree.parse(source)
    settings: dict[str, Setting] = {}
    own_defaults = cuts = False
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        if last == "from_pretrained":
            settings.update({k: v for k, v in call.keywords.items() if k in _LOADING})
        elif last == "LoraConfig":
            settings.update({f"lora_{key}": value for key, value in call.keywords.items()})
            settings["use_lora"] = Setting(True, source.path, call.line)  # PEFT's defaults
        elif last == "ParallelismConfig":
            settings.update({f"parallelism_config.{k}": v for k, v in call.keywords.items()})
        elif last == "BitsAndBytesConfig" or (
            last not in NOT_ARGUMENTS and ARGUMENTS.search(call.name)
        ):
            settings.update(call.keywords)
            put_configured(draft, call.name, call.line)
            own_defaults = own_defaults or last.endswith("Config")
            cuts = cuts or last.removesuffix("Config") in TRL_CUTS
        elif last in TRAINERS:
            settings.update({k: v for k, v in call.keywords.items() if k in _TRAINERS_OWN})
            if last == "RewardTrainer":
                put_configured(draft, "RewardConfig", call.line)
    _say_head(draft, module)
    for key in ("deepspeed", "fsdp"):  # an argument of the script that is None by default
        if key in settings and isinstance(settings[key].value, Absent):
            del settings[key]
    _declared(settings, module, source.path)
    model = script_model(module, source.path)
    if model is not None and not put_built_model(draft, module, context):
        settings.setdefault("model_name_or_path", model)
    take_workers(settings, module)
    if not settings:
        raise InputError(
            f"{source.path} calls no TrainingArguments(...); expected a training script or config"
        )
    flat: dict[str, Setting] = {}
    for key, setting in settings.items():
        if isinstance(setting.value, dict):
            lines = {f"{key}.{k}": setting.line or 0 for k in setting.value}
            flat.update(flatten(setting.value, source.path, lines, key))
        else:
            flat[key] = setting
    context.overrides.lay_over(flat)
    draft.put("name", Given(source.path.rsplit("/", 1)[-1].removesuffix(".py"), source.path))
    if own_defaults:
        put_trl_defaults(flat, draft, cuts=cuts)
    return Sheet(flat, draft)


def _say_head(draft: Draft, module: python_tree.Module) -> None:
    """A classification head, which only a reward model's is counted as."""
    if any(call.name.endswith(("RewardTrainer", "RewardConfig")) for call in module.calls):
        return
    why = "a classification head: the vocabulary's is counted in its place"
    for call in module.calls:
        if call.name.endswith("ForSequenceClassification.from_pretrained"):
            draft.ignored.append(Ignored(call.name, draft.file, call.line, True, why))


def _declared(settings: dict[str, Setting], module: python_tree.Module, path: str) -> None:
    """The length that the script's own arguments declare, where nothing it calls is given one."""
    if any(_told(settings[key]) for key in LENGTHS if key in settings):
        return
    for key in LENGTHS:
        value = module.arguments.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            settings[key] = Setting(value, path)
            return


def _told(setting: Setting) -> bool:
    return setting.value is not None and not unset_names(setting.value)


TRAINERS = ("SFTTrainer", "DPOTrainer", "KTOTrainer", "ORPOTrainer", "RewardTrainer")
_TRAINERS_OWN = ("max_seq_length", "max_length", "packing")
"""What TRL's trainers took themselves before their configurations did (TRL 0.7 to 0.12, 2024)."""
_LOADING = ("torch_dtype", "dtype", "attn_implementation", "load_in_4bit", "load_in_8bit")
