"""``chipshift trace``: run a step a few times and count what a compiling device would do."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from chipshift.trace.outcome import Place, TraceResult

SCHEMA = "chipshift/trace/1"


def command(
    step: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="The training step.")],
    inputs: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Yields the step's inputs, one a step."),
    ] = None,
    steps: Annotated[int, typer.Option(help="How often to run it, at most.")] = 8,
    framework: Annotated[str | None, typer.Option(help="torch or jax, if both are used.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Run a PyTorch or JAX step on the CPU and count recompiles, host reads and graph breaks.

    This imports and runs your code. Inputs come from a function of your module called
    trace_inputs (or named by --inputs) that yields one tuple of arguments a step; let its shapes
    vary as your data's do. A generator is sent each step's result, to thread a state.

    \b
    Examples:
      chipshift trace train.py:train_step
      chipshift trace mypackage.train:train_step --inputs mypackage.data:batches --steps 20
      chipshift trace train.py:train_step --json
    """
    from chipshift.trace.run import trace

    with contextlib.redirect_stdout(sys.stderr):  # what the step prints is not the answer
        result = trace(step, inputs, steps, framework)
    if as_json:
        print(json.dumps(_document(result), ensure_ascii=False))
    else:
        from chipshift.report.lines import room

        for line in _screen(result, step, room()):
            print(line)
    return 0


def _document(result: TraceResult) -> dict[str, Any]:
    """The object of ``--json``: see docs/trace.md for its keys."""
    return {
        "schema": SCHEMA,
        "framework": result.framework,
        "steps": result.steps,
        "programs": result.programs,
        "recompiles": [
            {"cause": r.cause, **_place(r.place), "count": r.count} for r in result.recompiles
        ],
        "host_syncs": [{**_place(place), "count": count} for place, count in result.host_syncs],
        "fallbacks": [
            {"op": op, **_place(place), "count": count} for op, place, count in result.fallbacks
        ],
        "graph_breaks": [{**_place(b.place), "why": b.why} for b in result.graph_breaks],
        "notes": list(result.notes),
    }


def _place(place: Place) -> dict[str, Any]:
    """Null where no line of the user's was on the stack."""
    return {"file": place.file or None, "line": place.line or None}


def _screen(result: TraceResult, name: str, columns: int) -> list[str]:
    import textwrap

    steps = f"{result.steps} step{'s' * (result.steps != 1)}"
    programs = f"{result.programs} distinct program{'s' * (result.programs != 1)}"
    lines = [f"{name}: {steps} of {result.framework} code, {programs}"]
    groups = (
        ("Recompiles", [(r.place, r.cause, r.count) for r in result.recompiles]),
        ("Host reads", [(place, "", count) for place, count in result.host_syncs]),
        ("Off the device", [(place, op, count) for op, place, count in result.fallbacks]),
        ("Graph breaks", [(b.place, b.why, None) for b in result.graph_breaks]),
    )
    for title, rows in groups:
        lines += ["", f"{title}: {'none' if not rows else ''}".rstrip()]
        width = max((len(_at(place)) for place, _, _ in rows), default=0)
        for place, text, count in rows:
            lines += _row(_at(place), min(width, 40), text, count, columns)
    for note in result.notes:
        lines += ["", *textwrap.wrap(f"note: {note}", columns, subsequent_indent="  ")]
    return lines


def _at(place: Place) -> str:
    return f"{place.file}:{place.line}" if place.line else "(no line of yours)"


def _row(at: str, width: int, text: str, count: int | None, columns: int) -> list[str]:
    import textwrap

    times = "" if count is None else f"{count:>5}x  "
    head = f"  {times}{at.ljust(width)}"
    pieces = textwrap.wrap(text, max(30, columns - len(head) - 2)) or [""]
    return [f"{head}  {pieces[0]}".rstrip()] + [" " * (len(head) + 2) + p for p in pieces[1:]]
