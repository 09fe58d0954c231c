"""What values of a Python job file may be, and what operators give of them.

What cannot be told is ``Unknown``; numbers are kept bounded.
"""

from __future__ import annotations

import ast
from typing import Any

LONGEST_TEXT = 1_000
"""Of a string that a script joins from parts; none that names something is longer."""


class Unknown(str):
    """Source text of an expression that only a run could tell."""

    @property
    def names(self) -> tuple[str, ...]:
        return (str(self),)


class Absent(Unknown):
    """An argument that a command line may give and that is None where it does not."""


class Variable(Unknown):
    """``$NAME``: a variable of the environment that has no default and that nothing sets."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.removeprefix("$"),)


def unary(node: ast.UnaryOp, value: Any) -> Any:
    if isinstance(node.op, ast.Not) and isinstance(value, Absent):
        return True
    if isinstance(node.op, ast.Not) and not isinstance(value, Unknown):
        return not value
    if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
        return -value
    return value


def binary(node: ast.BinOp, left: Any, right: Any) -> Any:
    if isinstance(node.op, ast.Add) and is_text(left) and is_text(right):
        return (left + right)[:LONGEST_TEXT]
    if not _number(left) or not _number(right):
        return Unknown("...")
    try:
        if isinstance(node.op, ast.Add):
            value = left + right
        elif isinstance(node.op, ast.Sub):
            value = left - right
        elif isinstance(node.op, ast.Mult):
            value = left * right
        elif isinstance(node.op, ast.Div):
            value = left / right
        elif isinstance(node.op, ast.FloorDiv):
            value = left // right
        elif isinstance(node.op, ast.Mod):
            value = left % right
        elif isinstance(node.op, ast.Pow) and abs(right) <= 64 and abs(left) <= 2**20:
            value = left**right
        else:
            return Unknown("...")
    except (ArithmeticError, ValueError):
        return Unknown("...")
    return value if isinstance(value, (int, float)) and _bounded(value) else Unknown("...")


def compared(operator: ast.cmpop, left: Any, right: Any) -> Any:
    """Two plain values compared; None is what a parameter's default may be."""
    left, right = (None if isinstance(one, Absent) else one for one in (left, right))
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return Unknown("...")
    if isinstance(operator, (ast.Eq, ast.NotEq)) and type(left) is type(right):
        return (left == right) == isinstance(operator, ast.Eq)
    if isinstance(operator, (ast.Eq, ast.NotEq)) and (left is None or right is None):
        return isinstance(operator, ast.NotEq)
    if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(right, (list, dict)):
        inside = any(left == one and type(left) is type(one) for one in right)
        told = inside or not any(isinstance(one, Unknown) for one in right)
        return inside == isinstance(operator, ast.In) if told else Unknown("...")
    if isinstance(operator, (ast.In, ast.NotIn)) and is_text(left) and is_text(right):
        return (left in right) == isinstance(operator, ast.In)
    if isinstance(operator, (ast.Is, ast.IsNot)) and (left is None or right is None):
        return (left is right) == isinstance(operator, ast.Is)
    if not _number(left) or not _number(right):
        return Unknown("...")
    if isinstance(operator, ast.Gt):
        return left > right
    if isinstance(operator, ast.GtE):
        return left >= right
    if isinstance(operator, ast.Lt):
        return left < right
    return left <= right if isinstance(operator, ast.LtE) else Unknown("...")


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Unknown)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _bounded(value)


def _bounded(value: float) -> bool:
    return abs(value) < 2**200  # no NaN, no infinity, nor an int that no float holds
