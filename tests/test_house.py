"""The house's own rules: imports point down, heavy packages wait until they are used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.call import ROOT

SRC = ROOT / "src" / "chipshift"
FLOORS = [
    {"errors", "units", "worked"},
    {"machines", "models"},
    {"jobs"},
    {"fabric", "parallel", "roofline"},
    {"estimate"},
    {"audit", "compiled", "planner", "trace", "validate"},
    {"flows"},
    {"api", "cli", "report"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
CAPABILITIES = FLOORS[5]
UPWARD = {("estimate/__init__.py", "chipshift.api")}
"""The package that is also a public function calls it when it is called."""


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import of chipshift's own, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chipshift."):
            yield node.lineno, node.module or ""


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def test_every_room_has_its_floor() -> None:
    rooms = {path.relative_to(SRC).parts[0].removesuffix(".py") for path in files()}
    assert rooms - {"__init__", "__main__"} <= set(LEVEL)


def test_imports_point_down_and_capabilities_do_not_import_each_other() -> None:
    wrong = []
    for path in files():
        name = path.relative_to(SRC).as_posix()
        room = path.relative_to(SRC).parts[0].removesuffix(".py")
        for line, module in imports(ast.parse(path.read_text("utf8"))):
            other = module.split(".")[1]
            if room not in LEVEL or other not in LEVEL or (name, module) in UPWARD:
                continue
            beside = room in CAPABILITIES and other in CAPABILITIES and room != other
            if LEVEL[other] > LEVEL[room] or beside:
                wrong.append(f"{name}:{line} imports {module}")
    assert wrong == []


HEAVY = ("jax", "jinja2", "numpy", "pandas", "pydantic", "rich.console", "torch", "transformers")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import chipshift", set()),
        ("import chipshift.api", set()),
        ("from chipshift import read, estimate, assess", {"numpy"}),
        ("import chipshift.flows.assess, chipshift.cli.inputs", {"numpy"}),
    ],
)
def test_heavy_packages_wait(code: str, allowed: set[str]) -> None:
    show = f"{code}; import sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, env=env,
                           check=True)  # fmt: skip
    # Typer takes pydantic itself where it reads options: not counted for the command line.
    waits = set(found.stdout.split()) - allowed - ({"pydantic"} if "cli" in code else set())
    assert waits == set()


def test_the_help_of_every_command_shows_an_example_of_it() -> None:
    from chipshift.cli.app import COMMANDS
    from tests.cli.call import call

    for name in COMMANDS:
        found = call(name, "--help")
        assert found.code == 0 and f"chipshift {name}" in found.out.split("Examples")[1], name
