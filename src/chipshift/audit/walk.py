"""Reads one module in execution order and calls the detectors at each statement.

Function bodies are read after the body that defines them, so that module names are known.
"""

from __future__ import annotations

import ast

from chipshift.audit import guards as g
from chipshift.audit.expressions import visit
from chipshift.audit.facts import EVAL, HOST, STEP, FuncFact
from chipshift.audit.kinds import Binding, Scope
from chipshift.audit.names import children, tail, text, walk
from chipshift.audit.reader import Func, Loop, Reader
from chipshift.audit.registry import Visit
from chipshift.audit.roles import LoopRole, function_role
from chipshift.audit.syntax import DEFS, Block, gpu_kernel, leaves


def read_module(reader: Reader) -> None:
    """Read the whole module, then the functions in the order of their definition."""
    reader.func.fact.end_line = reader.facts.lines
    reader.facts.funcs.append(reader.func.fact)
    reader.func.scope.names.update(reader.outline.constants)
    reader.infer.scope = reader.func.scope
    block(reader, reader.tree.body)
    index = 0
    while index < len(reader.pending):
        node, prefix, owner, outer, held = reader.pending[index]
        index += 1
        function(reader, node, prefix, owner, outer, held)
    for finish in reader.detectors.finish:
        finish(reader)


def block(reader: Reader, body: Block) -> None:
    """Statements in order; an ``if`` that leaves puts its opposite on the rest."""
    pushed = 0
    for one in body:
        statement(reader, one)
        if isinstance(one, ast.If) and not one.orelse and leaves(one.body):
            opposite = reader.branches.opposite(one.test)
            if opposite:
                reader.guards.append(opposite)
                pushed += 1
    if pushed:
        del reader.guards[-pushed:]


def statement(reader: Reader, node: ast.stmt) -> None:
    method = STATEMENTS.get(type(node))
    for detect in reader.detectors.statements.get(type(node), ()):
        detect(reader, node)
    if method is not None:
        method(reader, node)
    else:
        for child in children(node):
            if isinstance(child, ast.expr):
                visit(reader, child)


def guarded(reader: Reader, guards: frozenset[str], body: Block) -> None:
    reader.guards.append(guards)
    block(reader, body)
    reader.guards.pop()


def visit_test(reader: Reader, node: ast.expr) -> None:
    reader.testing = True
    visit(reader, node)
    reader.testing = False


def if_(reader: Reader, node: ast.If) -> None:
    visit_test(reader, node.test)
    choice = g.CHOICE if node.orelse or leaves(node.body) else frozenset()
    reader.enclosing.append(node)
    guarded(reader, reader.branches.read(node.test) | choice, node.body)
    if node.orelse:
        guarded(reader, reader.branches.opposite(node.test) | choice, node.orelse)
    reader.enclosing.pop()


def for_(reader: Reader, node: ast.For | ast.AsyncFor) -> None:
    visit(reader, node.iter)
    reader.bind(node.target, node.iter, "iter")
    loop(reader, node, {one.id for one in walk(node.target) if isinstance(one, ast.Name)})


def while_(reader: Reader, node: ast.While) -> None:
    names = {
        one.target.id
        for one in node.body
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
    }
    visit_test(reader, node.test)
    loop(reader, node, names)


def loop(reader: Reader, node: ast.For | ast.AsyncFor | ast.While, names: set[str]) -> None:
    role = reader.upcoming(node)
    if role in (LoopRole.STEP, LoopRole.MICRO):
        reader.func.fact.step_spans.append((node.lineno, node.end_lineno or node.lineno))
    reader.loops.append(Loop(node, role, names))
    block(reader, node.body)
    reader.loops.pop()
    block(reader, node.orelse)


def with_(reader: Reader, node: ast.With | ast.AsyncWith) -> None:
    quiet = False
    for item in node.items:
        visit(reader, item.context_expr)
        called = item.context_expr
        name = tail(called.func if isinstance(called, ast.Call) else called)
        quiet = quiet or name in ("no_grad", "inference_mode")
        if item.optional_vars is not None:
            reader.bind(item.optional_vars, item.context_expr, "with")
    if quiet:
        reader.withs.append("no_grad")
    block(reader, node.body)
    if quiet:
        reader.withs.pop()


def assert_(reader: Reader, node: ast.Assert) -> None:
    visit_test(reader, node.test)
    if node.msg is not None:
        visit(reader, node.msg)


def try_(reader: Reader, node: ast.Try) -> None:
    reader.tries.append(node)
    block(reader, node.body)
    reader.tries.pop()
    for handler in node.handlers:
        block(reader, handler.body)
    block(reader, node.orelse)
    block(reader, node.finalbody)


def assign(reader: Reader, node: ast.Assign) -> None:
    reader.parents.append(node)
    visit(reader, node.value)
    for target in node.targets:
        store(reader, target)
    reader.parents.pop()
    for target in node.targets:
        reader.bind(target, node.value, "value")


def annotated(reader: Reader, node: ast.AnnAssign) -> None:
    if node.value is not None:
        reader.parents.append(node)
        visit(reader, node.value)
        store(reader, node.target)
        reader.parents.pop()
        reader.bind(node.target, node.value, "value")


def augmented(reader: Reader, node: ast.AugAssign) -> None:
    reader.parents.append(node)
    visit(reader, node.value)
    store(reader, node.target)
    reader.parents.pop()


def store(reader: Reader, target: ast.expr) -> None:
    if isinstance(target, ast.Subscript | ast.Attribute):
        visit(reader, target)
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            store(reader, item)
    elif isinstance(target, ast.Starred):
        store(reader, target.value)


def define(reader: Reader, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    for decorator in node.decorator_list:
        visit(reader, decorator)
    reader.parents.append(node)
    for value in (*node.args.defaults, *node.args.kw_defaults):
        if value is not None:
            visit(reader, value)
    reader.parents.pop()
    prefix = f"{reader.func.name}." if reader.func.name else ""
    owned = reader.classes[-1] if reader.classes else None
    if owned is not None:
        prefix = f"{prefix}{owned.name}."
    reader.pending.append((node, prefix, owned, reader.func, tuple(reader.guards)))


def class_(reader: Reader, node: ast.ClassDef) -> None:
    for one in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
        visit(reader, one)
    reader.classes.append(node)
    block(reader, node.body)
    reader.classes.pop()


def function(
    reader: Reader,
    node: ast.AST,
    prefix: str,
    owner: ast.ClassDef | None,
    outer: Func,
    held: tuple[frozenset[str], ...],
) -> None:
    """Read a function's body in its own scope, under the guards of its definition."""
    assert isinstance(node, DEFS)
    name = f"{prefix}{node.name}"
    role, sure = function_role(node, owner, reader.outline, reader.aliases)
    if not role and outer.role in (HOST, EVAL):
        role, sure = outer.role, False
    fact = FuncFact(name, node.lineno, node.end_lineno or node.lineno, role=role, sure=sure)
    if owner is not None:
        fact.bases = tuple(text(base) for base in owner.bases)
    reader.facts.funcs.append(fact)
    scope = Scope(parent=outer.scope)
    attributes = reader.outline.attributes.get(owner.name, {}) if owner else outer.attributes
    arguments = node.args
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *([arguments.vararg] if arguments.vararg else []),
        *([arguments.kwarg] if arguments.kwarg else []),
    ):
        scope.names[argument.arg] = Binding("param", argument)
    saved = reader.func, reader.guards, reader.loops, reader.withs, reader.tries
    reader.func = Func(name, node, owner, scope, fact, role, held, attributes)
    reader.guards, reader.loops, reader.withs, reader.tries = list(held), [], [], []
    reader.infer.scope, reader.infer.attributes = scope, attributes
    reader.infer.forward = role == STEP and sure
    reader.classes = []
    if not gpu_kernel(node):
        block(reader, node.body)
    for finish in reader.detectors.functions:
        finish(reader)
    reader.func, reader.guards, reader.loops, reader.withs, reader.tries = saved
    reader.infer.scope, reader.infer.attributes = reader.func.scope, reader.func.attributes
    reader.infer.forward = False


STATEMENTS: dict[type[ast.AST], Visit] = {
    ast.If: if_,
    ast.For: for_,
    ast.AsyncFor: for_,
    ast.While: while_,
    ast.With: with_,
    ast.AsyncWith: with_,
    ast.Try: try_,
    ast.Assert: assert_,
    ast.Assign: assign,
    ast.AnnAssign: annotated,
    ast.AugAssign: augmented,
    ast.FunctionDef: define,
    ast.AsyncFunctionDef: define,
    ast.ClassDef: class_,
}
