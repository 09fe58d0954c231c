"""Settings with their places, and typed ways of taking them: the common ground of every reader.

A reader flattens its file into ``{dotted key: Setting}``, takes what it knows from a ``Sheet``
(which records what was understood as what), says which keys it ignores and why, and closes the
sheet: a key nobody took is then reported, with the nearest known one.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chipshift.errors import InputError, nearest, slipped
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored, Understood
from chipshift.jobs.unknown_keys import MOST_KEYS, bears, may_bear, misspelt

ABSURD = 10**12
"""No count in a job (a batch, a length, a vocabulary, a degree) is as large as this."""


TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True)
class Setting:
    """One value as the file has it, and where."""

    value: Any
    file: str
    line: int | None = None

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


def flatten(
    tree: Mapping[str, Any], file: str, lines: Mapping[str, int], prefix: str = ""
) -> dict[str, Setting]:
    """Nested tables to ``{"a.b.c": Setting}``; lists stay whole.

    Args:
        lines: line of each dotted key, as far as known.
    """
    flat: dict[str, Setting] = {}
    stack: list[tuple[str, Mapping[str, Any]]] = [(prefix, tree)]
    while stack:
        base, table = stack.pop()
        for key, value in table.items():
            dotted = f"{base}.{key}" if base else str(key)
            if isinstance(value, Mapping) and value:
                stack.append((dotted, value))
            else:
                flat[dotted] = Setting(value, file, lines.get(dotted))
    return dict(sorted(flat.items(), key=lambda item: item[1].line or 0))


class Sheet:
    """Settings being taken; see the module's text.

    Attributes:
        of_program: keys that a given program reads itself, and that are no misspelt others.
    """

    def __init__(self, settings: dict[str, Setting], draft: Draft) -> None:
        self.settings = settings
        self.draft = draft
        self.taken: set[str] = set()
        self.known: set[str] = set()
        self.passing: set[str] = set()
        self.of_program: set[str] = set()

    def raw(self, *keys: str) -> tuple[str, Setting] | None:
        """The first of several spellings that is present; a second, different one is reported."""
        self.known.update(keys)
        found = [key for key in keys if key in self.settings]
        if not found:
            return None
        stated = [key for key in found if self.settings[key].value is not None]
        found = stated + [key for key in found if key not in stated]
        first = found[0]
        self.taken.update(found)
        self.draft.reached.update(key for key in found if self.settings[key].file == "--set")
        for key in found[1:]:
            if self.settings[key].value not in (None, self.settings[first].value):
                setting = self.settings[key]
                why = f"'{first}' says {self.settings[first].value} and was taken"
                self.draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))
        return first, self.settings[first]

    def record(self, key: str, setting: Setting, understood_as: str) -> None:
        shown = _shown(setting.value)
        entry = Understood(key, shown, setting.file, setting.line, understood_as)
        self.draft.understood.append(entry)

    def integer(
        self,
        *keys: str,
        into: str,
        low: int = 1,
        high: int = ABSURD,
        none: tuple[Any, ...] = (),
    ) -> Given[int] | None:
        """A whole number; ``none`` lists values that mean "not set"."""
        found = self.raw(*keys)
        if found is None:
            return None
        key, setting = found
        value = as_integer(setting.value)  # of a command line too, where -1 is text
        stated = (value if isinstance(v, int) else setting.value for v in none)
        if setting.value is None or any(v == one for v, one in zip(none, stated, strict=True)):
            self.record(key, setting, into)
            return None
        if value is None or not low <= value <= high:
            raise wrong(key, setting, _range("a whole number", low, high))
        self.record(key, setting, into)
        return Given(value, setting.file, setting.line)

    def number(
        self, *keys: str, into: str, low: float = 0.0, high: float = float(ABSURD)
    ) -> Given[float] | None:
        """A finite number."""
        found = self.raw(*keys)
        if found is None or found[1].value is None:
            return None
        key, setting = found
        value = as_number(setting.value)
        if value is None or not low <= value <= high:
            raise wrong(key, setting, _range("a number", low, high))
        self.record(key, setting, into)
        return Given(value, setting.file, setting.line)

    def boolean(self, *keys: str, into: str) -> Given[bool] | None:
        """True or false, quoted ones too."""
        found = self.raw(*keys)
        if found is None or found[1].value is None:
            return None
        key, setting = found
        value = as_boolean(setting.value)
        if (empty := getattr(setting.value, "empty", "")) and value is None:
            self.draft.note(f"${empty}", "empty", "nothing sets it, and a shell leaves it out")
            value = True  # the switch stands alone
        if value is None:
            raise wrong(key, setting, "true or false")
        self.record(key, setting, into)
        return Given(value, setting.file, setting.line)

    def text(
        self, *keys: str, into: str, choices: Iterable[str] | None = None
    ) -> Given[str] | None:
        """A string; one of ``choices``, whatever its case, where they are given."""
        found = self.raw(*keys)
        if found is None or found[1].value is None:
            return None
        key, setting = found
        if isinstance(setting.value, (dict, list)) or unset_names(setting.value):
            raise wrong(key, setting, "a string")
        value = str(setting.value).strip()
        if choices is not None:
            listed = list(choices)
            matches = [c for c in listed if c.lower() == value.lower()]
            if not matches:
                options = ", ".join(listed[:8])
                raise wrong(key, setting, f"one of {options}", nearest(value, listed))
            value = matches[0]
        self.record(key, setting, into)
        return Given(value, setting.file, setting.line)

    def strings(self, *keys: str, into: str) -> Given[list[str]] | None:
        """A list of strings, or one string with commas."""
        found = self.raw(*keys)
        if found is None or found[1].value is None:
            return None
        key, setting = found
        if isinstance(setting.value, str):
            parts = setting.value.strip("[]").split(",")
            value = [part.strip().strip("'\"") for part in parts if part.strip()]
        elif isinstance(setting.value, list):
            value = [str(item) for item in setting.value]
        else:
            raise wrong(key, setting, "a list of strings")
        self.record(key, setting, into)
        return Given(value, setting.file, setting.line)

    def flag(self, kind: str, *keys: str, off: tuple[Any, ...] = (False, None, "", 0)) -> bool:
        """A setting that matters for porting only: put among the flags unless it is off."""
        found = self.raw(*keys)
        if found is None:
            return False
        key, setting = found
        value = setting.value
        is_off = any(value == v and isinstance(value, type(v)) for v in off)
        if is_off or (isinstance(value, str) and value.lower() in ("false", "none", "off")):
            self.record(key, setting, "off")
            return False
        self.record(key, setting, f"flag: {kind}")
        self.draft.flags.append(_flag(kind, key, setting))
        return True

    def ignore(
        self,
        patterns: Iterable[str],
        matters: bool,
        why: str,
        among: Container[str] | None = None,
    ) -> None:
        """Keys that match a shell pattern and were not taken are ignored, and why.

        Args:
            among: the framework's own keys: one that a pattern with ``*`` covers and that is none
                of them is a fork's, and left for ``close`` to judge.

        A key that ``--set`` adds is not passed over by ``*`` alone, nor where it is a likely
        misspelling: it is then reported as unknown.

        Raises:
            InputError: a key is one slip of the keyboard away from one that is read and absent.
        """
        patterns = tuple(patterns)
        plain = {p for p in patterns if "*" not in p}
        if not matters:
            self.passing |= plain - self.known
        self.known |= plain
        self.draft.known |= self.known
        missing = self._missing()
        for key, setting in self.settings.items():
            if key in self.taken or not any(fnmatch.fnmatchcase(key, p) for p in patterns):
                continue
            if among is not None and key not in plain and key not in among:
                continue
            if key not in patterns and (meant := misspelt(key, missing)):
                if setting.file != "--set" and self._slips(key, meant):
                    raise unknown(key, setting, meant)
                continue
            if setting.file == "--set":
                named = [p for p in patterns if p != "*" and fnmatch.fnmatchcase(key, p)]
                if not named or (key not in named and self._meant(key)):
                    continue
                self.draft.reached.add(key)
            self.taken.add(key)
            entry = Ignored(key, setting.file, setting.line, matters, why)
            self.draft.ignored.append(entry)

    def _slips(self, key: str, meant: str) -> bool:
        """Whether a key is another that bears on the numbers, but for one slip."""
        return meant not in self.passing and key not in self.of_program and slipped(key, meant)

    def _missing(self) -> set[str]:
        """Known keys that the file has not; of a file with too many keys to compare, none."""
        return set() if len(self.settings) > MOST_KEYS else self.known - set(self.settings)

    def _meant(self, key: str) -> bool:
        """Whether another key was likely meant: a near one, or the same name in another table."""
        leaf = "." + key.rsplit(".", 1)[-1]
        known = self.known - {key}
        return bool(misspelt(key, known)) or any(k.endswith(leaf) for k in known)

    def refuse_slip(self, meant: str) -> None:
        """Refuse the key that was written in place of one that is missing, if there is one.

        Raises:
            InputError: a key is one slip of the keyboard away from it.
        """
        for key, setting in self.settings.items():
            if slipped(key, meant):
                raise unknown(key, setting, meant)

    def close(
        self, framework: str, unknown_matters: bool = False, own: Container[str] | None = None
    ) -> None:
        """Report every key that nobody took; those of ``--set`` are for the whole job to judge.

        Args:
            unknown_matters: what is not known here may well bear on time or memory.
            own: all of the framework's keys, where they are known: another is a fork's, which
                matters unless its name says that it does not.

        Raises:
            InputError: a key is one slip of the keyboard away from one that is read and absent.
        """
        self.draft.known |= self.known
        missing = sorted(self._missing())
        for key, setting in self.settings.items():
            if key in self.taken or setting.file == "--set":
                continue
            why = f"not a key {framework} documents that bears on time or memory"
            matters = unknown_matters or bears(key, setting.value)
            if own is not None and key not in own and f"no-{key}" not in own:
                matters = matters or may_bear(key, setting.value)
            if matters:
                why = f"not known as a key of {framework}: what it changes is not in the numbers"
            meant = misspelt(key, missing)
            meant = "" if meant in self.passing else meant
            if meant and self._slips(key, meant):
                raise unknown(key, setting, meant)
            if meant:
                why = f"not a key of {framework}; did you mean '{meant}'?"
            self.draft.ignored.append(
                Ignored(key, setting.file, setting.line, bool(meant) or matters, why)
            )


def wrong(key: str, setting: Setting, expected: str, hint: str = "") -> InputError:
    """The one sentence for a value that cannot be used."""
    found, names = _shown(setting.value), unset_names(setting.value)
    found = f"[{found}]" if isinstance(setting.value, list) else found
    if names:
        name = names[0]
        variable = re.fullmatch(r"[A-Za-z_]\w*", name) is not None
        what = "nothing sets" if variable or name.isdigit() else "only a run could tell"
        variable_or_key = name if variable else key
        by = getattr(setting.value, "settling", "") or f"--set {variable_or_key}=..."
        return InputError(
            f"{setting.where}: {key} is {found}, which {what}; expected {expected}, such as by {by}"
        )
    return InputError(f"{setting.where}: {key} is {found}; expected {expected}{hint}")


def unset_names(value: Any) -> tuple[str, ...]:
    """Variables in a script's value that nothing sets (``launch.Unset``), in a list's too."""
    values = value if isinstance(value, list) else [value]
    return tuple(name for one in values for name in getattr(one, "names", ()))


def as_integer(value: Any) -> int | None:
    """Whole numbers however written: 8, 8.0, "8", "8_192"; None when it is not one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    number = as_number(value)
    if number is None or number != int(number) or abs(number) > 2**53:
        return None
    return int(number)


def as_number(value: Any) -> float | None:
    """A finite float, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_boolean(value: Any) -> bool | None:
    """True and false however written: true, "True", "yes", 1; None when it is neither."""
    if isinstance(value, bool):
        return value
    lowered = str(value).strip().lower()
    if lowered in TRUE:
        return True
    return False if lowered in FALSE else None


def _flag(kind: str, key: str, setting: Setting) -> Any:
    from chipshift.jobs.job import Flag

    return Flag(kind, key, _shown(setting.value), setting.file, setting.line)


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    text = " ".join(text.split())
    if isinstance(value, str) and not text:
        return "''"
    return text if len(text) <= 60 else text[:57] + "..."


def _range(kind: str, low: float, high: float) -> str:
    if high >= ABSURD:
        return f"{kind} of at least {low:g}"
    return f"{kind} from {low:g} to {high:g}"


def unknown(key: str, setting: Setting, meant: str) -> InputError:
    """The one sentence for a key that is one slip away from one that is read."""
    return InputError(
        f"{setting.where}: {key} is {_shown(setting.value)}, but no such key is read; did you mean "
        f"'{meant}'?"
    )
