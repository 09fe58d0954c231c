"""The compiler's cycles as seconds, and what is added to them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources

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


@pytest.mark.parametrize("machine", ["v5e:4x4", "v5p:2x2x4", "v6e:4x4", "v7x:2x2x2"])
def test_cycles_become_seconds_at_the_chips_clock(machine: str) -> None:
    outcome = {"cycles": {"compute": 3e9, "by_kind": {}, "without": []}, "places": []}
    found = estimated_time(outcome, CFG, parse_machine(machine))
    assert found is not None
    clocks = tomllib.loads(CYCLES.read_text("utf8"))
    assert 1.5e9 < clocks["v5e"]["clock_hz"] < 2e9  # the chip runs at 1.5e9; estimates are high
    assert found["total"] == pytest.approx(3e9 / clocks[machine[:3]]["clock_hz"])


def test_no_time_where_a_cycle_has_no_known_length() -> None:
    outcome = {"cycles": {"compute": 3e9, "by_kind": {}, "without": []}, "places": []}
    assert estimated_time(outcome, CFG, parse_machine("v4:2x2x1")) is None


def test_only_what_nothing_hides_is_exposed() -> None:
    place = {
        "kind": "all_gather", "mesh_axis": "fsdp", "group_size": 16, "count_per_step": 4,
        "bytes_per_device_per_step": 4 * 15e6, "overlapped": False,
    }  # fmt: skip
    seconds = exposed_seconds([place, {**place, "overlapped": True}], CFG, MACHINE)
    assert seconds == pytest.approx(exposed_seconds([place], CFG, MACHINE))
    assert seconds > 0
