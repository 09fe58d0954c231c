"""Python source edited by its syntax tree: comments and layout stay as they were written."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_parsed = lru_cache(maxsize=2)(ast.parse)
"""Most passes change nothing, so that the next reads the same text."""

Edit = tuple[int, int, str]
"""First character, the one after the last, and what stands there instead."""


@dataclass
class Source:
    """Text with its tree and where each line starts."""

    text: str
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = _parsed(self.text)
        self.lines = self.text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Character of a place as ``ast`` gives it: lines from 1, columns in bytes of UTF-8."""
        before = self.lines[line - 1].encode()[:column]
        return self.starts[line - 1] + len(before.decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begins = self.at(node.lineno, node.col_offset)
        return begins, self.at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        begins, ends = self.span(node)
        return self.text[begins:ends]

    def whole_lines(self, first: int, last: int) -> tuple[int, int]:
        return self.starts[first - 1], self.starts[last]

    def first_line(self, node: ast.stmt) -> int:
        """Of a statement with its decorators and the comments right above it."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        line = min([node.lineno, *(d.lineno for d in decorators)])
        while line > 1 and self.lines[line - 2].lstrip().startswith("#"):
            line -= 1
        return line

    def without(self, statements: list[ast.stmt]) -> Edit:
        """The edit that removes statements that follow each other."""
        last = statements[-1].end_lineno
        assert last is not None
        return (*self.whole_lines(self.first_line(statements[0]), last), "")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with its edits made; of two that overlap the one that begins first, and of those the
    longer, is made."""
    out, done = [], 0
    for begins, ends, new in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if begins >= done:
            out += [text[done:begins], new]
            done = ends
    return "".join([*out, text[done:]])


def quoted(value: Any) -> str:
    """A literal in double quotes; its strings hold none."""
    return repr(value).replace("'", '"')


def bodies(node: ast.AST) -> Iterable[list[ast.stmt]]:
    """The lists of statements right under a node."""
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        if isinstance(found, list) and found:
            yield found


WIDTH = 100


def refitted(text: str) -> str:
    """Statements that edits have made short enough for one line, on one: what ends in a comma stays
    open, as whoever wrote it wanted."""
    source = Source(text)
    edits = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef):
            first, last = node.lineno, _header_end(source, node)
        elif isinstance(node, ast.Assign | ast.Return | ast.Expr | ast.AugAssign):
            assert node.end_lineno is not None
            first, last = node.lineno, node.end_lineno
        else:
            continue
        lines = source.lines[first - 1 : last]
        whole = _one_line(lines)
        if len(lines) > 1 and whole is not None and len(whole) <= WIDTH:
            edits.append((*source.whole_lines(first, last), whole + "\n"))
    return edited(text, edits)


def _header_end(source: Source, node: ast.FunctionDef) -> int:
    """The line on which a function's header ends."""
    line = node.lineno
    while not source.lines[line - 1].rstrip().endswith(":"):
        line += 1
    return line


def _one_line(lines: list[str]) -> str | None:
    """Lines within brackets as one; None where a comma, a comment or a text keeps them apart."""
    stripped = [line.strip() for line in lines]
    kept = any(
        line.endswith(",") and after[:1] in ")]}" for line, after in itertools.pairwise(stripped)
    )
    if kept or any("#" in line or '"""' in line for line in lines):
        return None
    whole = lines[0].rstrip()
    for line in stripped[1:]:
        if line[:1] in ('"', "f") and whole[-1:] == '"':
            return None
        apart = "" if whole[-1] in "([{" or line[:1] in ")]}" else " "
        whole += apart + line
    return whole
