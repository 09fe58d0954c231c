"""Branches that a configuration decides, decided: what it never takes is left out of the text.

A parameter annotated ``Config``, ``Block`` or ``Variant`` is known when the step is written; a
``Block`` is any of the configuration's, and what differs between them stays a branch.
"""

from __future__ import annotations

import ast
import operator
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from chipshift.compiled.step.axes import seq, weight_axes
from chipshift.compiled.step.config import Config
from chipshift.compiled.step.remat_names import checkpoint_names
from chipshift.compiled.writing.text import Edit, Source, bodies, edited, quoted

World = dict[str, Any]
"""Values of names, as they are for one kind of layer."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "checkpoint_names": checkpoint_names, "seq": seq, "weight_axes": weight_axes,
}  # fmt: skip
"""Functions of the step whose calls are replaced by their value: lookups in tables of its own."""

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class Unknown(Exception):
    """An expression is not known before the step runs."""


def folded(text: str, cfg: Config, attention: tuple[str, ...]) -> str:
    """Source of the step with every branch decided that ``cfg`` decides.

    Args:
        attention: settings of ``cfg.attention`` that the file is to run under.
    """
    blocks = {block for unit, _ in cfg.segments for block in unit}
    worlds = [
        {"Config": replace(cfg, attention=kernel), "Block": block, "Variant": cfg.variant}
        for block in sorted(blocks, key=repr)
        for kernel in attention
    ]
    while True:
        new = _pass(Source(text), worlds)
        if new == text:
            return text
        text = new


def _pass(source: Source, worlds: list[World]) -> str:
    edits: list[Edit] = []
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            edits += _Folder(source, _of_class(node, worlds), worlds).fold(node)
    return edited(source.text, edits)


def _of_class(node: ast.stmt, worlds: list[World]) -> list[World]:
    """Values of a class's own fields, as ``self.`` and the name, by their annotation."""
    fields = [one for one in getattr(node, "body", []) if isinstance(one, ast.AnnAssign)]
    return [
        {
            f"self.{one.target.id}": world[one.annotation.id]
            for one in fields
            if isinstance(one.target, ast.Name)
            and isinstance(one.annotation, ast.Name)
            and one.annotation.id in world
        }
        for world in worlds
    ]


class _Folder:
    """Edits of one definition, where the names around it have these values."""

    def __init__(self, source: Source, known: list[World], kinds: list[World]):
        self.source, self.known, self.kinds = source, known, kinds

    def fold(self, node: ast.AST) -> Iterator[Edit]:
        """Edits under a node; inside what is replaced whole, none."""
        if isinstance(node, ast.FunctionDef):
            yield from _Folder(self.source, self._inside(node), self.kinds)._under(node)
        elif isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.GeneratorExp):
            hidden = _bound(node)
            known = [{k: v for k, v in world.items() if k not in hidden} for world in self.known]
            yield from _Folder(self.source, known, self.kinds)._under(node)
        else:
            found = self._expression(node) if isinstance(node, ast.expr) else None
            yield from [found] if found else self._under(node)

    def _under(self, node: ast.AST) -> Iterator[Edit]:
        for body in bodies(node):
            yield from self._statements(body)
        for child in ast.iter_child_nodes(node):
            yield from self.fold(child)

    def _inside(self, node: ast.FunctionDef) -> list[World]:
        """What is known inside a function: its parameters by their annotation, the names that are
        assigned once to something known, and what is known around it."""
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        hidden = Counter(_bound(node))
        found = [{k: v for k, v in world.items() if k not in hidden} for world in self.known]
        for world, kind in zip(found, self.kinds, strict=True):
            for a in arguments:
                annotation = self.source.of(a.annotation) if a.annotation else ""
                if annotation in kind and hidden[a.arg] == 1:
                    world[a.arg] = kind[annotation]
        for target, value in _assignments(node):
            if hidden[target] != 1:
                continue
            for world in found:
                try:
                    world[target] = evaluate(value, world)
                except Unknown:
                    break
        return found

    def value(self, node: ast.expr) -> Any:
        """What an expression is in every world.

        Raises:
            Unknown: it is not known, or differs.
        """
        first, *others = (evaluate(node, world) for world in self.known)
        if any(type(other) is not type(first) or other != first for other in others):
            raise Unknown
        return first

    def truth(self, node: ast.expr) -> bool | None:
        """Whether a condition holds in every world; None where that is not known."""
        try:
            found = {bool(evaluate(node, world)) for world in self.known}
        except Unknown:
            return None
        return found.pop() if len(found) == 1 else None

    def _expression(self, node: ast.expr) -> Edit | None:
        begins, ends = self.source.span(node)
        if isinstance(node, ast.IfExp):
            holds = self.truth(node.test)
            if holds is not None:
                return begins, ends, self.source.of(node.body if holds else node.orelse)
        if isinstance(node, ast.Call) and self.source.of(node.func) in FUNCTIONS:
            with suppress(Unknown):
                return begins, ends, quoted(self.value(node))
        if isinstance(node, ast.BoolOp):
            return self._operands(node, begins, ends)
        if isinstance(node, ast.BinOp | ast.Compare):
            with suppress(Unknown):  # of literals alone
                return begins, ends, quoted(evaluate(node, {}))
        if isinstance(node, ast.Attribute):
            with suppress(Unknown):
                value = self.value(node)
                return (begins, ends, quoted(value)) if isinstance(value, bool) else None
        return None

    def _operands(self, node: ast.BoolOp, begins: int, ends: int) -> Edit | None:
        """``and`` and ``or`` without the operands that cannot decide them."""
        decides = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for place, operand in enumerate(node.values):
            holds = self.truth(operand)
            if holds is decides:
                kept.append(operand)
                break
            if holds is None or place == len(node.values) - 1:
                kept.append(operand)
        if kept == node.values:
            return None
        if len(kept) == 1:
            return begins, ends, self.source.of(kept[0])
        first, last = self.source.span(kept[0])[0], self.source.span(kept[-1])[1]
        at = [node.values.index(operand) for operand in kept]
        if at == list(range(at[0], at[-1] + 1)):
            return begins, ends, self.source.text[first:last]
        word = " or " if decides else " and "
        return begins, ends, word.join(self.source.of(operand) for operand in kept)

    def _statements(self, body: list[ast.stmt]) -> Iterator[Edit]:
        for place, node in enumerate(body):
            if not isinstance(node, ast.If):
                continue
            holds = self.truth(node.test)
            if holds is None:
                continue
            taken = node.body if holds else node.orelse
            if self._is_elif(node):
                yield self._alternative(node, holds)
            elif not holds and node.orelse and self._is_elif(node.orelse[0]):
                begins, ends = self.source.span(node)[0], self.source.span(node.orelse[0])[0]
                yield begins, ends + len("elif"), "if"
            elif not taken:
                yield self.source.without([node])
            else:
                last = body[-1] if isinstance(taken[-1], ast.Return | ast.Raise) else node
                if last is not node and place == len(body) - 1:
                    last = node
                assert last.end_lineno is not None
                begins, ends = self.source.whole_lines(node.lineno, last.end_lineno)
                yield begins, ends, self._hoisted(node, taken)

    def _is_elif(self, node: ast.stmt) -> bool:
        return self.source.text[self.source.span(node)[0] :].startswith("elif")

    def _alternative(self, node: ast.If, holds: bool) -> Edit:
        """An ``elif`` that always holds is the ``else``; one that never does goes."""
        begins, _ = self.source.whole_lines(node.lineno, node.lineno)
        assert node.end_lineno is not None
        _, ends = self.source.whole_lines(node.lineno, node.end_lineno)
        if holds:
            first = self._after_header(node.body[0])
            assert node.body[-1].end_lineno is not None
            kept = self.source.whole_lines(first, node.body[-1].end_lineno)
            return begins, ends, " " * node.col_offset + "else:\n" + self.source.text[slice(*kept)]
        if not node.orelse:
            return begins, ends, ""
        start = self._after_header(node.orelse[0])
        if self._is_elif(node.orelse[0]):
            return begins, self.source.whole_lines(node.orelse[0].lineno, 1)[0], ""
        return begins, self.source.starts[start - 2], ""

    def _after_header(self, first: ast.stmt) -> int:
        """The line of a body's first statement, comments with it."""
        return self.source.first_line(first)

    def _hoisted(self, node: ast.If, taken: list[ast.stmt]) -> str:
        """The branch that is taken, in place of the whole; a comment beside its condition stays."""
        first = self._after_header(taken[0])
        last = taken[-1].end_lineno
        assert last is not None
        body = self.source.text[slice(*self.source.whole_lines(first, last))]
        body = textwrap.indent(textwrap.dedent(body), " " * node.col_offset)
        _, sign, said = self.source.lines[first - 2].partition("  # ")
        return (" " * node.col_offset + f"# {said.strip()}\n" if sign else "") + body


def _bound(node: ast.AST) -> list[str]:
    """Every name that a scope binds, once for each place that binds it."""
    found: list[str] = []
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            found.append(child.id)
        elif isinstance(child, ast.arg):
            found.append(child.arg)
        elif isinstance(child, ast.FunctionDef) and child is not node:
            found.append(child.name)
    return found


def _assignments(node: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Names assigned in a function itself, in its order, tuples taken apart."""
    found = [child for child in ast.walk(node) if isinstance(child, ast.Assign)]
    for child in sorted(found, key=lambda one: one.lineno):
        target = child.targets[0]
        if isinstance(target, ast.Name):
            yield target.id, child.value
        elif isinstance(target, ast.Tuple):
            for place, one in enumerate(target.elts):
                if isinstance(one, ast.Name):
                    part = ast.Subscript(child.value, ast.Constant(place), ast.Load())
                    yield one.id, part


def evaluate(node: ast.expr, world: World) -> Any:
    """The value of an expression of literals, known names, attributes, comparisons and arithmetic.

    Raises:
        Unknown: it holds anything else.
    """
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in world:
            return world[node.id]
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if f"self.{name}" in world:
            return world[f"self.{name}"]
        case ast.Attribute():
            return getattr(evaluate(node.value, world), node.attr)
        case ast.Tuple():
            return tuple(evaluate(one, world) for one in node.elts)
        case ast.Subscript(value=ast.Tuple() as parts, slice=ast.Constant(value=int() as place)):
            return evaluate(parts.elts[place], world)
        case ast.Subscript():
            return evaluate(node.value, world)[evaluate(node.slice, world)]
        case ast.UnaryOp(op=ast.Not()):
            return not evaluate(node.operand, world)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = evaluate(node.left, world), evaluate(node.right, world)
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            left, right = evaluate(node.left, world), evaluate(node.comparators[0], world)
            return _COMPARE[type(op)](left, right)
        case ast.BoolOp():
            return _logic(node, world)
        case ast.IfExp():
            holds = evaluate(node.test, world)
            return evaluate(node.body if holds else node.orelse, world)
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            named = {str(k.arg): evaluate(k.value, world) for k in node.keywords}
            return FUNCTIONS[name](*(evaluate(one, world) for one in node.args), **named)
    raise Unknown


def _logic(node: ast.BoolOp, world: World) -> Any:
    """``and`` and ``or``. A later operand that decides does so beside unknown comparisons too: they
    have no effects, and whichever decides, the value is the same."""
    decides, unknown, last = isinstance(node.op, ast.Or), False, None
    for operand in node.values:
        try:
            last = evaluate(operand, world)
        except Unknown:
            if not isinstance(operand, ast.Compare):
                raise
            unknown = True
            continue
        if last is decides or (bool(last) is decides and not unknown):
            return last
    if unknown:
        raise Unknown
    return last
