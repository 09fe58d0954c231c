"""Run a step under the recorder of its framework."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from chipshift.errors import InputError
from chipshift.trace.load import inputs_of, load_function, source_of
from chipshift.trace.outcome import Framework, TraceResult

FRAMEWORKS: tuple[Framework, ...] = ("torch", "jax")


def trace(
    step: str, inputs: str | None = None, steps: int = 8, framework: str | None = None
) -> TraceResult:
    """Import the module of ``step`` (``MODULE:FUNCTION``), run it ``steps`` times, record.

    ``inputs`` names the function that yields the inputs. ``framework`` is ``torch`` or ``jax``;
    by default the one whose arrays the first input holds, or that the module imports. This runs
    the user's code; raises InputError when that code fails.
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise InputError(f"--framework: found '{framework}', expected torch or jax")
    if steps < 1:
        raise InputError(f"--steps: found {steps}, expected 1 or more")
    with _importing(step), _importing(inputs or ""):
        function, module = load_function("trace", step)
        source = inputs_of(function, module, inputs)
    if (framework or _framework(function, module)) == "jax":
        from chipshift.trace.jax_recorder import record as record_jax

        return record_jax(function, source, steps)
    from chipshift.trace.torch_recorder import record as record_torch

    return record_torch(function, source, steps)


def _importing(text: str) -> AbstractContextManager[object]:
    """Where a module's own code uses PyTorch, serve its requests for CUDA from the first line."""
    if "torch" not in source_of(text):
        return contextlib.nullcontext()
    try:
        from chipshift.trace.torch_recorder import served_by_cpu
    except ImportError:
        return contextlib.nullcontext()
    return served_by_cpu()


def _framework(function: Any, module: ModuleType) -> Framework:
    if hasattr(function, "lower") and hasattr(function, "trace"):  # what jax.jit returns
        return "jax"
    roots = {_root(value) for value in vars(module).values()}
    found = [name for name in FRAMEWORKS if name in roots] or [
        name for name in FRAMEWORKS if name in sys.modules
    ]
    if len(found) != 1:
        raise InputError(
            f"trace: {module.__name__} uses {' and '.join(found) or 'neither torch nor jax'}: "
            "say which the step runs on with --framework"
        )
    return found[0]


def _root(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return str(name).partition(".")[0]
