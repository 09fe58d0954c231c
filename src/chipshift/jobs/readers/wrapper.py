"""A job script around another file: Slurm, torchrun, accelerate, ``tune run`` and the like.

It says nodes, devices, chip and environment; the training settings stand in the file it names,
which is read when it is given too, with the script's ``key=value`` overrides laid over it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft, join
from chipshift.jobs.launch import put_environment, put_machine, read_launch
from chipshift.jobs.overrides import Overrides
from chipshift.jobs.readers.accelerate_command import launched
from chipshift.jobs.readers.bridge_scope import is_overrides
from chipshift.jobs.readers.preference_keys import put_program
from chipshift.jobs.shell.resolve import Command
from chipshift.jobs.source import Source

_PAIR = re.compile(r"(?:--|\+\+?)?([A-Za-z_][\w.]*)=([^\s=]+)$")
QUIET = re.compile(r"^(?:nnodes|nproc|rdzv|master|node_rank|standalone|config)")


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``."""
    draft = Draft(source.path, "launch script")
    launch = read_launch(source, context)
    put_machine(draft, launch)
    put_environment(draft, launch)
    inner: list[Draft] = []
    for command in launch.found.commands:
        by = launched(command, launch, context, source.path)
        named = _named(command, context, source.path)
        if by is not None:
            named = [*(one for one in named if one.format != "accelerate"), by]
        inner += named
        put_program(draft, command, source.path)
    if not inner:
        return draft
    merged = join([*inner, draft])
    merged.file = inner[0].file
    return merged


def _named(command: Command, context: Context, file: str) -> list[Draft]:
    """Drafts of the files that a command names, with its overrides."""
    from chipshift.jobs.read import read_draft

    found = []
    names = [
        word.plain.rsplit("=", 1)[-1]
        for word in command.words
        if "/" in word.plain or "." in word.plain
    ]
    sources = [(name, context.neighbour(name)) for name in names]
    pairs = {
        match.group(1): (match.group(2), word.line)
        for word in command.words
        if (match := _PAIR.match(word.plain)) and not QUIET.match(match.group(1))
    }
    texts = {key: text for key, (text, _) in pairs.items()}
    places = {key: (file, line) for key, (_, line) in pairs.items()}
    for key in context.overrides.given:
        places.pop(key, None)
    scripts = any(name.endswith(".py") for name in names)
    for name, source in sources:
        if source is None or name.endswith(".sh") or (scripts and is_overrides(source)):
            continue
        laid = Overrides({**texts, **context.overrides.given}, places)
        own = replace(context, overrides=laid)
        found.append(read_draft(source, own))
        context.overrides.used |= laid.used & set(context.overrides.given)
    return found
