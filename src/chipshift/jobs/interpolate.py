"""OmegaConf's ``${a.b}`` in a YAML file's values, resolved within the file."""

from __future__ import annotations

import ast
import re

from chipshift.jobs.python_tree import Module, evaluate
from chipshift.jobs.settings import Setting, as_number

_WHOLE = re.compile(r"\$\{([^${}]{1,200})\}")
_ENV = re.compile(r"(?:oc\.)?env:\s*([A-Za-z_]\w*)\s*(?:,\s*(.*))?$")
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
) -> str | int | float | bool:
    whole = _WHOLE.fullmatch(text.strip())
    if whole:
        value = _look_up(key, whole.group(1), settings, fixed)
        return value if isinstance(value, (str, int, float, bool)) else text

    def one(match: re.Match[str]) -> str:
        value = _look_up(key, match.group(1), settings, fixed)
        return match.group() if value is None else str(value)

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
    values = [as_number(part) for part in rest.split(",")]
    if len(values) != 2 or values[0] is None or values[1] is None:
        return None
    a, b = values[0], values[1]
    if function in ("multiply", "mul", "eval_mul") and abs(a * b) < 1e15:
        value: float = a * b
    elif function in ("div", "divide", "int_div", "floordiv") and b:
        value = a // b
    elif function in ("div_up", "ceil_div") and b:
        value = -(-a // b)
    elif function in ("add", "sum", "plus"):
        value = a + b
    else:
        return None
    return int(value) if value == int(value) else value


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
