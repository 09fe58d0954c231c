"""Results whose size depends on the data: nonzero, boolean masks, unique."""

from __future__ import annotations

import ast
import re

from chipshift.audit.kinds import (
    BATCH,
    CONFIG,
    DICT,
    HOST,
    HOST_MASK,
    LIST,
    MASK,
    NUMBER,
    NUMPY,
    ON_DEVICE,
    STRING,
    TENSOR,
    UNKNOWN,
)
from chipshift.audit.names import tail
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

NOT_DEVICE = frozenset({HOST, HOST_MASK, NUMPY, LIST, NUMBER, STRING, DICT, CONFIG, BATCH})
MASK_NAME = re.compile(
    r"(^|_)(mask|masks|keep|valid|is_valid|nonpad|non_pad|inside|foreground|fg"
    r"|pos_mask|is_pos|selected)(_?\d*|_mask|_masks|_inds?_mask)?$"
)


def arrays(reader: Reader) -> bool:
    return reader.facts.uses_torch or reader.facts.uses_jax


def nonzero(reader: Reader, node: ast.Call, full: str) -> None:
    """nonzero, argwhere, flatnonzero, masked_select as functions or methods."""
    if (
        full
        and not full.startswith(("torch.", "jax.numpy."))
        and tail(node.func) != "nonzero_tuple"
    ):
        return
    if any(keyword.arg == "size" for keyword in node.keywords):
        return
    name = tail(node.func)
    subject = node.args[0] if full and node.args else None
    if not full and isinstance(node.func, ast.Attribute):
        subject = node.func.value
    kind = reader.kind(subject) if subject is not None else UNKNOWN
    if kind in NOT_DEVICE or not arrays(reader):
        return
    rule = "moe-dropless" if _expert(subject) and reader.loops else "nonzero-dynamic"
    reader.hit(
        rule,
        node,
        f"{name}() gives as many rows as the data has",
        needs_step=True,
        confidence="sure" if kind in ON_DEVICE else "likely",
    )


def _expert(node: ast.expr | None) -> bool:
    """Whether a mask picks the tokens of one expert."""
    written = ast.unparse(node) if node is not None else ""
    return bool(
        re.search(r"expert|(top1|topk|top_k|router|route|gate|assign)\w*\s*==|== e\b", written)
    )


def where(reader: Reader, node: ast.Call, full: str) -> None:
    """where with one argument."""
    if len(node.args) != 1 or node.keywords or not full.startswith(("torch.", "jax.numpy.")):
        return
    if reader.kind(node.args[0]) in NOT_DEVICE:
        return
    rule = "moe-dropless" if _expert(node.args[0]) else "nonzero-dynamic"
    reader.hit(
        rule,
        node,
        "where() with one argument gives as many rows as the data has",
        needs_step=True,
    )


def _is_mask(reader: Reader, index: ast.expr) -> str:
    """ "sure", "likely" or "" for an index that is a boolean mask on the device."""
    if isinstance(index, ast.Tuple):
        found = [_is_mask(reader, one) for one in index.elts if not isinstance(one, ast.Slice)]
        return next((one for one in found if one), "")
    kind = reader.kind(index)
    if kind == MASK:
        return "sure"
    if kind in NOT_DEVICE:
        return ""
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert):
        inner = reader.kind(index.operand)
        return "" if inner in NOT_DEVICE else ("sure" if inner in ON_DEVICE else "likely")
    if (
        isinstance(index, ast.Call)
        and isinstance(index.func, ast.Attribute)
        and index.func.attr == "bool"
        and reader.kind(index.func.value) not in NOT_DEVICE
    ):
        return "sure"
    if isinstance(index, ast.Compare):
        return _compared(reader, index)
    name = tail(index)
    if isinstance(index, ast.Name | ast.Attribute) and MASK_NAME.search(name) and name[:2] != "i_":
        return "likely" if kind in (TENSOR, UNKNOWN) else ""
    return ""


def _compared(reader: Reader, index: ast.Compare) -> str:
    """x[y > t] with kinds unknown: a mask unless an operand is plainly not an array."""
    if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in index.ops):
        return ""
    kinds = [reader.kind(index.left), *(reader.kind(one) for one in index.comparators)]
    if any(kind in (HOST, HOST_MASK, NUMPY, LIST, STRING, CONFIG) for kind in kinds):
        return ""
    return "likely"


def indexed(reader: Reader, node: ast.Subscript) -> None:
    """Reading or writing with a boolean mask."""
    index = node.slice
    if isinstance(index, ast.Constant | ast.Slice | ast.JoinedStr | ast.List):
        return
    if not arrays(reader) or reader.func.role == "host":
        return
    owner = reader.kind(node.value)
    if owner in NOT_DEVICE or owner == "shape":
        return
    found = _is_mask(reader, index)
    if not found:
        return
    if found == "likely" and owner not in ON_DEVICE and not _arrayish(reader, node.value):
        return
    if isinstance(node.value, ast.Attribute) and node.value.attr == "at":
        _at(reader, node, found)
        return
    confidence = "sure" if found == "sure" and owner in ON_DEVICE else "likely"
    expert = _expert(index) and bool(reader.loops)
    if isinstance(node.ctx, ast.Store):
        reader.hit(
            "bool-mask-assign",
            node,
            "writes where a boolean mask is true",
            needs_step=True,
            confidence=confidence,  # type: ignore[arg-type]
        )
    elif isinstance(node.ctx, ast.Load):
        reader.hit(
            "moe-dropless" if expert else "bool-mask-select",
            node,
            "reads as many elements as the mask has true",
            needs_step=True,
            confidence=confidence,  # type: ignore[arg-type]
        )


def _at(reader: Reader, node: ast.Subscript, found: str) -> None:
    reader.hit(
        "bool-mask-assign", node, ".at[] with a boolean mask has no static shape", needs_step=True
    )


def _arrayish(reader: Reader, node: ast.expr) -> bool:
    """An owner of unknown kind that is likely an array: not a table, frame or mapping by name."""
    name = tail(node) or (
        tail(node.value) if isinstance(node, ast.Subscript | ast.Attribute) else ""
    )
    if re.search(
        r"(^|_)(df|frame|table|dict|map|cfg|config|data_frame|records|rows|names|files"
        r"|paths|lines|words|params|arr|array|np|img_ids|instances|dataset)s?(_|$)",
        name,
    ):
        return False
    return bool(name) or isinstance(node, ast.Call)


def unique(reader: Reader, node: ast.Call, full: str) -> None:
    """unique, bincount, histc, one_hot without the number of classes."""
    name = tail(node.func)
    if full and not full.startswith(("torch.", "jax.numpy.", "jax.nn.")):
        return
    subject = node.args[0] if full and node.args else None
    if not full:
        if not isinstance(node.func, ast.Attribute):
            return
        subject = node.func.value
        if name in ("one_hot",):
            return
        if name == "unique" and reader.kind(subject) not in ON_DEVICE:
            return
    if reader.kind(subject) in NOT_DEVICE or reader.func.role == "host":
        return
    given = {keyword.arg for keyword in node.keywords}
    if name == "one_hot" and (len(node.args) > 1 or given & {"num_classes"}):
        return
    if full.startswith("jax.") and given & {"size", "length"}:
        return
    if full.startswith("jax.") and name == "bincount" and len(node.args) > 2:
        return
    medium = name in ("bincount", "histc", "histogram")
    reader.hit(
        "unique-bincount-dynamic",
        node,
        f"{name}() has a size that the data decides",
        severity="medium" if medium else None,
        needs_step=True,
    )


def register(found: Detectors) -> None:
    found.on_call("nonzero argwhere flatnonzero masked_select nonzero_tuple nonzero_static_")(
        nonzero
    )
    found.on_call("where")(where)
    found.subscripts.append(indexed)
    found.on_call("unique unique_consecutive bincount histc one_hot histogram")(unique)
