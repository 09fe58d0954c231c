"""Python job files through the syntax tree only: constants, keyword arguments, plain names.

Nothing is imported or run. What cannot be told from the text alone becomes ``Unknown``.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.python_values import Absent as Absent
from chipshift.jobs.python_values import Call as Call
from chipshift.jobs.python_values import Module as Module
from chipshift.jobs.python_values import Unknown as Unknown
from chipshift.jobs.python_values import Variable as Variable
from chipshift.jobs.python_values import argument_read as argument_read
from chipshift.jobs.python_values import dotted as dotted
from chipshift.jobs.python_values import evaluate as evaluate
from chipshift.jobs.python_values import passed_whole as passed_whole
from chipshift.jobs.settings import Setting
from chipshift.jobs.source import Source

LONGEST = 1_000_000


def parse(source: Source) -> Module:
    """Read a Python file.

    Raises:
        InputError: not Python, with its line; or longer than any job file.
    """
    tree, nodes = tree_of(source)
    start = Module(arguments=declared(nodes))
    plain = facts(nodes, source.path, start)
    start.constants = parameters([(source.path, nodes)], plain)
    module = facts(nodes, source.path, start)
    note_imports(module, nodes)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            body = list(in_order(statement))
            inner = facts(body, source.path, module)
            inner.line = statement.lineno
            module.functions[statement.name] = inner
    return module


def note_imports(module: Module, nodes: list[ast.AST]) -> None:
    """Where the names that a file imports come from."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module.imported |= {one.asname or one.name: one.name for one in node.names}
            module.origin |= {one.asname or one.name: node.module or "" for one in node.names}
        elif isinstance(node, ast.ClassDef):
            module.origin[node.name] = "the script itself"


def tree_of(source: Source) -> tuple[ast.Module, list[ast.AST]]:
    """A file's tree and all its nodes in order.

    Raises:
        InputError: as ``parse``.
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
            nodes = list(in_order(tree))
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise InputError(f"{source.path}{line} is not valid Python: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise InputError(
            f"{source.path} nests too deep or is no Python; expected a script"
        ) from None
    return tree, nodes


def declared(nodes: list[ast.AST]) -> dict[str, Any]:
    """``--micro-batch`` of ``add_argument("--micro-batch", default=4)`` as ``micro_batch``; click's
    options and the fields of data classes that are parsed too.
    """
    found: dict[str, Any] = {}
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        last = dotted(node.func).rsplit(".", 1)[-1] or getattr(node.func, "attr", "")
        if last not in ("add_argument", "option") or not isinstance(node.args[0], ast.Constant):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        name = next((w for w in words if isinstance(w, str) and w.startswith("--")), "")
        action = given.get("action")
        own = given.get("dest")
        named = own.value if isinstance(own, ast.Constant) else name.partition("/")[0]
        key = str(named).strip("-").replace("-", "_")
        kind = action.value if isinstance(action, ast.Constant) else ""
        if kind in ("store_true", "store_false"):
            stated = evaluate(given["default"], Module()) if "default" in given else None
            found.setdefault(key, stated if type(stated) is bool else kind == "store_false")
        elif name and "default" in given:
            value = evaluate(given["default"], Module())
            if value is None:
                found[key] = Absent(f"args.{key}")
            elif not isinstance(value, Unknown):
                found[key] = value
        elif name and "is_flag" in given:
            found.setdefault(key, False)
        elif name and "required" not in given and kind in ("", "store"):
            found.setdefault(key, Absent(f"args.{key}"))
    return _fields(nodes) | found


PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_CLASS_READERS = (*PARSERS, "tyro.cli", "simple_parsing.parse", "pyrallis.parse", "add_arguments")


def _fields(nodes: list[ast.AST]) -> dict[str, Any]:
    """Defaults of the data classes whose fields a HfArgumentParser takes as arguments."""
    renamed = {
        one.asname
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.name in PARSERS and one.asname
    }
    parsed = {
        one.id
        for node in nodes
        if isinstance(node, ast.Call) and _takes_classes(dotted(node.func), renamed)
        for one in ast.walk(node)
        if isinstance(one, ast.Name)
    }
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    found: dict[str, Any] = {}
    for name in sorted(parsed & classes.keys(), key=list(classes).index):
        for lines in _with_bases(classes[name], classes):
            for key, value in class_fields(lines).items():
                if value is None:
                    found.setdefault(key, Absent(f"args.{key}"))
                elif not isinstance(value, Unknown):
                    found.setdefault(key, value)
    return found


def _takes_classes(name: str, renamed: set[str]) -> bool:
    return name.endswith(_CLASS_READERS) or name in renamed


def _with_bases(
    node: ast.ClassDef, classes: dict[str, ast.ClassDef], depth: int = 0
) -> Iterator[ast.ClassDef]:
    """A class, then the classes of the same files that it is made of."""
    yield node
    for base in node.bases:
        under = classes.get(dotted(base).rsplit(".", 1)[-1])
        if under is not None and under is not node and depth < 8:
            yield from _with_bases(under, classes, depth + 1)


def class_fields(node: ast.ClassDef) -> dict[str, Any]:
    """A data class's fields and their defaults; None where there is none."""
    return {
        line.target.id: _default_of(line.value)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def own_fields(source: Source, name: str) -> dict[str, Any]:
    """The fields of a file's class of that name."""
    _, nodes = tree_of(source)
    found = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    return next((class_fields(node) for node in found), {})


def _default_of(value: ast.AST | None) -> Any:
    """``4`` of ``n: int = 4``, of ``n: int = field(default=4)`` and of a ``default_factory=lambda:
    4``; None where there is none.
    """
    if isinstance(value, ast.Call) and dotted(value.func).rsplit(".", 1)[-1] == "field":
        made = next((k.value for k in value.keywords if k.arg == "default_factory"), None)
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
        value = made.body if isinstance(made, ast.Lambda) else value
    return None if value is None else evaluate(value, Module())


def parameters(files: list[tuple[str, list[ast.AST]]], known: Module) -> dict[str, Setting]:
    """What functions' and classes' parameters are: passed by a call in the files, or by default.

    A parameter whose calls pass what only a run could tell is left out.
    """
    found: dict[str, Setting] = {}
    functions: dict[str, list[str]] = {}
    for file, nodes in files:
        for name, function in _signatures(nodes):
            functions[name] = _order(function)
            for key, default in _defaults(function):
                value = evaluate(default, known)
                if value is not None and not isinstance(value, Unknown):
                    found.setdefault(key, Setting(value, file, default.lineno))
    open_ones: set[str] = set()
    for file, nodes in files:
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            bound = dotted(node.func).rsplit(".", 1)[-1] == "partial" and len(node.args) > 0
            called = dotted(node.args[0]) if bound else dotted(node.func)
            if order := functions.get(called, []):
                passed = [*zip(order, node.args[bound:], strict=False)]
                passed += [(k.arg, k.value) for k in node.keywords if k.arg in order]
                for name, argument in passed:
                    value = evaluate(argument, known)
                    if not isinstance(value, Unknown):
                        found[name] = Setting(value, file, argument.lineno)
                    elif not isinstance(argument, ast.Name) or argument.id != name:
                        open_ones.add(name)
    return {name: setting for name, setting in found.items() if name not in open_ones}


def _order(function: ast.FunctionDef) -> list[str]:
    """A function's parameters in order, without its own object."""
    taken = function.args
    order = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return order[1:] if order[:1] == ["self"] else order


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    taken = function.args
    named = [*taken.posonlyargs, *taken.args]
    for parameter, default in zip(named[::-1], taken.defaults[::-1], strict=False):
        yield parameter.arg, default
    for parameter, own in zip(taken.kwonlyargs, taken.kw_defaults, strict=True):
        if own is not None:
            yield parameter.arg, own


def _signatures(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions by their names, a class's ``__init__`` by the class's."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    yield node.name, inner


def facts(nodes: Iterable[ast.AST], file: str, known: Module) -> Module:
    """Assignments and calls in order, without the branches that the text shows not to be taken."""
    module = Module(
        constants=dict(known.constants),
        arguments=known.arguments,
        parsed=known.parsed,
        started=known.started,
    )
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
    if isinstance(test, Absent) and module.started:
        test = None  # the command does not give it
    known = (bool, int, float, type(None), *((str,) if module.started else ()))
    if isinstance(test, Unknown) or not isinstance(test, known):
        return set()
    skipped = node.orelse if test else node.body
    return {id(inner) for statement in skipped for inner in ast.walk(statement)}


def in_order(tree: ast.AST) -> Iterator[ast.AST]:
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
        path = dotted(target) or _entry_set(target, module)
        if "." in path:
            module.attributes[path] = Setting(value, file, node.lineno)
        elif path:
            module.constants[path] = Setting(value, file, node.lineno)


def _entry_set(target: ast.AST, module: Module) -> str:
    """``data.steps`` of ``data["steps"] = ...``, where data is a file of settings."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
        return ""
    base = dotted(target.value)
    return f"{base}.{target.slice.value!s}" if base in module.parsed else ""


def _chained(node: ast.AST) -> str:
    """``load().to`` of ``load(x).to(y)``, so that a method of what a call returns is told."""
    parts: list[str] = []
    while len(parts) < 20:
        if isinstance(node, ast.Attribute):
            parts.append(f".{node.attr}")
            node = node.value
        elif isinstance(node, ast.Call):
            parts.append("()")
            node = node.func
        else:
            break
    return (node.id if isinstance(node, ast.Name) else "") + "".join(reversed(parts))


def _call(node: ast.Call, module: Module, file: str) -> None:
    name = dotted(node.func) or (_chained(node.func) if module.started else "")
    if not name:
        return
    keywords: dict[str, Setting] = {}
    reads: dict[str, tuple[str, ...]] = {}
    splats: list[str] = []
    for keyword in node.keywords:
        if keyword.arg is None:  # **settings
            for k, v in passed_whole(keyword.value, module).items():
                if k.startswith("**"):
                    splats.append(k)
                else:
                    keywords[k] = Setting(v, file, keyword.value.lineno)
            continue
        value = evaluate(keyword.value, module)
        keywords[keyword.arg] = Setting(value, file, keyword.value.lineno)
        if module.started:
            told = (argument_read(one, module) for one in ast.walk(keyword.value))
            reads[keyword.arg] = tuple(name for name in told if name)
    arguments = tuple(evaluate(one, module) for one in node.args)
    module.calls.append(
        Call(
            name,
            keywords,
            arguments,
            node.lineno,
            node.end_lineno or node.lineno,
            reads,
            file,
            tuple(splats),
        )
    )
