"""The pattern language of .gitignore, for trees that are not a git checkout."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pattern:
    """One line of a .gitignore: names it matches are left out, or taken back by a ``!``."""

    expression: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True)
class Ignore:
    """Patterns in the order they apply: the last one that matches decides (gitignore(5))."""

    patterns: tuple[Pattern, ...]

    def matches(self, name: str, folder: bool = False) -> bool:
        """Whether the POSIX ``name``, or a folder above it, is left out."""
        if not self.patterns:
            return False
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            is_folder = folder or depth < len(parts)
            if self._decides("/".join(parts[:depth]), is_folder):
                return True
        return False

    def _decides(self, name: str, is_folder: bool) -> bool:
        out = False
        for pattern in self.patterns:
            if (is_folder or not pattern.folders_only) and pattern.expression.fullmatch(name):
                out = not pattern.negated
        return out

    def joined(self, file: Path, prefix: str) -> Ignore:
        """These patterns followed by those of a .gitignore in the folder ``prefix``."""
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return self
        return Ignore(self.patterns + read_ignore(lines, prefix).patterns)


def read_ignore(lines: Iterable[str], prefix: str = "") -> Ignore:
    """Patterns of the lines of a .gitignore that stands in the folder ``prefix`` ("" or "a/b/")."""
    found = (_pattern(line, prefix) for line in lines)
    return Ignore(tuple(pattern for pattern in found if pattern is not None))


def _pattern(line: str, prefix: str) -> Pattern | None:
    text = line.rstrip("\n")
    text = text if text.endswith("\\ ") else text.rstrip()
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    text = text[1:] if text.startswith(("\\#", "\\!")) else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    # A slash at the start or in the middle ties the pattern to its folder (gitignore(5)).
    anchored = "/" in text
    body = _translate(text.lstrip("/"))
    start = re.escape(prefix) + ("" if anchored else "(?:.*/)?")
    try:
        expression = re.compile(start + body, re.DOTALL)
    except re.error:  # an unclosed or reversed [range]: git matches nothing with it either
        return None
    return Pattern(expression, negated, folders_only)


def _translate(glob: str) -> str:
    """The regular expression of a pattern: ``*`` and ``?`` stop at slashes, ``**`` does not."""
    out, i = "", 0
    while i < len(glob):
        if glob.startswith("**/", i) and (i == 0 or glob[i - 1] == "/"):
            out, i = out + "(?:.*/)?", i + 3
        elif glob.startswith("**", i):
            out, i = out + ".*", i + 2
        elif glob[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif glob[i] == "?":
            out, i = out + "[^/]", i + 1
        elif glob[i] == "[" and "]" in glob[i + 2 :]:
            end = glob.index("]", i + 2)
            out, i = out + _characters(glob[i + 1 : end]), end + 1
        elif glob[i] == "\\" and i + 1 < len(glob):
            out, i = out + re.escape(glob[i + 1]), i + 2
        else:
            out, i = out + re.escape(glob[i]), i + 1
    return out


def _characters(inside: str) -> str:
    """The regular expression of a ``[…]``: a set of characters and ranges, ``!`` for all others."""
    negated = inside[:1] in ("!", "^")
    inside = inside[1:] if negated else inside
    ranges = re.sub(
        r"(.)(?:-(.))?",
        lambda m: re.escape(m[1]) + (f"-{re.escape(m[2])}" if m[2] else ""),
        inside,
        flags=re.DOTALL,
    )
    return f"[{'^' if negated else ''}{ranges}]" if ranges else r"\["
