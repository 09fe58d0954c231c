"""Loss scaling for fp16: a scaler made, used, and optimizers that carry one."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import TORCH
from chipshift.audit.kinds import SCALER
from chipshift.audit.names import tail, text
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors


def scaler(reader: Reader, node: ast.Call, full: str) -> None:
    if full and not full.startswith(("torch.", "torch_xla.")) and "GradScaler" not in full:
        return
    name = tail(node.func)
    if name == "GradScaler" or name.endswith("GradScaler"):
        for keyword in node.keywords:
            if (
                keyword.arg == "enabled"
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value is False
            ):
                return
        reader.hit(
            "fp16-gradscaler",
            node,
            "a loss scaler, which bf16 does not need",
            cause="scaler",
            targets=TORCH,
        )
        reader.notes.setdefault("scaler", []).append(node)


SCALER_NAME = re.compile(r"(^|\.|_)(grad_?)?scaler$", re.I)


def scaler_use(reader: Reader, node: ast.Call, full: str) -> None:
    if not isinstance(node.func, ast.Attribute) or full:
        return
    owner = node.func.value
    written = text(owner)
    if reader.kind(owner) != SCALER and not SCALER_NAME.search(written):
        return
    if node.func.attr in ("scale", "update", "step") and "standard" in written:
        return
    if not (node.args or node.func.attr in ("update", "get_scale")):
        return
    reader.hit(
        "fp16-gradscaler",
        node,
        f"{written}.{node.func.attr}() of the loss scaler",
        cause="scaler",
        targets=TORCH,
    )


def fp16_optimizer(reader: Reader, node: ast.ClassDef) -> None:
    """A home-made loss scaler: an FP16 optimizer that multiplies the loss by a scale."""
    if re.search(r"FP16\w*Optimizer|Fp16\w*Optimizer|LossScaler|DynamicScaler", node.name):
        reader.hit("fp16-gradscaler", node, f"{node.name} scales the loss for fp16", cause="scaler")
        reader.facts.hazards[-1].end_line = node.lineno


def register(found: Detectors) -> None:
    found.on_call("GradScaler ShardedGradScaler")(scaler)
    found.on_call("scale unscale_ step update get_scale")(scaler_use)
    found.on_statement(ast.ClassDef)(fp16_optimizer)
