"""What tells a Megatron-Bridge or NeMo 2 script, and a command that starts one."""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.launch import Launch, read_launch
from chipshift.jobs.source import Source

_LIBRARY = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:megatron\.bridge|nemo\b)", re.M)
_RUN = re.compile(r"^[ \t]*(?:from|import)[ \t]+nemo_run\b", re.M)


def is_bridge(source: Source) -> bool:
    """A Python file that imports Megatron-Bridge or NeMo 2."""
    return _LIBRARY.search(source.text) is not None


def is_launcher(source: Source) -> bool:
    """A Python file that submits another script through NeMo-Run and holds no job of its own."""
    text = source.text
    return bool(_RUN.search(text) and re.search(r"\bScript\(", text)) and not is_bridge(source)


def starts_bridge(source: Source, context: Context) -> bool:
    """Whether a command of a shell script starts a Bridge script that was given too.

    Raises:
        InputError: the shell script cannot be read.
    """
    given = [
        one
        for one in context.beside.values()
        if one.path.endswith(".py") and (is_bridge(one) or is_launcher(one))
    ]
    return bool(given) and _named(read_launch(source, context), given)


def _named(launch: Launch, given: list[Source]) -> bool:
    bases = {one.path.rsplit("/", 1)[-1] for one in given}
    words = (word.plain for command in launch.found.commands for word in command.words)
    return any(word.rsplit("/", 1)[-1] in bases for word in words)
