"""torchtitan's run scripts: the job file that they name and the arguments laid over it.

Spellings: PyTorch, torchtitan, run_train.sh and torchtitan/config/manager.py, 2024-06 to 2026-02;
tyro, "Hierarchical structures" and "Booleans" (hyphens for underscores, ``no-`` for false), 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    put_environment,
    put_machine,
    read_launch,
)
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source
from chipshift.jobs.toml_lines import key_lines, parse

SECTIONS = frozenset(
    {
        *("job", "model", "training", "parallelism", "experimental", "activation_checkpoint"),
        *("optimizer", "lr_scheduler", "compile", "float8", "quantize", "mx", "checkpoint"),
        *("metrics", "profiling", "comm", "fault_tolerance", "validation", "debug"),
    }
)


def run_script(source: Source, context: Context, draft: Draft) -> dict[str, Setting]:
    """A run script: ``CONFIG_FILE=... ./run_train.sh --training.seq_len 4096``."""
    launch = read_launch(source, context)
    best: dict[str, Setting] = {}
    registry: dict[str, Setting] = {}
    named = launch.found.environment.exported.get("CONFIG_FILE")
    for command in launch.found.commands:
        settings = as_settings(command.words, source.path, launch.found.environment)
        titan = dict(_as_in_toml(key, setting) for key, setting in settings.items())
        titan = {k: s for k, s in titan.items() if k.split(".")[0] in SECTIONS and "." in k}
        if len(titan) >= len(best):
            best = titan
        registry = _registry(settings, dict(command.environment)) or registry
        named = dict(command.environment).get("CONFIG_FILE", named)
    named = named or _plain(launch.found.environment.get("CONFIG_FILE"))
    config = best.pop("job.config_file", None)
    path = str(config.value) if config is not None else named.plain if named is not None else ""
    put_machine(draft, launch)
    put_environment(draft, launch)
    beside = (context.neighbour(path) if path else None) or _written(launch, source, path)
    if beside is None and not path:
        from chipshift.jobs.readers.torchtitan_registry import registry_settings

        configured = registry_settings(registry, draft, context)
        if configured is not None:
            return configured | best
    beside = beside or _only_file(context, draft, path)
    if beside is None:
        shown = path or "its config file"
        raise InputError(f"{source.path} runs torchtitan on {shown}; expected that file beside it")
    settings = flatten(parse(beside), beside.path, key_lines(beside.text))
    return settings | best


def _registry(
    settings: Mapping[str, Setting], environment: Mapping[str, Field]
) -> dict[str, Setting]:
    """``--module llama3 --config llama3_8b``, or ``MODULE=... CONFIG=... ./run_train.sh``."""
    names = ("module", "config")
    found = {name: settings[name] for name in names if name in settings}
    for name in names:
        variable = environment.get(name.upper())
        if variable is not None:
            found.setdefault(name, Setting(variable.plain, "the environment", variable.line))
    return found if len(found) == len(names) else {}


def _written(launch: Launch, source: Source, path: str) -> Source | None:
    """The job file that the script itself writes with ``cat > FILE <<EOF``."""
    base = path.rsplit("/", 1)[-1]
    text = launch.found.environment.files.get(base) if base else None
    return Source(f"{source.path} ({base})", text) if text is not None else None


def _as_in_toml(key: str, setting: Setting) -> tuple[str, Setting]:
    """``training.local-batch-size`` and ``compile.no-enable`` as the file spells them."""
    parts = key.replace("-", "_").split(".")
    if setting.value is True and any(part.startswith("no_") for part in parts):
        parts = [part.removeprefix("no_") for part in parts]
        setting = Setting(False, setting.file, setting.line)
    return ".".join(parts), setting


def _only_file(context: Context, draft: Draft, path: str) -> Source | None:
    """The one job file given, where the script's own (often a default) is not among them."""
    files = [
        name
        for name, source in context.beside.items()
        if name.endswith(".toml") and "[training]" in source.text
    ]
    if len(files) != 1:
        return None
    why = f"the job file given; the script names {path}" if path else "the only job file given"
    draft.note("config file", files[0], why)
    return context.neighbour(files[0])


def _plain(value: Field | list[Field] | None) -> Field | None:
    return value if isinstance(value, Field) else None
