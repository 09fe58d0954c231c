"""A training program as a command starts it: its own files together, its arguments filled in.

The file that is started and those given beside it that it imports are one program. Functions that
nothing in it reaches, and branches that its arguments turn off, say nothing. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.python_values import (
    Absent,
    Module,
    Unknown,
    argument_read,
    dotted,
    evaluate,
)
from chipshift.jobs.source import Source

_READERS = re.compile(
    r"(?:^|\.)(?:parse_args|parse_known_args|parse_args_into_dataclasses|parse_args_and_config|"
    r"parse_json_file|parse_yaml_file|parse_dict|safe_load|full_load|vars|asdict|to_container|"
    r"Namespace)$|(?:^|\.)(?:json|yaml|toml|tomllib|OmegaConf|pyjson5)\.loads?$|tyro\.cli$"
)
"""Calls whose outcome is the arguments, or a file of settings."""

_Files = list[tuple[Source, ast.Module, list[ast.AST]]]


def imported_beside(entry: Source, beside: Mapping[str, Source]) -> list[Source]:
    """The entry, then those of the other files that it imports, and those that they import."""
    found = [entry]
    for source in found:
        for name in _imports(source.text):
            other = beside.get(f"{name}.py")
            if other is not None and other not in found:
                found.append(other)
    return found


def _imports(text: str) -> list[str]:
    """Names of modules in a file's import lines, without their packages: ``core.args`` as args."""
    names: list[str] = []
    pattern = r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^()]*\)|[\w., \t*]+)"
    for module, listed in re.findall(pattern, re.sub(r"#[^\n]*", "", text), re.M):
        names += [module.rsplit(".", 1)[-1]] if module else []
        for one in re.split(r"[,(]", listed):
            word = one.split()
            names += [word[0].rsplit(".", 1)[-1]] if word else []
    return [name for name in names if name]


def parse_program(sources: Sequence[Source], given: Mapping[str, Any]) -> Module:
    """The program's facts, its arguments being their defaults with ``given`` over them.

    Args:
        sources: the file that is started, then the program's others.
        given: arguments of the command, and keys of files of settings that it names.

    Raises:
        InputError: the first is no Python.
    """
    files: _Files = []
    for source in sources:
        try:
            files.append((source, *python_tree.tree_of(source)))
        except InputError:
            if source is sources[0]:
                raise
    every = [node for _, _, nodes in files for node in nodes]
    start = Module(started=True, parsed=_parsed_names(every))
    start.arguments = {**python_tree.declared(every), **given}
    live = _reached(files, {v for v in start.arguments.values() if type(v) is str})
    for source, _, nodes in files[::-1]:  # what is imported first
        kept = [node for node in nodes if id(node) in live]
        start.arguments.update(_updates(kept, start))
        start.constants = {**start.constants, **_plain(kept, source.path, start).constants}
    listed = [(source.path, [n for n in nodes if id(n) in live]) for source, _, nodes in files]
    known = python_tree.parameters(listed, start)
    fired = any(dotted(node.func) == "fire.Fire" for node in every if isinstance(node, ast.Call))
    if fired:
        known |= {key: _over(known[key], value) for key, value in given.items() if key in known}
    whole = _joined(listed, start, known)
    whole.asked = frozenset(
        key
        for _, nodes in listed
        for node in nodes
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Call))
        and (key := argument_read(node, start))
    )
    return whole


def _over(setting: Any, value: Any) -> Any:
    return type(setting)(value, setting.file, setting.line)


def _plain(nodes: list[ast.AST], file: str, start: Module) -> Module:
    return python_tree.facts(nodes, file, start)


def _joined(
    listed: list[tuple[str, list[ast.AST]]], start: Module, parameters: dict[str, Any]
) -> Module:
    """All files' facts in one, the started file's calls first."""
    known = Module(
        constants={**start.constants, **parameters},
        arguments=start.arguments,
        parsed=start.parsed,
        started=True,
    )
    whole: Module | None = None
    for path, nodes in listed:
        own = python_tree.facts(nodes, path, known)
        python_tree.note_imports(own, nodes)
        if whole is None:
            whole = own
            continue
        whole.calls += own.calls
        whole.constants = {**own.constants, **whole.constants}
        whole.attributes = {**own.attributes, **whole.attributes}
        whole.imported = {**own.imported, **whole.imported}
        whole.origin = {**own.origin, **whole.origin}
    assert whole is not None
    return whole


def _parsed_names(nodes: list[ast.AST]) -> frozenset[str]:
    """Names that the arguments or a file's settings are read into, and functions that give them."""
    makers: set[str] = set()
    names: set[str] = set()
    for _ in range(3):  # a function that returns them, and what calls it
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
                if any(one is not None and _gives(one, makers, names) for one in returned):
                    makers.add(node.name)
            elif isinstance(node, ast.Assign) and _gives(node.value, makers, names):
                for target in node.targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    names |= {dotted(part) for part in parts if dotted(part)}
    return frozenset(names)


def _gives(node: ast.AST, makers: set[str], names: set[str]) -> bool:
    """Whether an expression is the arguments, or a part of a file's settings."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Tuple):
        return any(_gives(one, makers, names) for one in node.elts)
    if isinstance(node, ast.Name):
        return node.id in names
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func) or getattr(node.func, "attr", "")
    return bool(_READERS.search(name)) or name.rsplit(".", 1)[-1] in makers


def _updates(nodes: list[ast.AST], start: Module) -> dict[str, Any]:
    """``args.x = y`` and ``config.update(x=y)``: arguments that the program itself sets."""
    told = python_tree.facts(nodes, "", start).attributes
    found: dict[str, Any] = {}
    for name, setting in told.items():
        base, _, key = name.rpartition(".")
        known = key in start.arguments or not isinstance(setting.value, Unknown)
        if base in start.parsed and known:
            found[key] = setting.value
    for node in nodes:
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".update"):
            if dotted(node.func).removesuffix(".update") not in start.parsed:
                continue
            tables = [*node.args, *(k.value for k in node.keywords if k.arg is None)]
            for table in tables:
                value = evaluate(table, start)
                found |= value if isinstance(value, dict) else {}
    return {k: v for k, v in found.items() if not isinstance(v, Unknown) or isinstance(v, Absent)}


def _reached(files: _Files, named: set[str]) -> set[int]:
    """Nodes that run: those of no function, and of functions and classes that those refer to, or
    that an argument names (``trainer=FSDPTrainer``).
    """
    bodies: dict[str, list[ast.AST]] = {}
    inside: set[int] = set()
    for _, tree, _ in files:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                bodies.setdefault(node.name, []).append(node)
                inside |= {id(one) for one in ast.walk(node)}
    every = [node for _, _, nodes in files for node in nodes]
    live = {id(node) for node in every if id(node) not in inside}
    waiting = [node for node in every if id(node) in live]
    classes = {node.name: node for node in every if isinstance(node, ast.ClassDef)}
    seen: set[str] = set()
    chosen = [name for name in sorted(named) if name in bodies or name in classes]
    while waiting or chosen:
        for name in [chosen.pop()] if chosen else _names(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            if name in classes:
                chosen += [dotted(base).rsplit(".", 1)[-1] for base in classes[name].bases]
            started = list(bodies.get(name, []))
            if name in classes:  # what builds it, and what runs when it is used
                started += [
                    one
                    for one in classes[name].body
                    if isinstance(one, ast.FunctionDef) and one.name.startswith("_")
                ]
            for body in started:
                nodes = [node for node in ast.walk(body) if id(node) not in live]
                live |= {id(node) for node in nodes}
                waiting += nodes
    reached_any = any(isinstance(n, ast.Call) for n in every if id(n) in live and id(n) in inside)
    return live if reached_any or not inside else {id(node) for node in every}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield node.attr
