"""Weights gathered over several TPU slices: the network between them, then the links of each."""

import pytest

from chipshift.estimate.groups import group_links, plan_placements
from chipshift.estimate.setting import setting
from chipshift.estimate.traffic import in_a_step
from chipshift.fabric import collective_time, inside_time
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from tests.estimate.conftest import job_of

BYTES = 436e6  # a layer of Llama 3.1 8B in bf16, about


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_each_level_takes_its_own_time(kind: str) -> None:
    # two slices of 256: each chip sends half of its 256th over a network of 12.5 GB/s,
    # 436e6 / 2 / 256 / 12.5e9 = 68.1 µs at the full rate
    machine = parse_machine("v6e:16x16*2")
    s = setting(job_of("llama-3.1-8b"), machine, "maxtext")
    links = group_links(machine, plan_placements(machine, Plan(fsdp=512)))["weights"]
    inside = inside_time(kind, BYTES, links) / s.stack.collective_scale
    outside = BYTES / 2 / 256 / 12.5e9 / s.stack.dcn_scale
    assert in_a_step(s, kind, BYTES, links) == pytest.approx(inside + outside)


def test_inside_a_slice_nothing_is_added() -> None:
    machine = parse_machine("v6e:16x16")
    s = setting(job_of("llama-3.1-8b"), machine, "maxtext")
    links = group_links(machine, plan_placements(machine, Plan(fsdp=256)))["weights"]
    alone = collective_time("all_gather", BYTES, links)
    assert inside_time("all_gather", BYTES, links) == alone
    assert in_a_step(s, "all_gather", BYTES, links) == alone / s.stack.collective_scale


def test_replicas_over_slices_send_over_the_network_alone() -> None:
    # an all-reduce of two, a chip a slice: 2 · 1/2 · 436e6 bytes over 12.5 GB/s, 34.9 ms
    machine = parse_machine("v6e:16x16*2")
    s = setting(job_of("llama-3.1-8b"), machine, "maxtext")
    links = group_links(machine, plan_placements(machine, Plan(dp=2, fsdp=256)))["dp"]
    start = inside_time("all_reduce", BYTES, links) / s.stack.collective_scale
    found = in_a_step(s, "all_reduce", BYTES, links)
    assert found - start == pytest.approx(BYTES / 12.5e9 / s.stack.dcn_scale)


def test_nccl_pipelines_its_two_levels() -> None:
    machine = parse_machine("h100*64")
    s = setting(job_of("llama-3.1-8b"), machine, "maxtext")
    links = group_links(machine, plan_placements(machine, Plan(fsdp=64)))["weights"]
    both = collective_time("all_gather", BYTES, links) / s.stack.collective_scale
    network = BYTES * links.paths["all_gather"].outside_s_per_byte / s.stack.dcn_scale
    assert in_a_step(s, "all_gather", BYTES, links) == pytest.approx(max(both, network))
