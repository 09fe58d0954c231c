"""Where graph capture (``torch.compile``) would break a step into pieces, and why."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

from chipshift.trace.load import Inputs, Step, is_users, run_steps, shown, told
from chipshift.trace.outcome import Break, Place


def graph_breaks(
    step: Step, inputs: Inputs, steps: int
) -> tuple[tuple[Break, ...], tuple[str, ...]]:
    """Run the step again under graph capture; the breaks found, and notes on what went wrong.

    The captured graphs are run as they are, nothing is compiled. Shapes are taken as static, as
    the compilers of TPU and Trainium take them.
    """
    import torch

    found: dict[Break, None] = {}

    def backend(graph: Any, example: Any, **_: Any) -> Any:
        reason = getattr(graph, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            found.setdefault(Break(_place(reason.user_stack), _first_lines(reason.reason)))
        return graph.forward

    torch._dynamo.reset()
    try:
        # A region that the user compiles with the default backend is captured the same way.
        with _quiet(), mock.patch("torch._inductor.compile_fx.compile_fx", backend):
            captured = torch.compile(step, backend=backend, dynamic=False)
            run_steps(captured, inputs, steps, lambda _: None)
    except Exception as error:
        return tuple(found), (f"graph capture stopped early: {told(error)}",)
    finally:
        torch._dynamo.reset()
    return tuple(found), ()


def _place(stack: Any) -> Place:
    users = [frame for frame in stack if is_users(frame.filename)]
    return Place(shown(users[-1].filename), int(users[-1].lineno or 0)) if users else Place("", 0)


def _first_lines(reason: str) -> str:
    """Headline and explanation, without hints, debug context and references."""
    if "TensorVariable()" in reason and reason.startswith("generic_jump"):
        return "Python control flow on a tensor's value"
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    kept = [lines[0]] if lines else ["unknown"]
    kept += [line.removeprefix("Explanation:").strip() for line in lines if "Explanation:" in line]
    return ". ".join(part.rstrip(".") for part in kept)


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
        with torch._dynamo.config.patch(**known):
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
