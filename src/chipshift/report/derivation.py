"""Derivations as HTML: each distinct step is written once, and every figure opens its own.

A figure's panel holds the first levels of its tree; what lies deeper is one link away in the
list of all steps, so that the page says everything and stays small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

from chipshift.worked import Worked
from chipshift.worked.tree import number

PANEL_LINES = 16


@dataclass(frozen=True)
class Step:
    """One value of a derivation; equal steps are one.

    Attributes:
        at: position in the list of all steps; its anchor is ``w<at>``.
        source: number of its source, 0 for none.
    """

    at: int
    name: str
    value: str
    expression: str
    source: int
    inputs: tuple[int, ...]

    @property
    def leaf(self) -> bool:
        return not self.expression


@dataclass
class Book:
    """All steps and sources of a page, filled as figures are entered.

    Attributes:
        steps: in order of entry, inputs before what reads them.
        sources: texts; their number is their position plus one.
        figures: step of each dotted path.
        parts: ``(heading, first step, step after the last)``.
    """

    steps: list[Step] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    parts: list[tuple[str, int, int]] = field(default_factory=list)
    known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def source(self, words: str) -> int:
        """The number of a source."""
        return self.sources.setdefault(words, len(self.sources) + 1) if words else 0

    def enter(self, value: Worked, seen: dict[int, int]) -> int:
        """Enter a derivation, inputs first; ``seen`` holds those entered before, by identity."""
        if id(value) in seen:
            return seen[id(value)]
        inputs = tuple(self.enter(one, seen) for one in value.inputs)
        unit = "" if value.unit == "1" else value.unit
        text = f"{number(value.value)} {unit}".strip()
        key = (value.name, text, value.expression, value.source, inputs)
        at = self.known.get(key)
        if at is None:
            at = len(self.steps)
            self.known[key] = at
            self.steps.append(Step(
                at, value.name or "value", text, value.expression, self.source(value.source),
                inputs,
            ))  # fmt: skip
        seen[id(value)] = at
        return at

    def add(self, heading: str, figures: Iterable[tuple[str, Worked]]) -> None:
        """Enter the figures of one part of the page under a heading."""
        start, seen = len(self.steps), dict[int, int]()
        kept = list(figures)  # the identities in ``seen`` hold only while the values live
        for path, value in kept:
            self.figures[path] = self.enter(value, seen)
        self.parts.append((heading, start, len(self.steps)))


def figures_of(prefix: str, tree: Any) -> Iterable[tuple[str, Worked]]:
    """Every ``Worked`` of an estimate's JSON with its dotted path."""
    if isinstance(tree, Worked):
        yield prefix, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from figures_of(f"{prefix}.{key}" if prefix else str(key), value)
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from figures_of(f"{prefix}.{i}", value)


def from_json(worked: Mapping[str, Any]) -> Worked:
    """The contract's ``worked`` object as the value it was made from."""
    return Worked(
        worked["value"], worked["unit"], worked["name"], worked["expression"],
        tuple(from_json(one) for one in worked["inputs"]), worked["source"],
    )  # fmt: skip


def panel(book: Book, path: str) -> Markup:
    """The derivation of a figure, nested; empty where the figure has none."""
    root = book.figures.get(path)
    if root is None:
        return Markup("")
    opened = _opened(book, root)
    return Markup('<div class="step">') + _head(book, root) + _body(book, root, opened) + Markup(
        "</div>"
    )  # fmt: skip


def _opened(book: Book, root: int) -> set[int]:
    """The steps worked out inside a panel: breadth first, about ``PANEL_LINES`` lines."""
    opened, lines = {root}, 1
    queue = deque([root])
    while queue:
        step = book.steps[queue.popleft()]
        lines += len(step.inputs)
        for at in step.inputs:
            inner = book.steps[at]
            if inner.leaf or at in opened or lines + len(inner.inputs) > PANEL_LINES:
                continue
            opened.add(at)
            lines += 1
            queue.append(at)
    return opened


def _cite(step: Step) -> Markup:
    if not step.source:
        return Markup("")
    return Markup(f" <a class=cite href=#s{step.source}>[{step.source}]</a>")


def _head(book: Book, at: int) -> Markup:
    step = book.steps[at]
    return Markup(f"<b>{escape(step.name)}</b> = {escape(step.value)}")


def _body(book: Book, at: int, opened: set[int]) -> Markup:
    """A step's formula and its inputs; each input is opened in place at most once."""
    step = book.steps[at]
    out = Markup(f'<div class="expr">= {escape(step.expression)}') if step.expression else Markup(
        '<div class="expr">as given'
    )  # fmt: skip
    out += _cite(step) + Markup("</div>")
    if not step.inputs:
        return out
    out += Markup("<ul>")
    for inner in dict.fromkeys(step.inputs):
        out += Markup("<li>") + _input(book, inner, opened) + Markup("</li>")
    return out + Markup("</ul>")


def _input(book: Book, at: int, opened: set[int]) -> Markup:
    step = book.steps[at]
    if step.leaf:
        return Markup(f"{escape(step.name)} = {escape(step.value)}") + _cite(step)
    if at in opened:
        opened.discard(at)
        return (
            Markup("<details><summary>") + _head(book, at) + Markup("</summary>")
            + _body(book, at, opened) + Markup("</details>")
        )  # fmt: skip
    return _reference(book, at)


def written(book: Book, start: int, end: int) -> Markup:
    """All derived steps of a part, each once, with links to the steps they read."""
    out = Markup('<dl class="steps">')
    for step in book.steps[start:end]:
        if step.leaf:
            continue
        reads = Markup(", ").join(_reference(book, at) for at in dict.fromkeys(step.inputs))
        out += Markup(
            f"<dt id=w{step.at}><b>{escape(step.name)}</b> = {escape(step.value)}"
            f"<dd>= {escape(step.expression)}{_cite(step)}"
        )
        out += Markup("<br>") + reads if reads else Markup("")
    return out + Markup("</dl>")


def _reference(book: Book, at: int) -> Markup:
    step = book.steps[at]
    words = f"{escape(step.name)} = {escape(step.value)}"
    if step.leaf:
        return Markup(words) + _cite(step)
    return Markup(f"<a href=#w{at}>{words}</a>")
