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
from chipshift.jobs.python_values import dotted as dotted
from chipshift.jobs.python_values import evaluate as evaluate
from chipshift.jobs.settings import Setting
from chipshift.jobs.source import Source

LONGEST = 1_000_000
<<<<<<< ours
=======
DEEPEST = 40
LONGEST_TEXT = 1_000
"""Of a string that a script joins from parts; none that names something is longer."""
PARSED = (
    *("args", "hparams", "opt", "opts", "flags", "FLAGS", "config", "cfg", "self.args"),
    *("self.hparams", "self.config", "self.cfg"),
)
"""What scripts call the outcome of ``parse_args()``, and a module its own hyperparameters."""


ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
"""Calls that take a variable's default where nothing sets it."""


class Unknown(str):
    """Source text of an expression that only a run could tell."""

    @property
    def names(self) -> tuple[str, ...]:
        return (str(self),)


@dataclass(frozen=True)
class Call:
    """A call: dotted name of what is called, keyword arguments, positional ones, lines."""

    name: str
    keywords: dict[str, Setting]
    arguments: tuple[Any, ...]
    line: int
    end: int


@dataclass
class Module:
    """A file's plain facts.

    Attributes:
        constants: names assigned once or last to something that can be told, anywhere in the file.
        attributes: ``a.b.c = value`` assignments by dotted name.
        calls: every call in the file, in order.
        functions: the same for the body of each top-level function.
        line: of the function's ``def``.
        imported: what ``from x import a as b`` calls b, by the name it bears here.
        origin: the x of it.
        arguments: defaults of the command line's own arguments (``add_argument``), by name.
    """

    constants: dict[str, Setting] = field(default_factory=dict)
    attributes: dict[str, Setting] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    functions: dict[str, Module] = field(default_factory=dict)
    line: int | None = None
    imported: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
>>>>>>> theirs


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
    return found


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
    for node in nodes:
        if isinstance(node, ast.Call) and (order := functions.get(dotted(node.func), [])):
            passed = [*zip(order, node.args, strict=False)]
            passed += [(k.arg, k.value) for k in node.keywords if k.arg in order]
            for parameter_name, argument in passed:
                value = evaluate(argument, known)
                if not isinstance(value, Unknown):
                    found[parameter_name] = Setting(value, file, argument.lineno)
                elif not isinstance(argument, ast.Name) or argument.id != parameter_name:
                    found.pop(parameter_name, None)
    return found


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
<<<<<<< ours
    module.calls.append(Call(name, keywords, arguments, node.lineno))
=======
    module.calls.append(
        Call(name, keywords, arguments, node.lineno, node.end_lineno or node.lineno)
    )


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute chain, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 20:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def evaluate(node: ast.AST, module: Module, depth: int = 0) -> Any:
    """A constant expression's value; names of constants looked up; else ``Unknown``."""
    if depth > DEEPEST:
        return Unknown("...")
    if isinstance(node, ast.Constant):
        return node.value if not isinstance(node.value, (bytes, complex)) else Unknown("...")
    if isinstance(node, ast.Name):
        known = module.constants.get(node.id)
        return known.value if known is not None else Unknown(node.id)
    if isinstance(node, ast.Attribute):
        name = dotted(node)
        if dtype_of(name):
            return name
        known = module.attributes.get(name)
        base, _, last = name.rpartition(".")
        if known is None and base in PARSED and last in module.arguments:
            return module.arguments[last]
        if known is None and base in PARSED:
            known = module.constants.get(last)
        return known.value if known is not None else Unknown(name or "...")
    if isinstance(node, (ast.List, ast.Tuple)):
        return [evaluate(one, module, depth + 1) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(evaluate(key, module, depth + 1)): evaluate(value, module, depth + 1)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.UnaryOp):
        return _unary(node, evaluate(node.operand, module, depth + 1))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left = evaluate(node.left, module, depth + 1)
        return _compared(node.ops[0], left, evaluate(node.comparators[0], module, depth + 1))
    if isinstance(node, ast.BinOp):
        left = evaluate(node.left, module, depth + 1)
        return _binary(node, left, evaluate(node.right, module, depth + 1))
    if isinstance(node, ast.IfExp):
        test = evaluate(node.test, module, depth + 1)
        if not isinstance(test, Unknown):
            return evaluate(node.body if test else node.orelse, module, depth + 1)
    if isinstance(node, ast.Call):
        return _known_call(node, module, depth)
    if isinstance(node, ast.JoinedStr):
        parts = [evaluate(part, module, depth + 1) for part in node.values]
        if not any(isinstance(part, Unknown) for part in parts):
            return "".join(str(part) for part in parts)[:LONGEST_TEXT]
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return evaluate(node.value, module, depth + 1)
    try:
        return Unknown(ast.unparse(node)[:80])
    except (RecursionError, ValueError):
        return Unknown("...")


def _known_call(node: ast.Call, module: Module, depth: int) -> Any:
    """``dict(a=1)``, ``int(8)``, ``os.environ.get("X", 1)``; other calls by their name."""
    name = dotted(node.func)
    if name == "dict" and not node.args:
        return {k.arg: evaluate(k.value, module, depth + 1) for k in node.keywords if k.arg}
    if name in ("int", "float", "str") and len(node.args) == 1:
        value = evaluate(node.args[0], module, depth + 1)
        if name == "int" and type(value) is str and re.fullmatch(r"[+-]?\d{1,15}", value.strip()):
            return int(value)
        cut = name == "int" and isinstance(value, float) and math.isfinite(value)
        return int(value) if cut else value  # towards zero, as Python does
    if name in ENVIRONMENT and len(node.args) == 2:
        return evaluate(node.args[1], module, depth + 1)
    return Unknown(f"{name or 'call'}()")


def _unary(node: ast.UnaryOp, value: Any) -> Any:
    if isinstance(node.op, ast.Not) and not isinstance(value, Unknown):
        return not value
    if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
        return -value
    return value


def _binary(node: ast.BinOp, left: Any, right: Any) -> Any:
    if not _number(left) or not _number(right):
        return Unknown("...")
    try:
        if isinstance(node.op, ast.Add):
            value = left + right
        elif isinstance(node.op, ast.Sub):
            value = left - right
        elif isinstance(node.op, ast.Mult):
            value = left * right
        elif isinstance(node.op, ast.Div):
            value = left / right
        elif isinstance(node.op, ast.FloorDiv):
            value = left // right
        elif isinstance(node.op, ast.Mod):
            value = left % right
        elif isinstance(node.op, ast.Pow) and abs(right) <= 64 and abs(left) <= 2**20:
            value = left**right
        else:
            return Unknown("...")
    except (ArithmeticError, ValueError):
        return Unknown("...")
    return value if isinstance(value, (int, float)) and _bounded(value) else Unknown("...")


def _compared(operator: ast.cmpop, left: Any, right: Any) -> Any:
    """Two plain values compared; None is what a parameter's default may be."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return Unknown("...")
    if isinstance(operator, (ast.Eq, ast.NotEq)) and type(left) is type(right):
        return (left == right) == isinstance(operator, ast.Eq)
    if isinstance(operator, (ast.Is, ast.IsNot)) and (left is None or right is None):
        return (left is right) == isinstance(operator, ast.Is)
    if not _number(left) or not _number(right):
        return Unknown("...")
    if isinstance(operator, ast.Gt):
        return left > right
    if isinstance(operator, ast.GtE):
        return left >= right
    if isinstance(operator, ast.Lt):
        return left < right
    return left <= right if isinstance(operator, ast.LtE) else Unknown("...")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _bounded(value)


def _bounded(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 2**200
>>>>>>> theirs
