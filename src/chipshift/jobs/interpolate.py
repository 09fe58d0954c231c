"""OmegaConf's ``${a.b}`` in a YAML file's values, resolved within the file."""

from __future__ import annotations

import ast
import re

from chipshift.jobs.python_tree import Module, evaluate
from chipshift.jobs.settings import Setting, as_boolean, as_number

_WHOLE = re.compile(r"\$\{([^${}]{1,200})\}")
_ENV = re.compile(r"(?:oc\.)?env:\s*([A-Za-z_]\w*)\s*(?:,\s*(.*))?$")
NULL = object()
"""What ``${oc.decode:null}`` is: nothing, which is not the same as not resolved."""
ROUNDS = 10
LONGEST = 10_000


def interpolated(settings: dict[str, Setting], fixed: dict[str, str]) -> dict[str, Setting]:
    """Settings with references replaced; what cannot be resolved is left as written.

    Args:
        fixed: ``--set`` values, which stand for environment variables.
    """
    found = dict(settings)
    for _ in range(ROUNDS):
        changed = False
        for key, setting in found.items():
            if isinstance(setting.value, str) and "${" in setting.value:
                value = _replaced(key, setting.value, found, fixed)
                if value != setting.value:
                    found[key] = Setting(value, setting.file, setting.line)
                    changed = True
        if not changed:
            break
    return found


def _replaced(
    key: str, text: str, settings: dict[str, Setting], fixed: dict[str, str]
) -> str | int | float | bool | None:
    whole = _WHOLE.fullmatch(text.strip())
    if whole:
        value = _look_up(key, whole.group(1), settings, fixed)
        if value is NULL:
            return None
        return value if isinstance(value, (str, int, float, bool)) else text

    def one(match: re.Match[str]) -> str:
        value = _look_up(key, match.group(1), settings, fixed)
        return match.group() if value is None else "null" if value is NULL else str(value)

    replaced = _WHOLE.sub(one, text)
    return replaced if len(replaced) <= LONGEST else text


def _look_up(key: str, name: str, settings: dict[str, Setting], fixed: dict[str, str]) -> object:
    name = name.strip()
    environment = _ENV.fullmatch(name)
    if environment:
        return fixed.get(environment.group(1), environment.group(2))
    if ":" in name:
        return _computed(key, name, settings, fixed)
    if name.startswith("."):  # relative: one dot is the same table
        levels = len(name) - len(name.lstrip("."))
        base = key.split(".")[:-levels]
        name = ".".join([*base, name.lstrip(".")])
    found = settings.get(name)
    if found is None and "." in name:  # named from a launcher's root, such as training.model.x
        found = settings.get(name.split(".", 1)[1])
    return None if found is None or found.value == f"${{{name}}}" else found.value


def _computed(key: str, name: str, settings: dict[str, Setting], fixed: dict[str, str]) -> object:
    """``multiply:``, ``int_div:`` and the like, which NeMo and others register."""
    function, _, rest = name.partition(":")
    if function == "eval":
        return _evaluated(rest)
    if function == "oc.decode":
        return _decoded(rest)
    words = [part.strip() for part in rest.split(",")]
    if function in _COMPARE or function in ("if", "or", "and", "not"):
        return _chosen(function, words)
    values = [as_number(part) for part in rest.split(",")]
    if len(values) != 2 or values[0] is None or values[1] is None:
        return None
    a, b = values[0], values[1]
    if function in ("multiply", "mul", "eval_mul") and abs(a * b) < 1e15:
        value: float = a * b
    elif function in ("div", "divide", "int_div", "floordiv", "floor_div") and b:
        value = a // b
    elif function in ("div_up", "ceil_div") and b:
        value = -(-a // b)
    elif function in ("add", "sum", "plus"):
        value = a + b
    else:
        return None
    return int(value) if value == int(value) else value


def _decoded(text: str) -> object:
    """OmegaConf's own ``oc.decode``: text as the value that it spells."""
    text = text.strip().strip("\"'")
    if text.lower() in ("null", "none", ""):
        return NULL
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = as_number(text)
    return text if number is None else int(number) if number == int(number) else number


_COMPARE = ("eq", "neq", "lt", "le", "gt", "ge")


def _chosen(function: str, words: list[str]) -> object:
    """Conditions as NVIDIA's MLPerf configurations register them (``${if:${lt:1,2},a,b}``).

    Source: NVIDIA, MLPerf Training 4.0, large_language_model, conf/custom.yaml, 2024.
    """
    if function in _COMPARE:
        if len(words) != 2:
            return None
        a, b = (as_number(word) for word in words)
        if a is None or b is None:
            return words[0] == words[1] if function == "eq" else (
                words[0] != words[1] if function == "neq" else None)  # fmt: skip
        return {"eq": a == b, "neq": a != b, "lt": a < b, "le": a <= b, "gt": a > b,
                "ge": a >= b}[function]  # fmt: skip
    truth = [as_boolean(word) for word in words]
    if function == "if":
        return _decoded(words[1 if truth[0] else 2]) if len(words) == 3 and (
            truth[0] is not None) else None  # fmt: skip
    if None in truth or not truth:
        return None
    return {"or": any(truth), "and": all(truth), "not": not truth[0]}[function]


def _evaluated(text: str) -> object:
    """Arithmetic on numbers alone, as ``eval:`` is registered; read, never run."""
    text = text.strip().strip("\"'")
    if not re.fullmatch(r"[\d\s.+*/()%-]{1,200}", text):
        return None
    try:
        value = evaluate(ast.parse(text.strip(), mode="eval").body, Module())
    except (SyntaxError, RecursionError, ValueError, MemoryError):
        return None
    return None if isinstance(value, str) else value
