"""The source lines that findings point at, in files and in notebook cells."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

NEWLINE = re.compile(r"\r\n|\r|\n")  # what Python counts as a line; str.splitlines counts more


class SourceLines:
    """Lines of the files below an audited path, read when asked for; a missing line is empty."""

    def __init__(self, path: Path | str) -> None:
        root = Path(path)
        self._root = root if root.is_dir() else root.parent
        self._of = lru_cache(maxsize=256)(self._read)

    @property
    def root(self) -> Path:
        """The folder that the names of findings are relative to."""
        return self._root

    def line(self, file: str, line: int, cell: int | None = None) -> str:
        """The text of one line (from 1; within ``cell``, which counts from 0), without its end."""
        lines = self.all(file, cell)
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def all(self, file: str, cell: int | None = None) -> tuple[str, ...]:
        """All lines of a file or of one notebook cell."""
        return self._of(file, cell)

    def raw_line(self, file: str, line: int, cell: int | None) -> int:
        """The line of the file itself at which a line of a notebook cell stands.

        Notebooks are JSON with one string a source line; a viewer of the file needs that line. A
        notebook laid out otherwise gives line 1.
        """
        if cell is None:
            return line
        wanted = self.line(file, line, cell)
        earlier = sum(self.all(file, index).count(wanted) for index in range(cell))
        earlier += self.all(file, cell)[: line - 1].count(wanted)
        starts = tuple(json.dumps(wanted, ensure_ascii=ascii)[:-1] for ascii in (True, False))
        for number, raw in enumerate(self.all(file), start=1):
            text = raw.strip().rstrip(",")
            if text.startswith(starts) and text[len(starts[0]) :] in ('"', '\\n"'):
                if earlier == 0:
                    return number
                earlier -= 1
        return 1

    def _read(self, file: str, cell: int | None) -> tuple[str, ...]:
        try:
            text = (self._root / file).read_bytes().decode("utf-8", errors="replace")
        except OSError:
            return ()
        return tuple(NEWLINE.split(text if cell is None else cell_source(text, cell)))


def cell_source(notebook: str, cell: int) -> str:
    """The source of one cell of a notebook's JSON text; empty when it cannot be read."""
    cells = cell_sources(notebook)
    return cells[cell] if 0 <= cell < len(cells) else ""


def cell_sources(notebook: str) -> list[str]:
    """The sources of all cells of a notebook's JSON text; none when it cannot be read."""
    try:
        cells = json.loads(notebook)["cells"]
        sources = [cell["source"] for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [source if isinstance(source, str) else "".join(source) for source in sources]
