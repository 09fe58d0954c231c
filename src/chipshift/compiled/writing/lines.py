"""A report's source lines, which are the package's, named by the lines of the written step."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import chipshift.compiled.step

STEP = Path(chipshift.compiled.step.__file__).parent


def by_written_lines(found: Any, written: str) -> Any:
    """The same report with each place in the package's step renamed to the line of the file
    ``written`` that it became; where there is none (a function left out), as it is.

    Places are ``{"file", "line"}`` or ``"source": [file, line]``.
    """
    if isinstance(found, list):
        return [by_written_lines(one, written) for one in found]
    if not isinstance(found, dict):
        return found
    new = {key: by_written_lines(value, written) for key, value in found.items()}
    source = found.get("source")
    if isinstance(source, list) and len(source) == 2 and isinstance(source[0], str):
        line = written_line(source[0], source[1], written)
        new["source"] = source if line is None else [written, line]
    if isinstance(found.get("file"), str) and isinstance(found.get("line"), int):
        line = written_line(found["file"], found["line"], written)
        new |= {} if line is None else {"file": written, "line": line}
    return new


def written_line(file: str, line: int, written: str) -> int | None:
    """Of a line of the package's step: the line with its text in the same function of the written
    file, else where that function begins; None where the file has no such function."""
    path = Path(file)
    if path.parent != STEP:
        return None
    own, text = _lines(path), _lines(Path(written))
    around = [node for node in _functions(path) if node[1] <= line <= node[2]]
    for name, _, _ in sorted(around, key=lambda node: node[1] - node[2], reverse=True):
        there = next((node for node in _functions(Path(written)) if node[0] == name), None)
        if there is None:
            continue
        wanted = own[line - 1].strip()
        inside = range(there[1], there[2] + 1)
        return next((n for n in inside if text[n - 1].strip() == wanted), there[1])
    return None


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text("utf8").splitlines()


@cache
def _functions(path: Path) -> list[tuple[str, int, int]]:
    """Every function by its dotted name, with its first and its last line."""
    found: list[tuple[str, int, int]] = []

    def walk(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            name = f"{outer}.{child.name}".lstrip(".") if named else outer  # type: ignore[attr-defined]
            if isinstance(child, ast.FunctionDef):
                found.append((name, child.lineno, child.end_lineno or child.lineno))
            walk(child, name)

    walk(ast.parse("\n".join(_lines(path))), "")
    return found
