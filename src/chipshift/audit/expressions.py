"""Visits the expressions of a module being read, and calls the detectors at each node.

A detector is called by the last name of what it looks for, so that other code costs a lookup.
"""

from __future__ import annotations

import ast

from chipshift.audit import guards as g
from chipshift.audit.facts import CallSite
from chipshift.audit.kinds import Binding
from chipshift.audit.names import dotted, tail, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Visit

COMMON = words(
    """print len range isinstance super getattr setattr hasattr append extend format join split
    items keys values int float str list dict tuple set zip enumerate max min sum get update
    add_argument type sorted open size view reshape transpose permute unsqueeze squeeze"""
)
FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Call: ("func", "args", "keywords"),
    ast.keyword: ("value",),
    ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"),
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.BoolOp: ("values",),
    ast.Compare: ("left", "comparators"),
    ast.List: ("elts",),
    ast.Tuple: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("keys", "values"),
    ast.JoinedStr: ("values",),
    ast.FormattedValue: ("value", "format_spec"),
    ast.Starred: ("value",),
    ast.Slice: ("lower", "upper", "step"),
    ast.Await: ("value",),
    ast.Yield: ("value",),
    ast.YieldFrom: ("value",),
    ast.IfExp: ("test", "body", "orelse"),
}


def visit(reader: Reader, node: ast.expr | ast.keyword) -> None:
    special = EXPRESSIONS.get(type(node))
    if special is not None:
        special(reader, node)
    else:
        visit_children(reader, node)


def visit_children(reader: Reader, node: ast.AST) -> None:
    reader.parents.append(node)
    for name in FIELDS.get(type(node), ()):
        child = getattr(node, name)
        if child.__class__ is list:
            for item in child:
                if item is not None:
                    visit(reader, item)
        elif child is not None:
            visit(reader, child)
    reader.parents.pop()


def call(reader: Reader, node: ast.Call) -> None:
    name = tail(node.func)
    if node.func.__class__ is ast.Name:
        # Detectors are keyed by the real last name, whatever it was imported as.
        name = reader.aliases.get(name, name).rsplit(".", 1)[-1]
    found = reader.detectors.calls.get(name)
    if found is not None:
        full = reader.full(node.func)
        for detect in found:
            detect(reader, node, full)
    site(reader, node, name)
    visit_children(reader, node)


def site(reader: Reader, node: ast.Call, name: str) -> None:
    """Note a call that may lead into the tree, and calls of imported packages."""
    func = node.func
    callee = ""
    if isinstance(func, ast.Name):
        callee = reader.aliases.get(func.id, func.id)
    elif isinstance(func, ast.Attribute):
        full = dotted(func, reader.aliases)
        if full is not None:
            callee = full
        elif isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            callee = f"reader.{name}"
        elif isinstance(func.value, ast.Name) and func.value.id in reader.outline.classes:
            callee = f"{func.value.id}.{name}"
        else:
            callee = f".{name}"
    if not callee or (name in COMMON and ("." not in callee or callee[0] == ".")):
        return
    for detect in reader.detectors.any_call:
        detect(reader, node, callee)
    reader.func.fact.calls.append(
        CallSite(
            callee,
            node.lineno,
            node.end_lineno or node.lineno,
            reader.local,
            reader.has(g.CADENCE, g.NAN),
            reader.dead,
            reader.has(g.RANK0),
            bool(reader.loops),
        )
    )


def attribute(reader: Reader, node: ast.Attribute) -> None:
    found = reader.detectors.attributes.get(node.attr)
    if found is not None:
        full = reader.full(node)
        for detect in found:
            detect(reader, node, full)
    visit_children(reader, node)


def constant(reader: Reader, node: ast.Constant) -> None:
    value = node.value
    if value.__class__ is str:
        if len(value) < 60:
            for detect in reader.detectors.strings.get(value.lower(), ()):
                detect(reader, node, value)
            if value.startswith("cuda:"):
                for detect in reader.detectors.strings.get("cuda", ()):
                    detect(reader, node, value)
    elif (value.__class__ is float or value.__class__ is int) and value > 1e12:
        for detect in reader.detectors.numbers:
            detect(reader, node, float(value))


def choose(reader: Reader, node: ast.IfExp) -> None:
    for detect in reader.detectors.conditional:
        detect(reader, node)
    reader.parents.append(node)
    outer, reader.testing = reader.testing, True
    visit(reader, node.test)
    reader.testing = outer
    reader.guards.append(reader.branches.read(node.test))
    visit(reader, node.body)
    reader.guards[-1] = reader.branches.opposite(node.test)
    visit(reader, node.orelse)
    reader.guards.pop()
    reader.parents.pop()


def logic(reader: Reader, node: ast.BoolOp) -> None:
    reader.parents.append(node)
    pushed = 0
    both = isinstance(node.op, ast.And)
    for value in node.values:
        visit(reader, value)
        found = reader.branches.read(value) if both else reader.branches.opposite(value)
        reader.guards.append(found)
        pushed += 1
    del reader.guards[-pushed:]
    reader.parents.pop()


def comprehend(
    reader: Reader, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> None:
    reader.parents.append(node)
    for one in node.generators:
        visit(reader, one.iter)
        reader.bind(one.target, one.iter, "iter")
        for test in one.ifs:
            visit(reader, test)
    if isinstance(node, ast.DictComp):
        visit(reader, node.key)
        visit(reader, node.value)
    else:
        visit(reader, node.elt)
    reader.parents.pop()


def lambda_(reader: Reader, node: ast.Lambda) -> None:
    for argument in node.args.args:
        names = reader.func.scope.names
        names[argument.arg] = Binding("param", argument, previous=names.get(argument.arg))
    reader.parents.append(node)
    visit(reader, node.body)
    reader.parents.pop()


def walrus(reader: Reader, node: ast.NamedExpr) -> None:
    visit(reader, node.value)
    reader.bind(node.target, node.value, "value")


def subscript(reader: Reader, node: ast.Subscript) -> None:
    for detect in reader.detectors.subscripts:
        detect(reader, node)
    visit_children(reader, node)


def operate(reader: Reader, node: ast.BinOp) -> None:
    for detect in reader.detectors.operators.get(type(node.op), ()):
        detect(reader, node)
    visit_children(reader, node)


EXPRESSIONS: dict[type[ast.AST], Visit] = {
    ast.Call: call,
    ast.Attribute: attribute,
    ast.Constant: constant,
    ast.IfExp: choose,
    ast.BoolOp: logic,
    ast.ListComp: comprehend,
    ast.SetComp: comprehend,
    ast.GeneratorExp: comprehend,
    ast.DictComp: comprehend,
    ast.Lambda: lambda_,
    ast.NamedExpr: walrus,
    ast.Subscript: subscript,
    ast.BinOp: operate,
}
