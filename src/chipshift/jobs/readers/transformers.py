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
from chipshift.jobs.readers import deepspeed_chat
from chipshift.jobs.readers.accelerate_command import launched
from chipshift.jobs.readers.frozen_parts import put_factory_frozen
from chipshift.jobs.readers.hf_args import MODELS, fill, put_ignored, stack_of
from chipshift.jobs.readers.hf_sharding import ENGINE_FILES, take
from chipshift.jobs.readers.llamafactory import put_factory, put_length
from chipshift.jobs.readers.own_loop import put_own_degrees
from chipshift.jobs.readers.own_words import (
    hoist,
    put_own_words,
    put_trl_defaults,
    runs_trl,
)
from chipshift.jobs.readers.preference_keys import put_program
from chipshift.jobs.readers.program_files import form_of, read_by
from chipshift.jobs.readers.ray_train import put_workers, take_workers
from chipshift.jobs.readers.script_calls import declared_length, recompute_as_called, take_calls
from chipshift.jobs.readers.script_model import put_built_model, script_model
from chipshift.jobs.readers.started import Started, start, start_with
from chipshift.jobs.readers.started_words import lay_program, put_started_model
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.recognise import is_python, own_command
from chipshift.jobs.settings import Setting, Sheet, flatten
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

TELLTALES = ("--per_device_train_batch_size", "--per_gpu_train_batch_size", "--model_name_or_path")

_TOLD = tuple(f"__{flag.strip('-')}" for flag in TELLTALES)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "transformers")
    text = source.text.lstrip()
    loop = False
    if text.startswith("{"):
        sheet = _json(source, context, draft)
    elif not is_python(source.text) and (
        any(flag in text.replace("-", "_") for flag in _TOLD) or own_command(source.text)
    ):
        sheet, loop = _command(source, context, draft)
    elif re.search(r"^\s*(import|from)\s+\w", text, re.M):
        sheet, loop = _script(source, context, draft)
    else:
        sheet = yaml_sheet(source, context, draft)
        hoist(sheet)
    return _finished(sheet, context, loop=loop)


def _finished(sheet: Sheet, context: Context, *, loop: bool) -> Draft:
    """The draft of a sheet in the Trainer's words; ``loop``: of a program's own loop."""
    draft = sheet.draft
    _rename(sheet)
    deepspeed_chat.translate(sheet.settings, draft)
    put_workers(sheet)
    _leave_to_engine(sheet, loop)
    fill(sheet, context, default_micro=0 if loop else 8)
    if sheet.of_program:
        put_own_degrees(sheet)
    _put_positions(sheet)
    if loop:
        _hold_as_loaded(draft)
    whose = "a program's own loop" if loop else "Hugging Face's Trainer"
    draft.assume("stack", stack_of(draft), f"{whose} has no calibration of its own")
    put_ignored(sheet)
    sheet.close("Transformers")
    return draft


def _leave_to_engine(sheet: Sheet, loop: bool) -> None:
    """A loop under DeepSpeed accumulates as often as the file's whole batch needs."""
    engine = {"deepspeed", *ENGINE_FILES} & sheet.settings.keys()
    if loop and engine and "gradient_accumulation_steps" not in sheet.settings:
        sheet.draft.accumulates_by_engine = True


def _hold_as_loaded(draft: Draft) -> None:
    """PyTorch's own FSDP shards weights as they are loaded: only Accelerate's makes them fp32.

    Source: PyTorch, "FullyShardedDataParallel", 2026; Accelerate, "FSDP" (upcasting), 2026.
    """
    loaded = draft.values.get("loaded")
    if draft.get("engine") != "fsdp" or not isinstance(loaded, Given):
        return
    if loaded.value in ("bf16", "fp16"):
        why = f"loaded in {loaded.value}, sharded so by the program's own FSDP"
        for name in ("weights", "gradients", "moments"):
            draft.assume(name, loaded.value, why)


def _put_positions(sheet: Sheet) -> None:
    """A length that the program takes from the model's config (``max_position_embeddings``)."""
    told, model = sheet.raw("_positions"), sheet.draft.get("model")
    if told is None or model is None or not model.max_positions:
        return
    if sheet.draft.get("seq_len") is None:
        why = f"{told[1].value}: the longest that the model is made for"
        sheet.draft.assume("seq_len", model.max_positions, why)


def read_alone(source: Source, context: Context) -> Draft | None:
    """A program that starts its own workers (Ray Train), with its arguments' defaults.

    Returns:
        None where it starts none, or does not train as far as can be told.
    """
    if not re.search(r"\bScalingConfig\(", source.text):
        return None
    draft = Draft(source.path, "transformers")
    started = start_with(source, {}, context, draft)
    if started is None:
        return None
    sheet = _of_program({}, started, context, draft)
    draft.note("arguments", "as the program declares them", "no command was given beside it")
    return _finished(sheet, context, loop=started.loop)


def read_started(command: Command, launch: Launch, context: Context, file: str) -> Draft | None:
    """A command whose program is given beside it and trains, whatever words it is given.

    Returns:
        None where it was not given, or does not train as far as can be told.
    """
    draft = Draft(file, "transformers")
    settings = as_settings(program_words(command), file, launch.found.environment)
    started = start(command, settings, context, draft)
    if started is None:
        return None
    sheet = _of_program(settings, started, context, draft)
    put_program(draft, command, file)
    return _finished(sheet, context, loop=started.loop)


def _of_program(
    settings: dict[str, Setting], started: Started, context: Context, draft: Draft
) -> Sheet:
    """A command's settings with its program's, in the Trainer's words."""
    lay_program(settings, started, draft)
    recompute_as_called(settings)
    _adapters_beside(settings, context, draft)
    named = put_started_model(draft, started, context)
    if named is not None and not draft.get("model"):
        for key in [key for key in settings if key.replace("-", "_") in MODELS]:
            del settings[key]
        settings["model_name_or_path"] = named
    take_workers(settings, started.module)
    put_own_words(settings, draft)
    flat = _flat(settings)
    context.overrides.lay_over(flat)
    sheet = Sheet(flat, draft)
    sheet.of_program = {*started.module.asked}
    return sheet


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


def _command(source: Source, context: Context, draft: Draft) -> tuple[Sheet, bool]:
    """A shell script whose last and fullest command has the Trainer's arguments.

    Returns:
        Its settings, and whether the program that it starts trains in a loop of its own.
    """
    launch = read_launch(source, context)
    best: dict[str, Setting] = {}
    starting: Command | None = None
    training = 0
    for command in launch.found.commands:
        if command.words and command.words[0].plain.startswith("--"):
            _say_orphan(draft, command)
            continue
        settings = as_settings(program_words(command), source.path, launch.found.environment)
        dashed = {f"--{key.replace('-', '_')}" for key in settings}
        told = dashed & set(TELLTALES) or (own_command(source.text) and {
            key.replace("-", "_") for key in settings} & {*MODELS})  # fmt: skip
        training += bool(told)
        if told and len(settings) >= len(best):
            best, starting = settings, command
            put_program(draft, command, source.path)
    if not best:
        raise InputError(
            f"{source.path} starts no command with training arguments{unsettled(launch)}; expected "
            "one, or --set for the variable that leads to it"
        )
    if training > 1 and starting is not None:
        why = f"that of line {starting.line}, the last with the most arguments, is read"
        draft.note("commands that train", training, f"{why}; give another alone")
    started = start(starting, best, context, draft) if starting is not None else None
    if started is not None:
        sheet = _of_program(best, started, context, draft)
        best = sheet.settings
    context.overrides.lay_over(best)
    keys = {key.replace("-", "_") for key in best}
    if started is None and not keys & {one.strip("-") for one in TELLTALES[:2]}:
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
    sheet = sheet if started is not None else Sheet(best, draft)
    if factory:
        put_factory_frozen(sheet)
    return sheet, started is not None and started.loop


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


def _script(source: Source, context: Context, draft: Draft) -> tuple[Sheet, bool]:
    """A script's own calls, over the file of settings that it reads where that is given beside it.

    Returns:
        Its settings, and whether it trains in a loop of its own.
    """
    own, named = read_by(source, context, set())
    started = start_with(source, own, context, draft, named) if own else None
    if started is not None:
        name = source.path.rsplit("/", 1)[-1]
        context.consumed.discard(name)
        draft.put("name", Given(name.removesuffix(".py"), source.path))
        return _of_program({}, started, context, draft), started.loop
    return _alone(source, context, draft), False


def _alone(source: Source, context: Context, draft: Draft) -> Sheet:
    module = python_tree.parse(source)
    found = take_calls(module, draft)
    settings = found.settings
    declared_length(settings, module, source.path)
    model = script_model(module, source.path)
    if model is not None and not put_built_model(draft, module, context):
        settings.setdefault("model_name_or_path", model)
    take_workers(settings, module)
    if not settings:
        raise InputError(
            f"{source.path} calls no TrainingArguments(...); expected a training script or config"
        )
    recompute_as_called(settings)
    _adapters_beside(settings, context, draft)
    flat = _flat(settings)
    context.overrides.lay_over(flat)
    draft.put("name", Given(source.path.rsplit("/", 1)[-1].removesuffix(".py"), source.path))
    if found.own_defaults:
        put_trl_defaults(flat, draft, cuts=found.cuts)
    return Sheet(flat, draft)


def _adapters_beside(settings: dict[str, Setting], context: Context, draft: Draft) -> None:
    """``LoraConfig(**json.load(f))``: the adapters are those of the PEFT file given beside it."""
    passed = settings.pop("_adapters_passed", None)
    if passed is None:
        return
    if any(form_of(one) == "peft" for one in context.beside.values()):
        for key in [key for key in settings if key.startswith("lora_") or key == "use_lora"]:
            del settings[key]
        draft.ignored = [one for one in draft.ignored if one.key != passed.value]


def _flat(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Tables that a call is given, by dots."""
    flat: dict[str, Setting] = {}
    for key, setting in settings.items():
        if isinstance(setting.value, dict):
            lines = {f"{key}.{k}": setting.line or 0 for k in setting.value}
            flat.update(flatten(setting.value, setting.file, lines, key))
        else:
            flat[key] = setting
    return flat
