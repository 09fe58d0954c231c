"""Which lines of a git checkout changed since a commit, so that a pull request sees only its own.

Commands that the repository's configuration could name (file-system monitor, external diff, text
conversion, hooks) are switched off: an audit runs nothing of what it reads.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chipshift.audit.finding import Finding
from chipshift.audit.lines import SourceLines, cell_sources
from chipshift.errors import InputError

HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Changes:
    """Line ranges by file (POSIX, relative to the audited folder) that differ from ``base``.

    ``None`` in place of ranges: the whole file is new.
    """

    base: str
    root: Path
    files: dict[str, tuple[range, ...] | None]

    def touches(self, file: str, first: int, last: int) -> bool:
        """Whether any line from ``first`` to ``last`` changed."""
        if file not in self.files:
            return False
        ranges = self.files[file]
        return ranges is None or any(first < r.stop and r.start <= last for r in ranges)


def changes_since(base: str, path: Path | str) -> Changes:
    """What the working tree below ``path`` changed since its last common commit with ``base``.

    Raises InputError outside a git checkout and for a commit that does not exist.
    """
    at = Path(path)
    root = at if at.is_dir() else at.parent
    _git(root, ["rev-parse", "--git-dir"], f"--diff: {at} is not in a git checkout")
    unknown = f"--diff: found '{base}', expected a branch, tag or commit of the checkout at {root}"
    if base.startswith("-"):
        raise InputError(unknown)
    _git(root, ["rev-parse", "--verify", "--quiet", base + "^{commit}"], unknown)
    try:
        common = _git(root, ["merge-base", base, "HEAD"], "").strip()
    except InputError:  # no common history: compare with the commit itself
        common = base
    options = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative", "-M"]
    options += ["--diff-filter=d", "--unified=0"]
    names = _git(root, [*options, "--name-only", "-z", common, "--", "."]).split("\0")
    # One section a file, in the order of the names: a line of a patch body never starts with "d".
    patches = re.split(r"^diff --git ", _git(root, [*options, common, "--", "."]), flags=re.M)
    files: dict[str, tuple[range, ...] | None] = {
        name: tuple(_ranges(patch))
        for name, patch in zip(filter(None, names), patches[1:], strict=True)
    }
    others = _git(root, ["ls-files", "-z", "--others", "--exclude-standard"])
    files.update(dict.fromkeys(filter(None, others.split("\0"))))
    return Changes(common, root, files)


def _ranges(patch: str) -> Iterable[range]:
    for match in HUNK.finditer(patch):
        first, count = int(match[1]), int(match[2] or 1)
        yield range(first, first + count)


def only_changed(
    findings: Iterable[Finding], changes: Changes, lines: SourceLines
) -> tuple[list[Finding], int]:
    """The findings with a changed line among theirs, and how many others there are.

    A notebook's cell counts as changed when no cell of the base has its source: outputs and line
    numbers of the JSON do not matter.
    """
    kept, others = [], 0
    for finding in findings:
        if finding.cell is None:
            touched = changes.touches(finding.file, finding.line, finding.end_line) or any(
                changes.touches(place.file, place.line, place.line) for place in finding.places
            )
        else:
            touched = finding.file in changes.files and _cell_changed(finding, changes, lines)
        if touched:
            kept.append(finding)
        else:
            others += 1
    return kept, others


def _cell_changed(finding: Finding, changes: Changes, lines: SourceLines) -> bool:
    assert finding.cell is not None
    try:
        before = _git(changes.root, ["cat-file", "blob", f"{changes.base}:./{finding.file}"])
    except InputError:
        return True
    return "\n".join(lines.all(finding.file, finding.cell)) not in cell_sources(before)


def _git(root: Path, arguments: list[str], complaint: str = "") -> str:
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    command += ["-c", "core.quotePath=false", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    except FileNotFoundError as error:
        raise InputError(
            "--diff: git is not installed, and --diff reads the changes from it"
        ) from (error)
    except subprocess.SubprocessError as error:
        detail = (getattr(error, "stderr", b"") or b"").decode("utf-8", "replace").strip()
        raise InputError(complaint or f"--diff: git {arguments[0]} failed: {detail}") from error
    return done.stdout.decode("utf-8", "surrogateescape")
