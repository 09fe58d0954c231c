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

DITTO = "″"
"""Stands for an input that is the same as in the row above."""


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


def panel(book: Book, path: str, most: int) -> Markup:
    """The derivation of a figure, nested, in about ``most`` lines; empty where it has none."""
    root = book.figures.get(path)
    if root is None:
        return Markup("")
    out = [_head(book.steps[root])]
    _body(book, root, _opened(book, root, most), out)
    return Markup("".join(out))


def _opened(book: Book, root: int, most: int) -> set[int]:
    """The steps worked out inside a panel: breadth first, about ``most`` lines."""
    opened, lines = {root}, 1
    queue = deque([root])
    while queue:
        step = book.steps[queue.popleft()]
        lines += len(step.inputs)
        for at in step.inputs:
            inner = book.steps[at]
            if inner.leaf or at in opened or lines + len(inner.inputs) > most:
                continue
            opened.add(at)
            lines += 1
            queue.append(at)
    return opened


def _cite(step: Step) -> str:
    return f" <a href=#s{step.source}>[{step.source}]</a>" if step.source else ""


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
    out.append("</ul>")


@dataclass(frozen=True)
class Formula:
    """Steps that evaluate one formula, with the inputs that they all share taken out.

    Attributes:
        steps: in order of entry.
        shared: inputs that are the same in every step.
        varying: positions, among a step's distinct inputs, of those that are not.
    """

    steps: tuple[Step, ...]
    shared: tuple[int, ...]
    varying: tuple[int, ...]


def formulas(book: Book) -> list[Formula]:
    """The derived steps of a page by formula, in order of first entry."""
    found: dict[tuple[Any, ...], list[Step]] = {}
    for step in book.steps:
        if not step.leaf:
            names = tuple(book.steps[at].name for at in _distinct(step))
            found.setdefault((step.name, step.expression, step.source, names), []).append(step)
    out = []
    for steps in found.values():
        columns = list(zip(*(_distinct(step) for step in steps), strict=True))
        same = [len(set(column)) == 1 for column in columns]
        out.append(Formula(
            tuple(steps),
            tuple(column[0] for column, one in zip(columns, same, strict=True) if one),
            tuple(i for i, one in enumerate(same) if not one),
        ))  # fmt: skip
    return out


def _distinct(step: Step) -> tuple[int, ...]:
    return tuple(dict.fromkeys(step.inputs))


def written(book: Book) -> Markup:
    """Every formula of the page once; under it each evaluation with its inputs, in order.

    A row begins with the part of the page it was first worked for (class ``from<n>``), and its
    inputs link to where they are worked out; one that is the row above's is a ditto mark.
    """
    out = ['<dl class="steps">']
    part_of = _parts(book)
    for formula in formulas(book):
        first = formula.steps[0]
        alone = len(formula.steps) == 1
        head = f" id=w{first.at}><b>{first.name}</b> = {first.value}" if alone else \
            f"><b>{first.name}</b>"  # fmt: skip
        out.append(f"<dt{head} = {first.expression}{_cite(first)}")
        if formula.shared:
            out.append("<dd>" + ", ".join(_reference(book.steps[at]) for at in formula.shared))
        if alone:
            continue
        names = [book.steps[_distinct(first)[i]].name for i in formula.varying]
        out.append(f"<dd class=of>{first.name} from {', '.join(names)}:<ol>")
        above: tuple[int, ...] = ()
        for step in formula.steps:
            inputs = _distinct(step)
            values = ", ".join(
                DITTO if above and inputs[i] == above[i] else _value(book.steps[inputs[i]])
                for i in formula.varying
            )
            out.append(f"<li id=w{step.at} class=from{part_of[step.at]}>{step.value}: {values}")
            above = inputs
        out.append("</ol>")
    return Markup("".join([*out, "</dl>"]))


def _parts(book: Book) -> list[int]:
    """Number of the part of the page in which each step was entered."""
    return [n for n, (_, start, end) in enumerate(book.parts) for _ in range(start, end)]


def _value(step: Step) -> str:
    """A step's value without its name: a leaf with its source, another with its link."""
    return step.value + _cite(step) if step.leaf else f"<a href=#w{step.at}>{step.value}</a>"


def _reference(step: Step) -> str:
    """A step named with its value: a leaf with its source, another with a link to its working."""
    words = f"{step.name} = {step.value}"
    return words + _cite(step) if step.leaf else f"<a href=#w{step.at}>{words}</a>"
