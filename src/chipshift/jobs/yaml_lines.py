"""YAML with the line of every key, built from parser events: no tags obeyed, aliases bounded.

PyYAML's own loaders recurse and expand aliases without limit; here a document is built from the
event stream, so that a bomb of aliases or brackets is refused before it is unfolded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.source import Source

MOST_NODES = 200_000
DEPTH = 60
LONGEST = 2_000_000
"""Characters of a YAML file: real job files stay below a hundredth of it."""

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")


@dataclass
class Document:
    """One document: its value, and the line of each dotted key."""

    tree: Any
    lines: dict[str, int] = field(default_factory=dict)


@dataclass
class _Open:
    """A collection being filled."""

    value: Any
    path: str
    anchor: str | None
    key: str | None = None
    merged: dict[str, Any] = field(default_factory=dict)
    size: int = 1


def parse(source: Source) -> list[Document]:
    """Every document of the file.

    Raises:
        InputError: not YAML, with its line; or too long, too deep, or aliases that multiply.
    """
    import yaml

    if len(source.text) > LONGEST:
        raise InputError(
            f"{source.path} is a YAML file of {len(source.text)} characters; expected at most "
            f"{LONGEST}"
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(source).build(yaml.parse(_tabless(source.text), Loader=loader))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        hint = "; it is a template ({{ }}): render it first" if "{{" in source.text else ""
        raise InputError(f"{source.path}{line} is not valid YAML: {error.problem}{hint}") from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(f"{source.path} is not valid YAML: {problem}") from None


def _tabless(text: str) -> str:
    """Tabs that indent a line are made spaces; the parser refuses them, editors write them."""
    return re.sub(r"^[ ]*\t[ \t]*", lambda m: m.group().replace("\t", "  "), text, flags=re.M)


class _Builder:
    def __init__(self, source: Source) -> None:
        self.path, self.twice = source.path, source.twice
        self.documents: list[Document] = []
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.lines: dict[str, int] = {}

    def build(self, events: Any) -> list[Document]:
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self.anchors, self.lines = {}, {}
            elif kind == "ScalarEvent":
                self.place(_scalar(event), event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self.open(kind == "MappingStartEvent", event)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self.close(event)
            elif kind == "AliasEvent":
                self.alias(event)
        return self.documents

    def count(self, size: int, line: int) -> None:
        self.nodes += size
        if self.nodes > MOST_NODES:
            raise InputError(
                f"{self.path}:{line}: the file unfolds to more than {MOST_NODES} values; expected "
                "a job file"
            )

    def open(self, mapping: bool, event: Any) -> None:
        line = event.start_mark.line + 1
        self.count(1, line)
        if len(self.stack) >= DEPTH:
            raise InputError(
                f"{self.path}:{line}: values nest more than {DEPTH} deep; expected a job file"
            )
        path = self.child_path(line)
        self.stack.append(_Open({} if mapping else [], path, event.anchor))

    def child_path(self, line: int) -> str:
        """Dotted path of the value about to come, whose line is recorded."""
        if not self.stack:
            return ""
        top = self.stack[-1]
        part = str(len(top.value)) if isinstance(top.value, list) else (top.key or "")
        path = f"{top.path}.{part}" if top.path else part
        self.lines.setdefault(path, line)
        return path

    def close(self, event: Any) -> None:
        done = self.stack.pop()
        if isinstance(done.value, dict):
            done.value = {**done.merged, **done.value}
        if done.anchor:
            self.anchors[done.anchor] = (done.value, done.size)
        self.attach(done.value, done.size, event)

    def alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        found = self.anchors.get(event.anchor)
        if found is None:
            raise InputError(f"{self.path}:{line}: the alias *{event.anchor} names no value yet")
        value, size = found
        self.count(size, line)
        self.child_path(line)
        self.attach(value, size, event)

    def place(self, value: Any, event: Any) -> None:
        line = event.start_mark.line + 1
        self.count(1, line)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            self.stack[-1].key = str(event.value)
            path = self.stack[-1].path
            # a key twice: the later one holds, as for the frameworks' own parsers
            self.lines[f"{path}.{event.value}" if path else str(event.value)] = line
            return
        self.child_path(line)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self.attach(value, 1, event)

    def attach(self, value: Any, size: int, event: Any) -> None:
        if not self.stack:
            self.documents.append(Document(value, self.lines))
            return
        top = self.stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            top.key = str(value)[:80]
        else:
            if top.key == "<<":
                for table in value if isinstance(value, list) else [value]:
                    if isinstance(table, dict):
                        top.merged = {**table, **top.merged}
            else:
                self.note_twice(top, value)
                top.value[top.key] = value
            top.key = None

    def note_twice(self, top: _Open, value: Any) -> None:
        """A key that its table has already, with another value: the later one is taken."""
        if top.key in top.value and top.value[top.key] != value:
            path = f"{top.path}.{top.key}" if top.path else str(top.key)
            self.twice[path] = self.lines.get(path, 0)


def _scalar(event: Any) -> Any:
    """A plain scalar as YAML 1.1 and 1.2 agree to read it; a quoted one stays text."""
    text: str = event.value
    if event.style in ("'", '"', "|", ">"):
        return text
    tag = event.tag
    if tag in ("tag:yaml.org,2002:str", "!"):
        return text
    lowered = text.lower()
    if lowered in ("", "~", "null", "none"):
        return None
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    if lowered in _SPECIAL:
        return _SPECIAL[lowered]
    if _INT.match(text) and len(text) < 40:
        return int(text.replace("_", ""))
    if _FLOAT.match(text) and not _INT.match(text):
        number = float(text.replace("_", ""))
        return number if math.isfinite(number) else text
    return text  # a whole number of forty digits too, which nobody means
