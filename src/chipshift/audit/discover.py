"""Which files of a tree are audited, and which are passed over and why."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from chipshift.audit.gitignore import Ignore, read_ignore
from chipshift.errors import InputError, nearest

Kind = Literal["python", "notebook", "config"]

MAX_BYTES: dict[str, int] = {
    "python": 4_000_000,  # larger Python files are generated tables
    "notebook": 64_000_000,  # outputs hold pictures; the code cells are small
    "config": 256_000,  # larger JSON and YAML files are data
}

NEVER_ENTERED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", ".tox", ".nox", ".eggs", ".mypy_cache"}
    | {".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".venv", "site-packages"}
)
VENDORED = frozenset(
    {"third_party", "third-party", "thirdparty", "3rdparty", "vendor", "vendored", "_vendor"}
    | {"extern", "external_libs", "submodules"}
)
TESTS = frozenset({"tests", "test", "unit_tests"})

CONFIG_NAMES = re.compile(
    r"""(requirements[\w.-]*\.(txt|in)$) | (constraints[\w.-]*\.txt$) | (pyproject\.toml$)
      | (setup\.cfg$) | (Pipfile$) | (environment[\w.-]*\.ya?ml$) | ((.*[.-])?Dockerfile([.-].*)?$)
      | (.*\.(sh|bash|slurm|sbatch|job|json|ya?ml)$)""",
    re.VERBOSE,
)
REQUIREMENTS_FOLDER = re.compile(r"requirements?$")


@dataclass(frozen=True)
class TreeFile:
    """One file of the tree.

    ``name`` is POSIX and relative to the audited path (the file's own name when that is a file);
    ``skip`` is why it is not read, None where it is. A folder that is passed over stands once,
    its name ending in a slash.
    """

    path: Path
    name: str
    kind: Kind
    skip: str | None = None


def discover(path: str | Path, exclude: Iterable[str] = ()) -> Iterator[TreeFile]:
    """The Python files, notebooks and configuration files at or below ``path``, sorted by name.

    A file named by the user is always audited. In a folder, what .gitignore names, virtual
    environments, vendored code and tests are passed over, links are not followed out of the tree,
    and files above ``MAX_BYTES`` are listed as skipped. ``exclude`` holds further patterns in the
    syntax of .gitignore, relative to ``path``.

    Raises InputError when there is no such file or folder.
    """
    root = Path(path)
    if not root.exists():
        address = re.match(r"(\w+:/|git@)", str(path))  # a Path has one slash left of two
        what = "; clone it first and name the folder" if address else _sibling(root)
        raise InputError(f"{path}: no such file or folder{what}")
    if root.is_file():
        yield TreeFile(root, root.name, _kind_of_named(root))
        return
    yield from _tree(root, read_ignore(exclude))


def _sibling(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [one.name for one in folder.iterdir()]) if folder.is_dir() else ""


def _kind_of_named(path: Path) -> Kind:
    """The kind of a file that the user named; a script needs no execute permission."""
    kind = kind_of(path.name)
    if kind is None:
        if not _starts_python(path):
            raise InputError(
                f"{path}: found '{path.suffix or path.name}', expected a folder, Python code, a "
                "notebook, or a requirements, Dockerfile, launch or configuration file"
            )
        return "python"
    return kind


def kind_of(name: str, path: Path | None = None) -> Kind | None:
    """What a file is by its name; ``path`` is read for a ``#!`` line where the name says nothing.

    None for files that are none of the auditor's business.
    """
    pure = PurePosixPath(name)
    suffix = pure.suffix.lower()
    if suffix in (".py", ".pyw"):
        return "python"
    if suffix == ".ipynb":
        return "notebook"
    in_requirements = suffix == ".txt" and REQUIREMENTS_FOLDER.match(pure.parent.name)
    if CONFIG_NAMES.match(pure.name) or in_requirements:
        return "config"
    if not suffix and path is not None and _python_script(path):
        return "python"
    return None


def _python_script(path: Path) -> bool:
    try:
        executable = bool(path.stat().st_mode & stat.S_IXUSR)
    except OSError:
        return False
    return executable and path.is_file() and _starts_python(path)


def _starts_python(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:
        return False
    return start.startswith(b"#!") and b"python" in start.splitlines()[0]


def _tree(root: Path, excluded: Ignore) -> Iterator[TreeFile]:
    tracked = git_files(root)
    names = tracked if tracked is not None else sorted(_walk(root))
    resolved = root.resolve()
    seen: set[Path] = set()
    passed: set[str] = set()
    for name in names:
        if excluded.matches(name):
            continue
        if not _is_text(name):
            if kind_of(name) is not None:
                shown = os.fsencode(name).decode("utf-8", "replace")
                yield TreeFile(root / name, shown, "python", "a name that is not UTF-8")
            continue
        folder, why = _passed_over(root, name)
        if folder is not None:
            if why and folder not in passed:
                passed.add(folder)
                yield TreeFile(root / folder, folder + "/", "python", why)
            continue
        source = _file(root, name, resolved, seen)
        if source is not None:
            yield source


def _is_text(name: str) -> bool:
    """Whether a file's name can be printed: names on disk are bytes and need not be text."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _passed_over(root: Path, name: str) -> tuple[str | None, str]:
    """The outermost folder of ``name`` that is not entered, and why; an empty reason is silent."""
    parts = name.split("/")
    for depth, part in enumerate(parts[:-1]):
        folder = "/".join(parts[: depth + 1])
        if part in NEVER_ENTERED:
            return folder, ""
        if part in VENDORED:
            return folder, "vendored code"
        if part in TESTS:
            return folder, "tests"
        if part in ("venv", "env") and (root / folder / "pyvenv.cfg").exists():
            return folder, ""
    return None, ""


def _file(root: Path, name: str, resolved: Path, seen: set[Path]) -> TreeFile | None:
    path = root / name
    kind = kind_of(name, path)
    if kind is None and "." not in PurePosixPath(name).name and path.is_dir():
        return TreeFile(path, name + "/", "python", "a git submodule")
    in_hidden_folder = name.startswith(".") or "/." in name
    if kind is None or (kind == "config" and in_hidden_folder):
        return None  # .github and its like configure tools, not the training
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = path.resolve(strict=True)
            if not target.is_relative_to(resolved):
                return TreeFile(path, name, kind, "a link that leaves the tree")
            if target in seen or target.is_file() or target.is_dir():
                return None  # the file itself stands in the tree, under its own name
            status = target.stat()
    except FileNotFoundError:
        return TreeFile(path, name, kind, "a broken link") if path.is_symlink() else None
    except (OSError, RuntimeError) as error:  # a loop of links, a name too long, no permission
        return TreeFile(path, name, kind, f"cannot be read ({_reason(error)})")
    if stat.S_ISDIR(status.st_mode):
        return TreeFile(path, name + "/", kind, "a git submodule")
    if not stat.S_ISREG(status.st_mode):
        return TreeFile(path, name, kind, "not a plain file")
    seen.add(path)
    if status.st_size > MAX_BYTES[kind]:
        why = f"{status.st_size / 1e6:.1f} MB, above the limit of {MAX_BYTES[kind] / 1e6:g} MB"
        return None if kind == "config" else TreeFile(path, name, kind, why)
    return TreeFile(path, name, kind)


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


def git_files(root: Path) -> list[str] | None:
    """Names below ``root`` that git tracks or would track, sorted; None outside a checkout.

    Programs that a repository's own configuration names (a file-system monitor, hooks) are
    switched off: reading a tree must not run anything of it.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C"]
    command += [str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    names = {os.fsdecode(name) for name in listing.split(b"\0") if name}
    # A folder that an outer repository ignores as a whole lists nothing: walk it instead.
    return sorted(names) or None


def _walk(root: Path) -> Iterator[str]:
    """Names of the files below ``root`` without what .gitignore files name."""
    ignores: dict[str, Ignore] = {}
    for folder, folders, files in os.walk(root, followlinks=False):
        relative = Path(folder).relative_to(root).as_posix()
        prefix = "" if relative == "." else relative + "/"
        above = ignores.get(prefix.rstrip("/").rpartition("/")[0], Ignore(()))
        here = above.joined(Path(folder, ".gitignore"), prefix) if ".gitignore" in files else above
        ignores[prefix.rstrip("/")] = here
        folders[:] = sorted(
            name
            for name in folders
            if name not in NEVER_ENTERED and not here.matches(prefix + name, folder=True)
        )
        for name in sorted(files):
            if not here.matches(prefix + name):
                yield prefix + name
