"""Which files of a tree are audited: .gitignore respected, environments and vendored code left."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chipshift.audit.finding import Skipped
from chipshift.audit.names import words

IGNORED = words(
    """.git .hg .svn .venv venv env .env .tox .nox __pycache__ node_modules site-packages .eggs
    .mypy_cache .pytest_cache .ruff_cache .ipynb_checkpoints build dist"""
)
VENDORED = words("""third_party third-party thirdparty vendor vendored _vendor external extern""")
TESTS = frozenset({"tests", "test", "unit_tests"})


@dataclass(slots=True)
class Tree:
    """The files to audit and those left out with the reason; paths are relative, POSIX."""

    files: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def _pattern(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    """A line of .gitignore as (pattern on the relative path, negated, directories only)."""
    line = line.rstrip("\n").rstrip()
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    folder = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    line = line.lstrip("/")
    out = ""
    index = 0
    while index < len(line):
        char = line[index]
        if line.startswith("**/", index):
            out += "(?:.*/)?"
            index += 3
            continue
        if line.startswith("**", index):
            out += ".*"
            index += 2
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
        index += 1
    prefix = "" if anchored else "(?:.*/)?"
    return re.compile(f"{prefix}{out}$"), negated, folder


Rules = list[tuple[str, re.Pattern[str], bool, bool]]


def _read_ignore(folder: Path, relative: str) -> Rules:
    try:
        lines = (folder / ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [(relative, *found) for line in lines if (found := _pattern(line)) is not None]


def ignored(path: str, is_folder: bool, rules: Rules) -> bool:
    """Whether gitignore rules (each with the folder it was written in) leave ``path`` out."""
    out = False
    for base, pattern, negated, folder in rules:
        if folder and not is_folder:
            continue
        if base and not path.startswith(base + "/"):
            continue
        inner = path[len(base) + 1 :] if base else path
        if pattern.match(inner):
            out = not negated
    return out


def find(root: Path, exclude: Sequence[str] = ()) -> Tree:
    """All Python files and notebooks below ``root``, sorted."""
    tree = Tree()
    extra: Rules = [("", *found) for line in exclude if (found := _pattern(line)) is not None]
    seen: set[tuple[int, int]] = set()
    for folder, relative, rules in _folders(root, extra, seen, tree):
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries:
            name = f"{relative}/{entry.name}" if relative else entry.name
            if not entry.name.endswith((".py", ".ipynb")):
                continue
            if ignored(name, False, rules) or not entry.is_file():
                continue
            tree.files.append(name)
    tree.files.sort()
    return tree


def _folders(
    root: Path, extra: Rules, seen: set[tuple[int, int]], tree: Tree
) -> Iterator[tuple[Path, str, Rules]]:
    stack: list[tuple[Path, str, Rules]] = [(root, "", extra)]
    while stack:
        folder, relative, rules = stack.pop()
        try:
            status = folder.stat()
        except OSError:
            continue
        key = (status.st_dev, status.st_ino)
        if key in seen:
            tree.skipped.append(Skipped(relative, "a link into a folder already read"))
            continue
        seen.add(key)
        here = rules + _read_ignore(folder, relative)
        yield folder, relative, here
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name, reverse=True)
        except OSError as error:
            tree.skipped.append(Skipped(relative, f"cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            if not entry.is_dir():
                continue
            name = f"{relative}/{entry.name}" if relative else entry.name
            if entry.name in IGNORED or ignored(name, True, here):
                continue
            if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                continue
            if entry.name in VENDORED:
                tree.skipped.append(Skipped(name, "vendored code"))
                continue
            if entry.name in TESTS:
                tree.skipped.append(Skipped(name, "tests found by walking"))
                continue
            stack.append((Path(entry.path), name, here))
