"""The decorator that makes a plain function a formula with a unit and a source."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from chipshift.worked.value import Worked

P = ParamSpec("P")
R = TypeVar("R")


def formula(*, unit: str, source: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a pure, branch-free function of numbers as a formula.

    Called with floats or arrays the function just runs. If any argument is a ``Worked``, its
    result is one, named after the function, with this unit and source; an argument that has no
    name yet bears its parameter's in the text, and a plain number keeps its value.

    Args:
        unit: SI unit of the result.
        source: whose formula it is (publication, section), or "" for arithmetic by definition.
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        label = function.__name__
        parameters = [
            name if one.kind is one.POSITIONAL_OR_KEYWORD else ""
            for name, one in inspect.signature(function).parameters.items()
        ]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if any(isinstance(one, Worked) for one in args):
                args = _with_names(args, parameters)  # type: ignore[assignment]
            result = function(*args, **kwargs)
            if isinstance(result, Worked):
                return cast(R, _named(result, label, unit, source))
            return result

        call.unit = unit  # type: ignore[attr-defined]
        call.source = source  # type: ignore[attr-defined]
        return call

    return mark


def _with_names(args: tuple[Any, ...], parameters: list[str]) -> tuple[Any, ...]:
    """The arguments, those without a name under their parameter's; the same value keeps one."""
    known: dict[int, Worked] = {}
    out = []
    for i, one in enumerate(args):
        name = parameters[i] if i < len(parameters) else ""
        if isinstance(one, Worked) and not one.name and name:
            one = known.setdefault(id(one), rename(one, name))
        out.append(one)
    return tuple(out)


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


UNIT_OF_ENDING = (
    ("_per_s", ""), ("_s", "s"), ("_bytes", "B"), ("bytes_per_param", "B"),
    ("elements", "elements"), ("_padded", "elements"), ("params", "parameters"),
    ("flops", "FLOP"), ("flops_per_token", "FLOP"), ("_share", "1"), ("_scale", "1"),
    ("layers", "layers"), ("layers_on_stage", "layers"),
)  # fmt: skip
UNIT_OF_NAME = {
    "m": "elements", "n": "elements", "k": "elements", "size": "elements", "whole": "parameters",
    "params_owned": "parameters", "tokens": "tokens", "scale": "1", "e_max": "1", "e_hbm": "1",
    "heads": "heads", "kv_heads": "heads", "hops": "s", "chips": "chips", "dynamic": "B",
    "matmul_forward": "FLOP", "e_in_a_step": "1", "e_forward_in_a_step": "1",
    "e_backward_in_a_step": "1", "e_hbm_in_a_step": "1", "ops_of_a_microbatch": "ops",
    "bytes_per_param": "B",
}  # fmt: skip


def _unit_in(name: str) -> str:
    """The unit that a name says by itself or at its end; "" where it says none."""
    if name in UNIT_OF_NAME:
        return UNIT_OF_NAME[name]
    return next((unit for ending, unit in UNIT_OF_ENDING if name.endswith(ending)), "")
