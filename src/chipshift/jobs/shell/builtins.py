"""Bash's own commands that change variables: ``printf -v``, ``getopts``, ``set --``, ``shift`` ...

Each gives its success, or None where only a run could tell it.
"""

from __future__ import annotations

import re

from chipshift.jobs.shell.formats import formatted
from chipshift.jobs.shell.values import Environment, Field, unresolved
from chipshift.jobs.shell.words import arithmetic


def builtin(name: str, words: list[Field], env: Environment) -> tuple[bool, bool | None]:
    """Whether the command is one of these, and its success."""
    if name == "printf" and len(words) > 2 and words[1].plain == "-v":
        env.set(words[2].plain, formatted(words[3:], words[0].line))
        return True, True
    if name == "getopts" and len(words) > 2:
        return True, getopts(words, env)
    if name == "shift":
        return True, _shift(words, env)
    if name == "set" and len(words) > 1 and words[1].plain == "--":
        env.positional = words[2:]
        return True, True
    if name == "let":
        status: bool | None = True
        for word in words[1:]:
            value = arithmetic(word.plain, env, word.line)
            status = None if value.unknown else value.plain != "0"
        return True, status
    return False, None


def _shift(words: list[Field], env: Environment) -> bool:
    count = 1
    if len(words) > 1:
        count = int(words[1].plain) if re.fullmatch(r"\d{1,6}", words[1].plain) else 1
    if count > len(env.positional):
        return False
    env.positional = env.positional[count:]
    return True


def getopts(words: list[Field], env: Environment) -> bool:
    """One option of ``getopts "n:f" name``; false once the options are through."""
    options, target = words[1].plain, words[2].plain
    listed = words[3:] or env.positional
    place = env.variables.get("OPTIND")
    at = int(place.plain) - 1 if isinstance(place, Field) and place.plain.isdecimal() else 0
    inside = env.option_at
    word = listed[at].plain if at < len(listed) else ""
    if not word.startswith("-") or word in ("-", "--"):
        env.set("OPTIND", Field(str(at + 1 + (word == "--")), words[0].line))
        env.set(target, Field("?", words[0].line))
        return False
    letter, rest = word[1 + inside : 2 + inside], word[2 + inside :]
    env.variables.pop("OPTARG", None)
    known = letter and letter != ":" and letter in options
    if known and options[options.index(letter) + 1 : options.index(letter) + 2] == ":":
        value = Field(rest, listed[at].line) if rest else None
        if value is None and at + 1 < len(listed):
            at += 1
            value = listed[at]
        env.set("OPTARG", value or unresolved(f"-{letter}", words[0].line))
        rest = ""
    env.set(target, Field(letter if known else "?", words[0].line))
    env.option_at = inside + 1 if rest else 0
    env.set("OPTIND", Field(str(at + 1 + (not rest)), words[0].line))
    return True


def forget(words: list[Field], env: Environment) -> None:
    """``unset X``, and ``unset 'A[1]'``, whose element goes."""
    for word in words:
        name = word.plain
        found = re.fullmatch(r"(\w+)\[(\d{1,6})\]", name)
        value = env.held(found.group(1)) if found else None
        if found and isinstance(value, list):
            at = int(found.group(2))
            env.set(found.group(1), [*value[:at], *value[at + 1 :]])
            continue
        env.variables.pop(name, None)
        env.exported.pop(name, None)
