"""Derivations as HTML: each distinct step is written once, and every figure opens its own.

A figure's panel holds the first levels of its tree; what lies deeper is one link away in the
list of all steps, so that the page says everything and stays small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from markupsafe import Markup

from chipshift.worked import Worked
from chipshift.worked.tree import number

PANEL_LINES = 16


@dataclass(frozen=True)
class Step:
    """One value of a derivation; equal steps are one. Texts are escaped for HTML.

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
                at, escape(value.name or "value"), escape(text), escape(value.expression),
                self.source(value.source), inputs,
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
    out = ["<div class=step>", _head(book.steps[root])]
    _body(book, root, _opened(book, root), out)
    return Markup("".join([*out, "</div>"]))


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


def _cite(step: Step) -> str:
    return f" <a class=cite href=#s{step.source}>[{step.source}]</a>" if step.source else ""


def _head(step: Step) -> str:
    return f"<b>{step.name}</b> = {step.value}"


def _body(book: Book, at: int, opened: set[int], out: list[str]) -> None:
    """A step's formula and its inputs; each input is opened in place at most once."""
    step = book.steps[at]
    formula = f"= {step.expression}" if step.expression else "as given"
    out.append(f"<div class=expr>{formula}{_cite(step)}</div>")
    if not step.inputs:
        return
    out.append("<ul>")
    for inner in dict.fromkeys(step.inputs):
        out.append("<li>")
        if inner in opened and not book.steps[inner].leaf:
            opened.discard(inner)
            out.append(f"<details><summary>{_head(book.steps[inner])}</summary>")
            _body(book, inner, opened, out)
            out.append("</details>")
        else:
            out.append(_reference(book.steps[inner]))
        out.append("</li>")
    out.append("</ul>")


def written(book: Book, start: int, end: int) -> Markup:
    """All derived steps of a part, each once, with links to the steps they read."""
    out = ['<dl class="steps">']
    for step in book.steps[start:end]:
        if step.leaf:
            continue
        reads = ", ".join(_reference(book.steps[at]) for at in dict.fromkeys(step.inputs))
        out.append(
            f"<dt id=w{step.at}>{_head(step)}<dd>= {step.expression}{_cite(step)}"
            + (f"<br>{reads}" if reads else "")
        )
    return Markup("".join([*out, "</dl>"]))


def _reference(step: Step) -> str:
    """A step named with its value: a leaf with its source, another with a link to its working."""
    words = f"{step.name} = {step.value}"
    return words + _cite(step) if step.leaf else f"<a href=#w{step.at}>{words}</a>"
