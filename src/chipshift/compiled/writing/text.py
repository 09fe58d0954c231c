"""Python source edited by its syntax tree: comments and layout stay as they were written."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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
        self.tree = ast.parse(self.text)
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
