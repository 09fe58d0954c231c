"""Small questions about statements and functions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from chipshift.audit.names import tail, text

Block = Sequence[ast.stmt]
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


def gpu_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is the body of a Triton kernel: its lines run on no host."""
    return any(
        text(one.func if isinstance(one, ast.Call) else one) in ("triton.jit", "triton.autotune")
        for one in node.decorator_list
    )


def leaves(body: Block) -> bool:
    """Whether a block ends by leaving: return, raise, continue, break or an exit."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return tail(last.value.func) in ("exit", "_exit", "quit")
    return False


def defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Parameter to default expression."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    found = dict(
        zip(
            (one.arg for one in arguments[len(arguments) - len(node.args.defaults) :]),
            node.args.defaults,
            strict=True,
        )
    )
    for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if value is not None:
            found[argument.arg] = value
    return found
