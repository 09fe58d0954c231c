"""Loops that a trace copies out turn by turn: micro-steps, time steps, layers under jit."""

from __future__ import annotations

import ast
import re

from chipshift.audit.facts import STEP
from chipshift.audit.finding import Severity, Target
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import LoopRole

GRAPHED: tuple[Target, ...] = ("jax", "torchax", "torch_xla", "neuron")
"""Targets where a Python loop around the step's work lands in one graph."""


def unrolled(reader: Reader, node: ast.For | ast.While) -> None:
    """Loops that are traced into one graph: accumulation, time steps, layers under jit."""
    if not reader.loops and isinstance(node, ast.While):
        return
    role = reader.upcoming(node)
    written = ast.unparse(node.iter) if isinstance(node, ast.For) else ""
    if role is LoopRole.MICRO:
        if _marks(node):
            return
        reader.hit(
            "unrolled-loop", node, "all micro-steps land in one traced graph", targets=GRAPHED
        )
        reader.facts.hazards[-1].end_line = node.lineno
        return
    if not isinstance(node, ast.For) or (reader.func.role != STEP and not _recurrent(node)):
        return
    if (
        reader.facts.uses_jax
        and reader.func.node is not None
        and (reader.func.node.name in reader.outline.jitted)
    ):
        if _feeds_back(node) and not re.search(r"zip\(|enumerate\(\[|range\([234]\)", written):
            few = re.search(r"layer|lyr|block|depth|stage|level|feat|head", written)
            _unrolled(reader, node, "a Python loop under jit is copied out once a turn", bool(few))
        return
    if reader.facts.uses_torch and _recurrent(node) and isinstance(node.iter, ast.Call):
        limit = node.iter.args[0] if node.iter.args else None
        if (
            tail(node.iter.func) == "range"
            and not isinstance(limit, ast.Constant)
            and (
                _feeds_back(node)
                and re.search(r"step|len|size|shape|T\b|time|max|seq|frames", written)
                and not re.search(r"layer|block|head|level|stage|depth", written)
            )
        ):
            _unrolled(reader, node, "a loop over time steps is copied out once a step")


def _unrolled(reader: Reader, node: ast.For, what: str, few: bool = False) -> None:
    """``few``: a loop over layers and their like, tens of turns, which costs little."""
    severity: Severity | None = "low" if few else None
    reader.hit("unrolled-loop", node, what, targets=GRAPHED, needs_step=True, severity=severity)
    if reader.facts.hazards and reader.facts.hazards[-1].line == node.lineno:
        reader.facts.hazards[-1].end_line = node.lineno


def _marks(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call)
        and tail(one.func) in ("mark_step", "sync", "optimizer_step")
        and text(one.func).split(".")[0] in ("xm", "torch_xla")
        for one in walk(node)
    )


def _recurrent(node: ast.For) -> bool:
    """A body that calls something with a state it also assigns (h = cell(h, x))."""
    return _feeds_back(node)


def _feeds_back(node: ast.For) -> bool:
    for one in node.body:
        if not isinstance(one, ast.Assign):
            continue
        targets = {
            part.id for target in one.targets for part in walk(target) if isinstance(part, ast.Name)
        }
        parts = list(walk(one.value))
        if any(isinstance(part, ast.Call) for part in parts) and any(
            isinstance(part, ast.Name) and part.id in targets for part in parts
        ):
            # A tensor that grows in the loop is its own finding.
            return not any(
                isinstance(part, ast.Call) and tail(part.func) == "cat" for part in walk(node)
            )
    return False


def register(found: Detectors) -> None:
    found.on_statement(ast.For, ast.While)(unrolled)
