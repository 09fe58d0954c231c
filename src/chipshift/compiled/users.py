"""A user's own code, imported by its name."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from chipshift.compiled.findings import finding
from chipshift.compiled.request import Request
from chipshift.errors import InputError


def imported(request: Request) -> Any:
    """The user's function ``package.module:function``.

    Raises:
        InputError: the name has another form, the module fails, or lacks the function.
    """
    module_name, colon, function = request.entry.partition(":")
    if not colon:
        raise InputError(f"'{request.entry}' is not of the form package.module:function")
    for folder in reversed(request.path):
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"'{request.entry}': {module_name} cannot be imported ({error})") from None
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise InputError(f"'{request.entry}': {where}: {error.msg}") from None
    except Exception as error:  # the user's code, whatever it raises
        at = finding(error, request.path)
        raise InputError(
            f"'{request.entry}': {module_name} fails while it is imported, at {at['file']}, line "
            f"{at['line']}: {type(error).__name__}: {error}"
        ) from None
    found = getattr(module, function, None)
    if found is None:
        raise InputError(f"'{request.entry}': {module_name} has no '{function}'")
    return found
