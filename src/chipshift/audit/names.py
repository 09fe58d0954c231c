"""Qualified names: what each local name of a module was imported as."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field


def words(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


def module_name(file: str) -> str:
    """Dotted module of a relative POSIX path: ``a/b/__init__.py`` is ``a.b``."""
    parts = file.removesuffix(".py").removesuffix(".ipynb").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


@dataclass(slots=True)
class Import:
    """One imported name: the local name, the dotted name it stands for, and its statement."""

    local: str
    dotted: str
    line: int
    end_line: int
    package: str


@dataclass(slots=True)
class Imports:
    """Local name to dotted name, with the star imports apart."""

    aliases: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The dotted module that ``from ... import`` names, relative ones made absolute."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if module else []
    drop = node.level - (1 if is_package else 0)
    parts = parts[: len(parts) - drop] if drop else parts
    return ".".join([*parts, *(node.module.split(".") if node.module else [])])


def imported(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[Import]:
    """The names that an import statement binds; a star import binds the name ``*``."""
    end = node.end_lineno or node.lineno
    if isinstance(node, ast.Import):
        for alias in node.names:
            local = alias.asname or alias.name.split(".")[0]
            dotted = alias.name if alias.asname else alias.name.split(".")[0]
            yield Import(local, dotted, node.lineno, end, alias.name)
        return
    base = _base(node, module, is_package)
    for alias in node.names:
        dotted = f"{base}.{alias.name}" if base else alias.name
        yield Import(alias.asname or alias.name, dotted, node.lineno, end, base or alias.name)


_MOVED = (
    ("torch.nn.parallel.distributed.", "torch.nn.parallel.", "DistributedDataParallel"),
    ("torch.utils.data.dataloader.", "torch.utils.data.", "DataLoader"),
    ("torch.utils.data.distributed.", "torch.utils.data.", "DistributedSampler"),
    ("torch.cuda.amp.grad_scaler.", "torch.cuda.amp.", "GradScaler"),
    ("torch.cuda.amp.autocast_mode.", "torch.cuda.amp.", "autocast"),
)
CANONICAL = {f"{old}{name}": f"{new}{name}" for old, new, name in _MOVED}
"""Names that live in a private module and are re-exported above it."""


def dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The qualified name of a name or attribute chain that starts at an imported name."""
    tails: list[str] = []
    while isinstance(node, ast.Attribute):
        tails.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    root = aliases.get(node.id)
    if root is None:
        return None
    if not tails:
        return CANONICAL.get(root, root)
    tails.append(root)
    full = ".".join(reversed(tails))
    return CANONICAL.get(full, full)


_NO_NODES = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "name", "lineno", "kind", "level"})
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Name: (), ast.Constant: ()}
"""Fields of each class that may hold nodes worth visiting; operators and contexts are not."""


def _fields(node: ast.AST) -> tuple[str, ...]:
    kind = type(node)
    keep = {"arg", "name"} if kind in (ast.arguments, ast.ExceptHandler) else set()
    found = tuple(one for one in kind._fields if one not in _NO_NODES or one in keep)
    _FIELDS[kind] = found
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The direct children of a node, several times as fast as ``ast.iter_child_nodes``."""
    fields = _FIELDS.get(node.__class__)
    if fields is None:
        fields = _fields(node)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below and including ``node``, in source order as far as fields are."""
    stack = [node]
    while stack:
        one = stack.pop()
        yield one
        below = children(one)
        below.reverse()
        stack += below


def text(node: ast.expr | None) -> str:
    """A name or attribute chain as written (``self.args.fp16``); "" for anything else."""
    tails: list[str] = []
    while isinstance(node, ast.Attribute):
        tails.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        tails.append(node.id)
    elif (isinstance(node, ast.Call) and not tails) or not tails:
        return ""
    else:
        tails.append("")
    return ".".join(reversed(tails))


def tail(node: ast.expr) -> str:
    """The last name of a callee: ``f`` of ``f()``, ``m`` of ``x.y.m()``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""
