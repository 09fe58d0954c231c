"""Conditions: ``[ ... ]``, ``[[ ... ]]`` and ``test``, with unset variables empty as in a shell.

Files are not looked for: a test of a file's existence is taken as passed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from chipshift.jobs.shell.arith import Unsure, evaluate

_FILE_TESTS = ("-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h")
_NUMERIC = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


def holds(tokens: Sequence[str]) -> bool:
    """Whether the condition holds; a form that is not known does not."""
    return _Condition(list(tokens)).either()


class _Condition:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def peek(self, ahead: int = 0) -> str | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def either(self) -> bool:
        value = self.both()
        while self.peek() in ("||", "-o"):
            self.at += 1
            right = self.both()
            value = value or right
        return value

    def both(self) -> bool:
        value = self.one()
        while self.peek() in ("&&", "-a"):
            self.at += 1
            right = self.one()
            value = value and right
        return value

    def one(self) -> bool:
        first = self.peek()
        self.depth += 1
        if first is None or self.depth > 100:
            return False
        if first == "!" and self.peek(1) is not None:
            self.at += 1
            return not self.one()
        if first == "(":
            self.at += 1
            value = self.either()
            self.at += self.peek() == ")"
            return value
        second = self.peek(1)
        if second in ("=", "==", "!=", "=~", "<", ">", *_NUMERIC):
            assert second is not None
            third = self.peek(2) or ""
            self.at += 3
            return _compare(first, second, third)
        if first.startswith("-") and len(first) == 2 and second is not None:
            self.at += 2
            if first in _FILE_TESTS:
                return True
            return bool(second) if first in ("-n", "-v") else first == "-z" and not second
        self.at += 1
        return bool(first)


def _compare(left: str, op: str, right: str) -> bool:
    if op in ("=", "=="):
        return left == right or fnmatch.fnmatchcase(left, right)
    if op == "!=":
        return left != right and not fnmatch.fnmatchcase(left, right)
    if op == "=~":
        return _matches(left, right)
    if op in ("<", ">"):
        return left < right if op == "<" else left > right

    def number(name: str) -> int:
        raise Unsure(name)

    try:
        return bool(evaluate(f"({left or 0}) {_NUMERIC[op]} ({right or 0})", number))
    except Unsure:
        return False


def _matches(text: str, pattern: str) -> bool:
    """Plain alternations and anchors only: a user's regular expression may not run away."""
    if not re.fullmatch(r"[\w\s.^$|()/:-]*", pattern) or len(text) > 1000:
        return False
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False
