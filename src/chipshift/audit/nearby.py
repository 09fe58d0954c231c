"""The files around one that is audited alone, read only to resolve its names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chipshift.audit.facts import FileFacts
from chipshift.audit.read import read_file

LIMIT = 40
"""Files read for one; what is beyond stays unresolved."""


def _project(file: Path) -> Path:
    """The folder that imports start from: the one above the outermost package, or of a .git."""
    folder = file.parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _path(root: Path, dotted: str) -> Path | None:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        base = root.joinpath(*parts[:length])
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def context(root: Path, file: Path, files: Sequence[FileFacts]) -> list[FileFacts]:
    """Facts of the modules that ``file`` imports from its own project, two steps deep.

    ``files`` holds the facts of ``file`` itself, whose module is renamed to its full dotted name.
    """
    project = _project(file.resolve())
    found: list[FileFacts] = []
    seen: set[Path] = {file.resolve()}
    for facts in files:
        facts.module = _dotted(project, file.resolve())
    frontier = [one for facts in files for one in _imports(facts)]
    for _ in range(2):
        more: list[str] = []
        for dotted in frontier:
            where = _path(project, dotted)
            if where is None or where in seen or len(found) >= LIMIT:
                continue
            seen.add(where)
            facts = read_file(project, where.relative_to(project).as_posix())
            if not facts.skipped:
                found.append(facts)
                more += _imports(facts)
        frontier = more
    del root
    return found


def _dotted(project: Path, file: Path) -> str:
    parts = list(file.relative_to(project).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _imports(facts: FileFacts) -> list[str]:
    return [dotted for dotted, _, _, _ in facts.import_lines]
