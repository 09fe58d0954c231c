"""Values of a script's variables, with where they were written and how sure they are."""

from __future__ import annotations

import re
from collections.abc import Callable
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
BLANKS = " \t\n"
"""``IFS`` where a script leaves it alone."""


@dataclass
class Input:
    """A text that is read line by line."""

    text: str
    line: int
    at: int = 0

    def take(self, whole: bool = False) -> str | None:
        """The next line, or all that is left; None at the end."""
        if self.at >= len(self.text):
            return None
        end = len(self.text) if whole else self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        taken = self.text[self.at : end]
        self.at = end + 1
        return taken


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
        references: names that stand for others (``local -n``); integers: those that are numbers.
        given_none: the script's own arguments are looked at, and none is given.
        doubts: looks at what only a run could tell, or what the launch may well set otherwise.
        files_asked: how often a file's existence was asked for.
        status: the last command's success.
        input: what is there to read, as far as it is known.
        capture: what commands print, by their text and line; None where it is not known.
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
    references: dict[str, str] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)
    given_none: bool = False
    doubts: int = 0
    files_asked: int = 0
    status: bool | None = True
    input: Input | None = None
    capture: Callable[[str, int], Field | None] = lambda text, line: None

    def get(self, name: str) -> Value | None:
        name = self.references.get(name, name)
        if name in self.fixed:
            self.used_fixed.add(name)
            return Field(self.fixed[name], 0)
        if self.given_none and (name in ("@", "*", "#") or name.isdecimal()):
            self.doubts += 1
        if name == "IFS" and name not in self.variables:
            return Field(BLANKS, 0)
        if name.isdecimal() and (number := int(name[:6])) > 0:  # ${00} is $0, the script's name
            return self.positional[number - 1] if number <= len(self.positional) else None
        if name in ("@", "*"):
            return list(self.positional)
        if name == "#":
            return Field(str(len(self.positional)), 0)
        return self.variables.get(name)

    def held(self, name: str) -> Value | None:
        """What the script itself has assigned, whatever ``--set`` says."""
        return self.variables.get(self.references.get(name, name))

    def set(self, name: str, value: Value) -> None:
        self.variables[self.references.get(name, name)] = value

    @property
    def between(self) -> str | None:
        """The characters of ``IFS`` that words are split at; None for blanks."""
        own = self.variables.get("IFS")
        return own.plain if isinstance(own, Field) and own.plain != BLANKS else None

    def spend(self, text: str, line: int) -> str:
        """The text, counted.

        Raises:
            InputError: it is too long, or all of the script's texts are together.
        """
        self.made += len(text) + EACH
        if len(text) > MOST_TEXT or self.made > MOST_MADE:
            raise InputError(f"{self.file}:{line}: a value grows past {MOST_TEXT} characters")
        return text


def split(value: Field, between: str | None = None) -> list[Field]:
    """A value's words with the line each stands on, as an unquoted expansion splits it.

    Args:
        between: the characters of ``IFS``; None for blanks.
    """
    if between is not None:
        return _split_at(value, between)
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


def _split_at(value: Field, between: str) -> list[Field]:
    """Words between the characters of ``IFS``; an empty one splits nothing."""
    text = value.plain
    if not between:
        return [Field(text, value.line, value.soft)] if text else []
    blank = "".join(character for character in between if character.isspace())
    cut = text.strip(blank) if blank else text
    pattern = f"[{re.escape(blank)}]*[{re.escape(between)}][{re.escape(blank)}]*" if blank else ""
    pieces = re.split(pattern or f"[{re.escape(between)}]", cut) if cut else []
    if pieces and not pieces[-1]:
        pieces.pop()
    return [Field(piece, value.line, value.soft) for piece in pieces]


def unresolved(what: str, line: int) -> Field:
    """A mark for what is not known; one word, whatever characters its text holds."""
    one_word = re.sub(r"[^\w./:=,@%+()-]+", "·", what[:80])
    return Field(f"{OPEN}{one_word}{CLOSE}", line)
