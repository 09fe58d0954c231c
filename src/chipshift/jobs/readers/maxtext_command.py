"""MaxText's command: ``key=value`` after base.yml, the YAML it names, the cluster it is sent to.

Keys and defaults: as in maxtext.py.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.launch import CHIPS, Launch, put_environment, read_launch
from chipshift.jobs.readers.maxtext_task import task_file
from chipshift.jobs.readers.megatron_flags import UNTRAINED, say_untrained
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

_PAIR = re.compile(r"([a-z][a-z0-9_]*)=(.*)$", re.S)

_PROGRAM = re.compile(r"MaxText[./]train(?:\.py)?$|^maxtext\.trainers\.pre_train\.train$")

TELLTALES = frozenset(
    {
        *("per_device_batch_size", "ici_fsdp_parallelism", "max_target_length", "remat_policy"),
        *("model_name", "ici_tensor_parallelism", "dcn_data_parallelism", "run_name"),
    }
)


def command_sheet(source: Source, context: Context, draft: Draft) -> Sheet:
    """The command with the most of MaxText's keys."""
    launch = read_launch(source, context)
    best: dict[str, Setting] = {}
    rank, started = (False, 0), ([""], 0)
    for command in launch.found.commands:
        settings = _pairs(command.words, source.path)
        words = [part for word in command.words for part in word.plain.split()]
        count = len(set(settings) & TELLTALES)
        if settings and not count and any(_PROGRAM.search(word) for word in words):
            count = 1  # MaxText's own program, all of whose telling keys keep their defaults
        own = (count > 1 and _trains(words), count)  # one that trains before one that decodes
        if count and own > rank:
            best, rank, started = settings, own, (words, command.line)
    if not best:
        raise InputError(
            f"{source.path} starts no command with MaxText's key=value settings; expected one, or "
            "--set for the variable that leads to it"
        )
    say_untrained(draft, *started)
    best = {**task_file(draft, context, *started, "model_name" in best), **best}
    for key in list(context.overrides.given):
        if key in TELLTALES or key in best or key.startswith(("ici_", "dcn_")):
            best[key] = Setting(context.overrides.given[key], "--set", None)
            context.overrides.used.add(key)
    _cluster(draft, launch)
    put_environment(draft, launch)
    return Sheet(best, draft)


def _trains(words: list[str]) -> bool:
    """No program among the words that decodes, serves or converts."""
    return not any(UNTRAINED.search(word) for word in words)


def _pairs(words: tuple[Field, ...], file: str) -> dict[str, Setting]:
    from chipshift.jobs.launch import Unset

    found: dict[str, Setting] = {}
    for word in words:
        for piece in word.plain.split():
            if match := _PAIR.match(piece):
                value: str = match.group(2).strip("'\"")
                if word.unknown:
                    value = Unset(Field(value, 0).shown, word.unknown)
                    if "\ue000" not in match.group(2):
                        value = str(match.group(2))
                found[match.group(1)] = Setting(value, file, word.line or None)
    return found


_SENT = re.compile(r"--(tpu-type|device-type|num-slices|num-nodes)(?:=(.+))?$")
_XPK_GPUS = re.compile(r"([a-z]+[0-9]+)(?:-mega)?(?:-[0-9]+gb)?-([0-9]+)$")
"""XPK's name of a node of GPUs, with their number: ``h100-mega-80gb-8``, ``h200-141gb-8``."""


def _cluster(draft: Draft, launch: Launch) -> None:
    """``xpk workload create --tpu-type=v6e-256 --num-slices=2``, or GPUs by ``--num-nodes 64``."""
    options = dict(launch.options)
    for command in launch.found.commands:
        if any(word.plain.rsplit("/", 1)[-1] in ("xpk", "xpk.py") for word in command.words):
            named = ""
            for word in command.words:
                match = _SENT.match(word.plain)
                if named and match is None:
                    options[named] = word
                if match and match.group(2):
                    options[match.group(1)] = Field(match.group(2), word.line, word.soft)
                named = match.group(1) if match and not match.group(2) else ""
    kind = options.get("tpu-type") or options.get("device-type")
    if kind is None or kind.unknown:
        return
    gpus = _XPK_GPUS.match(kind.plain)
    chip = gpus.group(1) if gpus is not None else ""
    slices = options.get("num-nodes" if chip in CHIPS else "num-slices")
    count = slices.plain if slices is not None and slices.plain.isdecimal() else "1"
    name = kind.plain if count == "1" else f"{kind.plain}*{count}"
    if gpus is not None and chip in CHIPS:
        name = f"{CHIPS[chip]}*{int(gpus.group(2)) * int(count)}"
    try:
        from chipshift.machines.names import parse_machine

        machine = parse_machine(name)
    except InputError as error:
        draft.note("machine", name, f"not read: {error}")
        return
    draft.put("machine", Given(machine.name, draft.file, kind.line))
    draft.put("devices", Given(machine.devices, draft.file, kind.line))
