"""Where graph capture (``torch.compile``) would break a step into pieces, and why."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

from chipshift.trace.load import Inputs, Step, is_users, run_steps, shown, told
from chipshift.trace.outcome import Break, Place

REASON = re.compile(r"Graph Break Reason: (.*?)(?:\n\nUser code traceback|\Z)", re.DOTALL)
FRAME = re.compile(r'File "(.+?)", line (\d+)')
OUTSIDE = re.compile(r"Tensor\.backward\(\)|function `(backward|Optimizer\.\w+)`")
"""The backward pass and the optimizer run outside of capture for everybody, by design."""


def graph_breaks(
    step: Step, inputs: Inputs, steps: int
) -> tuple[tuple[Break, ...], tuple[str, ...]]:
    """Run the step again under graph capture; the breaks found, and notes on what went wrong.

    The captured graphs are run as they are, nothing is compiled. Shapes are taken as static, as
    the compilers of TPU and Trainium take them.
    """
    import torch

    listener = _Listener()
    torch._dynamo.reset()
    default = torch._TorchCompileInductorWrapper
    try:
        with (
            _quiet(),
            listener.attached(),
            # A region that the user compiles with the default backend is captured the same way.
            mock.patch.object(default, "__call__", lambda _, graph, example: graph.forward),
            open(os.devnull, "w") as nothing,
            contextlib.redirect_stdout(nothing),  # the first run has printed it all
        ):
            captured = torch.compile(step, backend=_as_captured, dynamic=False)
            run_steps(captured, inputs, steps)
    except Exception as error:
        return tuple(listener.found), (f"graph capture stopped early: {told(error)}",)
    finally:
        torch._dynamo.reset()
    return tuple(listener.found), ()


def _as_captured(graph: Any, example: Any) -> Any:
    return graph.forward


class _Listener(logging.Handler):
    """Reads graph capture's log of its breaks, which also names those that leave no graph."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: dict[Break, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        reason = REASON.search(text)
        frames = [(m[1], int(m[2])) for m in FRAME.finditer(text)]
        users = [Place(shown(file), line) for file, line in frames if is_users(file)]
        if reason is None or not users or OUTSIDE.search(reason[1]) or "torch/optim" in text:
            return
        self.found.setdefault(Break(users[-1], _told(reason[1])))

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
        before = logger.level, logger.propagate, logger.handlers, logger.disabled
        logger.level, logger.propagate, logger.handlers = logging.DEBUG, False, [self]
        logger.disabled = False
        logger.manager._clear_cache()  # type: ignore[attr-defined]
        try:
            yield
        finally:
            logger.level, logger.propagate, logger.handlers, logger.disabled = before


def _told(reason: str) -> str:
    """The explanation in a reason, without its headline, hints, context and references."""
    if "Data-dependent branching" in reason or "generic_jump" in reason:
        return "Python control flow on a tensor's value"
    explained = re.findall(r"Explanation: (.*)", reason)
    lines = explained or [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[-1 if explained else 0] if lines else "unknown"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep graph capture's own advice off standard error: it is in the result."""
    import torch

    limits = {"recompile_limit": 1024, "accumulated_recompile_limit": 4096}
    known = {key: value for key, value in limits.items() if hasattr(torch._dynamo.config, key)}
    names = [name for name in logging.root.manager.loggerDict if name.startswith("torch")]
    loggers = [logging.getLogger(name) for name in ("torch", *names)]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings(), torch._dynamo.config.patch(**known):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
