"""Writes docs/formulas.md: every formula, its expression as executed and an example value."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOMS = ("models", "roofline", "parallel", "fabric", "estimate", "flows")
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
HEAD = """# Every formula

Written by `make readme` from the code itself: the expression is printed from what was executed
with each argument at a small prime (2, 3, 5, ... in order), and the example is that value. The
arguments' units and meaning stand in the docstring of the function named; numbers inside are SI.
"""


def formulas(room: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Module and function of every formula of a room, in the order of the files."""
    package = importlib.import_module(f"chipshift.{room}")
    for info in pkgutil.walk_packages(package.__path__, f"chipshift.{room}."):
        module = importlib.import_module(info.name)
        for found in vars(module).values():
            own = getattr(found, "__module__", "") == module.__name__
            if own and hasattr(found, "unit") and hasattr(found, "__wrapped__"):
                yield info.name.removeprefix("chipshift."), found


def example(function: Callable[..., Any]) -> tuple[str, str]:
    """Expression and value of a formula at small primes; empty where it takes no plain numbers."""
    from chipshift.worked import leaf

    names = list(inspect.signature(function).parameters)
    values = [leaf(float(p), "", name, "") for name, p in zip(names, PRIMES, strict=False)]
    try:
        found = function(*values)
        return found.expression, f"{found.value:.6g}"
    except (TypeError, ValueError, AttributeError):
        return "", ""


def page() -> str:
    """The page's text."""
    out = [HEAD]
    for room in ROOMS:
        out.append(f"\n## {room}\n")
        for module, function in formulas(room):
            arguments = ", ".join(inspect.signature(function).parameters)
            expression, value = example(function)
            unit: str = function.unit  # type: ignore[attr-defined]
            source: str = function.source  # type: ignore[attr-defined]
            first = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
            out.append(f"**`{function.__name__}({arguments})`** [{unit}], `{module}`: {first}")
            if expression:
                out.append(f"`= {expression}` (example: {value})")
            out.append(f"*{source}*\n" if source else "")
    return "\n".join(out).rstrip() + "\n"


def write() -> Path:
    """Write the page beside this file."""
    place = Path(__file__).with_name("formulas.md")
    place.write_text(page(), "utf8")
    return place


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    print(write())
