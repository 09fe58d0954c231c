"""Reading numbers out of a config, one key at a time, with sentences for what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from chipshift.errors import InputError, nearest

LARGEST = 100_000_000
"""No count of an architecture is above this: larger ones are taken for mistakes."""


class Default(NamedTuple):
    """A number that the config left to the reference implementation's default."""

    key: str
    value: Any


@dataclass(frozen=True)
class Fields:
    """A config (or one of its sections) and where it came from.

    Attributes:
        file: what messages call it.
        values: the keys.
        section: dotted path of the section, "" at the top.
        defaults: grows by each key that was missing and had a default.
    """

    file: str
    values: Mapping[str, Any]
    section: str = ""
    defaults: list[Default] = field(default_factory=list)

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is given and not null."""
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
        value = self.values.get(key)
        if value is None:
            return []
        expected = f"a list of {length or ''} whole numbers".replace("  ", " ")
        if not isinstance(value, (list, tuple)) or len(value) > 10_000:
            raise self.wrong(key, expected)
        if length is not None and len(value) != length:
            raise self.wrong(key, f"{expected}, one a layer")
        for one in value:
            if isinstance(one, bool) or not isinstance(one, int) or not least <= one <= LARGEST:
                raise self.wrong(key, expected)
        return list(value)

    def names(self, key: str, choices: tuple[str, ...], length: int) -> list[str]:
        """A list of ``length`` strings out of ``choices``, empty when missing."""
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
        return InputError(f"{self.file}: {self._path(key)} is {shown}; expected {expected}")

    def conflict(self, text: str) -> InputError:
        """The sentence for keys that contradict each other."""
        return InputError(f"{self.file}: {text}")

    def _path(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key

    def _find(self, keys: tuple[str, ...], default: Any, expected: str) -> tuple[str, Any]:
        for key in keys:
            if self.values.get(key) is not None:
                return key, self.values[key]
        if default is None:
            hint = nearest(keys[0], [key for key in self.values if isinstance(key, str)])
            spelt = " (or ".join(self._path(key) for key in keys[:2]) + ")" * (len(keys) > 1)
            raise InputError(f"{self.file}: {spelt} is missing; expected {expected}{hint}")
        self.defaults.append(Default(self._path(keys[0]), default))
        return keys[0], default
