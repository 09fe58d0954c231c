"""torchtitan's run scripts: the job file that they name and the arguments laid over it.

Spellings: PyTorch, torchtitan, run_train.sh and torchtitan/config/manager.py, 2024-06 to 2026-02;
tyro, "Hierarchical structures" and "Booleans" (hyphens for underscores, ``no-`` for false), 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    put_environment,
    put_machine,
    read_launch,
)
from chipshift.jobs.readers.torchtitan_own import DEFAULT, own_job
from chipshift.jobs.settings import Setting, as_integer, flatten
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
    _run_train(draft, launch)
    put_environment(draft, launch)
    beside = (context.neighbour(path) if path else None) or _written(launch, source, path)
    if beside is None and not path:
        from chipshift.jobs.readers.torchtitan_registry import registry_settings

        configured = registry_settings(registry, draft, context)
        if configured is not None:
            return configured | best
    beside = beside or _only_file(context, draft, path)
    if beside is None and (own := own_job(path or _default(launch), draft)) is not None:
        return own | best
    if beside is None:
        shown = path or "its config file"
        raise InputError(f"{source.path} runs torchtitan on {shown}; expected that file beside it")
    settings = flatten(parse(beside), beside.path, key_lines(beside.text))
    return settings | best


def _run_train(draft: Draft, launch: Launch) -> None:
    """``NGPU=4 ./run_train.sh``: the devices of one node, eight by default."""
    if not _default(launch) or "devices" in draft.values or "devices_per_node" in draft.values:
        return
    told = launch.found.environment.exported.get("NGPU")
    for command in launch.found.commands:
        told = dict(command.environment).get("NGPU", told)
    count = as_integer(told.plain) if told is not None else None
    if told is not None and count is not None and not told.soft:
        draft.put("devices", Given(count, draft.file, told.line or None))
    else:
        draft.assume("devices", count or 8, "run_train.sh's NGPU, of one node")


def _default(launch: Launch) -> str:
    """The job file that ``run_train.sh`` takes by itself."""
    words = (word.plain for command in launch.found.commands for word in command.words)
    return DEFAULT if any(word.rsplit("/", 1)[-1] == "run_train.sh" for word in words) else ""


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
