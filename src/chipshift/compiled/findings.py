"""What stopped a trace, or makes it wrong: the user's file and line, and the way out.

Rules are named as the audit's (docs/rules), which finds the same in code that is not run.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipshift.compiled.hlo.module import TRACERS


@dataclass(frozen=True)
class Cause:
    """An exception of the trace, recognised by its type's name and words in its text.

    Attributes:
        instead: the way out in PyTorch. in_jax: in a step of JAX; "" for the same.
    """

    types: tuple[str, ...]
    words: tuple[str, ...]
    rule: str
    message: str
    instead: str
    in_jax: str = ""


CAUSES = (
    Cause(
        ("OperatorNotFound",), (), "op-not-lowered",
        "this operator has no lowering for the TPU through torchax",
        "write it with operators that have one, or register a JAX implementation with "
        "torchax.ops.jaten.op; on TorchTPU check its own list of operators",
    ),
    Cause(
        ("NotImplementedError",), ("not found for platform",), "op-not-lowered",
        "JAX has no lowering of this operator for the target",
        "compute it on the host between steps, or write it with operators that have one",
    ),
    Cause(
        ("TracerBoolConversionError",), (), "data-dependent-branch",
        "a Python branch on the value of a tensor",
        "torch.where or torch.cond, or decide from shapes and configuration instead",
        "jnp.where or jax.lax.cond, or decide from shapes and configuration instead",
    ),
    Cause(
        ("ConcretizationTypeError",), ("shape bool[]",), "data-dependent-branch",
        "a Python branch on the value of a tensor",
        "torch.where or torch.cond, or decide from shapes and configuration instead",
        "jnp.where or jax.lax.cond, or decide from shapes and configuration instead",
    ),
    Cause(
        ("NonConcreteBooleanIndexError",), (), "bool-mask-select",
        "a boolean mask picks rows, so the shape depends on data",
        "keep the full shape and mask with torch.where, or a fixed capacity",
        "keep the full shape and mask with jnp.where, or a fixed capacity",
    ),
    Cause(
        ("ConcretizationTypeError", "TracerIntegerConversionError", "TracerArrayConversionError"),
        ("nonzero", "unique", "repeat", "size argument"), "data-dependent-shape",
        "a shape that depends on data",
        "a fixed size known before the step: pad, or bucket the lengths",
        "a fixed size known before the step: size= of jnp.nonzero and jnp.unique, or pad",
    ),
    Cause(
        ("ConcretizationTypeError", "TracerIntegerConversionError", "TracerArrayConversionError"),
        (), "host-sync-in-step",
        "the value of a tensor is read on the host inside the step (.item(), int(), numpy())",
        "keep it on the device, or read it after the step",
    ),
    Cause(
        (), ("is not a valid index", "view_as", "in-place", "inplace", "Can't modify"),
        "inplace-alias",
        "an in-place write to a view, which has no aliasing meaning in a traced program",
        "assign a new tensor: torch.index_put, torch.scatter or slicing and torch.cat",
    ),
    Cause(
        ("NotImplementedError",), ("meta",), "no-meta-kernel",
        "this operator cannot run without data (no meta kernel)",
        "build the module so that it does not compute while it is constructed",
    ),
    Cause(
        ("AssertionError", "RuntimeError"), ("not compiled with CUDA", "NVIDIA driver"),
        "cuda-call-in-step",
        "a call that needs a CUDA device, and there is none in a trace",
        "take the device from the inputs (x.device), and leave out streams, synchronisation and "
        ".cuda()",
    ),
    Cause(
        ("ModuleNotFoundError", "ImportError"),
        (
            "flash_attn", "xformers", "transformer_engine", "apex", "triton", "bitsandbytes",
            "mamba_ssm", "causal_conv1d", "deepspeed", "vllm", "liger_kernel",
        ),
        "cuda-only-package",
        "this package has kernels for GPUs only",
        "use what PyTorch has for it, such as torch.nn.functional.scaled_dot_product_attention, in "
        "whose place a Pallas kernel stands on the TPU",
    ),
    Cause(
        ("ModuleNotFoundError", "ImportError"), (), "import-fails",
        "a package is missing where the step is traced",
        "install it beside chipshift, or leave it out of what forward calls",
    ),
    Cause(
        ("RuntimeError",), ("register a hook",), "hook-in-step",
        "a hook on a tensor's gradient, which a traced program does not have",
        "change the gradients after the step, where it hands them out",
    ),
)  # fmt: skip

ELSE = (
    "run loss(module(*inputs), *inputs) in plain PyTorch first: what fails there too is no "
    "matter of the trace"
)
"""The way out of what no cause is known for."""

ELSE_IN_JAX = (
    "lower the step under jax.set_mesh(mesh) on virtual CPU devices first "
    "(XLA_FLAGS=--xla_force_host_platform_device_count=8): what fails there too is the step's own"
)
"""The same for a step of JAX."""


def finding(error: BaseException, folders: tuple[str, ...], in_jax: bool = False) -> dict[str, Any]:
    """What stopped the trace, at the innermost line of the user's own code.

    Args:
        in_jax: that code is a step of JAX, not a module of PyTorch.
    """
    file, line = users_line(raised_at(error), folders)
    if file is None and error.__cause__ is not None:  # JAX lowers what was traced, and says whence
        file, line = users_line(raised_at(error.__cause__), folders)
    name, text = type(error).__name__, str(error)
    cause = next((c for c in CAUSES if _matches(c, name, text)), None)
    first = text.strip().split("\n", 1)[0][:300]
    return {
        "rule": cause.rule if cause else "trace-error",
        "severity": "blocker",
        "file": file,
        "line": line,
        "message": f"{cause.message}: {first}" if cause else f"{name}: {first}",
        "instead": _way_out(cause, in_jax),
    }


def raised_at(error: BaseException) -> Iterator[tuple[str, int | None]]:
    """Files and lines that an exception came through, innermost first."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        yield frame.filename, frame.lineno


def _way_out(cause: Cause | None, in_jax: bool) -> str:
    if cause is None:
        return ELSE_IN_JAX if in_jax else ELSE
    return cause.in_jax if in_jax and cause.in_jax else cause.instead


def _matches(cause: Cause, name: str, text: str) -> bool:
    of_type = not cause.types or name in cause.types
    return of_type and (not cause.words or any(word in text for word in cause.words))


def users_line(
    frames: Iterable[tuple[str, int | None]], folders: tuple[str, ...]
) -> tuple[str | None, int | None]:
    """File and line of the first frame, innermost first, that is neither ours nor a library's;
    the file relative to the folder of the user's it lies in."""
    roots = [Path(folder).resolve() for folder in folders]
    own = Path(__file__).parents[1]
    for name, line in frames:
        path = Path(name)
        if name.startswith("<") or "site-packages" in path.parts or own in path.parents:
            continue
        if not path.exists():
            continue
        for root in roots:
            if root in path.resolve().parents:
                return path.resolve().relative_to(root).as_posix(), line
        return name, line
    return None, None


def place_of(eqn: Any, folders: tuple[str, ...]) -> str:
    """``file:line`` of a traced operation: the user's own, else that of a library of models."""
    traceback = eqn.source_info.traceback
    frames = [(f.file_name, f.line_num) for f in traceback.frames] if traceback else []
    file, line = users_line(frames, folders)
    if file is None:
        models = [(f, n) for f, n in frames if not TRACERS.search(f) and "/site-packages/" in f]
        file, line = next(iter(models), (None, None))
        file = file and file.rpartition("/site-packages/")[2]
    return f"{file}:{line}" if file else ""
