"""The compiler's cycles as seconds, and what is added to them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from chipshift.compiled.seconds import (
    attention_seconds,
    estimated_time,
    exposed_seconds,
    whole_bytes,
)
from chipshift.compiled.step.config import Block, Config
from chipshift.estimate.stack import stack
from chipshift.machines.names import parse_machine
from chipshift.roofline.kernels import attention_kernel

CYCLES = resources.files("chipshift.compiled") / "data" / "cycles.toml"
MACHINE = parse_machine("v5e:4x4")
CFG = Config(
    d_model=1024,
    vocab=1024,
    segments=(((Block(heads=8, kv_heads=8, head_dim=128, v_head_dim=128, mlp_width=2048),), 2),),
    mesh=(1, 16, 1, 1, 1),
    seq_len=4096,
    batch=16,
    remat="full",
)


@pytest.mark.parametrize(
    ("kind", "sent", "whole"),
    [("all_gather", 300, 400), ("reduce_scatter", 300, 400), ("all_reduce", 600, 400),
     ("all_to_all", 300, 1600), ("permute", 100, 100)],
)  # fmt: skip
def test_the_whole_array_from_what_one_of_four_sends(kind: str, sent: float, whole: float) -> None:
    assert whole_bytes(kind, sent, 4) == pytest.approx(whole)


def test_attention_at_its_kernels_share_of_the_peak_inside_a_step() -> None:
    """One sequence of 4,096 a device, two layers of 8 x 128: scores and values are
    2 x 4096 x 2048 x (128 + 128) x 8 FLOP a layer, causal half included; run forward twice and
    backward at 2.5; v5e does 197e12 FLOP/s, of which a kernel that meets k keys a query reaches
    e k / (k + half) by itself and, inside a step, the stack's measured part of that."""
    kernel = attention_kernel(MACHINE.chip, 128.0)
    inside = stack("jax", "v5e").attention_scale
    flop = 2 * 4096 * 2048 * 256 * 8 * 2
    forward = flop / (197e12 * kernel.e_forward * 2048 / (2048 + kernel.s_half_forward))
    backward = 2.5 * flop / (197e12 * kernel.e_backward * 2048 / (2048 + kernel.s_half_backward))
    assert attention_seconds(CFG, MACHINE) == pytest.approx((2 * forward + backward) / inside)
    kept = attention_seconds(replace(CFG, remat="minimal_flash"), MACHINE)
    assert kept == pytest.approx((forward + backward) / inside)


AXES = ("dp", "fsdp", "ep", "cp", "tp")


def _outcome(places: Any = (), kernels: Any = (), mesh: Any = ()) -> dict[str, Any]:
    cycles = {"compute": 3e9, "by_kind": {}, "without": list(kernels)}
    mesh = mesh or list(zip(AXES, CFG.mesh, strict=True))
    return {"cycles": cycles, "places": list(places), "mesh": mesh}


@pytest.mark.parametrize("machine", ["v5e:4x4", "v5p:2x2x4", "v6e:4x4", "v7x:2x2x2"])
def test_cycles_become_seconds_at_the_chips_clock(machine: str) -> None:
    outcome = _outcome()
    found = estimated_time(outcome, CFG, parse_machine(machine))
    assert found is not None
    clocks = tomllib.loads(CYCLES.read_text("utf8"))
    assert 1.5e9 < clocks["v5e"]["clock_hz"] < 2e9  # the chip runs at 1.5e9; estimates are high
    assert found["total"] == pytest.approx(3e9 / clocks[machine[:3]]["clock_hz"])


def test_no_time_where_a_cycle_has_no_known_length() -> None:
    outcome = _outcome()
    assert estimated_time(outcome, CFG, parse_machine("v4:2x2x1")) is None


def _place(axis: str = "fsdp", **more: Any) -> dict[str, Any]:
    return {
        "kind": "all_gather", "mesh_axis": axis, "group_size": 16, "count_per_step": 4,
        "bytes_per_device_per_step": 4 * 15e6, "overlapped": False,
    } | more  # fmt: skip


def test_only_what_nothing_hides_is_exposed() -> None:
    mesh = {"fsdp": 16}
    both = exposed_seconds([_place(), _place(overlapped=True)], mesh, MACHINE)
    assert both == exposed_seconds([_place()], mesh, MACHINE)
    assert both[0] > 0 and both[1] == 1.0


def test_a_users_own_program_sends_over_the_axes_of_its_own_mesh() -> None:
    """The same gather over 16 devices, whatever the axis is called."""
    own = estimated_time(_outcome([_place("data")], mesh=[["data", 16]]), None, MACHINE)
    ours = estimated_time(_outcome([_place()]), CFG, MACHINE)
    assert own is not None and ours is not None
    assert own["collectives"] == pytest.approx(ours["collectives"]) and own["collectives"] > 0


@pytest.mark.parametrize("mesh", [[["data", 8]], [["x", 4], ["y", 4]]])
def test_what_is_sent_over_no_axis_that_is_known_has_no_time(mesh: Any) -> None:
    """Of 8 of the 16 devices, or over axes of other names: null, never 0."""
    found = estimated_time(_outcome([_place("data")], mesh=mesh), None, MACHINE)
    assert found is not None and found["compute"] > 0
    assert (found["collectives"], found["total"]) == (None, None)


def _kernel(**more: Any) -> dict[str, Any]:
    return {"name": "mine", "times": 2, "flops": None, "bytes": 8.19e6, "source": None} | more


def test_a_users_own_kernel_has_the_rooflines_time() -> None:
    """v5e: 197e12 FLOP/s, 819e9 B/s. Bytes alone: 2 x 8.19e6 / 819e9 = 20 us. Of 3.94e9 FLOP
    stated, 20 us a run at the peak, which is longer than the bytes' 10: 40 us."""
    bare, stated = _kernel(), _kernel(name="stated", flops=3.94e9, source=("a.py", 7))
    found = estimated_time(_outcome(kernels=[bare, stated]), None, MACHINE)
    assert found is not None
    assert [(k["name"], k["count_per_step"], k["by"], k["source"]) for k in found["kernels"]] == [
        ("stated", 2, "roofline", ["a.py", 7]), ("mine", 2, "bytes", None),
    ]  # fmt: skip
    assert [k["seconds"] for k in found["kernels"]] == pytest.approx([40e-6, 20e-6])
    without = estimated_time(_outcome(), None, MACHINE)
    assert without is not None
    assert found["compute"] - without["compute"] == pytest.approx(60e-6)


def test_the_steps_attention_kernels_are_listed_forward_and_backward() -> None:
    names = ("splash_mha_fwd", "splash_mha_fwd", "splash_mha_dkv", "splash_mha_dq")
    kernels = [_kernel(name=name, times=4) for name in names]
    found = estimated_time(_outcome(kernels=kernels), CFG, MACHINE)
    assert found is not None
    assert [(k["name"], k["count_per_step"]) for k in found["kernels"]] == [
        ("splash_mha_fwd", 8), ("splash_mha_dkv + splash_mha_dq", 4),
    ]  # fmt: skip
    assert sum(k["seconds"] for k in found["kernels"]) == attention_seconds(CFG, MACHINE)
