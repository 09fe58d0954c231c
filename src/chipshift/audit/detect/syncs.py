"""Device values read on the host: in the step, in evaluation, or turned into a size."""

from __future__ import annotations

import ast
import re

from chipshift.audit.detect.branches import asks_device
from chipshift.audit.detect.moe import COUNTS
from chipshift.audit.kinds import (
    CONFIG,
    HOST,
    HOST_MASK,
    MASK,
    MODULE,
    NUMPY,
    ON_DEVICE,
    TENSOR,
    TENSORS,
    UNKNOWN,
)
from chipshift.audit.names import tail, text, walk, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

SYNC = "host-sync-in-step"
LOSSY = re.compile(
    r"(^|_|\.)(loss|losses|grad_norm|gnorm|total_loss|mloss|acc|accuracy|logits|metrics?"
    r"|preds?|outputs?|probs?|norm|entropy|reward|kl|advantages?|nll|ppl)\w*$"
)
SHAPERS = words(
    """view reshape narrow arange range zeros ones empty full split expand repeat_interleave
    new_zeros new_ones new_full pad linspace eye randn rand unfold all_to_all_single repeat
    tile broadcast_to trange islice interpolate resize"""
)


def _device_value(reader: Reader, node: ast.expr) -> str:
    """ "sure", "likely" or "" for a value that lives on the device."""
    kind = reader.kind(node)
    if kind in ON_DEVICE or kind == TENSORS:
        return "sure"
    if kind == UNKNOWN and LOSSY.search(text(node) or tail(node)):
        return "likely"
    return ""


def item(reader: Reader, node: ast.Call, full: str) -> None:
    """.item() and .tolist(): a read, unless what is read is on the host already."""
    if not isinstance(node.func, ast.Attribute) or full or node.args:
        return
    owner = node.func.value
    kind = reader.kind(owner)
    if kind in (HOST, HOST_MASK, NUMPY, CONFIG, MODULE) or reader.func.role in ("host",):
        return
    if not (reader.facts.uses_torch or reader.facts.uses_jax):
        return
    if COUNTS.search(text(owner)):
        return  # routing: its own rule reports it
    name = node.func.attr
    if name == "tolist" and kind == UNKNOWN and not _tensorish(owner):
        return
    if kind == UNKNOWN and "to_numpy()" in reader.source:
        return
    if _tests(reader, node):
        return
    if _becomes_size(reader, node):
        reader.hit(
            "item-to-shape",
            node,
            f".{name}() reads a device value that becomes a size",
            needs_step=True,
            confidence="sure" if kind in ON_DEVICE else "likely",
        )
        return
    reader.hit(
        SYNC,
        node,
        f".{name}() waits for the device",
        needs_step=True,
        places=_interval(reader, node),
        confidence="sure" if kind in ON_DEVICE else "likely",
    )


def _interval(reader: Reader, node: ast.Call) -> list[int]:
    """The line that sets the interval of the enclosing ``step % N`` test to 1."""
    for one in reader.enclosing:
        for part in walk(one.test):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                bound = reader.value(part.right)
                if isinstance(bound, ast.Constant) and bound.value == 1:
                    return [bound.lineno] if getattr(bound, "lineno", 0) else []
    return []


def _tensorish(node: ast.expr) -> bool:
    name = text(node).rsplit(".", 1)[-1] or tail(node)
    return not re.search(
        r"(^|_)(np|arr|array|df|series|column|cols|names|ids|dates|values_list)", name
    )


def _tests(reader: Reader, node: ast.Call) -> bool:
    """Whether the read is (part of) the test of a branch, which its own rule reports."""
    # Under a branch that asks a device value, the branch is the finding.
    return reader.testing or any(asks_device(reader, one.test) for one in reader.enclosing[-2:])


def _becomes_size(reader: Reader, node: ast.Call) -> bool:
    """Whether the value read is used as a length, bound or split size in this function."""
    for one in reversed(reader.parents):
        if isinstance(one, ast.Slice):
            return True
        if isinstance(one, ast.Subscript):
            return False
        if isinstance(one, ast.Call) and tail(one.func) in SHAPERS:
            return True
        if isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            return bool(names) and used_as_size(reader, names)
        if isinstance(one, ast.stmt):
            return False
    return False


def used_as_size(reader: Reader, names: set[str]) -> bool:
    """Whether any of the names bounds a slice or sizes a tensor in the function being read."""
    func = reader.func
    if func.node is None:
        return False
    if func.sizes is None:
        func.sizes = _sizes(func.node)
    return bool(func.sizes & names)


def _sizes(body: ast.AST) -> set[str]:
    """Names that bound a slice or size a tensor in a function."""
    found: set[str] = set()
    for one in walk(body):
        if isinstance(one, ast.Slice):
            parts = [part for part in (one.lower, one.upper) if part is not None]
        elif isinstance(one, ast.Call) and tail(one.func) in SHAPERS:
            parts = [*one.args, *(keyword.value for keyword in one.keywords)]
        else:
            continue
        for part in parts:
            found.update(leaf.id for leaf in walk(part) if isinstance(leaf, ast.Name))
    return found


def to_host(reader: Reader, node: ast.Call, full: str) -> None:
    """.cpu() and .numpy(): one finding for a chain of them."""
    if not isinstance(node.func, ast.Attribute) or full or node.args:
        return
    parent = reader.parent()
    if isinstance(parent, ast.Attribute):
        grand = reader.parent(2)
        if isinstance(grand, ast.Call) and parent.attr in ("numpy", "item", "tolist"):
            return
    owner = node.func.value
    inner = owner
    if (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr == "cpu"
    ):
        inner = inner.func.value
    found = _device_value(reader, inner)
    if not found or reader.kind(inner) == MODULE or reader.func.role == "host":
        return
    if COUNTS.search(text(inner)):
        return
    if _saved(reader):
        return
    reader.hit(
        SYNC,
        node,
        f".{node.func.attr}() waits for the device and copies to the host",
        needs_step=True,
        confidence=found,  # type: ignore[arg-type]
    )


def moved(reader: Reader, node: ast.Call, full: str) -> None:
    """``t.to("cpu")`` of a device value."""
    if full or not isinstance(node.func, ast.Attribute) or not node.args:
        return
    first: ast.expr | None = node.args[0]
    if isinstance(first, ast.Name):
        made = reader.value(first)
        first = made.args[0] if isinstance(made, ast.Call) and made.args else first
    if not (isinstance(first, ast.Constant) and first.value == "cpu"):
        return
    owner = node.func.value
    if reader.kind(owner) in ON_DEVICE and not COUNTS.search(text(owner)) and not _saved(reader):
        reader.hit(SYNC, node, '.to("cpu") waits for the device', needs_step=True)


def _saved(reader: Reader) -> bool:
    return any(
        isinstance(one, ast.Call) and tail(one.func) in ("save", "dump", "state_dict", "savez")
        for one in reader.parents
    )


def converted(reader: Reader, node: ast.Call, full: str) -> None:
    """float(t), int(t) of a device value."""
    if not isinstance(node.func, ast.Name) or len(node.args) != 1:
        return
    argument = node.args[0]
    kind = reader.kind(argument)
    if kind not in ON_DEVICE:
        loss = isinstance(argument, ast.Name) and argument.id in ("loss", "grad_norm", "total_loss")
        if not (kind == UNKNOWN and loss and reader.loops):
            return
    if _tests(reader, node):
        return
    if isinstance(argument, ast.Call) and tail(argument.func) in ("item", "sum_"):
        return
    if _becomes_size(reader, node):
        reader.hit(
            "item-to-shape",
            node,
            f"{node.func.id}() reads a device value that becomes a size",
            needs_step=True,
        )
        return
    reader.hit(
        SYNC,
        node,
        f"{node.func.id}() waits for the device",
        needs_step=True,
        confidence="sure" if kind in ON_DEVICE else "likely",
    )


def shown(reader: Reader, node: ast.Call, full: str) -> None:
    """print(t), progress bars and loggers given device values."""
    name = tail(node.func)
    if name == "print" and not isinstance(node.func, ast.Name):
        return
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    for value in values:
        if isinstance(value, ast.Dict):
            values.extend(one for one in value.values if one is not None)
            continue
        parts = [value]
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
            parts = value.right.elts if isinstance(value.right, ast.Tuple) else [value.right]
            parts = [one.value if isinstance(one, ast.Starred) else one for one in parts]
        if isinstance(value, ast.JoinedStr):
            parts = [one.value for one in value.values if isinstance(one, ast.FormattedValue)]
        for part in parts:
            if reader.kind(part) in (TENSOR, MASK):
                reader.hit(
                    SYNC,
                    part,
                    f"{name}() of a device value waits for it",
                    needs_step=True,
                    confidence="likely",
                )
                return


def clipped(reader: Reader, node: ast.Call, full: str) -> None:
    for keyword in node.keywords:
        if (
            keyword.arg == "error_if_nonfinite"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
        ):
            reader.hit(
                SYNC, keyword, "error_if_nonfinite=True reads a flag each step", needs_step=True
            )


def progress(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    for keyword in node.keywords:
        value = keyword.value
        if not isinstance(value, ast.Constant):
            continue
        if name == "TQDMProgressBar" and keyword.arg == "refresh_rate" and value.value == 1:
            reader.hit(SYNC, keyword, "the progress bar reads its values every step", cause="bar")
        if (
            name in ("log", "log_dict")
            and keyword.arg == "prog_bar"
            and value.value is True
            and reader.func.node is not None
            and reader.func.node.name == "training_step"
        ):
            reader.hit(SYNC, keyword, "the progress bar reads the value every step", cause="bar")


def callback(reader: Reader, node: ast.Call, full: str) -> None:
    if full in (
        "jax.debug.print",
        "jax.debug.callback",
        "jax.experimental.io_callback",
        "jax.pure_callback",
        "jax.experimental.host_callback.call",
        "jax.debug.breakpoint",
        "jax.experimental.host_callback.id_tap",
    ):
        reader.hit(SYNC, node, f"{full} calls the host from inside the step", needs_step=True)


def fetched(reader: Reader, node: ast.Call, full: str) -> None:
    """np.asarray and jax.device_get of arrays on the device."""
    if full == "jax.device_get":
        if reader.local or reader.func.role in ("step", "eval"):
            reader.hit(
                SYNC,
                node,
                "device_get() waits for the device",
                needs_step=True,
                confidence="likely",
            )
        return
    if (
        full in ("numpy.asarray", "numpy.array")
        and node.args
        and reader.kind(node.args[0]) in ON_DEVICE
    ):
        reader.hit(SYNC, node, "NumPy reads a device array", needs_step=True)


def counts(reader: Reader, node: ast.Call, full: str) -> None:
    """repeat_interleave with a tensor of counts: its length is data."""
    if any(keyword.arg == "output_size" for keyword in node.keywords):
        return
    arguments = node.args[1:] if full else node.args
    arguments = [*arguments, *(k.value for k in node.keywords if k.arg == "repeats")]
    if arguments and reader.kind(arguments[0]) in ON_DEVICE:
        reader.hit(
            "item-to-shape",
            node,
            "the repeat counts are data, and so is the length",
            needs_step=True,
        )


def register(found: Detectors) -> None:
    found.on_call("item tolist")(item)
    found.on_call("cpu numpy")(to_host)
    found.on_call("to")(moved)
    found.on_call("float int")(converted)
    found.on_call("print set_postfix set_description add_scalar")(shown)
    found.on_call("clip_grad_norm_")(clipped)
    found.on_call("TQDMProgressBar log log_dict")(progress)
    found.on_call("print callback io_callback pure_callback id_tap call breakpoint")(callback)
    found.on_call("asarray array device_get")(fetched)
    found.on_call("repeat_interleave")(counts)
