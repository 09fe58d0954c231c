"""Generality that the calls of a file do not use: parameters that every call gives alike, functions
that give back what they are given, names for a literal, fields of no use."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from chipshift.compiled.writing.text import Edit, Source, bodies, edited, quoted

Function = ast.FunctionDef
MISSING = object()
FEW = 2
"""Parts of a literal up to which it stands where its name did."""


def plain(text: str, classes: tuple[str, ...]) -> str:
    """The file without generality that nothing in it uses.

    Args:
        classes: whose fields may go; others are built by who writes the file.
    """
    passes: tuple[Callable[[Source], Iterator[Edit]], ...] = (
        _parameters, _given_back, _forwarding, _named_literals,
        lambda source: _fields(source, classes),
    )  # fmt: skip
    while True:
        before = text
        for one in passes:
            text = edited(text, one(Source(text)))
        if text == before:
            return text


def without(spans: list[tuple[int, int]], place: int) -> Edit:
    """The edit that takes one of several items out of between commas."""
    begins, ends = spans[place]
    if place > 0:
        return spans[place - 1][1], ends, ""
    return begins, spans[1][0] if len(spans) > 1 else ends, ""


def _functions(tree: ast.Module) -> Iterator[tuple[Function, bool]]:
    """Functions at the top level, and methods (True) but for the named ones of Python."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node, False
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, Function) and not inner.name.startswith("__"):
                yield inner, True


class Uses:
    """Where each function of a file is called, by its name, a method's with a dot before it."""

    def __init__(self, tree: ast.Module):
        self.nodes = list(ast.walk(tree))
        self.reads: Counter[str] = Counter(filter(None, map(_key, self.nodes)))
        self.by_key: defaultdict[str, list[ast.Call]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, ast.Call) and (key := _key(node.func)):
                self.by_key[key].append(node)

    def of(self, node: Function, method: bool) -> list[ast.Call]:
        """Every call of a function; none where it is also used otherwise, or given many at once."""
        key = "." * method + node.name
        found = self.by_key[key]
        starred = any(
            any(isinstance(arg, ast.Starred) for arg in call.args)
            or any(k.arg is None for k in call.keywords)
            for call in found
        )
        return [] if starred or self.reads[key] != len(found) else found


def _key(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _parameters(source: Source) -> Iterator[Edit]:
    """Parameters that a function does not read, or that every call gives the same literal: of each
    function one, where that touches no call that another's has."""
    uses = Uses(source.tree)
    taken: list[tuple[int, int]] = []
    for node, method in _functions(source.tree):
        calls = uses.of(node, method)
        spans = [source.span(node), *map(source.span, calls)]
        if not calls or any(a < e and b < f for a, f in taken for b, e in spans):
            continue
        edits = list(_parameter(source, node, calls, method))
        taken += spans if edits else []
        yield from edits


def _parameter(
    source: Source, node: Function, calls: list[ast.Call], method: bool
) -> Iterator[Edit]:
    """The edits that take the first such parameter out of a function and its calls."""
    inside = list(ast.walk(node))
    for place, one in enumerate([*node.args.args[method:], *node.args.kwonlyargs]):
        value = _alike([_given(call, node, one.arg, method) for call in calls])
        reads = [n for n in inside if isinstance(n, ast.Name) and n.id == one.arg]
        rebound = any(isinstance(n, ast.arg) and n.arg == one.arg and n is not one for n in inside)
        if rebound or not all(map(_is_load, reads)) or (reads and value is MISSING):
            continue
        yield _signature(source, node, method, place)
        for call in calls:
            yield from _argument(source, call, node, one.arg, method)
        for read in reads:
            yield (*source.span(read), quoted(value))
        return


def _default(node: Function, name: str) -> ast.expr | None:
    places = node.args.args
    defaults = [None] * (len(places) - len(node.args.defaults)) + list(node.args.defaults)
    every = {a.arg: d for a, d in zip(places, defaults, strict=True)}
    every |= {a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)}
    return every[name]


def _given(call: ast.Call, node: Function, name: str, method: bool) -> ast.expr | None:
    """What a call gives a parameter; its default where it gives none."""
    places = [a.arg for a in node.args.args[method:]]
    if name in places and places.index(name) < len(call.args):
        return call.args[places.index(name)]
    found = next((k.value for k in call.keywords if k.arg == name), None)
    return found if found is not None else _default(node, name)


def _alike(given: list[ast.expr | None]) -> object:
    """The literal that all are, else ``MISSING``."""
    values = [one.value for one in given if isinstance(one, ast.Constant)]
    same = len({(type(value), value) for value in values}) == 1 and len(values) == len(given)
    return values[0] if same else MISSING


def _signature(source: Source, node: Function, method: bool, place: int) -> Edit:
    """A function's header without a parameter, and without ``*`` where nothing follows it."""
    spans = []
    for one in [*node.args.args, *node.args.kwonlyargs]:
        begins, ends = source.at(one.lineno, one.col_offset), source.span(one)[1]  # type: ignore[arg-type]
        default = _default(node, one.arg)
        spans.append((begins, source.span(default)[1] if default else ends))
    edit = without(spans, place + method)
    first_named = len(node.args.args)
    if place + method == first_named < len(spans) - 1:  # others are still named: ``*`` stays
        return spans[first_named][0], spans[first_named + 1][0], ""
    return edit


def _argument(
    source: Source, call: ast.Call, node: Function, name: str, method: bool
) -> Iterator[Edit]:
    places = [a.arg for a in node.args.args[method:]]
    items = [source.span(arg) for arg in call.args]
    items += [(source.at(k.lineno, k.col_offset), source.span(k.value)[1]) for k in call.keywords]
    at = places.index(name) if name in places else len(call.args)
    if at >= len(call.args):
        named = [k.arg for k in call.keywords]
        if name not in named:
            return
        at = len(call.args) + named.index(name)
    yield without(items, at)


def _given_back(source: Source) -> Iterator[Edit]:
    """Calls of functions that return one of their parameters as it is."""
    uses = Uses(source.tree)
    for node, method in _functions(source.tree):
        last = node.body[-1]
        rest = [one for one in node.body[:-1] if not isinstance(one, ast.Expr)]
        name = (
            last.value.id
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Name)
            else ""
        )
        if method or rest or name not in [a.arg for a in node.args.args]:
            continue
        for outer in ast.walk(source.tree):
            for body in bodies(outer):
                yield from _assigned_to_itself(source, body, node, name)
        for call in uses.of(node, method):
            given = _given(call, node, name, method)
            if given is not None:
                yield (*source.span(call), source.of(given))
        return


def _forwarding(source: Source) -> Iterator[Edit]:
    """Calls of functions that do nothing but call another with what they are given."""
    uses = Uses(source.tree)
    for node, method in _functions(source.tree):
        body = [one for one in node.body if not isinstance(one, ast.Expr)]
        call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
        names = [a.arg for a in node.args.args[method:]]
        if not isinstance(call, ast.Call) or call.keywords or node.args.kwonlyargs:
            continue
        target = source.of(call.func)
        if target.startswith("self.") is not method or not names:
            continue
        calls = uses.of(node, method)
        whole = all(len(one.args) == len(names) for one in calls)
        if not whole or [source.of(one) for one in call.args] != names:
            continue
        for one in calls:
            receiver = source.of(one.func.value) if isinstance(one.func, ast.Attribute) else ""
            new = f"{receiver}.{target.removeprefix('self.')}" if method else target
            yield (*source.span(one.func), new)


def _assigned_to_itself(
    source: Source, body: list[ast.stmt], node: Function, name: str
) -> Iterator[Edit]:
    for one in body:
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
            call, target = one.value, one.targets[0]
            if isinstance(call.func, ast.Name) and call.func.id == node.name:
                given = _given(call, node, name, False)
                if given is not None and source.of(given) == source.of(target):
                    yield source.without([one])


def _named_literals(source: Source) -> Iterator[Edit]:
    """Names that a function gives to a literal, once: where they are read stands the literal."""
    for node, _ in _functions(source.tree):
        inside = list(ast.walk(node))
        bound = Counter(n.id for n in inside if isinstance(n, ast.Name) and not _is_load(n))
        bound.update(n.arg for n in inside if isinstance(n, ast.arg))
        values = {name: value for name, value in _literals(inside) if bound[name] == 1}
        for n in inside:
            if isinstance(n, ast.Name) and _is_load(n) and n.id in values:
                yield (*source.span(n), source.of(values[n.id]))


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _literals(inside: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    pairs: list[tuple[ast.expr, ast.expr]]
    for one in inside:
        if isinstance(one, ast.AnnAssign) and one.value is not None:
            pairs = [(one.target, one.value)]
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple):
            whole = one.value.elts if isinstance(one.value, ast.Tuple) else []
            pairs = list(zip(one.targets[0].elts, whole, strict=False))
        elif isinstance(one, ast.Assign):
            pairs = [(one.targets[0], one.value)]
        else:
            continue
        for target, value in pairs:
            parts = value.elts if isinstance(value, ast.Tuple) else [value]
            literal = len(parts) <= FEW and all(isinstance(one, ast.Constant) for one in parts)
            if isinstance(target, ast.Name) and literal:
                yield target.id, value


def _fields(source: Source, classes: tuple[str, ...]) -> Iterator[Edit]:
    """Fields that nothing reads are given by no call; those that none gives are their default."""
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef) or node.name not in classes:
            continue
        uses = Uses(source.tree)
        calls = uses.by_key[node.name]
        reads = [n for n in uses.nodes if isinstance(n, ast.Attribute)]
        unread = {k.arg for c in calls for k in c.keywords} - {n.attr for n in reads}
        for call in calls:
            for keyword in [k for k in call.keywords if k.arg in unread][:1]:
                items = [source.span(arg) for arg in call.args]
                items += [
                    (source.at(k.lineno, k.col_offset), source.span(k.value)[1])
                    for k in call.keywords
                ]
                yield without(items, len(call.args) + call.keywords.index(keyword))
        for field in node.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            name = field.target.id
            read = [n for n in reads if n.attr == name]
            given = [(c, k) for c in calls for k in c.keywords if k.arg == name]
            if not given and isinstance(field.value, ast.Constant):
                for n in read:
                    if isinstance(n.value, ast.Name) and n.value.id == "self":
                        yield (*source.span(n), quoted(field.value.value))
