"""Reading numbers out of a config, one key at a time, with sentences for what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from chipshift.errors import InputError, nearest, slipped

LARGEST = 100_000_000
"""No count of an architecture is above this: larger ones are taken for mistakes."""


class Default(NamedTuple):
    """A number that the config left to the reference implementation's default."""

    key: str
    value: Any


def _no_line(key: str) -> int | None:
    """Keys that stand in no file."""
    return None


@dataclass(frozen=True)
class Fields:
    """A config (or one of its sections) and where it came from.

    Attributes:
        file: what messages call it.
        values: the keys.
        section: dotted path of the section, "" at the top.
        defaults: grows by each key that was missing and had a default.
        asked: grows by the dotted path of each key that was looked for.
        line_of: the line of a dotted key, as far as known.
    """

    file: str
    values: Mapping[str, Any]
    section: str = ""
    defaults: list[Default] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    line_of: Callable[[str], int | None] = _no_line

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is given and not null."""
        self.asked.update(map(self._path, keys))
        return any(self.values.get(key) is not None for key in keys)

    def count(
        self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST
    ) -> int:
        """A whole number under the first of ``keys`` that is given (several are spellings).

        Raises:
            InputError: it is missing and has no default, is not a whole number, or is outside
                ``least``..``most``.
        """
        key, value = self._find(keys, default, f"a whole number from {least} to {most:,}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most:,}")
        return value

    def maybe(self, *keys: str, least: int = 1, most: int = LARGEST) -> int | None:
        """As ``count``, None when missing or null."""
        return self.count(*keys, least=least, most=most) if self.has(*keys) else None

    def number(self, *keys: str, default: float | None = None) -> float:
        """A finite number above zero."""
        key, value = self._find(keys, default, "a number above 0")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, "a number above 0")
        if not math.isfinite(value) or not 0 < value < 1e12:
            raise self.wrong(key, "a number above 0")
        return float(value)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false."""
        key, value = self._find(keys, default, "true or false")
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, *keys: str, default: str | None = None, choices: tuple[str, ...] = ()) -> str:
        """A string, one of ``choices`` where they are given."""
        expected = f"one of {', '.join(choices)}" if choices else "a string"
        key, value = self._find(keys, default, expected)
        if not isinstance(value, str):
            raise self.wrong(key, expected)
        if choices and value not in choices:
            raise self.wrong(key, expected + nearest(value, choices))
        return value

    def counts(self, key: str, *, least: int = 0, length: int | None = None) -> list[int]:
        """A list of whole numbers, empty when missing; of ``length`` where that is given."""
        self.asked.add(self._path(key))
        value = self.values.get(key)
        if value is None:
            return []
        expected = f"a list of {length or ''} whole numbers".replace("  ", " ")
        if not isinstance(value, (list, tuple)) or len(value) > 10_000:
            raise self.wrong(key, expected)
        if length is not None and len(value) != length:
            raise self.wrong(key, expected)
        for one in value:
            if isinstance(one, bool) or not isinstance(one, int) or not least <= one <= LARGEST:
                raise self.wrong(key, expected)
        return list(value)

    def names(self, key: str, choices: tuple[str, ...], length: int) -> list[str]:
        """A list of ``length`` strings out of ``choices``, empty when missing."""
        self.asked.add(self._path(key))
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, (list, tuple)) or len(value) != length:
            raise self.wrong(key, f"a list of {length} names, one a layer")
        for one in value:
            if one not in choices:
                hint = nearest(str(one), choices)
                raise self.wrong(key, f"names out of {', '.join(choices)}{hint}", one)
        return list(value)

    def part(self, *keys: str) -> Fields:
        """A section of the config, such as ``text_config``.

        Raises:
            InputError: it is missing or not an object.
        """
        key, value = self._find(keys, None, "an object")
        if not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        section = f"{self.section}.{key}" if self.section else key
        return replace(self, values=value, section=section)

    def having(self, **values: Any) -> Fields:
        """The same config with these keys where it has none (a family's usual values)."""
        given = {key: value for key, value in self.values.items() if value is not None}
        missing = {key: value for key, value in values.items() if key not in given}
        self.defaults.extend(Default(self._path(key), value) for key, value in missing.items())
        return replace(self, values={**self.values, **missing})

    def replaced(self, **values: Any) -> Fields:
        """The same config with these keys whatever it says (several keys resolved into one)."""
        return replace(self, values={**self.values, **values})

    def wrong(self, key: str, expected: str, found: Any = None) -> InputError:
        """The sentence for a key whose value cannot be used."""
        value = self.values.get(key) if found is None else found
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return InputError(f"{self._where(key)}: {self._path(key)} is {shown}; expected {expected}")

    def refuse_slips(self) -> None:
        """Refuse a key that nothing asked for and that is one slip away from one that is missing.

        Raises:
            InputError: a letter was lost or doubled, or two were swapped.
        """
        given = list(_paths(self.values))
        missing = self.asked - set(given)
        for path in given:
            if path in self.asked or path.rsplit(".", 1)[-1].startswith("_"):
                continue
            for meant in sorted(missing):
                if slipped(path, meant, wrong_letter=False):
                    line = self.line_of(path)
                    where = self.file if line is None else f"{self.file}:{line}"
                    raise InputError(
                        f"{where}: {path} is no key of this architecture; expected {meant} or"
                        f" nothing; did you mean '{meant}'?"
                    )

    def _where(self, key: str) -> str:
        line = self.line_of(self._path(key))
        return self.file if line is None else f"{self.file}:{line}"

    def conflict(self, text: str) -> InputError:
        """The sentence for keys that contradict each other."""
        return InputError(f"{self.file}: {text}")

    def _path(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key

    def _find(self, keys: tuple[str, ...], default: Any, expected: str) -> tuple[str, Any]:
        self.asked.update(map(self._path, keys))
        for key in keys:
            if self.values.get(key) is not None:
                return key, self.values[key]
        if default is None:
            self.refuse_slips()
            hint = nearest(keys[0], [key for key in self.values if isinstance(key, str)])
            spelt = " (or ".join(self._path(key) for key in keys[:2]) + ")" * (len(keys) > 1)
            raise InputError(f"{self.file}: {spelt} is missing; expected {expected}{hint}")
        self.defaults.append(Default(self._path(keys[0]), default))
        return keys[0], default


def _paths(values: Mapping[str, Any], base: str = "") -> Iterator[str]:
    """Dotted paths of the keys of a config and of its sections."""
    for key, value in values.items():
        path = f"{base}.{key}" if base else str(key)
        yield path
        if isinstance(value, Mapping) and path.count(".") < 4:
            yield from _paths(value, path)


_MARKS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,\n]')


def key_lines(text: str) -> dict[str, int]:
    """Line (from 1) of each dotted key of a JSON text; keys inside lists are left out."""
    lines: dict[str, int] = {}
    path: list[str] = []
    line, last, key = 1, "", ""
    for found in _MARKS.finditer(text):
        mark = found.group()
        if mark == "\n":
            line += 1
        elif mark == ":" and last:
            key = last
            lines.setdefault(".".join([*path[1:], key]), line)
        elif mark in "{[":
            path.append(key if mark == "{" else "[]")
        elif mark in "}]":
            path = path[:-1]
        last = mark[1:-1] if mark[0] == '"' else (last if mark == "\n" else "")
    return lines


def lines_in(path: Path) -> Callable[[str], int | None]:
    """The line of a dotted key of a JSON file, which is looked through only when asked."""
    return lambda key: key_lines(path.read_text(encoding="utf-8-sig")).get(key)
