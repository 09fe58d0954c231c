"""Lines of a screen: pieces of text with styles, laid out by us and never wrapped."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from chipshift.units import duration, gib, si, significant

if TYPE_CHECKING:
    from rich.console import Console

WIDTH, LEAST = 100, 80
"""Columns that everything fits in, and those below which nothing is made narrower."""


class Span(NamedTuple):
    """A piece of a line with its style, a Rich style name ("" for plain)."""

    text: str
    style: str = ""


Line = list[Span]


def room() -> int:
    """Columns to lay out for: a terminal's own up to ``WIDTH``, which anything else is given."""
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDTH
    return max(LEAST, min(WIDTH, shutil.get_terminal_size((WIDTH, 50)).columns))


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines as they are, never wrapped."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=max(WIDTH, 20), soft_wrap=True, highlight=False)
    for line in lines:
        text = Text.assemble(*((span.text, span.style) for span in line))
        text.rstrip()
        console.print(text, soft_wrap=True)


@contextmanager
def without_blanks(console: Console) -> Iterator[None]:
    """What is printed meanwhile, without the blanks that fill a table's lines unless a terminal
    shows it."""
    with console.capture() as held:
        yield
    text = held.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    print(text, end="")  # which takes an output that was closed


def cut(words: str, room: int) -> str:
    """The words, ended with an ellipsis where they do not fit."""
    return words if len(words) <= room else words[: room - 1].rstrip() + "…"


def indented(words: str, width: int, indent: int = 15) -> Iterator[Line]:
    pad = " " * indent
    for part in textwrap.wrap(words, width - indent, break_on_hyphens=False):
        yield [Span(pad), Span(part, "dim")]


def labelled(label: str, words: str, width: int) -> Iterator[Line]:
    """A label and its words, the lines after the first set in a little."""
    first, *rest = textwrap.wrap(f"{label} {words}", width, subsequent_indent="  ")
    yield [Span(label, "bold"), Span(first.removeprefix(label))]
    yield from ([Span(line)] for line in rest)


def quantity(value: Mapping[str, Any] | None) -> str:
    """A value with its unit, in the size people read."""
    if value is None or value.get("value") is None:
        return "–"
    number, unit = float(value["value"]), str(value.get("unit") or "")
    if unit == "B":
        return gib(number)
    if unit == "s":
        return duration(number)
    if unit in ("FLOP", "FLOP/s", "B/s"):
        return si(number, unit)
    text = f"{number:,.0f}" if abs(number) >= 100 else significant(number, 3)
    return text if unit in ("", "1", "tokens", "devices") else f"{text} {unit}"
