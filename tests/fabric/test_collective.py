"""The one door: known times, and what holds for every group and every kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.fabric import (
    KINDS,
    Placement,
    Segment,
    assign,
    collective_terms,
    collective_time,
    links,
    links_worked,
    stack,
    take,
)
from chipshift.machines.names import parse_machine
from chipshift.worked import leaf

MESHES = [
    ("h100*128", {"dp": 2, "fsdp": 8, "tp": 8}),
    ("h100*128", {"fsdp": 128}),
    ("v6e:16x16", {"fsdp": 64, "tp": 4}),
    ("v6e:16x16", {"fsdp": 256}),
    ("v6e:16x16*4", {"dp": 8, "fsdp": 32, "tp": 4}),
    ("v7x:4x4x4", {"dp": 2, "fsdp": 32, "tp": 2}),
    ("v7x:2x2x1", {"fsdp": 2, "tp": 4}),
    ("v5e:2x4", {"fsdp": 2, "tp": 4}),
]
GROUPS = [
    (parse_machine(name), placement)
    for name, mesh in MESHES
    for placement in assign(parse_machine(name), mesh).values()
]
groups = st.sampled_from(GROUPS)
kinds = st.sampled_from(KINDS)
sizes = st.floats(0, 1e12)


@given(groups, kinds, sizes, sizes)
def test_more_bytes_never_take_less_time(group, kind, a, b):
    row = links(*group)
    small, large = sorted((a, b))
    assert collective_time(kind, small, row) <= collective_time(kind, large, row) * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_costs_exactly_nothing(kind):
    machine = parse_machine("v7x:4x4x4")
    row = links(machine, assign(machine, {"fsdp": 128, "tp": 1})["tp"])
    assert row.size == 1
    assert collective_time(kind, 1e9, row) == 0.0
    assert collective_time(kind, np.array([0.0, 1e9]), row).tolist() == [0.0, 0.0]


@given(st.lists(st.tuples(groups, sizes), min_size=1, max_size=9), kinds)
def test_a_table_of_groups_gives_what_each_gives_alone(rows, kind):
    alone = [float(collective_time(kind, size, links(*group))) for group, size in rows]
    table = stack([links(*group) for group, _ in rows])
    together = collective_time(kind, np.array([size for _, size in rows]), table)
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    order = np.arange(len(rows))[::-1]
    turned = collective_time(kind, np.array([rows[i][1] for i in order]), take(table, order))
    np.testing.assert_allclose(turned, together[::-1], rtol=1e-12)


@given(groups, kinds, sizes)
def test_the_working_comes_to_the_number(group, kind, size):
    worked = collective_time(kind, leaf(size, "B", "weights", "test"), links_worked(*group))
    assert float(worked) == pytest.approx(float(collective_time(kind, size, links(*group))), 1e-12)


def test_the_working_ends_at_sourced_figures():
    machine = parse_machine("v6e:16x16")
    row = links_worked(machine, assign(machine, {"fsdp": 256})["fsdp"])
    ends = []

    def walk(node):
        if not node.inputs:
            ends.append((node.name, node.source))
        for one in node.inputs:
            walk(one)

    walk(collective_time("all_gather", leaf(1e9, "B", "weights", "the model"), row))
    assert all(source for _, source in ends)
    assert {"link_rate", "hop_latency", "devices", "weights"} <= {name for name, _ in ends}


@given(groups, kinds, sizes)
def test_time_lies_between_the_larger_term_and_their_sum(group, kind, size):
    row = links(*group)
    latency, transfer = collective_terms(kind, size, row)
    time = collective_time(kind, size, row)
    assert max(latency, transfer) <= time * (1 + 1e-12)
    assert time <= (latency + transfer) * (1 + 1e-12)


def test_v7x_all_gather_on_a_2x2_is_the_measured_one():
    # 4 ranks, one a chip, on 2x2x1: shards of 16 Mi fp32 = 64 MiB, so V = 256 MiB. Measured
    # 178.8 GB/s = shard × 3 × 2/t, the 2 for both devices of a chip: t = 67,108,864 × 6/178.8e9.
    machine = parse_machine("v7x:2x2x1")
    pieces = (Segment("x", 0, 2, 1, False, 2), Segment("y", 0, 2, 1, False, 2))
    row = links(machine, Placement(4, pieces, False, ""))
    assert row.bandwidth_in == 100e9  # two links of 100 GB/s, shared by two devices
    measured_s = 67_108_864 * 6 / 178.8e9
    assert collective_time("all_gather", 4 * 67_108_864, row) == pytest.approx(measured_s, 0.005)


def test_v6e_pod_all_reduce_is_the_measured_one():
    # 235.8 GB/s busbw at 0.606 GB: t = 2 × 255/256 × 0.606e9/235.8e9.
    machine = parse_machine("v6e:16x16")
    row = links(machine, assign(machine, {"fsdp": 256})["fsdp"])
    assert collective_time("all_reduce", 0.606e9, row) == pytest.approx(
        2 * 255 / 256 * 0.606e9 / 235.8e9, 0.005
    )


def test_v5e_line_of_four_is_the_measured_one():
    # An all-gather of 34 MB on 4 v5e without wraparound took 680 µs.
    machine = parse_machine("v5e:4x4")
    row = links(machine, assign(machine, {"fsdp": 4, "tp": 4})["tp"])
    assert (row.hops, row.port_count) == (3, 1)
    assert collective_time("all_gather", 33.6e6, row) == pytest.approx(680e-6, 0.01)
    # A tiny one took about 8 µs for 3 hops.
    assert collective_time("all_gather", 1e3, row) == pytest.approx(8e-6, 0.01)


def test_h100_node_all_reduce_is_the_measured_one():
    # 1 GiB on 8 H100: busbw 466 GB/s, so t = 1.75 × 2^30/466e9.
    machine = parse_machine("h100*8")
    row = links(machine, assign(machine, {"fsdp": 8})["fsdp"])
    assert collective_time("all_reduce", 2**30, row) == pytest.approx(1.75 * 2**30 / 466e9, 1e-3)
