"""Texts that a command starts as scripts of their own."""

from __future__ import annotations

import re

from chipshift.jobs.shell.values import Environment, Field

SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
SUBMITS = ("sbatch", "salloc", "qsub", "bsub", *SHELLS)
REMOTE = ("ssh", "pdsh", "clush")
_TAKES_TEXT = re.compile(r"--(?:wrap|command|COMMAND|cmd)(?:=(.*))?$", re.S)
"""Options of ``sbatch``, XPK and programs that start a command on every host."""


def shell_text(words: list[Field]) -> tuple[Field, list[Field]] | None:
    """The script in ``bash -c "..." a b``, ``srun ... bash -c "..."``, ``sbatch --wrap="..."`` or
    ``ssh host "..."``, with its arguments; those of ``-c`` begin with the script's own name.
    """
    for at, word in enumerate(words[:-2]):
        if word.plain in SHELLS:
            for after in range(at + 1, len(words) - 1):
                if re.fullmatch(r"-\w*c", words[after].plain):
                    return words[after + 1], words[after + 3 :]
    for at, word in enumerate(words[1:], 1):
        found = _TAKES_TEXT.match(word.plain)
        if found and found.group(1) is not None:
            return Field(word.text.partition("=")[2], word.line, word.soft), []
        if found and at + 1 < len(words):
            return words[at + 1], []
    if words[0].plain in REMOTE and len(words) > 2 and re.search(r"\s", words[-1].plain):
        return words[-1], []
    return None


def written(words: list[Field], env: Environment) -> tuple[str, list[Field]] | None:
    """A script that the script itself has written, and the arguments it is started with."""
    plain = [word.plain for word in words]
    first = plain[0].rsplit("/", 1)[-1]
    if first in env.files and "/" in plain[0]:
        return env.files[first], words[1:]
    at = next((n for n, word in enumerate(plain) if word in SUBMITS), None)
    for place, word in enumerate(plain[at + 1 :] if at is not None else (), (at or 0) + 1):
        if word.rsplit("/", 1)[-1] in env.files:
            return env.files[word.rsplit("/", 1)[-1]], words[place + 1 :]
    return None


def given_to_shell(words: list[Field]) -> list[Field]:
    """``bash -s -- a b``: the arguments of a script that is read."""
    plain = [word.plain for word in words]
    if "-s" not in plain:
        return []
    rest = words[plain.index("-s") + 1 :]
    return rest[1:] if rest and rest[0].plain == "--" else rest
