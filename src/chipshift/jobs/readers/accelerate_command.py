"""``accelerate launch``'s own arguments, which win over the YAML that it is given.

Source: Hugging Face, Accelerate, "Command line" reference and commands/launch.py, 2026: a command
that names a way of distributing takes it in place of the file's, and each argument goes before the
file's key of the same name.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import Launch, as_settings, launcher_words
from chipshift.jobs.readers import accelerate
from chipshift.jobs.settings import Setting
from chipshift.jobs.shell.found import Command
from chipshift.jobs.source import Source

WAYS = {
    "use_fsdp": "FSDP",
    "use_deepspeed": "DEEPSPEED",
    "use_megatron_lm": "MEGATRON_LM",
    "multi_gpu": "MULTI_GPU",
    "tpu": "XLA",
    "cpu": "MULTI_CPU",
}
SECTIONS = {
    "fsdp_": "fsdp_config.",
    "megatron_lm_": "megatron_lm_config.",
    "parallelism_config_": "parallelism_config.",
    "dynamo_": "dynamo_config.",
    "deepspeed_": "deepspeed_config.",
    "zero": "deepspeed_config.",
    "offload_": "deepspeed_config.",
    "gradient_accumulation_steps": "deepspeed_config.",
}
PLAIN = ("num_processes", "num_machines", "mixed_precision")
LAUNCHERS = ("accelerate", "accelerate.commands.launch")


def launched(command: Command, launch: Launch, context: Context, file: str) -> Draft | None:
    """What an ``accelerate launch`` says, by its arguments and the YAML that it names.

    Returns:
        None where the command is another, or says no more than how many processes it starts.
    """
    words = [word for word in launcher_words(command) if word.plain]
    if not any(word.plain.rsplit("/", 1)[-1] in LAUNCHERS for word in words):
        return None
    given = as_settings(words, file, launch.found.environment)
    options = {key.replace("-", "_"): setting for key, setting in given.items()}
    settings = _as_in_yaml(options)
    config = options.get("config_file")
    source = context.neighbour(str(config.value)) if config is not None else None
    if source is None and config is not None and "distributed_type" not in settings:
        return _by_name(config, settings, context)
    if source is None and settings.keys() <= {"num_processes", "num_machines"}:
        return None
    return accelerate.read_launched(source or Source(file, ""), settings, context)


def _by_name(config: Setting, settings: dict[str, Setting], context: Context) -> Draft:
    """A YAML that was not given: its name must do, where it says a way of distributing."""
    name = str(config.value).rsplit("/", 1)[-1]
    stage = re.search(r"(?:zero|stage|z)[-_]?([0-3])", name.lower())
    way = "FSDP" if "fsdp" in name.lower() else "DEEPSPEED" if stage else ""
    if way:
        settings["distributed_type"] = Setting(way, config.file, config.line)
    if stage and way == "DEEPSPEED":
        settings["deepspeed_config.zero_stage"] = Setting(stage.group(1), config.file, config.line)
    draft = (
        accelerate.read_launched(Source(config.file, ""), settings, context)
        if settings
        else Draft(config.file, "accelerate")
    )
    if way:
        draft.note("data parallelism", way, f"told from the name {name}: give that file too")
    draft.miss(name, config.file, config.line, "how the weights are distributed stands in it")
    return draft


def _as_in_yaml(options: dict[str, Setting]) -> dict[str, Setting]:
    settings = {key: options[key] for key in PLAIN if key in options}
    for key, setting in options.items():
        if key in WAYS:
            settings["distributed_type"] = Setting(WAYS[key], setting.file, setting.line)
            continue
        section = next((s for start, s in SECTIONS.items() if key.startswith(start)), "")
        if section:
            settings[section + key] = setting
    return settings
