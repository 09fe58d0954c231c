"""A user's module, example inputs and loss that do not go together: a finding with its line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from chipshift.compiled.findings import users_line


@dataclass(frozen=True)
class Made:
    """A user's module, example inputs, and the loss of its output and those."""

    module: Any
    inputs: tuple[Any, ...]
    loss: Callable[..., Any]


class Misfit(Exception):
    """They do not go together.

    Attributes:
        finding: what is wrong, at which line, and the way out.
    """

    def __init__(self, finding: dict[str, Any]):
        super().__init__(finding["message"])
        self.finding = finding


def check_calls(made: Made, folders: tuple[str, ...]) -> None:
    """
    Raises:
        Misfit: forward does not take the example inputs, or the loss its output and them.
    """
    count = len(made.inputs)
    wrong = _refused(made.module.forward, count)
    if wrong:
        raise Misfit(
            _finding(
                "inputs-do-not-fit",
                made.module.forward,
                folders,
                f"forward of {type(made.module).__name__} does not take the {count} example "
                f"input{'s' * (count != 1)} that the function returns: {wrong}",
                "return as many example inputs as forward takes, in its order; what the loss alone "
                "needs (labels) has to be an argument of forward too, or stand in the loss",
            )
        )
    wrong = _refused(made.loss, count + 1)
    if wrong:
        raise Misfit(
            _finding(
                "loss-does-not-fit",
                made.loss,
                folders,
                f"the loss does not take the module's output and the {count} example "
                f"input{'s' * (count != 1)}: {wrong}",
                "write it as loss(output, *inputs)",
            )
        )


def check_loss(value: Any, loss: Any, folders: tuple[str, ...]) -> None:
    """
    Raises:
        Misfit: the loss is not one floating-point number.
    """
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if shape is not None and tuple(shape) == () and ("float" in dtype or "bf16" in dtype):
        return
    if shape is None:
        found, instead = f"a {type(value).__name__}", "return the loss itself, a tensor"
    elif tuple(shape):
        found = f"a tensor of shape {tuple(shape)}"
        instead = "reduce it to one number: .mean() or .sum()"
    else:
        found, instead = f"a {dtype.removeprefix('torch.')}", "return a floating-point number"
    raise Misfit(
        _finding(
            "loss-not-a-number",
            loss,
            folders,
            f"the loss is {found}; gradients need one floating-point number",
            instead,
        )
    )


def _refused(function: Any, count: int) -> str:
    """Why a function cannot be called with so many arguments; "" where it can, or cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        return f"{error}"
    return ""


def _finding(
    rule: str, function: Any, folders: tuple[str, ...], message: str, instead: str
) -> dict[str, Any]:
    file, line = _defined(function, folders)
    return {
        "rule": rule, "severity": "blocker", "file": file, "line": line, "message": message,
        "instead": instead,
    }  # fmt: skip


def _defined(function: Any, folders: tuple[str, ...]) -> tuple[str | None, int | None]:
    """Where a function begins."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return users_line([(code.co_filename, code.co_firstlineno)], folders) if code else (None, None)
