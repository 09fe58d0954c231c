"""Recording a PyTorch step: the stream of operations that a lazy or compiling device would see.

A program is the sequence of operations with the shapes and types of their tensors and with the
numbers that a compiler bakes in. Which numbers those are was measured on torch_xla 2.8: sizes,
indices, exponents and epsilons compile again when they change, scalar operands of arithmetic
(a learning rate among them) do not. The table of operations that leave the device is of the same
measurement.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from chipshift.errors import InputError
from chipshift.trace.dynamo import graph_breaks
from chipshift.trace.load import Inputs, Step, is_users, run_steps, shown, told
from chipshift.trace.outcome import Place, TraceResult, grouped
from chipshift.trace.program import Op, Tape, causes

FALLBACKS = frozenset(
    {"nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "bincount"}
    | {"histc", "repeat_interleave", "_ctc_loss", "grid_sampler_2d", "_embedding_bag"}
    | {"_fft_r2c", "_fft_c2c", "_fft_c2r", "searchsorted", "isin", "median", "nanmedian"}
    | {"linalg_qr", "linalg_cholesky_ex", "_linalg_solve_ex", "im2col", "upsample_bicubic2d"}
    | {"_adaptive_avg_pool2d", "_weight_norm_interface", "triu_indices", "tril_indices"}
)
"""Operations that torch_xla 2.8 hands to the host (measured by its counters ``aten::*``)."""
CAPTURED_STEPS = 3  # graph capture is slow, and a step's breaks are in its first steps
READS = frozenset({"numpy", "cpu", "tolist", "__array__", "__repr__", "__format__", "item"})
BAKED_SCALARS = frozenset({"pow", "arange", "linspace", "scalar_tensor"})
FREE_FLOATS = frozenset({"native_dropout", "bernoulli", "bernoulli_", "uniform_", "normal_"})


@dataclass
class Record:
    """What the recorders write to."""

    tapes: list[Tape] = field(default_factory=list)
    syncs: Counter[Place] = field(default_factory=Counter)
    fallbacks: Counter[tuple[str, Place]] = field(default_factory=Counter)
    moved: Counter[Place] = field(default_factory=Counter)
    recording: bool = False
    inside_read: int = 0

    @contextlib.contextmanager
    def step(self, given: Any) -> Iterator[None]:
        """Record one step on a tape of its own."""
        self.tapes.append(_tape(given))
        self.recording = True
        try:
            yield
        finally:
            self.recording = False


def record(step: Step, inputs: Inputs, steps: int) -> TraceResult:
    """Run ``step`` at most ``steps`` times and count what a device would do.

    A second run asks the graph capture of ``torch.compile`` where it would break. Raises
    InputError when the user's code fails.
    """
    log = Record()
    done = 0
    try:
        with torch.compiler.set_stance("force_eager"), _Calls(log), _Operations(log):
            done = run_steps(step, inputs, steps, log.step)
    except (Exception, SystemExit) as error:
        raise InputError(f"trace: step {len(log.tapes)} failed: {told(error)}") from error
    if not done:
        raise InputError("trace: the inputs function yielded nothing, expected one input a step")
    moved = sum(log.moved.values())
    # Capture sees our own interception as a break: it stands only where CUDA was asked for.
    with _Calls(Record()) if moved else contextlib.nullcontext():
        breaks, notes = graph_breaks(step, inputs, min(done, CAPTURED_STEPS))
    if moved:
        notes += (f"{moved} requests for a CUDA device were served by the CPU",)
    return TraceResult(
        framework="torch",
        steps=done,
        programs=len({tape.program for tape in log.tapes}),
        recompiles=grouped(causes(log.tapes, Place(*_definition(step)))),
        host_syncs=tuple(log.syncs.most_common()),
        fallbacks=tuple((op, place, n) for (op, place), n in log.fallbacks.most_common()),
        graph_breaks=breaks,
        notes=notes,
    )


def _tape(given: Any) -> Tape:
    return Tape(tuple(_shape(leaf) for leaf in tree_leaves(given)))


def _shape(leaf: Any) -> Any:
    return (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else None


def _definition(step: Step) -> tuple[str, int]:
    code = getattr(getattr(step, "__wrapped__", step), "__code__", None)
    return (shown(code.co_filename), code.co_firstlineno) if code else ("", 0)


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    """Writes every operation that reaches a kernel to the tape."""

    def __init__(self, log: Record) -> None:
        super().__init__()
        self._log = log

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        log = self._log
        if not log.recording or log.inside_read:
            return out
        name = func._schema.name.removeprefix("aten::")
        place, in_optimizer = _here()
        if name in ("_local_scalar_dense", "equal"):
            if not in_optimizer:  # there it is the step counter, which lives on the host
                log.syncs[place] += 1
            log.tapes[-1].ops.append(Op("read", (), place, in_optimizer))
            return out
        masked = name.startswith("index") and any(_is_mask(leaf) for leaf in tree_leaves(args[1:]))
        if name in FALLBACKS or masked:
            log.fallbacks[f"aten::{name}{' with a boolean mask' if masked else ''}", place] += 1
        key = (_baked(func, name, args, kwargs or {}), _shapes(args), _shapes(out))
        log.tapes[-1].ops.append(Op(name, key, place, in_optimizer))
        return out


def _is_mask(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.bool, torch.uint8)


def _shapes(tree: Any) -> tuple[Any, ...]:
    return tuple(s for s in (_shape(leaf) for leaf in tree_leaves(tree)) if s is not None)


def _baked(func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, ...]:
    """The numbers of a call that a compiled program holds as constants."""
    out: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if isinstance(value, (torch.Tensor, torch.Generator)) or value is None:
            continue
        operand = str(argument.type) in ("number", "Optional[number]", "Tensor", "List[number]")
        if operand and name not in BAKED_SCALARS:
            continue
        if isinstance(value, float) and (name in FREE_FLOATS or name.startswith("_fused")):
            continue
        if isinstance(value, (list, tuple)):
            value = tuple(v for v in value if isinstance(v, (int, bool)))
        if isinstance(value, (int, float, bool, str, tuple)):
            out.append((argument.name, value))
    return tuple(out)


class _Calls(TorchFunctionMode):  # type: ignore[misc]
    """Sees what never reaches a kernel on the CPU: reads by NumPy or print, and device names."""

    def __init__(self, log: Record) -> None:
        super().__init__()
        self._log = log

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory") and args and isinstance(args[0], torch.Tensor):
            self._log.moved[_here()[0]] += name == "cuda"
            return args[0]
        before = args, kwargs
        args, kwargs = tree_map(_on_cpu, before)
        if any(
            a is not b
            for a, b in zip(tree_leaves(before), tree_leaves((args, kwargs)), strict=True)
        ):
            self._log.moved[_here()[0]] += 1
        elif name in READS or (name == "to" and _to_cpu(before) and _says_cpu()):
            return self._read(func, args, kwargs)
        return func(*args, **kwargs)

    def _read(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        log = self._log
        if not log.inside_read and log.recording and args and isinstance(args[0], torch.Tensor):
            place, in_optimizer = _here()
            if not in_optimizer:
                log.syncs[place] += 1
                log.tapes[-1].ops.append(Op("read", (), place, in_optimizer))
        log.inside_read += 1
        try:
            return func(*args, **kwargs)
        finally:
            log.inside_read -= 1


def served_by_cpu() -> AbstractContextManager[object]:
    """Serve requests for a CUDA device by the CPU, recording nothing."""
    mode: AbstractContextManager[object] = _Calls(Record())
    return mode


def _on_cpu(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu") if leaf.type == "cuda" else leaf
    if isinstance(leaf, str) and (leaf == "cuda" or leaf.startswith("cuda:")):
        return "cpu"
    return leaf


def _to_cpu(call: Any) -> bool:
    leaves = tree_leaves(call)
    return any(
        leaf == "cpu" or (isinstance(leaf, torch.device) and leaf.type == "cpu")
        for leaf in leaves
        if isinstance(leaf, (str, torch.device))
    )


def _says_cpu() -> bool:
    """Whether the running line of the user's names the CPU: here every device is the CPU."""
    frame = sys._getframe(2)
    own = is_users(frame.f_code.co_filename)
    return own and "cpu" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def _here() -> tuple[Place, bool]:
    """The user's line that is running, and whether it runs inside an optimizer's step."""
    in_optimizer = False
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        in_optimizer = in_optimizer or "torch/optim/" in file.replace("\\", "/")
        if is_users(file):
            return Place(shown(file), frame.f_lineno), in_optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return Place("", 0), in_optimizer
