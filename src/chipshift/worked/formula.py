"""The decorator that makes a plain function a formula with a unit and a source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from chipshift.worked.value import Worked

P = ParamSpec("P")
R = TypeVar("R")


def formula(*, unit: str, source: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a pure, branch-free function of numbers as a formula.

    Called with floats or arrays the function just runs. If any argument is a ``Worked``, its
    result is one, named after the function, with this unit and source; a positional number among
    the arguments keeps its value in the text.

    Args:
        unit: SI unit of the result.
        source: whose formula it is (publication, section), or "" for arithmetic by definition.
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        label = function.__name__

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            if isinstance(result, Worked):
                return cast(R, _named(result, label, unit, source))
            return result

        call.unit = unit  # type: ignore[attr-defined]
        call.source = source  # type: ignore[attr-defined]
        return call

    return mark


def _named(result: Worked, name: str, unit: str, source: str) -> Worked:
    """The formula's result under its name; a result that is another named value is wrapped."""
    if result.name:
        return Worked(result.value, unit, name, result.name, (result,), source)
    return replace(result, unit=unit, name=name, source=source, precedence=4)


def rename(value: Any, name: str) -> Any:
    """The same value under the name it has where it is used; numbers pass through untouched.

    A value without a unit takes the one that the name ends with.
    """
    if not isinstance(value, Worked):
        return value
    named = replace(value, name=name, unit=value.unit or _unit_in(name))
    return named if value.name else replace(named, precedence=4)


def _unit_in(name: str) -> str:
    """Seconds or bytes, where a name says so at its end."""
    if name.endswith("_s") and not name.endswith("_per_s"):
        return "s"
    return "B" if name.endswith("_bytes") else ""
