"""A cut step and the bytes that it asks for, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chipshift.compiled.expected_module import asked_for
from chipshift.compiled.traced.step import (
    CutStep,
    WholeProgram,
    batch_axes,
    cut_step,
    parameter_labels,
)
from tests.compiled.traced.programs import array, attention_of, mlp_of, program, tied

jax = pytest.importorskip("jax")

Sums = dict[tuple[str, str], float]


def on(of: WholeProgram, **axes: int) -> CutStep:
    """The step on a mesh of the CPU's virtual devices."""
    size = int(np.prod(list(axes.values())))
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    mesh = jax.make_mesh(
        tuple(axes.values()), tuple(axes), devices=jax.devices()[:size], axis_types=kinds
    )
    return cut_step(of, mesh, lambda eqn: "model.py:7")


def asked(step: CutStep, **axes: int) -> Sums:
    """Bytes a device sends by kind and axis, fp32 sent as it is."""
    mesh = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))
    found = asked_for(axes, batch_axes(mesh), step.cuts, step.over_tp)
    return {(kind, axis): sent for kind, axis, sent in found}


def axes_of(step: CutStep) -> dict[str, Any]:
    return {one.name: one.axes for one in step.cuts}


def test_a_feed_forward_over_fsdp_and_tp() -> None:
    of, axes = mlp_of(32), {"fsdp": 2, "tp": 2}
    step = on(of, **axes)
    assert axes_of(step) == {"up": ("tp", "fsdp"), "bias": ("tp",), "down": ("fsdp", "tp")}
    # up and down: 32 x 16 x 4 B = 2,048 B, a tp device's half 1,024 B, of which it lacks a half:
    # 512 B sent a gather (forward and backward) and for the gradient, each of the two.
    # bias: a tp device's 16 x 4 B, its gradient summed over fsdp: 2 x 1/2 x 64 B.
    # over tp: down's 4 rows x 16 x 4 B = 256 B are summed: 2 x 1/2 x 256 B; the input of up needs
    # no gradient.
    assert asked(step, **axes) == {
        ("all_gather", "fsdp"): 2 * 2 * 512,
        ("reduce_scatter", "fsdp"): 2 * 512,
        ("all_reduce", "fsdp"): 64,
        ("all_reduce", "tp"): 256,
    }  # fmt: skip


def test_two_feed_forwards_sum_forward_twice_and_backward_once() -> None:
    """Of the second one the input has a gradient, whose parts by the columns of up are summed."""

    def loss(p: Any, x: Any) -> Any:
        for layer in ("0", "1"):
            x = x + jax.nn.relu(x @ p["up" + layer].T) @ p["down" + layer].T
        return (x**2).mean()

    shapes = {"up0": (32, 16), "down0": (16, 32), "up1": (32, 16), "down1": (16, 32)}
    axes = {"fsdp": 2, "tp": 2}
    step = on(program(loss, shapes, array(8, 16)), **axes)
    # 256 B an array as above, 2 x 1/2 of it sent a sum
    assert asked(step, **axes)["all_reduce", "tp"] == 3 * 256


def test_dp_sums_what_fsdp_left() -> None:
    axes = {"dp": 2, "fsdp": 2, "tp": 2}
    found = asked(on(mlp_of(32), **axes), **axes)
    # gradients of up and down: 512 B a device of each; of the bias 64 B over both axes' 4 devices
    assert found["all_reduce", "dp"] == 2 * 512 * 2 / 2
    assert found["all_reduce", "dp+fsdp"] == 2 * 64 * 3 / 4
    # down's sum is of 2 rows a device
    assert found["all_reduce", "tp"] == 128


def test_attention_over_tp_alone_sums_what_its_heads_make() -> None:
    axes = {"fsdp": 1, "tp": 4}
    # 4 x 6 x 32 x 4 B = 3,072 B are summed once, forward: 2 x 3/4 of it
    assert asked(on(attention_of(4, 4), **axes), **axes) == {("all_reduce", "tp"): 4608}


def test_a_table_that_is_the_head_too_is_looked_up_and_multiplied() -> None:
    axes = {"fsdp": 2, "tp": 2}
    step = on(tied(), **axes)
    assert axes_of(step) == {"table": ("tp", "fsdp")}
    (table,) = step.cuts
    # looked up and multiplied by, and gathered a third time for the head's backward pass
    assert (table.uses, table.matmuls) == (2, 1)


def test_an_input_whose_rows_do_not_divide_is_whole_and_said() -> None:
    step = on(program(lambda p, x: ((x @ p["w"].T) ** 2).mean(), {"w": (8, 16)}, array(3, 16)),
              fsdp=2)  # fmt: skip
    assert step.notes == ("input 0 is whole on every device: 3 rows do not divide over 2 replicas",)


@pytest.mark.parametrize(
    ("shape", "by_tp", "fsdp", "cut"),
    [
        ((1024, 512), 0, 4, ("tp", "fsdp")),
        ((512, 2048), 1, 4, ("fsdp", "tp")),
        ((64,), 0, 4, ("tp",)),
        ((512,), None, 4, ("fsdp",)),
        ((6, 4096), None, 4, (None, "fsdp")),
        ((6, 9), None, 4, (None, None)),
        ((7, 512), 0, None, ("tp", None)),
    ],
)
def test_fsdp_takes_the_largest_dimension_that_tp_left_and_that_divides(
    shape: tuple[int, ...], by_tp: int | None, fsdp: int | None, cut: tuple[str | None, ...]
) -> None:
    assert parameter_labels(shape, by_tp, fsdp) == cut
