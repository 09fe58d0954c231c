"""A Megatron-Bridge or NeMo 2 script in the order in which it would run, without running it.

Statements are followed one by one: branches whose condition the text tells, functions of the same
file or of one given beside at the place of their call, loops over written lists, ``setattr``.
What comes out is the list of what sets a field, in order; the last to set one wins.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chipshift.jobs import python_tree
from chipshift.jobs.python_tree import Call, Module, Unknown, dotted, evaluate
from chipshift.jobs.readers.bridge_names import callee, calls_in, item, items, written
from chipshift.jobs.settings import Setting

DEEPEST = 12
"""Calls within calls that are followed."""

MOST = 20_000
"""Statements that are followed; no job file has a tenth of it."""

TURNS = 64
"""Of a loop over a written list."""

WRAPPERS = ("Partial", "Config", "partial")
"""``run.Partial(f, ...)``, ``run.Config(f, ...)`` and ``functools.partial``: f's own call."""


@dataclass(frozen=True)
class Assigned:
    """``path = value``, the value told from the text or ``Unknown``."""

    path: str
    setting: Setting


@dataclass(frozen=True)
class Called:
    """A call that is not followed: what it assigns to, and what it takes as plain names."""

    call: Call
    into: str
    takes: tuple[str, ...]
    file: str


Event = Assigned | Called


@dataclass(frozen=True)
class Choice:
    """A branch whose condition only a run could tell: what was taken and what was not."""

    test: str
    file: str
    line: int
    taken: tuple[Event, ...]
    other: tuple[Event, ...]


@dataclass(frozen=True)
class Script:
    """A parsed file: its syntax tree, its functions, its plain facts."""

    path: str
    tree: ast.Module
    functions: Mapping[str, ast.FunctionDef]
    facts: Module


@dataclass
class Walk:
    """What is being collected.

    Attributes:
        files: every file given that an import may mean, by module name without folders.
        events, choices: found so far, in order.
        met: paths of the given files that an import led to.
        top: names that each file's own statements set, outside its functions.
        left: statements that may still be followed.
    """

    files: Mapping[str, Script]
    events: list[Event] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    met: set[str] = field(default_factory=set)
    top: dict[str, dict[str, Setting]] = field(default_factory=dict)
    left: int = MOST


@dataclass
class _Frame:
    """One function's turn: its file, its names, what it has returned."""

    script: Script
    names: Module
    stack: tuple[str, ...]
    returned: Any = None
    done: bool = False


def script_of(path: str, text: str, facts: Module) -> Script:
    """A file that ``python_tree.parse`` has taken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    return Script(path, tree, functions, facts)


def follow(script: Script, files: Mapping[str, Script], entry: str) -> Walk:
    """The file's statements and then a function's, called with its defaults; "" for none."""
    walk = Walk(files)
    names = Module(arguments=script.facts.arguments, imported=script.facts.imported)
    names.constants["__name__"] = Setting("" if entry else "__main__", script.path)
    frame = _Frame(script, names, ())
    walk.top[script.path] = names.constants
    _block(walk, frame, script.tree.body)
    function = script.functions.get(entry)
    if function is not None:
        if entry in script.functions:
            walk.events.clear()
        _enter(walk, frame, script, function, ast.Call(ast.Name(entry), [], []), "")
    return walk


def _block(walk: Walk, frame: _Frame, body: list[ast.stmt]) -> None:
    for statement in body:
        if frame.done or walk.left <= 0:
            return
        walk.left -= 1
        _statement(walk, frame, statement)


def _statement(walk: Walk, frame: _Frame, node: ast.stmt) -> None:
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets: list[ast.expr] = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
        _assign(walk, frame, targets, node.value)
    elif isinstance(node, ast.AugAssign):
        whole = ast.BinOp(node.target, node.op, node.value)
        _assign(walk, frame, [node.target], ast.copy_location(whole, node))
    elif isinstance(node, ast.Expr):
        _value(walk, frame, node.value, "")
    elif isinstance(node, ast.If):
        _branch(walk, frame, node)
    elif isinstance(node, ast.For):
        _loop(walk, frame, node)
    elif isinstance(node, (ast.With, ast.While)):
        _block(walk, frame, node.body)
    elif isinstance(node, ast.Try):
        _block(walk, frame, [*node.body, *node.orelse, *node.finalbody])
    elif isinstance(node, ast.Return):
        frame.returned = _value(walk, frame, node.value, "") if node.value else None
        frame.done = True
    elif isinstance(node, ast.Raise):
        frame.done = True


def _branch(walk: Walk, frame: _Frame, node: ast.If) -> None:
    """The branch that is taken; where only a run could tell, the first, both being noted."""
    test = evaluate(node.test, frame.names)
    if not isinstance(test, Unknown) or isinstance(test, python_tree.Absent):
        _block(walk, frame, node.body if _truth(test) else node.orelse)
        return
    leaves = any(isinstance(one, (ast.Return, ast.Raise)) for one in node.body[-1:])
    first, second = (node.orelse, node.body) if leaves else (node.body, node.orelse)
    shadow = _Frame(frame.script, _copied(frame.names), frame.stack)
    aside = replace(walk, events=[], choices=[])
    if not any(isinstance(one, ast.Raise) for one in second[-1:]):
        _block(aside, shadow, second)
    walk.left = aside.left
    start = len(walk.events)
    _block(walk, frame, first)
    text = ast.unparse(node.test)[:80]
    if leaves:
        text = f"not ({text})"
    taken = tuple(walk.events[start:])
    walk.choices.append(Choice(text, frame.script.path, node.lineno, taken, tuple(aside.events)))


def _truth(value: Any) -> bool:
    return bool(value) and not isinstance(value, python_tree.Absent)


def _copied(names: Module) -> Module:
    return replace(names, constants=dict(names.constants), attributes=dict(names.attributes))


def _loop(walk: Walk, frame: _Frame, node: ast.For) -> None:
    """Once for each entry of a written list or of a written dictionary's items; else once."""
    turns = items(node.iter, frame.names)
    if turns is None:
        _block(walk, frame, node.body)
        return
    for turn in turns[:TURNS]:
        parts = turn if isinstance(turn, list) else [turn]
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        values = parts if isinstance(node.target, ast.Tuple) else [turn]
        for target, value in zip(targets, values, strict=False):
            if isinstance(target, ast.Name):
                place = Setting(value, frame.script.path, node.lineno)
                frame.names.constants[target.id] = place
        _block(walk, frame, node.body)


def _assign(walk: Walk, frame: _Frame, targets: list[ast.expr], node: ast.expr) -> None:
    first = dotted(targets[0])
    value = _value(walk, frame, node, first)
    for target in targets:
        if isinstance(target, ast.Tuple):
            parts = value if isinstance(value, list) else [Unknown("...")] * len(target.elts)
            for one, part in zip(target.elts, parts, strict=False):
                _put(walk, frame, dotted(one), part, node)
        else:
            _put(walk, frame, dotted(target) or item(target, frame.names), value, node)
            if isinstance(node, ast.Name) and "." in dotted(target):
                _bind_made(walk, node.id, dotted(target))


def _bind_made(walk: Walk, name: str, path: str) -> None:
    """``recipe.data = data``: what was made and set before it lies over the recipe's from here."""
    made = [
        at for at, one in enumerate(walk.events) if isinstance(one, Called) and one.into == name
    ]
    for event in walk.events[made[-1] :] if made else ():
        if isinstance(event, Called) and event.into == name:
            walk.events.append(replace(event, into=path))
        elif isinstance(event, Assigned) and event.path.startswith(f"{name}."):
            walk.events.append(Assigned(path + event.path[len(name) :], event.setting))


def _put(walk: Walk, frame: _Frame, path: str, value: Any, node: ast.AST) -> None:
    if not path:
        return
    setting = Setting(value, frame.script.path, getattr(node, "lineno", None))
    if "." in path:
        frame.names.attributes[path] = setting
        walk.events.append(Assigned(path, setting))
    else:
        frame.names.constants[path] = setting


def _value(walk: Walk, frame: _Frame, node: ast.expr, into: str) -> Any:
    """An expression's value, the calls in it followed or noted, the innermost first."""
    if isinstance(node, ast.IfExp):
        test = evaluate(node.test, frame.names)
        if not isinstance(test, Unknown) or isinstance(test, python_tree.Absent):
            return _value(walk, frame, node.body if _truth(test) else node.orelse, into)
    if isinstance(node, ast.Call):
        return _call(walk, frame, node, into)
    for inner in calls_in(node):
        _call(walk, frame, inner, "")
    return evaluate(node, frame.names)


def _call(walk: Walk, frame: _Frame, node: ast.Call, into: str) -> Any:
    if walk.left <= 0:
        return Unknown("...")
    walk.left -= 1
    for inner in [node.func, *node.args, *(keyword.value for keyword in node.keywords)]:
        for one in calls_in(inner):
            _call(walk, frame, one, "")
    name = callee(node.func, frame.names)
    if name == "setattr" and len(node.args) == 3:
        key = evaluate(node.args[1], frame.names)
        base = dotted(node.args[0])
        if isinstance(key, str) and not isinstance(key, Unknown) and base:
            _put(walk, frame, f"{base}.{key}", evaluate(node.args[2], frame.names), node)
        return None
    found = _function(walk, frame, name)
    if found is not None:
        script, function = found
        if function.name not in frame.stack and len(frame.stack) < DEEPEST:
            return _enter(walk, frame, script, function, node, into)
    _note(walk, frame, node, name, into)
    value = evaluate(node, frame.names)
    told = not isinstance(value, Unknown) or isinstance(value, python_tree.Variable)
    told = told or not str(value).endswith(")")  # a name that ``TABLE.get(key)`` chooses
    return value if told else Unknown(f"{name or 'call'}()")


def _function(walk: Walk, frame: _Frame, name: str) -> tuple[Script, ast.FunctionDef] | None:
    """The function of this file or of a given one that a name means."""
    mine = frame.script
    if name in mine.functions:
        return mine, mine.functions[name]
    facts = mine.facts
    base, _, last = name.rpartition(".")
    whose = base or facts.origin.get(name, "")
    if base and base in facts.imported:
        whose = facts.imported[base]
    other = walk.files.get(whose.rsplit(".", 1)[-1])
    function = facts.imported.get(name, name) if not base else last
    if other is None or other.path == mine.path or function not in other.functions:
        return None
    walk.met.add(other.path)
    return other, other.functions[function]


def _enter(
    walk: Walk,
    frame: _Frame,
    script: Script,
    function: ast.FunctionDef,
    node: ast.Call,
    into: str,
) -> Any:
    """A function's body with its parameters bound; what it sets is known to the caller after."""
    renamed = _bound(walk.top, frame, script, function, node)
    inner = renamed.pop("")
    assert isinstance(inner, _Frame)
    _block(walk, inner, function.body)
    back = {name: str(outer) for name, outer in renamed.items()}
    if into and isinstance(inner.returned, Unknown):
        back.setdefault(str(inner.returned), into)
    for path, setting in inner.names.attributes.items():
        base, dot, rest = path.partition(".")
        if dot and base in back:
            frame.names.attributes[f"{back[base]}.{rest}"] = setting
    return inner.returned


def _bound(
    top: Mapping[str, Mapping[str, Setting]],
    frame: _Frame,
    script: Script,
    function: ast.FunctionDef,
    node: ast.Call,
) -> dict[str, Any]:
    """{parameter: the caller's name for it}, and the new frame under ""."""
    names = Module(arguments=script.facts.arguments, imported=script.facts.imported)
    names.constants.update(top.get(script.path, script.facts.constants))
    taken = function.args
    order = [*taken.posonlyargs, *taken.args]
    for parameter, default in zip(order[::-1], taken.defaults[::-1], strict=False):
        _bind(names, parameter.arg, evaluate(default, frame.names), script.path, default)
    for parameter, one in zip(taken.kwonlyargs, taken.kw_defaults, strict=True):
        if one is not None:
            _bind(names, parameter.arg, evaluate(one, frame.names), script.path, one)
    passed: list[tuple[str, ast.expr]] = [
        (parameter.arg, argument) for parameter, argument in zip(order, node.args, strict=False)
    ]
    passed += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    renamed: dict[str, Any] = {}
    for name, argument in passed:
        _bind(names, name, evaluate(argument, frame.names), frame.script.path, argument)
        whose = dotted(argument)
        if whose:
            renamed[name] = whose
            for path, setting in frame.names.attributes.items():
                if path.startswith(whose + "."):
                    names.attributes[name + path[len(whose) :]] = setting
    given = {name for name, _ in passed}
    for parameter in (*order, *taken.kwonlyargs):  # what nothing tells is no longer the caller's
        if parameter.arg not in given and parameter.arg not in _defaulted(taken):
            names.constants.pop(parameter.arg, None)
    renamed[""] = _Frame(script, names, (*frame.stack, function.name))
    return renamed


def _defaulted(taken: ast.arguments) -> set[str]:
    order = [*taken.posonlyargs, *taken.args]
    found = {one.arg for one in order[len(order) - len(taken.defaults) :]}
    pairs = zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    return found | {one.arg for one, default in pairs if default is not None}


def _bind(names: Module, name: str, value: Any, file: str, node: ast.AST) -> None:
    if isinstance(value, Unknown) and str(value) == name:
        names.constants.pop(name, None)
    else:
        names.constants[name] = Setting(value, file, getattr(node, "lineno", None))


def _note(walk: Walk, frame: _Frame, node: ast.Call, name: str, into: str) -> None:
    """A call that is not followed, with what its written tables and ``key=value`` words set."""
    if not name:
        return
    file = frame.script.path
    keywords: dict[str, Setting] = {}
    for keyword in node.keywords:
        value = evaluate(keyword.value, frame.names)
        if keyword.arg is not None:
            keywords[keyword.arg] = Setting(value, file, keyword.value.lineno)
        elif isinstance(value, dict):
            more = {str(k): Setting(v, file, keyword.value.lineno) for k, v in value.items()}
            keywords.update(more)
    arguments = tuple(evaluate(one, frame.names) for one in node.args)
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    takes = tuple(path for one in given if (path := dotted(one)))
    end = node.end_lineno or node.lineno
    if name.rsplit(".", 1)[-1] in WRAPPERS and node.args:
        inner = callee(node.args[0], frame.names)
        if inner:
            found = _function(walk, frame, inner)
            if found is not None and found[1].name not in frame.stack:
                called = ast.Call(node.args[0], node.args[1:], node.keywords)
                _enter(walk, frame, *found, ast.copy_location(called, node), into)
                return
            made = Call(inner, keywords, arguments[1:], node.lineno, end)
            walk.events.append(Called(made, into, takes[1:], file))
            return
    made = Call(name, keywords, arguments, node.lineno, end)
    walk.events.append(Called(made, into, takes, file))
    for value in arguments:
        place = Setting(None, file, node.lineno)
        walk.events += [Assigned(*one) for one in written(value, "", place)]
