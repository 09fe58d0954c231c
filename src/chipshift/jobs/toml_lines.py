"""Where each key of a TOML file stands; ``tomllib`` gives values without lines."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.source import Source

_KEY = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TABLE = re.compile(rf"^[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]")
_PAIR = re.compile(rf"^[ \t]*({_DOTTED})[ \t]*=")
_PART = re.compile(_KEY)
DEPTH = 40
"""Deepest nesting of brackets and dotted keys read: real files stop at four."""

MOST_TABLES = 2_000
LONGEST = 2_000_000
"""Characters of a TOML file: tomllib's time grows faster than these."""

_KEYLIKE = re.compile(r"[\s\[\]\w.\"'-]*")


def parse(source: Source) -> dict[str, Any]:
    """The file as nested tables.

    Raises:
        InputError: not TOML (with tomllib's own line and column), too long or nested too deep.
    """
    tables = len(re.findall(r"^[ \t]*\[", source.text, re.M))
    if tables > MOST_TABLES or len(source.text) > LONGEST:
        raise InputError(
            f"{source.path} is a TOML file of {len(source.text)} characters and {tables} tables; "
            f"expected at most {LONGEST} and {MOST_TABLES}"
        )
    if _depth(source.text) > DEPTH or _dots(source.text) > DEPTH:
        raise InputError(f"{source.path} nests more than {DEPTH} deep; expected a job file")
    try:
        return tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source.path} is not valid TOML: {error}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{source.path} is not valid TOML: {error}") from None


def key_lines(text: str) -> dict[str, int]:
    """Line (from 1) of each dotted key and table; the first of an array of tables."""
    lines: dict[str, int] = {}
    base, quote = "", ""
    for number, line in enumerate(text.split("\n"), start=1):
        if quote:
            if quote in line:
                quote = ""
            continue
        if table := _TABLE.match(line):
            base = ".".join(_parts(table.group(2)))
            lines.setdefault(base, number)
        elif pair := _PAIR.match(line):
            key = ".".join(([base] if base else []) + _parts(pair.group(1)))
            lines.setdefault(key, number)
            rest = line[pair.end() :].lstrip()
            for mark in ('"""', "'''"):
                if rest.startswith(mark) and mark not in rest[3:]:
                    quote = mark
    return lines


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


def _dots(text: str) -> int:
    """Most parts of any dotted key; tomllib takes their square in time."""
    most = 0
    for line in text.split("\n"):
        head = line.split("=", 1)[0]
        if len(head) > 2 * DEPTH and _KEYLIKE.fullmatch(head):
            most = max(most, head.count("."))
    return most


def _depth(text: str) -> int:
    """Deepest bracket nesting on a count that ignores strings (an upper bound is enough)."""
    depth = deepest = 0
    for found in re.finditer(r"[\[\]{}\n]", text):
        mark = found.group()
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth = max(0, depth - 1)
    return deepest
