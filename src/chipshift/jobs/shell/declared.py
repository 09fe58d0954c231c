"""``export``, ``local``, ``declare``, ``readonly``: names, where they hold, and of what kind."""

from __future__ import annotations

import re

from chipshift.jobs.shell.assign import assign
from chipshift.jobs.shell.nodes import Simple
from chipshift.jobs.shell.values import Environment, Field, Keyed, Value
from chipshift.jobs.shell.words import arithmetic, expand

DECLARING = ("export", "local", "declare", "readonly", "typeset")


def declare(
    node: Simple, first: str, env: Environment, scope: dict[str, Value | None] | None
) -> None:
    """Set what the command declares.

    Args:
        scope: values to come back when the function ends, by name; None outside of one.
    """
    flags = "".join(w.literal or "" for w in node.words[1:] if (w.literal or "")[:1] == "-")
    bare = [
        value
        for word in node.words[1:]
        if (word.literal or "")[:1] != "-"
        for value in expand(word, env)
    ]
    pairs = [found for one in bare if (found := re.match(r"([A-Za-z_]\w*)(\+?)=", one.text))]
    names = [one.name for one in node.assignments]
    names += [found.group(1) for found in pairs]
    alone = [one.plain for one in bare if one.plain.isidentifier()]
    if scope is not None and first in ("local", "declare", "typeset") and "g" not in flags:
        for name in (*names, *alone):
            scope.setdefault(name, env.variables.get(name))
    if "i" in flags:
        env.integers |= {*names, *alone}
    for assignment in node.assignments:
        if "n" in flags and first != "export":
            env.references.pop(assignment.name, None)
        assign(assignment, env)
        if "n" in flags and first != "export":
            target = env.variables.pop(assignment.name, None)
            if isinstance(target, Field) and target.plain.isidentifier():
                env.references[assignment.name] = target.plain
    for found, one in zip(pairs, [o for o in bare if re.match(r"\w+\+?=", o.text)], strict=False):
        env.set(found.group(1), Field(one.text[found.end() :], one.line, one.soft))
    for name in alone:
        if "A" in flags or "a" in flags:
            env.set(name, Keyed() if "A" in flags else [])
        elif first == "local":
            env.variables.pop(name, None)
    for name in names:
        value = env.get(name)
        if name in env.integers and isinstance(value, Field) and not value.unknown:
            env.set(name, arithmetic(value.plain, env, value.line))
    if first == "export" or "x" in flags:
        for name in (*names, *alone):
            export(name, env)


def export(name: str, env: Environment) -> None:
    """Give a variable to what is started."""
    value = env.get(name)
    if isinstance(value, Field):
        env.exported[name] = value
