"""Measured curves: every one usable, read as time, borrowed where a chip has none."""

import math

import numpy as np
import pytest

from chipshift.fabric import assign, collective_time, links, nccl
from chipshift.fabric.curves import all_curves, full_rate_bytes, startup_s, table
from chipshift.fabric.paces import KINDS
from chipshift.machines.load import all_chips
from chipshift.machines.names import parse_machine

CURVES = [pytest.param(c, id=f"{c.chip}-{c.level}-{c.group}-{c.kinds[0]}") for c in all_curves()]


@pytest.mark.parametrize("curve", CURVES)
def test_larger_messages_never_measure_shorter(curve):
    time = np.asarray(curve.bytes) / np.asarray(curve.fraction)
    assert (np.diff(np.asarray(curve.bytes)) > 0).all()
    assert (np.diff(time) > 0).all()
    assert curve.source


@pytest.mark.parametrize("curve", CURVES)
def test_a_curve_is_constant_time_below_and_constant_rate_above(curve):
    first, last = curve.bytes[0], curve.bytes[-1]
    assert full_rate_bytes(curve, first / 4) == full_rate_bytes(curve, first)
    assert full_rate_bytes(curve, 8 * last) == pytest.approx(8 * last / curve.fraction[-1])


def test_between_two_sizes_the_time_is_linear():
    # 8 A100: 1 MiB at 36 of 300 GB/s, 16 MiB at 109: 8.5 MiB lies half way in time as well.
    curve = next(c for c in all_curves() if c.chip == "a100")
    low, high = 1 / (36 / 300), 16 / (109 / 300)
    assert full_rate_bytes(curve, 8.5 * 2**20) / 2**20 == pytest.approx((low + high) / 2)


def test_between_two_groups_it_is_linear_in_the_log_of_the_group():
    # v7x: curves at 4 and 256 chips; 32 is half way: log 8 / log 64.
    low, mid, high = (table("v7x", "torus", "all_gather", n) for n in (4, 32, 256))
    np.testing.assert_allclose(mid.slope, (low.slope + high.slope) / 2)


def test_a_chips_one_curve_holds_for_every_group():
    # v6e has one measurement of its own, on 256 chips
    for group in (2, 4, 64, 256):
        slope = table("v6e", "torus", "all_reduce", group).slope
        assert np.array_equal(slope, table("v6e", "torus", "all_reduce", 256).slope)


def test_outside_the_measured_groups_the_nearest_holds():
    assert np.array_equal(
        table("v7x", "torus", "all_gather", 2).slope, table("v7x", "torus", "all_gather", 4).slope
    )


def test_a_chip_without_a_curve_says_whose_it_uses():
    assert table("b300", "domain", "all_reduce", 8).source.startswith(
        "no measurement on b300, so b200's"
    )
    assert table("h100", "domain", "all_reduce", 8).source.startswith("Microsoft")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chip", [one.key for one in all_chips()])
def test_every_chip_has_a_curve_at_every_level(chip, kind):
    family = next(one.family for one in all_chips() if one.key == chip)
    inside = "torus" if family == "tpu" or chip in ("trn1", "trn2") else "domain"
    for level in (inside, "scale_out"):
        assert "full rate" not in table(chip, level, kind, 8).source


def test_nccl_ring_of_eight():
    # LL: 6.6 + 7 × 0.6 = 10.8 µs for an all-gather; 6.6 + 14 × 0.6 = 15.0 for an all-reduce,
    # whose tree would take 6.8 + 2 × 7 × 0.6 = 15.2.
    assert nccl.latency_s("all_gather", 8, 1) == pytest.approx(10.8e-6)
    assert nccl.latency_s("all_reduce", 8, 1) == pytest.approx(15.0e-6)
    assert nccl.tree_s(8, 1) == pytest.approx(15.2e-6)


def test_nccl_across_nodes():
    # 32 GPUs in 4 nodes. Ring: 6.6 + 28 × 1.0 + 3 × 2.7 = 42.7; PAT: 8 + 2 × 14/3.5 + 2.8 × 32.
    # Tree all-reduce: 6.8 + 2 (7 × 0.6 + 2 × 5) = 35.2.
    assert nccl.latency_s("all_gather", 32, 4) == pytest.approx(42.7e-6)
    assert nccl.pat_s(32, 4) == pytest.approx(105.6e-6)
    assert nccl.latency_s("all_reduce", 32, 4) == pytest.approx(35.2e-6)
    assert nccl.nvls_s(4) == pytest.approx(43e-6)
    assert nccl.latency_s("permute", 2, 2) == pytest.approx(9.3e-6)
    assert nccl.latency_s("all_gather", 1, 1) == 0.0


def test_points_that_stand_for_no_measurement_are_nccls_model():
    # Rings of 8: H100 plans with 18 × 20.6 = 370.8 GB/s, B200 with 18 × 40.1 = 721.8.
    for chip, rate in (("h100", 18 * 20.6e9), ("b200", 18 * 40.1e9)):
        curve = next(c for c in all_curves() if c.chip == chip and c.kinds[0] == "all_gather")
        for v, fraction in list(zip(curve.bytes, curve.fraction, strict=True))[:2]:
            time = v * 7 / 8 / (fraction * curve.rated)
            assert time == pytest.approx(nccl.best_ring_time_s("all_gather", v, 8, rate), 0.01)


def test_nccl_plans_with_four_fifths_of_the_line_rate():
    assert 18 * nccl.PLANNED_LINK_BYTES_PER_S["hopper"] == pytest.approx(0.82 * 450e9, 0.01)
    assert 18 * nccl.PLANNED_LINK_BYTES_PER_S["blackwell"] == pytest.approx(0.80 * 900e9, 0.01)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("all_to_all", 0.875), ("permute", 1.0)],
)
def test_bus_bandwidth_factors_of_eight(kind, factor):
    assert nccl.bus_factor(kind, 8) == factor


@pytest.mark.parametrize(
    ("mib", "low", "high"), [(1024, 1.9, 2.1), (64, 2.5, 2.9), (128, 2.6, 2.9), (1, 3, 7)]
)
def test_leaving_the_node_costs_what_was_measured(mib, low, high):
    # Bus bandwidth of 8 B200 in a node over that of 4 nodes of 8.
    v = mib * 2**20
    rate = {}
    for name, n in (("b200*8", 8), ("b200:8x4", 32)):
        machine = parse_machine(name)
        row = links(machine, assign(machine, {"fsdp": n})["fsdp"])
        rate[n] = (
            v / float(collective_time("all_reduce", v, row)) * nccl.bus_factor("all_reduce", n)
        )
    assert low <= rate[8] / rate[32] <= high


def test_start_up_grows_by_nccls_hops_and_is_never_counted_twice():
    found = table("b200", "scale_out", "all_reduce", 32)
    # Measured: 1 MiB at 5.37 GB/s busbw on 32 GPUs = 2 × 31/32 × 2^20/5.37e9 = 378 µs.
    assert found.startup_s == pytest.approx(2 * 31 / 32 * 2**20 / 5.37e9, 1e-3)
    assert startup_s(found, "all_reduce", 32, 4) == found.startup_s
    # 64 nodes: NVLS 43 µs against 35.2 µs.
    assert startup_s(found, "all_reduce", 512, 64) == pytest.approx(found.startup_s + 7.8e-6)
    assert math.isclose(float(found.intercept[0]), 0.0, abs_tol=1e-6)
