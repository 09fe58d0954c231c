"""What a file defines and never uses, left out: definitions, methods, fields, locals, imports."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator

from chipshift.compiled.writing.text import Edit, Source, bodies, edited

PART = "_PART"
"""``_PART = "..."`` stands above each part of the file; a part with nothing left in it goes."""


def pruned(text: str, root: str) -> str:
    """The file without what nothing uses that ``root`` comes to."""
    passes: tuple[Callable[[Source], Iterator[Edit]], ...] = (
        lambda source: _unreached(source, root), _methods, _locals, _fields, _imports, _parts,
    )  # fmt: skip
    while True:
        before = text
        for one in passes:
            source = Source(text)
            text = edited(text, one(source))
        if text == before:
            return text


def _used(tree: ast.AST) -> Counter[str]:
    """How often each name is read, and each attribute is."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[f".{node.attr}"] += 1
    return found


def _defined(node: ast.stmt) -> list[str]:
    """Names that a statement at the top level defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _unreached(source: Source, root: str) -> Iterator[Edit]:
    """Definitions at the top level that nothing leads to, with the text that documents them."""
    body = source.tree.body
    uses = {name: _used(node) for node in body for name in _defined(node)}
    reached, left = {PART}, [root]
    while left:
        name = left.pop()
        if name in uses and name not in reached:
            reached.add(name)
            left += uses[name]
    for place, node in enumerate(body):
        names = _defined(node)
        if not names or reached & set(names):
            continue
        after = body[place + 1 : place + 2]
        documented = isinstance(node, ast.Assign | ast.AnnAssign) and after and _is_text(after[0])
        yield source.without([node, *(after if documented else [])])


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _methods(source: Source) -> Iterator[Edit]:
    """Methods that no attribute names."""
    used = _used(source.tree)
    for node in source.tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if not isinstance(inner, ast.FunctionDef) or inner.name.startswith("__"):
                continue
            if not used[f".{inner.name}"]:
                yield source.without([inner])


def _fields(source: Source) -> Iterator[Edit]:
    """Fields of dataclasses that nothing reads, and their lines of the docstring."""
    used = _used(source.tree)
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        gone = {
            inner.target.id: inner
            for inner in node.body
            if isinstance(inner, ast.AnnAssign)
            and isinstance(inner.target, ast.Name)
            and not used[f".{inner.target.id}"]
        }
        for inner in gone.values():
            yield source.without([inner])
        if gone and _is_text(node.body[0]):
            begins, ends = source.span(node.body[0])
            yield begins, ends, _documented(source.text[begins:ends], set(gone))


def _documented(doc: str, gone: set[str]) -> str:
    """A docstring without the fields that are gone; one that documents none ends before them."""
    head, sign, listed = doc.partition("\n\n    Attributes:\n")
    if not sign:
        return doc
    entries = re.split(r"\n(?=        \w)", listed.rstrip().removesuffix('"""').rstrip())
    kept = []
    for entry in entries:
        names, _, said = entry.strip().partition(": ")
        left = [name for name in names.split(", ") if name not in gone]
        if left:
            kept.append(f"        {', '.join(left)}: {said}")
    return f'{head}{sign}{chr(10).join(kept)}\n    """' if kept else f'{head}"""'


def _locals(source: Source) -> Iterator[Edit]:
    """Names that a function assigns, or functions that it defines, and never reads. The step's
    expressions have no effects, so that what made an unread value goes with it."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        used = _used(node)
        for body in _all_bodies(node):
            for inner in body:
                if isinstance(inner, ast.FunctionDef) and not used[inner.name]:
                    yield source.without([inner])
                elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    if not used[inner.target.id]:
                        yield source.without([inner])
                elif isinstance(inner, ast.Assign) and len(inner.targets) == 1:
                    yield from _unread(source, inner, used)


def _all_bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for body in bodies(node):
        yield body
        for inner in body:
            if not isinstance(inner, ast.FunctionDef):
                yield from _all_bodies(inner)


def _unread(source: Source, node: ast.Assign, used: Counter[str]) -> Iterator[Edit]:
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name) and not used[target.id]:
        yield source.without([node])
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return
    pairs = list(zip(target.elts, value.elts, strict=True))
    kept = [(t, v) for t, v in pairs if not isinstance(t, ast.Name) or used[t.id]]
    if not kept:
        yield source.without([node])
    elif len(kept) < len(pairs):
        left = ", ".join(source.of(t) for t, _ in kept)
        right = ", ".join(source.of(v) for _, v in kept)
        yield (*source.span(node), f"{left} = {right}")


def _imports(source: Source) -> Iterator[Edit]:
    """Imported names that nothing reads."""
    used = _used(source.tree)
    for node in source.tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom) or _is_future(node):
            continue
        kept = [a for a in node.names if used[(a.asname or a.name).partition(".")[0]]]
        if not kept:
            yield source.without([node])
        elif len(kept) < len(node.names):
            names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in kept)
            assert isinstance(node, ast.ImportFrom)
            yield (*source.span(node), f"from {node.module} import {names}")


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _parts(source: Source) -> Iterator[Edit]:
    """Headings with nothing under them."""
    body = source.tree.body
    for node, after in itertools.pairwise(body):
        if PART in _defined(node) and PART in _defined(after):
            yield source.without([node])
