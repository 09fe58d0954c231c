"""Values of a script's variables, with where they were written and how sure they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chipshift.errors import InputError
from chipshift.jobs.shell.lex import CLOSE, CONTINUED, OPEN

_UNKNOWN = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
_GAP = re.compile(rf"[\s{CONTINUED}]+")
MOST_TEXT = 1_000_000
"""Longest expanded value, and most steps taken: beyond it a script is not a launch script."""

MOST_MADE = 20_000_000
"""Characters that all expansions of a script may come to together; real ones make a thousandth."""

EACH = 32
"""Characters that every expansion counts as besides its own, so that words are bounded too."""


@dataclass(frozen=True)
class Field:
    """A piece of text with its line.

    Attributes:
        soft: it rests on the default of an environment variable (``${NNODES:-1}``), so that the
            launch may well say otherwise.
    """

    text: str
    line: int
    soft: bool = False

    @property
    def plain(self) -> str:
        """Without the marks of continued lines."""
        return self.text.replace(CONTINUED, "")

    @property
    def unknown(self) -> tuple[str, ...]:
        """What in it could not be resolved: variable names, ``$(...)`` texts."""
        return tuple(_UNKNOWN.findall(self.text))

    @property
    def shown(self) -> str:
        """As printed: what could not be resolved as the script writes it."""
        return _UNKNOWN.sub(_as_written, self.plain)

    @property
    def empty_unknown(self) -> str:
        """As a shell would have it with nothing else set: unknown variables empty."""
        return _UNKNOWN.sub("", self.plain)


def _as_written(match: re.Match[str]) -> str:
    return f"${match.group(1)}"


class Keyed(list[Field]):
    """An array by keys: its values, and ``names`` of the same length."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def put(self, name: str, value: Field) -> None:
        if name in self.names:
            self[self.names.index(name)] = value
        else:
            self.names.append(name)
            self.append(value)


Value = Field | list[Field]


@dataclass
class Environment:
    """Variables while a script is walked.

    Attributes:
        fixed: ``--set`` values: they win over every assignment in the script.
        functions: bodies by name.
        files: text that the script writes with here-documents, by name.
        exported: names given to the environment of what is started.
        unset: unresolved names used in conditions, with the line of the first use.
        passed: names that branches would have set and known conditions left out: empty in a shell.
        unsourced: files that the script sources and that were not given, with the line.
        steps: what is left of the walk's allowance.
        made: characters that expansions have come to so far.
        given: texts of files given beside the script, by base name; queried: those that yq or jq
            looked into.
        option_at: letters of a word ``-abc`` that ``getopts`` is through with.
    """

    fixed: dict[str, str]
    variables: dict[str, Value] = field(default_factory=dict)
    positional: list[Field] = field(default_factory=list)
    exported: dict[str, Field] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    unset: dict[str, int] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    unsourced: dict[str, int] = field(default_factory=dict)
    used_fixed: set[str] = field(default_factory=set)
    steps: int = 50_000
    made: int = 0
    option_at: int = 0
    file: str = ""
    given: dict[str, str] = field(default_factory=dict)
    queried: set[str] = field(default_factory=set)

    def get(self, name: str) -> Value | None:
        if name in self.fixed:
            self.used_fixed.add(name)
            return Field(self.fixed[name], 0)
        if name.isdecimal() and (number := int(name[:6])) > 0:  # ${00} is $0, the script's name
            return self.positional[number - 1] if number <= len(self.positional) else None
        if name in ("@", "*"):
            return list(self.positional)
        if name == "#":
            return Field(str(len(self.positional)), 0)
        return self.variables.get(name)

    def set(self, name: str, value: Value) -> None:
        self.variables[name] = value

    def spend(self, text: str, line: int) -> str:
        """The text, counted.

        Raises:
            InputError: it is too long, or all of the script's texts are together.
        """
        self.made += len(text) + EACH
        if len(text) > MOST_TEXT or self.made > MOST_MADE:
            raise InputError(f"{self.file}:{line}: a value grows past {MOST_TEXT} characters")
        return text


def split(value: Field) -> list[Field]:
    """A value's words with the line each stands on, as an unquoted expansion splits it."""
    if not _GAP.search(value.text):
        return [value] if value.text else []
    found: list[Field] = []
    line, at = value.line, 0
    for gap in _GAP.finditer(value.text):
        if gap.start() > at:
            found.append(Field(value.text[at : gap.start()], line, value.soft))
        line += gap.group().count(CONTINUED) + gap.group().count("\n")
        at = gap.end()
    if at < len(value.text):
        found.append(Field(value.text[at:], line, value.soft))
    return found


def unresolved(what: str, line: int) -> Field:
    """A mark for what is not known; one word, whatever characters its text holds."""
    one_word = re.sub(r"[^\w./:=,@%+()-]+", "·", what[:80])
    return Field(f"{OPEN}{one_word}{CLOSE}", line)
