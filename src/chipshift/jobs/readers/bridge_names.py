"""Names and written tables in the expressions of a script that is followed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chipshift.jobs.overrides import typed
from chipshift.jobs.python_tree import Module, Unknown, dotted, evaluate
from chipshift.jobs.settings import Setting

_PAIR = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)=(.*)", re.S)


def items(node: ast.expr, names: Module) -> list[Any] | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        table = evaluate(node.func.value, names)
        if node.func.attr == "items" and isinstance(table, dict):
            return [[key, value] for key, value in table.items()]
    value = evaluate(node, names)
    return value if isinstance(value, list) else list(value) if isinstance(value, dict) else None


def item(target: ast.expr, names: Module) -> str:
    """``cfg["model"]["num_layers"]`` as a path."""
    parts: list[str] = []
    while isinstance(target, ast.Subscript) and len(parts) < 20:
        key = evaluate(target.slice, names)
        if not isinstance(key, str) or isinstance(key, Unknown):
            return ""
        parts.append(key)
        target = target.value
    base = dotted(target)
    return ".".join([base, *reversed(parts)]) if base and parts else ""


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The outermost calls within an expression."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, ast.Call):
            yield one
        elif not isinstance(one, ast.Lambda):
            stack.extend(reversed(list(ast.iter_child_nodes(one))))


def callee(node: ast.expr, names: Module) -> str:
    """The dotted name of what is called: through a variable, a table or ``getattr`` too."""
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) >= 2:
        base, last = dotted(node.args[0]), evaluate(node.args[1], names)
        if base and isinstance(last, str) and not isinstance(last, Unknown):
            return f"{base}.{last}"
    if isinstance(node, ast.Attribute):
        base = callee(node.value, names)
        return f"{base}.{node.attr}" if base else node.attr
    if isinstance(node, (ast.Name, ast.Subscript)):
        value = evaluate(node, names)
        if isinstance(value, Unknown) and re.fullmatch(r"[A-Za-z_][\w.]*", value):
            return str(value)
        return node.id if isinstance(node, ast.Name) else ""
    return dotted(node)


def written(value: Any, prefix: str, place: Setting) -> Iterator[tuple[str, Setting]]:
    """``{"model": {"num_layers": 4}}``, ``{"model.num_layers": 4}``, ``["model.num_layers=4"]``."""
    if isinstance(value, dict) and prefix.count(".") < 8:
        for key, one in value.items():
            yield from written(one, f"{prefix}.{key}" if prefix else str(key), place)
    elif isinstance(value, list) and not prefix:
        for word in value:
            pair = _PAIR.fullmatch(word) if isinstance(word, str) else None
            if pair is not None:
                yield pair.group(1), replace(place, value=typed(pair.group(2)))
    elif "." in prefix:
        yield prefix, replace(place, value=value)
