"""A number that knows how it was worked out.

Formulas are written once, on plain numbers. Called with floats or arrays they compute and nothing
else; called with ``Worked`` operands they return a ``Worked`` whose expression is printed from the
operations that were executed, so that the text cannot drift from the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_INFIX = {
    "add": ("+", 1),
    "subtract": ("-", 1),
    "multiply": ("×", 2),
    "divide": ("/", 2),
    "true_divide": ("/", 2),
    "floor_divide": ("//", 2),
    "remainder": ("mod", 2),
    "power": ("^", 3),
}
_COMPARE = {
    "greater": ">",
    "less": "<",
    "greater_equal": ">=",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
}
_CALLS = {"maximum": "max", "minimum": "min", "ceil": "ceil", "floor": "floor", "rint": "round"}
_ATOM = 4


@dataclass(frozen=True, eq=False)
class Worked(np.lib.mixins.NDArrayOperatorsMixin):
    """A value with its unit, its formula and its inputs.

    Attributes:
        value: the number (a float).
        unit: its unit, "" while an expression is still being put together.
        name: what it is called where it is used; "" for an unnamed intermediate.
        expression: the formula with the names of its inputs, as executed.
        inputs: the named values that the expression reads.
        source: at a leaf, where the figure comes from; at a formula, whose formula it is.
        precedence: binding strength of ``expression``, for parentheses only.
    """

    value: float
    unit: str = ""
    name: str = ""
    expression: str = ""
    inputs: tuple[Worked, ...] = ()
    source: str = ""
    precedence: int = _ATOM

    def __bool__(self) -> bool:
        raise TypeError("a formula must not branch on a value: use np.where")

    def __float__(self) -> float:
        return float(self.value)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        return _record(ufunc.__name__, ufunc, args)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if kwargs:
            return NotImplemented
        return _record(func.__name__, func, args)


def leaf(value: float, unit: str, name: str, source: str) -> Worked:
    """An input with its source: where a derivation ends."""
    return Worked(float(value), unit, name, "", (), source)


def plain(value: Any) -> Any:
    """The number inside, whether or not it carries its working."""
    return value.value if isinstance(value, Worked) else value


def _text(operand: Any) -> tuple[str, int]:
    """What stands for an operand in a formula's text, and how strongly it binds."""
    if isinstance(operand, Worked):
        return (operand.name, _ATOM) if operand.name else (operand.expression, operand.precedence)
    if isinstance(operand, np.ndarray) and operand.ndim:
        return "[" + ", ".join(f"{x:.6g}" for x in operand.ravel()) + "]", _ATOM
    number = float(operand)
    return (f"{int(number)}" if number == int(number) and abs(number) < 1e6 else f"{number:.6g}"), 4


def _inputs(operands: tuple[Any, ...]) -> tuple[Worked, ...]:
    """The named values that these operands read, each once."""
    found: dict[int, Worked] = {}
    for operand in operands:
        if isinstance(operand, Worked):
            for one in (operand,) if operand.name else operand.inputs:
                found.setdefault(id(one), one)
    return tuple(found.values())


def _is(operand: Any, number: float) -> bool:
    """Whether an operand is this plain number, and no figure that happens to have its value."""
    return isinstance(operand, int | float | np.number) and float(operand) == number


def _neutral(name: str, args: tuple[Any, ...]) -> tuple[Any] | None:
    """The operand that an operation hands on unchanged, in a tuple; None where it does work.

    Parts that a model or a plan does not have are plain zeros: they leave no trace in the text.
    """
    if name == "where":
        chosen, first, second = args
        if isinstance(chosen, bool | np.bool_):  # settled by the layout alone: no choice to show
            return (first,) if chosen else (second,)
        same = first is second or (_is(first, 0.0) and _is(second, 0.0))
        return (first,) if same else None
    if len(args) != 2:
        return None
    left, right = args
    if name in ("minimum", "maximum") and left is right:
        return (left,)
    if name == "add" and _is(left, 0.0):
        return (right,)
    if name == "maximum":  # a float 0 is an absent part; a floor is written as an integer
        for absent, other in ((left, right), (right, left)):
            if isinstance(absent, float) and _is(absent, 0.0) and float(plain(other)) >= 0:
                return (other,)
    if name in ("add", "subtract") and _is(right, 0.0):
        return (left,)
    if name == "multiply" and _is(left, 1.0):
        return (right,)
    if name in ("multiply", "divide", "true_divide") and _is(right, 1.0):
        return (left,)
    if (name in ("multiply", "divide", "true_divide") and _is(left, 0.0)) or (
        name == "multiply" and _is(right, 0.0)
    ):
        return (0.0,)
    return None


def _record(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    unchanged = _neutral(name, args)
    if unchanged is not None:
        return unchanged[0]
    value = function(*(plain(a) for a in args))
    texts = [_text(a) for a in args]
    precedence = _ATOM
    if name in _INFIX and len(args) == 2:
        sign, precedence = _INFIX[name]
        left, right = (
            f"({text})" if bound < precedence + side * (name not in ("add", "multiply")) else text
            for side, (text, bound) in enumerate(texts)
        )
        expression = f"{left} {sign} {right}"
    elif name in _COMPARE:
        precedence = 0
        expression = f"{texts[0][0]} {_COMPARE[name]} {texts[1][0]}"
    elif name == "negative":
        text, bound = texts[0]
        expression, precedence = (f"-({text})" if bound < _ATOM else f"-{text}"), 1
    elif name == "where":
        expression = f"({texts[1][0]} if {texts[0][0]} else {texts[2][0]})"
    elif name == "interp":
        expression = f"read off a measured curve at {texts[0][0]}"
    else:
        expression = f"{_CALLS.get(name, name)}({', '.join(text for text, _ in texts)})"
    # a choice is read "chosen if condition else other": its working follows in that order
    read = (args[1], args[0], args[2]) if name == "where" else args
    return Worked(float(value), "", "", expression, _inputs(read), "", precedence)
