"""A first look at a module's statements: imports, classes, options, what functions return."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from chipshift.audit.kinds import Binding
from chipshift.audit.names import Import, imported, tail, text, walk, words
from chipshift.audit.packages import gpu_package

DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
MODULE_BASE = re.compile(
    r"(^|\.)(Module|LightningModule|PreTrainedModel|ModuleList|Sequential)$|nn\."
)
DATA_BASE = re.compile(r"(Dataset|DataPipe|Collat\w*|Transform|Sampler|DataModule|Tokenizer\w*)$")
DATA_NAME = re.compile(r"(Dataset|Collat\w*|BatchSampler|DataModule|Tokenizer\w*)$")


@dataclass(slots=True)
class Outline:
    """What the statements of a module say before it is read in order."""

    aliases: dict[str, str] = field(default_factory=dict)
    imports: list[Import] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    packages: set[str] = field(default_factory=set)
    options: dict[str, ast.expr] = field(default_factory=dict)
    option_lines: dict[str, ast.AST] = field(default_factory=dict)
    returns: dict[str, list[ast.expr]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    attributes: dict[str, dict[str, Binding]] = field(default_factory=dict)
    constants: dict[str, Binding] = field(default_factory=dict)
    jitted: set[str] = field(default_factory=set)
    compact: set[str] = field(default_factory=set)
    host_functions: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    loops: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    has_step: bool = False
    has_backward: bool = False
    is_jax: bool = False


def outline(tree: ast.Module, module: str, is_package: bool, source: str) -> Outline:
    """Look through all statements (not into expressions, but for calls that stand alone)."""
    found = Outline()
    found.has_backward = "backward(" in source
    found.has_step = ".step(" in source or "optimizer_step" in source
    found.is_jax = "jax" in source
    stack: list[tuple[ast.stmt, str, str]] = [(one, "", "") for one in reversed(tree.body)]
    while stack:
        node, owner, function = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            _imports(node, module, is_package, found)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            _assignment(node, owner, found)
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Call):
                _alone(node.value, found)
        elif isinstance(node, ast.Return):
            if node.value is not None and function:
                found.returns.setdefault(function, []).append(node.value)
        elif isinstance(node, DEFS):
            function = node.name
            if node.decorator_list:
                _decorated(node, found)
            found.functions.setdefault(node.name, node)
        elif isinstance(node, ast.ClassDef):
            _class(node, found)
            owner, function = node.name, ""
        elif isinstance(node, ast.Try):
            _try(node, module, is_package, found)
        elif isinstance(node, ast.If):
            _available(node, module, is_package, found)
        for block in ("body", "orelse", "finalbody"):
            for child in reversed(getattr(node, block, ())):
                if isinstance(child, ast.stmt):
                    stack.append((child, owner, function))
        for handler in getattr(node, "handlers", ()):
            stack.extend((child, owner, function) for child in reversed(handler.body))
        for case in getattr(node, "cases", ()):
            stack.extend((child, owner, function) for child in reversed(case.body))
    return found


def _imports(
    node: ast.Import | ast.ImportFrom, module: str, is_package: bool, found: Outline
) -> None:
    for one in imported(node, module, is_package):
        if one.local == "*":
            found.stars.append(one.package)
            continue
        found.imports.append(one)
        # A guarded import binds the same name twice; the first, preferred one counts.
        found.aliases.setdefault(one.local, one.dotted)


def _assignment(node: ast.Assign | ast.AnnAssign, owner: str, found: Outline) -> None:
    value = node.value
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if value is None:
        return
    for target in targets:
        if isinstance(target, ast.Attribute):
            written = text(target.value)
            if written in ("self", "cls") and owner:
                attributes = found.attributes.setdefault(owner, {})
                previous = attributes.get(target.attr)
                first = previous is None or (
                    isinstance(previous.node, ast.Constant) and previous.node.value is None
                )
                if first:
                    attributes[target.attr] = Binding("value", value)
            elif isinstance(value, ast.Constant) and re.match(r"C$|cfg|config|args", written):
                found.options.setdefault(target.attr, value)
        elif isinstance(target, ast.Name) and isinstance(value, ast.Call):
            name = tail(value.func)
            if name in ("jit", "pmap", "pjit", "filter_jit") and value.args:
                found.jitted.add(tail(value.args[0]))
                found.jitted.add(target.id)
    if isinstance(node, ast.AnnAssign) and owner and isinstance(node.target, ast.Name):
        default = value
        if isinstance(value, ast.Call):
            for keyword in value.keywords:
                if keyword.arg == "default":
                    default = keyword.value
        if isinstance(default, ast.Constant):
            found.options.setdefault(node.target.id, default)
            found.option_lines.setdefault(node.target.id, node)


def _alone(node: ast.Call, found: Outline) -> None:
    """``parser.add_argument("--x", default=..., action=...)`` and flag definitions."""
    name = tail(node.func)
    if name in ("add_argument", "add_flag", "option"):
        _argument(node, found)
    elif name.startswith("DEFINE_") and len(node.args) >= 2:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            found.options[first.value] = node.args[1]
            found.option_lines[first.value] = node


def _argument(node: ast.Call, found: Outline) -> None:
    names = [
        one.value
        for one in node.args
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    long = [one for one in names if one.startswith("--")] or names
    if not long:
        return
    keywords = {one.arg: one.value for one in node.keywords}
    dest = keywords.get("dest")
    key = long[0].lstrip("-").replace("-", "_")
    if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
        key = dest.value
    action = keywords.get("action")
    default = keywords.get("default")
    if default is None and isinstance(action, ast.Constant):
        default = ast.Constant(value=action.value == "store_false")
    elif default is None:
        default = ast.Constant(value=None)
    found.options[key] = default
    found.option_lines[key] = keywords.get("default", node)


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, found: Outline) -> None:
    for decorator in node.decorator_list:
        parts = [decorator]
        if isinstance(decorator, ast.Call):
            parts = [decorator.func, *decorator.args[:1]]
        for part in parts:
            name = tail(part)
            if name == "compact":
                found.compact.add(node.name)
            elif name in ("jit", "pmap", "pjit", "filter_jit", "filter_pmap"):
                found.jitted.add(node.name)


def _class(node: ast.ClassDef, found: Outline) -> None:
    found.classes[node.name] = node
    bases = [text(base) for base in node.bases]
    if any(MODULE_BASE.search(base) or base in found.modules for base in bases):
        found.modules.add(node.name)
    if any(DATA_BASE.search(base) or base in found.hosts for base in bases) or DATA_NAME.search(
        node.name
    ):
        found.hosts.add(node.name)


def _available(node: ast.If, module: str, is_package: bool, found: Outline) -> None:
    """``if is_x_available(): from x import ...``: the names are optional."""
    asked = node.test.func if isinstance(node.test, ast.Call) else None
    if asked is None or not re.match(r"(is|has)_\w+", tail(asked)):
        return
    for one in node.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            for name in imported(one, module, is_package):
                if gpu_package(name.package, name.dotted):
                    found.packages.add(name.local)


def _try(node: ast.Try, module: str, is_package: bool, found: Outline) -> None:
    """Names that tell whether a GPU package is there: bound or set in a guarded import."""
    gpu = False
    names: set[str] = set()
    for one in node.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            for name in imported(one, module, is_package):
                if gpu_package(name.package, name.dotted):
                    gpu = True
                    names.add(name.local)
    if not gpu or not guards_import(node):
        return
    for block in (node.body, node.orelse, *(handler.body for handler in node.handlers)):
        for one in block:
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    for part in walk(target):
                        if isinstance(part, ast.Name):
                            names.add(part.id)
    found.packages.update(names)


IMPORT_ERRORS = words(
    """ImportError ModuleNotFoundError Exception BaseException RuntimeError OSError
    AttributeError"""
)


def guards_import(node: ast.Try) -> bool:
    """Whether a ``try`` survives a missing package: a handler that sets or passes, not one that
    raises again or only prints."""
    for handler in node.handlers:
        kinds = (
            [handler.type] if not isinstance(handler.type, ast.Tuple) else list(handler.type.elts)
        )
        caught = any(kind is None or tail(kind) in IMPORT_ERRORS for kind in kinds)
        if not caught:
            continue
        if any(isinstance(one, ast.Raise) for one in handler.body):
            return False
        only_prints = all(
            isinstance(one, ast.Expr)
            and isinstance(one.value, ast.Call)
            and tail(one.value.func) in ("print", "info", "warning", "warn", "error", "exit")
            for one in handler.body
        )
        flag_set = any(isinstance(one, ast.Assign) for one in [*node.body, *node.orelse])
        return not only_prints or flag_set
    return False
