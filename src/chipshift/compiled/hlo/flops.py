"""Floating-point operations of a program's matmuls, trip counts of loops multiplied in.

A compiler's own ``cost_analysis`` counts the body of a loop once, so that a scan over layers would
be one layer. TPU programs write a matmul as a convolution, whose windows carry batch dimensions.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np

from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Computation, Instruction, Module
from chipshift.compiled.hlo.shape import Shape

SOFTMAX = "online-softmax"
"""The name of libtpu's own kernel, which no operation of the traced program bears."""

_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([0-9,]*)\}")


def matmul_flops(module: Module) -> float:
    """Multiply-adds of every dot and convolution of a step on one device, 2 FLOP each, and of the
    matmuls that libtpu fused with a softmax."""
    total = 0.0
    for name, times in multiplicities(module).items():
        computation = module.computations.get(name)
        if computation is None:
            continue
        for instruction in computation.instructions:
            if instruction.opcode == "dot":
                total += times * dot_flops(computation, instruction)
            elif instruction.opcode == "convolution":
                total += times * convolution_flops(computation, instruction)
            elif is_softmax(instruction):
                total += times * softmax_flops(computation, instruction)
    return total


def is_softmax(instruction: Instruction) -> bool:
    """Whether it is the kernel that libtpu makes of a softmax and the matmul with the values."""
    return instruction.opcode == "custom-call" and instruction.op_name == SOFTMAX


def softmax_flops(computation: Computation, instruction: Instruction) -> float:
    """Of scores (..., q, k) and values (..., k, d): 2 x q x k x d for each of the others."""
    scores, values = (_operand(computation, instruction, at).dims for at in (0, 1))
    return 2.0 * prod(scores) * values[-1]


def _operand(computation: Computation, instruction: Instruction, at: int) -> Shape:
    return computation.by_name[instruction.operands[at]].shapes[0]


def dot_flops(computation: Computation, instruction: Instruction) -> float:
    """2 x elements of the result x elements contracted."""
    found = _CONTRACTED.search(instruction.rest)
    dims = [int(d) for d in found.group(1).split(",") if d] if found else []
    left = _operand(computation, instruction, 0)
    return 2.0 * prod(instruction.shapes[0].dims) * prod(left.dims[d] for d in dims)


def convolution_flops(computation: Computation, instruction: Instruction) -> float:
    """2 x batch x input features of the kernel x output features x positions at which an element of
    the kernel meets one of the input (XLA, HloCostAnalysis::GetConvolutionFlops)."""
    labels = _LABELS.search(instruction.rest)
    if labels is None:
        return 0.0
    lhs, rhs, out = labels.groups()
    left, kernel = (_operand(computation, instruction, at) for at in (0, 1))
    result = instruction.shapes[0]
    features = kernel.dims[rhs.index("i")] * kernel.dims[rhs.index("o")]
    batch = left.dims[lhs.index("b")] // int(instruction.attribute("batch_group_count") or 1)
    found = _WINDOW.search(instruction.rest)
    window = dict(part.split("=") for part in (found.group(1) if found else "").split())
    positions = 1
    for at, digit in enumerate(sorted(d for d in out if d.isdigit())):
        low, step = _of(window, "pad", at, "0_0").split("_")[0], _of(window, "stride", at, "1")
        positions *= meetings(
            kernel=kernel.dims[rhs.index(digit)],
            result=result.dims[out.index(digit)],
            given=left.dims[lhs.index(digit)],
            stride=int(step),
            low=int(low),
            spread=int(_of(window, "lhs_dilate", at, "1")),
            kernel_spread=int(_of(window, "rhs_dilate", at, "1")),
        )
    return 2.0 * batch * features * positions


def _of(window: dict[str, str], key: str, at: int, otherwise: str) -> str:
    return window[key].split("x")[at] if key in window else otherwise


def meetings(
    *, kernel: int, result: int, given: int, stride: int, low: int, spread: int, kernel_spread: int
) -> int:
    """Pairs of a result's position and a kernel's element that fall on an element of the input.

    Args:
        low: padding before the input's first element.
        spread, kernel_spread: distance of neighbours in the padded input, and in the kernel.
    """
    first = np.arange(result) * stride - low
    count = 0
    for element in range(kernel):
        at = first + element * kernel_spread
        count += int(np.sum((at >= 0) & (at % spread == 0) & (at // spread < given)))
    return count
