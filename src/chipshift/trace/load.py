"""Finding the step and its inputs in the user's module, and running them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from chipshift.errors import InputError, nearest

Step = Callable[..., Any]
Inputs = Callable[[], Any]
INPUT_NAMES = ("trace_inputs", "inputs")
NOT_THE_USERS = ("<", str(Path(__file__).parent), os.path.dirname(os.__file__))
"""How the names of made-up code, of our own and of the standard library begin."""


def load_function(option: str, text: str) -> tuple[Step, ModuleType]:
    """The function that ``package.module:function`` or ``file.py:function`` names, its module.

    Importing runs the module, which the user asked for. Raises InputError for a module that
    cannot be imported and for a name that is no function of it.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise InputError(f"{option}: found '{text}', expected MODULE:FUNCTION or FILE.py:FUNCTION")
    module = _module(option, where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            callables = [key for key, value in vars(module).items() if callable(value)]
            raise InputError(
                f"{option}: {where} has no '{part}', expected a function{nearest(part, callables)}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{option}: found {type(found).__name__} '{name}', expected a function")
    return found, module


def source_of(text: str) -> str:
    """The source of the module that ``MODULE:FUNCTION`` names, unread by Python; "" if unknown."""
    where = text.rpartition(":")[0]
    try:
        if where.endswith(".py"):
            return Path(where).read_text("utf-8", "replace")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(where)
        return Path(spec.origin).read_text("utf-8", "replace") if spec and spec.origin else ""
    except Exception:  # a parent package that fails to import: loading it will say so
        return ""


def _module(option: str, where: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    arguments, sys.argv = sys.argv, [where]  # a module that parses its command line finds none
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        path = Path(where).resolve()
        if not path.is_file():
            raise InputError(f"{option}: {where}: no such file")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{option}: {where} cannot be imported: {told(error)}") from error
    finally:
        sys.argv = arguments


def inputs_of(step: Step, module: ModuleType, text: str | None) -> Inputs:
    """The function that yields the step's inputs: the one named, or one of ``INPUT_NAMES``.

    A step without parameters needs none. Raises InputError when there is none.
    """
    if text is not None:
        return load_function("--inputs", text)[0]
    for name in INPUT_NAMES:
        if callable(getattr(module, name, None)):
            return getattr(module, name)  # type: ignore[no-any-return]
    if not _required(step):
        return lambda: iter(lambda: (), None)  # without end: the number of steps bounds it
    raise InputError(
        f"trace: the step takes {', '.join(_required(step))}, and {module.__name__} has no "
        f"function called {' or '.join(INPUT_NAMES)} that yields them; name one with --inputs"
    )


def _required(step: Step) -> list[str]:
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional and p.default is p.empty]


def run_steps(
    step: Step,
    inputs: Inputs,
    steps: int,
    during: Callable[[Any], AbstractContextManager[None]] = contextlib.nullcontext,
) -> int:
    """Call ``step`` on what ``inputs`` yields, at most ``steps`` times; returns how often.

    A tuple is spread over the parameters, a dict over the keywords, anything else is the only
    argument. A generator is sent each step's result, so that it can thread a state:
    ``state, _ = yield state, batch``. Each step runs inside ``during(input)``; the making of
    inputs does not.
    """
    source: Iterator[Any] = iter(inputs())
    result: Any = None
    for done in range(steps):
        try:
            given = source.send(result) if done and inspect.isgenerator(source) else next(source)
        except StopIteration:
            return done
        with during(given):
            result = called(step, given)
    return steps


def called(step: Step, given: Any) -> Any:
    """One call of ``step`` on one input."""
    if isinstance(given, tuple):
        return step(*given)
    return step(**given) if isinstance(given, dict) else step(given)


def told(error: BaseException) -> str:
    """An exception of the user's code as one line with the deepest of their own lines."""
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    at = f"{shown(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    first = str(error).strip().splitlines()[:1]
    return f"{at}{type(error).__name__}{': ' + first[0] if first else ''}"


def is_users(file: str) -> bool:
    """Whether a code file is the user's: not a library's, not ours, not made up."""
    library = "site-packages" in file or "dist-packages" in file
    return not library and not file.startswith(NOT_THE_USERS)


def shown(file: str) -> str:
    """A file's name relative to the working directory where it is below it."""
    try:
        return Path(file).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file
