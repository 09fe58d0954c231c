"""A script walked: which commands it would start, with what arguments and environment."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping

from chipshift.errors import InputError
from chipshift.jobs.shell.flow import ARGUMENTS, DOUBTFUL
from chipshift.jobs.shell.found import Resolved
from chipshift.jobs.shell.loops import Leave
from chipshift.jobs.shell.parse import parse
from chipshift.jobs.shell.values import Environment, Field
from chipshift.jobs.shell.walker import Walker

__all__ = ["ARGUMENTS", "DOUBTFUL", "resolve"]

LONGEST = 1_000_000
"""Characters of a launch script: real ones stay below a hundredth of it."""

LONGEST_ARGUMENTS = 10_000


def resolve(
    text: str,
    file: str,
    fixed: Mapping[str, str] | None = None,
    preset: Mapping[str, Field] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Resolved:
    """Walk a script.

    Args:
        fixed: ``--set`` values of variables; ``args`` holds the script's own arguments.
        preset: variables the scheduler sets (``SLURM_NNODES``).
        beside: texts of files given beside it, by base name, for ``source``.

    Raises:
        InputError: too long, nested too deep, or a walk that does not end.
    """
    if len(text) > LONGEST:
        raise InputError(
            f"{file} is a script of {len(text)} characters; expected a launch script of at most "
            f"{LONGEST}"
        )
    env = Environment(dict(fixed or {}), file=file)
    env.variables.update(preset or {})
    env.positional = _arguments(env, text)
    env.given = dict(beside or {})
    env.given_none = "args" not in env.used_fixed
    walker = Walker(env, file)
    with contextlib.suppress(Leave):  # the script ends there
        walker.run(parse(text, file))
    walker.found.environment = env
    walker.found.sourced |= env.queried
    return walker.found


def _arguments(env: Environment, text: str) -> list[Field]:
    """The script's own arguments, as ``--set args='a b c'`` gives them.

    Raises:
        InputError: a quote in them is not closed.
    """
    if "args" not in env.fixed or re.search(r"\bargs\+?=", text):
        return []
    env.used_fixed.add("args")
    try:
        return [Field(word, 0) for word in shlex.split(env.fixed["args"][:LONGEST_ARGUMENTS])]
    except ValueError:
        raise InputError(
            f"--set args is {env.fixed['args'][:60]}; expected words as the script is started with"
        ) from None
