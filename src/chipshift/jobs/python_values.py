"""What expressions of a Python job file come to, told from the text alone.

Nothing is imported or run. What cannot be told becomes ``Unknown``.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field
from typing import Any

from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.overrides import typed
from chipshift.jobs.python_operators import LONGEST_TEXT, binary, compared, is_text, unary
from chipshift.jobs.python_operators import Absent as Absent
from chipshift.jobs.python_operators import Unknown as Unknown
from chipshift.jobs.python_operators import Variable as Variable
from chipshift.jobs.settings import Setting

DEEPEST = 40
PARSED = (
    *("args", "hparams", "opt", "opts", "flags", "FLAGS", "config", "cfg", "self.args"),
    *(
        "arguments",
        "cli_args",
        "parsed_args",
        "script_args",
        "script_arguments",
        "training_args",
        "model_args",
    ),
    *("data_args", "sft_args", "custom_args"),
    *("self.hparams", "self.config", "self.cfg"),
)
"""What scripts call the outcome of ``parse_args()`` or ``parse_args_into_dataclasses()``, and a
module its own hyperparameters."""


ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
"""Calls that take a variable's default where nothing sets it."""
_HELPER = re.compile(r"_?(?:get_?|read_?)?env(?:_(?:int|float|str|bool|or|or_default|get|var))?")
"""What scripts call their own function of a variable and its default: ``env("LAYERS", 8)``."""


@dataclass(frozen=True)
class Call:
    """A call: dotted name of what is called, keyword arguments, positional ones, lines.

    Attributes:
        reads: of each keyword, the program's own arguments that stand in its value.
        splats: what ``**x`` passes that only a run could tell.
    """

    name: str
    keywords: dict[str, Setting]
    arguments: tuple[Any, ...]
    line: int
    end: int
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    file: str = ""
    splats: tuple[str, ...] = ()


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
        arguments: defaults of the command line's own arguments (``add_argument``, or fields of a
            data class that a HfArgumentParser is given), by name; what a command gives, over them.
        parsed: names of what the arguments, or a file of settings, are read into.
        asked: arguments that the program reads anywhere.
        started: a command is known, so that an argument which it does not give is its default.
    """

    constants: dict[str, Setting] = field(default_factory=dict)
    attributes: dict[str, Setting] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    functions: dict[str, Module] = field(default_factory=dict)
    line: int | None = None
    imported: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    parsed: frozenset[str] = frozenset()
    started: bool = False
    asked: frozenset[str] = frozenset()


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
        if known is None and (key := argument_read(node, module)):
            return module.arguments[key]
        if known is None and (held := _held_under(node, module)) is not None:
            return held
        if known is None and base in PARSED:
            known = module.constants.get(last)
        return known.value if known is not None else Unknown(name or "...")
    if isinstance(node, (ast.List, ast.Tuple)):
        return [evaluate(one, module, depth + 1) for one in node.elts]
    if isinstance(node, ast.Dict):
        return _written_out(node, module, depth)
    if isinstance(node, ast.UnaryOp):
        return unary(node, evaluate(node.operand, module, depth + 1))
    if isinstance(node, ast.BoolOp):
        return _joined(node, module, depth)
    if isinstance(node, ast.Subscript):
        return _entry(node, module, depth)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left = evaluate(node.left, module, depth + 1)
        return compared(node.ops[0], left, evaluate(node.comparators[0], module, depth + 1))
    if isinstance(node, ast.BinOp):
        left = evaluate(node.left, module, depth + 1)
        return binary(node, left, evaluate(node.right, module, depth + 1))
    if isinstance(node, ast.IfExp):
        test = evaluate(node.test, module, depth + 1)
        if not isinstance(test, Unknown):
            return evaluate(node.body if test else node.orelse, module, depth + 1)
    if isinstance(node, ast.Call):
        return _known_call(node, module, depth)
    if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
        inner = node.body  # a table of ``lambda: recipe()``
        if not (inner.args or inner.keywords or node.args.args) and dotted(inner.func):
            return Unknown(dotted(inner.func))
    if isinstance(node, ast.JoinedStr):
        parts = [evaluate(part, module, depth + 1) for part in node.values]
        if not any(isinstance(part, Unknown) for part in parts):
            return "".join(str(part) for part in parts)[:LONGEST_TEXT]
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return evaluate(node.value, module, depth + 1)
    return _source(node)


def _written_out(node: ast.Dict, module: Module, depth: int) -> dict[str, Any]:
    """A table's entries, with those of the tables that it takes in (``{**A, "x": 1}``)."""
    table: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            table |= passed_whole(value, module, depth + 1)
        else:
            table[str(evaluate(key, module, depth + 1))] = evaluate(value, module, depth + 1)
    return table


def argument_read(node: ast.AST, module: Module) -> str:
    """The argument that ``args.x``, ``cfg["train"]["x"]`` or ``cfg.get("x")`` is, or ""."""
    keys = _keys_read(node, module)
    whole = ".".join(keys)
    if whole in module.arguments:
        return whole
    if keys and keys[0] in module.arguments:
        return keys[0]
    return _of_chosen_table(whole, module) if keys else ""


def _keys_read(node: ast.AST, module: Module) -> list[str]:
    """``["train", "x"]`` of ``cfg["train"]["x"]``; none of what is no outcome of the arguments."""
    keys: list[str] = []
    while len(keys) < DEEPEST:
        if isinstance(node, ast.Attribute):
            if dotted(node) in PARSED and keys:
                break
            keys.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.append(str(node.slice.value))
            node = node.value
        elif isinstance(node, ast.Call) and _gets(node):
            keys.append(str(node.args[0].value))  # type: ignore[attr-defined]
            node = node.func.value  # type: ignore[attr-defined]
        else:
            break
    base = dotted(node)
    known = bool(base) and (base in PARSED or base in module.parsed)
    return keys[::-1] if known else []


_AS_TABLE = re.compile(r"(?:^|\.)(?:vars|asdict|dict|to_container|to_dict)$")
"""Functions that give a namespace, a data class or a configuration as a table."""


def passed_whole(node: ast.AST, module: Module, depth: int = 0) -> dict[str, Any]:
    """The table that ``**node`` passes; one entry ``**text`` where only a run could tell it.

    A command's own pairs (``--training-args lr=1e-4 bf16=true``) are a table too.
    """
    while isinstance(node, ast.Call) and node.args and _AS_TABLE.search(dotted(node.func)):
        node = node.args[0]
    value = evaluate(node, module, depth)
    if isinstance(value, list) and all(is_text(one) and "=" in one for one in value):
        return {one.partition("=")[0]: typed(one.partition("=")[2]) for one in value}
    if is_text(value) and re.fullmatch(r"\w+=\S+", value):
        return {value.partition("=")[0]: typed(value.partition("=")[2])}
    if isinstance(value, dict):
        return value
    base = dotted(node)
    if base in module.parsed and module.started:  # all that the program is given
        return _nested(module.arguments, "")
    return {f"**{_source(node)}": _source(node)}


def _held_under(node: ast.AST, module: Module) -> dict[str, Any] | None:
    """The table of a file of settings that ``cfg["train"]`` is; None where it is none."""
    keys = _keys_read(node, module)
    return (_nested(module.arguments, ".".join(keys) + ".") or None) if keys else None


def _nested(flat: dict[str, Any], under: str) -> dict[str, Any]:
    """Dotted keys as tables in one another, of those that begin so."""
    found: dict[str, Any] = {}
    for key, value in flat.items():
        if not key.startswith(under) or isinstance(value, Unknown):
            continue
        *path, last = key[len(under) :].split(".")
        table = found
        for part in path[:DEEPEST]:
            inner = table.setdefault(part, {})
            table = inner if isinstance(inner, dict) else {}
        table[last] = value
    return found


def _of_chosen_table(key: str, module: Module) -> str:
    """``hf_key`` as ``llama2-7b.hf_key``, where an argument's value names that table."""
    ends = [one for one in module.arguments if one.endswith(f".{key}")]
    if not ends or len(ends) > 1000:
        return ""
    chosen = {value for value in module.arguments.values() if type(value) is str}
    named = [one for one in ends if one.removesuffix(f".{key}") in chosen]
    return named[0] if len(named) == 1 else ""


def _gets(node: ast.Call) -> bool:
    """``table.get("key")`` or ``table.get("key", default)``."""
    named = isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args
    return bool(named) and isinstance(node.args[0], ast.Constant)


def _source(node: ast.AST) -> Unknown:
    """The text of an expression that only a run could tell."""
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
    if (name in ENVIRONMENT or _HELPER.fullmatch(name)) and len(node.args) == 2:
        return evaluate(node.args[1], module, depth + 1)
    if name in ENVIRONMENT and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
        return Variable(f"${node.args[0].value!s}")
    if key := argument_read(node, module):
        return module.arguments[key]
    if _gets(node) and (held := _held_under(node, module)) is not None:
        return held
    if _gets(node) and len(node.args) == 2 and _table_read(node, module):
        return evaluate(node.args[1], module, depth + 1)
    if _OF_CHIP.search(name):
        return True
    if name == "torch.cuda.get_device_capability":
        return list(HOPPER)
    if name == "getattr" and len(node.args) >= 2:
        named = _attribute_named(node, module, depth)
        if named is not None:
            return named
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TEXT:
        return _of_text(node, node.func, module, depth)
    if (chosen := _chosen(node, name, module, depth)) is not None:
        return chosen
    return Unknown(f"{name or 'call'}()")


def _table_read(node: ast.Call, module: Module) -> bool:
    """Whether ``x.get(...)`` asks a table of settings that is known whole."""
    assert isinstance(node.func, ast.Attribute)
    root: ast.AST = node.func.value
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in module.parsed


def _attribute_named(node: ast.Call, module: Module, depth: int) -> Any:
    """``getattr(torch, "bfloat16")`` and ``getattr(args, "x", default)``."""
    base, name = dotted(node.args[0]), evaluate(node.args[1], module, depth + 1)
    if not base or not isinstance(name, str) or isinstance(name, Unknown):
        return None
    if dtype_of(f"{base}.{name}"):
        return f"{base}.{name}"
    if (base in PARSED or base in module.parsed) and name in module.arguments:
        return module.arguments[name]
    if base in module.parsed and len(node.args) == 3:
        return evaluate(node.args[2], module, depth + 1)
    return None


_OF_CHIP = re.compile(
    r"cuda\.is_available$|(?:^|\.)is_(?:bf16|bfloat16)_supported$|is_torch_bf16(?:_gpu)?_available$"
)
"""What a program asks of the chip, which an H100 answers with yes."""
HOPPER = (9, 0)
"""Compute capability of an H100, for what a program asks of the chip (bf16 from 8.0 on)."""
_OF_TEXT = {"lower", "upper", "strip", "startswith", "endswith"}


def _of_text(node: ast.Call, method: ast.Attribute, module: Module, depth: int) -> Any:
    """``name.lower()``, ``name.startswith("Llama")`` of a text that is known."""
    text = evaluate(method.value, module, depth + 1)
    asked = [evaluate(one, module, depth + 1) for one in node.args]
    if not is_text(text) or not all(is_text(one) for one in asked) or len(asked) > 1:
        return Unknown(f"{method.attr}()")
    return getattr(str(text), method.attr)(*asked)


def _chosen(node: ast.Call, name: str, module: Module, depth: int) -> Any:
    """``TABLE.get(key)``, ``getattr(recipes, "x")`` and ``import_module("a.b")``; None where what
    is chosen cannot be told.
    """
    values = [evaluate(one, module, depth + 1) for one in node.args]
    if name in ("importlib.import_module", "import_module") and is_text(values[:1] and values[0]):
        return Unknown(values[0])
    if name == "getattr" and len(values) in (2, 3) and is_text(values[1]):
        return Unknown(f"{values[0]}.{values[1]}") if isinstance(values[0], Unknown) else None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and values:
        table = evaluate(node.func.value, module, depth + 1)
        if isinstance(table, dict) and not isinstance(values[0], Unknown):
            return table.get(values[0], values[1] if len(values) > 1 else None)
    return None


def _joined(node: ast.BoolOp, module: Module, depth: int) -> Any:
    """``a or b`` and ``a and b`` as far as what comes first tells."""
    stops = isinstance(node.op, ast.Or)
    value: Any = Unknown("...")
    for one in node.values:
        value = evaluate(one, module, depth + 1)
        if isinstance(value, Unknown) and not isinstance(value, Absent):
            return _source(node)
        if (bool(value) and not isinstance(value, Absent)) == stops:
            return value
    return value


def _entry(node: ast.Subscript, module: Module, depth: int) -> Any:
    """``TABLE["8b"]`` of a table that is written out, ``os.environ["NNODES"]``."""
    if dotted(node.value) in ("os.environ", "environ") and isinstance(node.slice, ast.Constant):
        return Variable(f"${node.slice.value!s}")
    if argument := argument_read(node, module):
        return module.arguments[argument]
    if (held := _held_under(node, module)) is not None:
        return held
    table, key = (evaluate(one, module, depth + 1) for one in (node.value, node.slice))
    if not isinstance(key, Unknown):
        if isinstance(table, dict) and str(key) in table:
            return table[str(key)]
        if isinstance(table, list) and type(key) is int and -len(table) <= key < len(table):
            return table[key]
    return _source(node)
