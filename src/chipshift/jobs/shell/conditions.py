"""Conditions: ``[ ... ]``, ``[[ ... ]]`` and ``test``, with unset variables empty as in a shell.

Files are not looked for: a test of a file's existence is taken as passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from chipshift.jobs.shell.arith import Unsure, evaluate
from chipshift.jobs.shell.patterns import extended, matches, searched
from chipshift.jobs.shell.values import Environment, Field

FILE_TESTS = ("-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h")
_NUMERIC = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


def holds(tokens: Sequence[str], env: Environment | None = None) -> bool:
    """Whether the condition holds; a form that is not known does not.

    Args:
        env: where ``=~`` leaves what its brackets have found.
    """
    return _Condition(list(tokens), env).either()


class _Condition:
    def __init__(self, tokens: list[str], env: Environment | None) -> None:
        self.tokens, self.env, self.at, self.depth = tokens, env, 0, 0

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
            if second == "=~":
                return _fits(first, third, self.env)
            return _compare(first, second, third)
        if first.startswith("-") and len(first) == 2 and second is not None:
            self.at += 2
            if first in FILE_TESTS:
                return True
            return bool(second) if first in ("-n", "-v") else first == "-z" and not second
        self.at += 1
        return bool(first)


def _compare(left: str, op: str, right: str) -> bool:
    if op in ("=", "=="):
        return left == right or matches(left, right)
    if op == "!=":
        return left != right and not matches(left, right)
    if op in ("<", ">"):
        return left < right if op == "<" else left > right

    def number(name: str) -> int:
        raise Unsure(name)

    try:
        return bool(evaluate(f"({left or 0}) {_NUMERIC[op]} ({right or 0})", number))
    except Unsure:
        return False


def _fits(text: str, pattern: str, env: Environment | None) -> bool:
    """A regular expression; one that might run away does not fit."""
    found = searched(extended(pattern), text)
    if isinstance(found, bool) or found is None:
        return False
    if env is not None:
        groups = [found.group(), *(group or "" for group in found.groups())]
        env.set("BASH_REMATCH", [Field(group, 0) for group in groups])
    return True
