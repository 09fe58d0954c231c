"""JSON with the line of every key; comments and trailing commas, which people write, allowed."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.source import Source

DEPTH = 60
MOST_NODES = 500_000
_SPACE = re.compile(r"(?:[ \t\n]+|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.S)
_ATOM = re.compile(r"-?[A-Za-z0-9_.+-]+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_STRINGS = json.JSONDecoder(strict=False)
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}


def parse(source: Source) -> tuple[Any, dict[str, int]]:
    """The value and the line of each dotted key.

    Raises:
        InputError: not JSON, with line and what stood there; or nested too deep.
    """
    reader = _Reader(source)
    value = reader.value("", 0)
    reader.space()
    if reader.at != len(source.text):
        raise reader.bad("the end of the file")
    return value, reader.lines


class _Reader:
    def __init__(self, source: Source) -> None:
        self.path, self.text, self.twice = source.path, source.text, source.twice
        self.at, self.nodes = 0, 0
        self.counted, self.line = 0, 1
        self.lines: dict[str, int] = {}

    def here(self) -> int:
        """The line of the cursor, counted on from where it was last asked."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def bad(self, expected: str) -> InputError:
        found = self.text[self.at : self.at + 12].split("\n")[0] or "the end"
        return InputError(
            f"{self.path}:{self.here()} is not valid JSON: found {found!r}; expected {expected}"
        )

    def space(self) -> str:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self, path: str, depth: int) -> Any:
        self.nodes += 1
        first = self.space()
        if depth > DEPTH or self.nodes > MOST_NODES:
            raise InputError(
                f"{self.path}:{self.here()}: values nest more than {DEPTH} deep or are more than "
                f"{MOST_NODES}; expected a job file"
            )
        if first == "{":
            return self.table(path, depth)
        if first == "[":
            return self.list(path, depth)
        if first == '"':
            return self.string()
        match = _ATOM.match(self.text, self.at)
        if match is None:
            raise self.bad("a value")
        return self.atom(match)

    def atom(self, match: re.Match[str]) -> Any:
        word = match.group()
        if word in _WORDS:
            self.at = match.end()
            return _WORDS[word]
        try:
            number = json.loads(word) if len(word) < 100 else None
        except ValueError:
            number = None
        if (
            _NUMBER.fullmatch(word)
            and not isinstance(number, int)
            and (number is None or not math.isfinite(number))
        ):
            self.at = match.end()
            return word  # a number beyond any: what asks for one says so
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise self.bad("a value")
        self.at = match.end()
        return number

    def string(self) -> str:
        try:
            text, self.at = _STRINGS.raw_decode(self.text, self.at)
        except ValueError:
            raise self.bad("a closed string") from None
        return str(text)

    def table(self, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while True:
            if self.space() == "}":
                self.at += 1
                return found
            if self.text[self.at : self.at + 1] != '"':
                raise self.bad("a quoted key or }")
            line = self.here()
            key = self.string()
            dotted = f"{path}.{key}" if path else key
            self.lines[dotted] = line  # of a key written twice the later one holds
            if self.space() != ":":
                raise self.bad(":")
            self.at += 1
            value = self.value(dotted, depth + 1)
            if key in found and found[key] != value:
                self.twice[dotted] = line
            found[key] = value
            self.comma("}")

    def list(self, path: str, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while True:
            if self.space() == "]":
                self.at += 1
                return found
            found.append(self.value(f"{path}.{len(found)}", depth + 1))
            self.comma("]")

    def comma(self, closing: str) -> None:
        here = self.space()
        if here == ",":
            self.at += 1
        elif here != closing:
            raise self.bad(f", or {closing}")
