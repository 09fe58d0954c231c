"""Compilation: torch.compile, what must be so for it on TorchTPU, graphs that change by step."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import LAZY, Target
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import LoopRole

INDUCTOR = "torch-compile-inductor"
STRICT: tuple[Target, ...] = ("torch_xla", "torchtpu", "torchax", "neuron")


def compiled(reader: Reader, node: ast.Call, full: str) -> None:
    if full != "torch.compile":
        return
    keywords = {one.arg: one.value for one in node.keywords}
    backend = keywords.get("backend")
    if backend is not None and not isinstance(backend, ast.Constant):
        return
    if (
        isinstance(backend, ast.Constant)
        and backend.value not in ("inductor", None)
        and backend.value in ("openxla", "tpu", "neuron", "eager", "aot_eager")
    ):
        return
    dynamic = keywords.get("dynamic")
    mode = keywords.get("mode")
    explicit = isinstance(backend, ast.Constant) and backend.value == "inductor"
    explicit = explicit or (isinstance(dynamic, ast.Constant) and dynamic.value is True)
    places = [] if reader.dead else _switch(reader, node)
    reader.hit(
        INDUCTOR,
        node,
        "torch.compile with Inductor" + (" made for CUDA graphs" if mode is not None else ""),
        targets=STRICT if explicit else LAZY,
        cause="compile",
        places=places,
    )


def _switch(reader: Reader, node: ast.Call) -> list[int]:
    """The line of a constant that switches the compilation on."""
    for one in reversed(reader.enclosing):
        test = one.test
        if isinstance(test, ast.Name):
            bound = reader.value(test)
            if isinstance(bound, ast.Constant) and bound.value is True:
                return [bound.lineno]
    return []


def decorator(reader: Reader, node: ast.FunctionDef) -> None:
    for one in node.decorator_list:
        if not isinstance(one, ast.Call) and reader.full(one) == "torch.compile":
            reader.hit(INDUCTOR, one, "torch.compile with Inductor", targets=LAZY)


def inductor_config(reader: Reader, node: ast.Assign) -> None:
    for target in node.targets:
        full = reader.full(target) if isinstance(target, ast.Attribute) else ""
        if full.startswith("torch._inductor.config"):
            reader.hit(INDUCTOR, target, "settings of Inductor", targets=LAZY, severity="low")


def stepped(reader: Reader) -> None:
    """A compiled function that steps a stateful optimizer without capturable=True (TorchTPU)."""
    node = reader.func.node
    if node is None or not reader.mentions("torch.compile"):
        return
    compiled_here = any(
        reader.full(one.func if isinstance(one, ast.Call) else one) == "torch.compile"
        for one in node.decorator_list
    ) or re.search(rf"torch\.compile\(\s*{re.escape(node.name)}\b", reader.source)
    if not compiled_here or "capturable=True" in reader.source:
        return
    for one in walk(node):
        if isinstance(one, ast.Call) and tail(one.func) == "step":
            owner = text(one.func.value) if isinstance(one.func, ast.Attribute) else ""
            if re.search(r"opt", owner):
                reader.hit(
                    "x-f-adam-capturable",
                    one,
                    "the compiled step has a stateful optimizer",
                    targets=("torchtpu",),
                )
                return


def inference(reader: Reader, node: ast.With) -> None:
    if not reader.mentions("torch.compile"):
        return
    for item in node.items:
        called = item.context_expr
        if isinstance(called, ast.Call) and reader.full(called.func) == "torch.inference_mode":
            reader.hit(
                "x-f-inference-mode-compile",
                called,
                "inference_mode around a compiled model",
                targets=("torchtpu",),
            )


def switched(reader: Reader, node: ast.If) -> None:
    """A graph that depends on the step number."""
    test = node.test
    stepping = reader.func.role == "step" or reader.loops
    if not stepping or not (reader.mentions("step %") or reader.mentions("% ")):
        return
    numbers = [
        one
        for one in walk(test)
        if isinstance(one, ast.BinOp)
        and isinstance(one.op, ast.Mod)
        and re.match(r"^(step|global_step|iteration|it)$", tail(one.left))
    ]
    func = reader.func.node
    if numbers and func is not None and reader.func.role == "step" and not reader.local:
        names = {one.arg for one in func.args.args}
        if tail(numbers[0].left) in names and any(_computes(one) for one in node.body):
            reader.hit(
                "jit-cache-miss", node.test, "the graph differs by step number", needs_step=True
            )
            return
    if not reader.loops or reader.loops[-1].role is not LoopRole.STEP or not node.orelse:
        return
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
        bound = reader.value(test.left)
        periodic = isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Mod)
        if (
            periodic and any(_loss(one) for one in node.body) and any(_loss(o) for o in node.orelse)
        ) or (periodic and any(_loss(one) for one in node.body)):
            reader.hit(
                "jit-cache-miss", node.test, "another model runs by step number", severity="medium"
            )


def _computes(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AugAssign) and any(
        isinstance(one, ast.BinOp | ast.Call) for one in walk(node)
    )


def _loss(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any("loss" in text(one) for one in node.targets)


def register(found: Detectors) -> None:
    found.on_call("compile")(compiled)
    found.on_statement(ast.FunctionDef)(decorator)
    found.on_statement(ast.Assign)(inductor_config)
    found.functions.append(stepped)
    found.on_statement(ast.With)(inference)
    found.on_statement(ast.If)(switched)
