"""Python control flow that asks a device value."""

from __future__ import annotations

import ast

from chipshift.audit import guards as g
from chipshift.audit.finding import Confidence, Severity
from chipshift.audit.kinds import HOST, HOST_MASK, NUMPY, ON_DEVICE, UNKNOWN
from chipshift.audit.names import tail, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

RULE = "data-dependent-branch"
REDUCED = words("any all equal allclose isnan isinf isfinite")


def asks_device(reader: Reader, node: ast.expr, depth: int = 0) -> Confidence | None:
    """ "sure" or "likely" when the truth of ``node`` needs a device value."""
    if depth > 4:
        return None
    if isinstance(node, ast.UnaryOp):
        return asks_device(reader, node.operand, depth + 1)
    if isinstance(node, ast.BoolOp):
        return next(
            (one for one in (asks_device(reader, v, depth + 1) for v in node.values) if one), None
        )
    if isinstance(node, ast.Compare):
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return None
        parts = [node.left, *node.comparators]
        return next((one for one in (_value(reader, part) for part in parts) if one), None)
    return _value(reader, node)


def _value(reader: Reader, node: ast.expr) -> Confidence | None:
    if isinstance(node, ast.Call):
        name = tail(node.func)
        if name in ("item", "float", "int", "bool"):
            inner = (
                node.func.value
                if name == "item" and isinstance(node.func, ast.Attribute)
                else (node.args[0] if node.args else None)
            )
            if inner is None:
                return None
            kind = reader.kind(inner)
            if kind in ON_DEVICE:
                return "sure"
            if kind in (HOST, HOST_MASK, NUMPY):
                return None
            return "likely" if name == "item" and kind == UNKNOWN else _value(reader, inner)
        if name in REDUCED:
            return _reduced(reader, node)
    kind = reader.kind(node)
    if isinstance(node, ast.Name) and not node.id.isupper():
        return "sure" if kind in ON_DEVICE and _certain(reader, node) else None
    if isinstance(node, ast.Attribute):
        return None
    return "sure" if kind in ON_DEVICE else None


def _certain(reader: Reader, node: ast.Name) -> bool:
    """A name bound in this function to a tensor expression (an optional parameter's truth is
    whether it was given)."""
    binding = reader.func.scope.names.get(node.id)
    return (
        binding is not None
        and binding.how in ("value", "element")
        and not isinstance(binding.node, ast.arg)
    )


def _reduced(reader: Reader, node: ast.Call) -> Confidence | None:
    full = reader.full(node.func)
    if full:
        if full.startswith(("numpy.", "math.")):
            if not full.startswith("math.") or not node.args:
                return None
            inner = node.args[0]
            return "sure" if reader.kind(inner) in ON_DEVICE else _value(reader, inner)
        if not full.startswith(("torch.", "jax.numpy.")):
            return None
        kinds = [reader.kind(one) for one in node.args]
        if any(kind in (HOST, HOST_MASK, NUMPY) for kind in kinds):
            return None
        return "sure" if any(kind in ON_DEVICE for kind in kinds) else "likely"
    if isinstance(node.func, ast.Attribute):
        kind = reader.kind(node.func.value)
        return "sure" if kind in ON_DEVICE else None
    return None


def branch(reader: Reader, node: ast.If | ast.While | ast.Assert) -> None:
    if not (reader.facts.uses_torch or reader.facts.uses_jax) or reader.func.role == "host":
        return
    found = asks_device(reader, node.test)
    if not found:
        return
    written = ast.unparse(node.test)
    severity: Severity | None
    if isinstance(node, ast.Assert):
        severity = "low"
    elif g.NAN in reader.branches.read(node.test) or "isnan" in written or "isfinite" in written:
        severity = "medium"
    else:
        severity = None
    reader.hit(
        RULE,
        node.test,
        "Python control flow asks a device value",
        needs_step=True,
        severity=severity,
        confidence=found,
    )


def chosen(reader: Reader, node: ast.IfExp) -> None:
    """x if t > 0 else y with t on the device."""
    if not (reader.facts.uses_torch or reader.facts.uses_jax) or reader.func.role == "host":
        return
    found = asks_device(reader, node.test)
    if found and not isinstance(node.test, ast.Name):
        reader.hit(
            RULE,
            node.test,
            "a conditional expression asks a device value",
            needs_step=True,
            confidence=found,
        )


def truth(reader: Reader, node: ast.Call, full: str) -> None:
    if (
        isinstance(node.func, ast.Name)
        and len(node.args) == 1
        and not reader.testing
        and reader.kind(node.args[0]) in ON_DEVICE
    ):
        reader.hit(RULE, node, "bool() of a device value", needs_step=True)


def register(found: Detectors) -> None:
    found.on_statement(ast.If, ast.While, ast.Assert)(branch)
    found.conditional.append(chosen)
    found.on_call("bool")(truth)
