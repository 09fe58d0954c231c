"""A user's own code, imported by its name."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from chipshift.compiled.findings import finding
from chipshift.compiled.request import Request
from chipshift.errors import InputError, nearest


def imported(request: Request) -> Any:
    """The user's function ``package.module:function`` or ``file.py:function``.

    Raises:
        InputError: the name has another form, the module fails, or lacks the function.
    """
    entry = request.entry
    where, _, name = entry.rpartition(":")
    called = module_name(where)
    if not called or not name.isidentifier():
        raise InputError(
            f"'{entry}' is not of the form package.module:function, such as train:make_step"
        )
    if where.endswith(".py") and not Path(where).is_file():
        raise InputError(f"'{entry}': {where}: no such file")
    for place in reversed(request.path):
        sys.path.insert(0, place)
    module = _module(request, called)
    found = getattr(module, name, None)
    if found is None:
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise InputError(f"'{entry}': {called} has no '{name}'{nearest(name, functions)}")
    if not callable(found):
        raise InputError(f"'{entry}': is a {type(found).__name__}; expected a function")
    return found


def module_name(where: str) -> str:
    """The module to import, by its name or its file; "" where it is neither. A file that is not
    below the working folder is found in its own, which ``folder_of`` gives."""
    parts = tuple(where.split("."))
    if where.endswith(".py"):
        path = Path(where)
        parts = (path.stem,) if folder_of(where) else path.with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def folder_of(where: str) -> tuple[str, ...]:
    """The folder of a file that is not below the working folder, or whose path is no module's."""
    path = Path(where)
    if not where.endswith(".py") or all(p.isidentifier() for p in path.with_suffix("").parts):
        return ()
    return (str(path.resolve().parent),)


def _module(request: Request, name: str) -> Any:
    """The user's module.

    Raises:
        InputError: there is none of that name, or it fails while it is imported.
    """
    entry = request.entry
    try:
        return importlib.import_module(name)
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise InputError(f"'{entry}': {where}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # the user's code, whatever it raises
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and f"{name}.".startswith(f"{absent}."):
            beside = [path.stem for folder in request.path for path in Path(folder).glob("*.py")]
            raise InputError(
                f"'{entry}': no module '{name}' in {', '.join(request.path)} or among the "
                f"installed packages{nearest(name, beside)}"
            ) from None
        raise InputError(
            f"'{entry}': {name} fails while it is imported{place_of(error, request)}: {said(error)}"
        ) from None


def place_of(error: BaseException, request: Request) -> str:
    """``, at train.py, line 3``: the innermost line of the user's own; "" where there is none."""
    at = finding(error, request.path)
    return f", at {at['file']}, line {at['line']}" if at["file"] else ""


def said(error: BaseException) -> str:
    """An exception as one line."""
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def watch_reads() -> set[str]:
    """A set to which every file that Python opens for reading from now on is added."""
    read: set[str] = set()

    def opened(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], str) and not given[2] & os.O_ACCMODE:
            read.add(os.path.abspath(given[0]))

    sys.addaudithook(opened)
    return read


def users_files(read: set[str]) -> list[str]:
    """Files of the user's own that a program was made from: what a cached report depends on.

    Args:
        read: files that were opened for reading.
    """
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(file).resolve() for file in (*read, *loaded) if file}
    return sorted(str(path) for path in paths if _is_users(path) and path.is_file())


def _is_users(path: Path) -> bool:
    """Whether a file is neither a library's, ours, the system's nor a compiler's passing one."""
    others = (sysconfig.get_path("stdlib"), Path(__file__).parents[1], tempfile.gettempdir(),
              "/proc", "/sys", "/dev", "/etc")  # fmt: skip
    library = {"site-packages", "dist-packages", "__pycache__"} & set(path.parts)
    return not library and not any(Path(other).resolve() in path.parents for other in others)
