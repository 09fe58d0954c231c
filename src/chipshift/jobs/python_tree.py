"""Python job files through the syntax tree only: constants, keyword arguments, plain names.

Nothing is imported or run. What cannot be told from the text alone becomes ``Unknown``.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.python_values import Absent as Absent
from chipshift.jobs.python_values import Call as Call
from chipshift.jobs.python_values import Module as Module
from chipshift.jobs.python_values import Unknown as Unknown
from chipshift.jobs.python_values import Variable as Variable
from chipshift.jobs.python_values import dotted as dotted
from chipshift.jobs.python_values import evaluate as evaluate
from chipshift.jobs.settings import Setting
from chipshift.jobs.source import Source

LONGEST = 1_000_000


def parse(source: Source) -> Module:
    """Read a Python file.

    Raises:
        InputError: not Python, with its line; or longer than any job file.
    """
    if len(source.text) > LONGEST:
        raise InputError(
            f"{source.path} is a Python file of {len(source.text)} characters; expected at most "
            f"{LONGEST}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
            nodes = list(_in_order(tree))
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise InputError(f"{source.path}{line} is not valid Python: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise InputError(
            f"{source.path} nests too deep or is no Python; expected a script"
        ) from None
    start = Module(arguments=_arguments(nodes))
    plain = _facts(nodes, source.path, start)
    start.constants = _parameters(nodes, source.path, plain)
    module = _facts(nodes, source.path, start)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module.imported |= {one.asname or one.name: one.name for one in node.names}
            module.origin |= {one.asname or one.name: node.module or "" for one in node.names}
        elif isinstance(node, ast.ClassDef):
            module.origin[node.name] = "the script itself"
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            body = list(_in_order(statement))
            inner = _facts(body, source.path, module)
            inner.line = statement.lineno
            module.functions[statement.name] = inner
    return module


def _arguments(nodes: list[ast.AST]) -> dict[str, Any]:
    """``--micro-batch`` of ``add_argument("--micro-batch", default=4)`` as ``micro_batch``."""
    found: dict[str, Any] = {}
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "add_argument":
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        name = next((w for w in words if isinstance(w, str) and w.startswith("--")), "")
        action = given.get("action")
        own = given.get("dest")
        named = own.value if isinstance(own, ast.Constant) else name
        key = str(named).strip("-").replace("-", "_")
        kind = action.value if isinstance(action, ast.Constant) else ""
        if kind in ("store_true", "store_false"):
            found.setdefault(key, kind == "store_false")
        elif name and "default" in given:
            value = evaluate(given["default"], Module())
            if value is None:
                found[key] = Absent(f"args.{key}")
            elif not isinstance(value, Unknown):
                found[key] = value
        elif name and "required" not in given and kind in ("", "store"):
            found.setdefault(key, Absent(f"args.{key}"))
    return _fields(nodes) | found


PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")


def _fields(nodes: list[ast.AST]) -> dict[str, Any]:
    """Defaults of the data classes whose fields a HfArgumentParser takes as arguments."""
    parsed = {
        one.id
        for node in nodes
        if isinstance(node, ast.Call) and dotted(node.func).rsplit(".", 1)[-1] in PARSERS
        for one in ast.walk(node)
        if isinstance(one, ast.Name)
    }
    found: dict[str, Any] = {}
    for node in nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in parsed:
            continue
        for line in node.body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            value = _default_of(line.value)
            if value is None:
                found.setdefault(line.target.id, Absent(f"args.{line.target.id}"))
            elif not isinstance(value, Unknown):
                found.setdefault(line.target.id, value)
    return found


def _default_of(value: ast.AST | None) -> Any:
    """``4`` of ``n: int = 4``, of ``n: int = field(default=4)`` and of a ``default_factory=lambda:
    4``; None where there is none.
    """
    if isinstance(value, ast.Call) and dotted(value.func).rsplit(".", 1)[-1] == "field":
        made = next((k.value for k in value.keywords if k.arg == "default_factory"), None)
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
        value = made.body if isinstance(made, ast.Lambda) else value
    return None if value is None else evaluate(value, Module())


def _parameters(nodes: list[ast.AST], file: str, known: Module) -> dict[str, Setting]:
    """What functions' and classes' parameters are: passed by a call in the file, or by default.

    A parameter whose calls pass what only a run could tell is left out.
    """
    found: dict[str, Setting] = {}
    functions: dict[str, list[str]] = {}
    for name, function in _signatures(nodes):
        taken = function.args
        named = [*taken.posonlyargs, *taken.args]
        pairs = list(zip(named[::-1], taken.defaults[::-1], strict=False))
        pairs += [
            (parameter, default)
            for parameter, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
            if default is not None
        ]
        order = [parameter.arg for parameter in (*named, *taken.kwonlyargs)]
        functions[name] = order[1:] if order[:1] == ["self"] else order
        for parameter, default in pairs:
            value = evaluate(default, known)
            if value is not None and not isinstance(value, Unknown):
                found.setdefault(parameter.arg, Setting(value, file, default.lineno))
    open_ones: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and (order := functions.get(dotted(node.func), [])):
            passed = [*zip(order, node.args, strict=False)]
            passed += [(k.arg, k.value) for k in node.keywords if k.arg in order]
            for parameter_name, argument in passed:
                value = evaluate(argument, known)
                if not isinstance(value, Unknown):
                    found[parameter_name] = Setting(value, file, argument.lineno)
                elif not isinstance(argument, ast.Name) or argument.id != parameter_name:
                    open_ones.add(parameter_name)
    return {name: setting for name, setting in found.items() if name not in open_ones}


def _signatures(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions by their names, a class's ``__init__`` by the class's."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    yield node.name, inner


def _facts(nodes: list[ast.AST], file: str, known: Module) -> Module:
    module = Module(constants=dict(known.constants), arguments=known.arguments)
    dead: set[int] = set()
    for node in nodes:
        if id(node) in dead:
            continue
        if isinstance(node, ast.If):
            dead |= _dead(node, module)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            _assignment(node, module, file)
        elif isinstance(node, ast.Call):
            _call(node, module, file)
    return module


def _dead(node: ast.If, module: Module) -> set[int]:
    """Nodes of the branch that is not taken, where the text alone tells which."""
    test = evaluate(node.test, module)
    if isinstance(test, Unknown) or not isinstance(test, (bool, int, float, type(None))):
        return set()
    skipped = node.orelse if test else node.body
    return {id(inner) for statement in skipped for inner in ast.walk(statement)}


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, a statement before what follows it; without recursion."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _assignment(node: ast.Assign | ast.AnnAssign, module: Module, file: str) -> None:
    if node.value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    value = evaluate(node.value, module)
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for name, part in zip(target.elts, node.value.elts, strict=False):
                if isinstance(name, ast.Name):
                    module.constants[name.id] = Setting(evaluate(part, module), file, node.lineno)
            continue
        path = dotted(target)
        if "." in path:
            module.attributes[path] = Setting(value, file, node.lineno)
        elif path:
            module.constants[path] = Setting(value, file, node.lineno)


def _call(node: ast.Call, module: Module, file: str) -> None:
    name = dotted(node.func)
    if not name:
        return
    keywords = {}
    for keyword in node.keywords:
        value = evaluate(keyword.value, module)
        if keyword.arg is not None:
            keywords[keyword.arg] = Setting(value, file, keyword.value.lineno)
        elif isinstance(value, dict):  # **settings
            keywords.update(
                {str(k): Setting(v, file, keyword.value.lineno) for k, v in value.items()}
            )
    arguments = tuple(evaluate(one, module) for one in node.args)
    module.calls.append(
        Call(name, keywords, arguments, node.lineno, node.end_lineno or node.lineno)
    )
