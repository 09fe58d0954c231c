"""Mixture-of-experts routing without a capacity, and detection proposals."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import TORCH
from chipshift.audit.kinds import HOST, NUMPY, ON_DEVICE
from chipshift.audit.names import tail, text
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

RULE = "moe-dropless"
COUNTS = re.compile(
    r"tokens_per_(local_)?expert|expert_counts?|num_tokens_per_expert|expert_load|"
    r"batch_sizes|splits|tokens_per_rank|expert_ids_count"
)


def grouped(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if name in ("_grouped_mm", "_scaled_grouped_mm") and full.startswith("torch."):
        reader.hit(RULE, node, f"{full} multiplies groups whose sizes are data", targets=TORCH)
    elif (
        name in ("binned_gather", "binned_scatter", "padded_gather", "padded_scatter") and not full
    ):
        reader.hit(RULE, node, f"{name}() moves as many rows as each expert was given")


def counted(reader: Reader, node: ast.Call, full: str) -> None:
    """Counts of tokens an expert, moved to the host."""
    if not isinstance(node.func, ast.Attribute) or full:
        return
    owner = node.func.value
    written = text(owner) or ast.unparse(owner)[:80]
    if not COUNTS.search(written):
        return
    if node.func.attr == "to":
        to_host = (
            bool(node.args)
            and isinstance(node.args[0], ast.Constant)
            and (node.args[0].value == "cpu")
        )
        to_host = to_host or any(
            isinstance(k.value, ast.Constant) and k.value.value == "cpu" for k in node.keywords
        )
        if not to_host and not (node.args and "cpu" in ast.unparse(node.args[0])):
            return
    if reader.kind(owner) in (HOST, NUMPY):
        return
    if reader.facts.hazards and reader.facts.hazards[-1].line == node.lineno:
        return
    reader.hit(RULE, node, "the tokens each expert was given are read on the host", needs_step=True)


def capacity(reader: Reader, node: ast.Call, full: str) -> None:
    """one_hot(position, capacity): a dispatch that drops what overflows, and pads the rest."""
    if (
        full == "jax.nn.one_hot"
        and len(node.args) > 1
        and tail(node.args[1]) in ("cap", "capacity")
    ):
        made = reader.value(node.args[1])
        if isinstance(made, ast.Call) and tail(made.func) == "int":
            reader.hit(
                RULE,
                node,
                "a capacity: overflowing tokens are dropped, the rest is padded",
                severity="low",
                confidence="possible",
            )


def suppression(reader: Reader, node: ast.Call, full: str) -> None:
    """NMS and its relatives."""
    name = tail(node.func)
    if (
        full
        and not re.match(r"(torchvision\.|mmcv\.|detectron2\.|mmdet\.)", full)
        and name in ("nms",)
    ):
        return
    if not full and isinstance(node.func, ast.Attribute) and text(node.func).startswith("self."):
        return
    reader.hit(
        "nms-proposals", node, f"{name}() keeps as many boxes as the data has", needs_step=True
    )


def pooled(reader: Reader, node: ast.Call, full: str) -> None:
    """roi_align: no TPU kernel; ragged lists of boxes make shapes vary."""
    if not full.startswith("torchvision.ops") and full:
        return
    boxes = node.args[1] if len(node.args) > 1 else None
    made = reader.value(boxes) if boxes is not None else None
    if isinstance(made, ast.ListComp):
        reader.hit(
            "nms-proposals",
            node,
            "regions are pooled from lists of changing length",
            needs_step=True,
        )
        return
    reader.hit(
        "op-not-lowered",
        node,
        "roi_align has no kernel off CUDA",
        severity="blocker",
        targets=TORCH,
        needs_step=True,
    )


def nonempty(reader: Reader, node: ast.Call, full: str) -> None:
    if isinstance(node.func, ast.Attribute) and not full:
        reader.hit("nms-proposals", node, "boxes are filtered by their size", needs_step=True)


def filtered(reader: Reader, node: ast.Call, full: str) -> None:
    """``data.filter(mask)`` with a mask of the device."""
    if not isinstance(node.func, ast.Attribute) or full or len(node.args) != 1:
        return
    argument = node.args[0]
    kind = reader.kind(argument)
    if kind in ON_DEVICE or (
        isinstance(argument, ast.Name) and re.search(r"keep|mask", argument.id)
    ):
        reader.hit(
            "bool-mask-select",
            node,
            ".filter() keeps as many rows as the mask has true",
            needs_step=True,
            confidence="likely",
        )


def register(found: Detectors) -> None:
    found.on_call("one_hot")(capacity)
    found.on_call(
        "_grouped_mm _scaled_grouped_mm binned_gather binned_scatter padded_gather padded_scatter"
    )(grouped)
    found.on_call("tolist cpu to")(counted)
    found.on_call("nms batched_nms nms_rotated batched_nms_rotated soft_nms")(suppression)
    found.on_call("roi_align roi_pool ps_roi_align")(pooled)
    found.on_call("nonempty")(nonempty)
    found.on_call("filter")(filtered)
