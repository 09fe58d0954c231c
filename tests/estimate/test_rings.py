"""MaxText's meshes of rings: the groups of tp, of experts and of what shards beside them."""

import dataclasses

import pytest

from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.estimate.groups import plan_placements
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from tests.estimate.conftest import job_of

MACHINE = parse_machine("v6e:16x16")


def test_experts_go_round_rings_and_fsdp_over_the_blocks() -> None:
    at = plan_placements(MACHINE, Plan(fsdp=256, ep=4, rings=4))
    ends = {name: [(p.axis, p.size, p.stride) for p in at[name].segments] for name in at}
    assert ends["ep"] == [("x", 2, 1), ("y", 2, 1)]
    assert ends["expert_weights"] == [("x", 8, 2), ("y", 8, 2)]
    assert at["weights"].size == 256
    assert sorted((p.axis, p.size) for p in at["weights"].segments) == [("x", 16), ("y", 16)]


def test_an_exchange_in_a_ring_takes_half_of_one_along_a_line() -> None:
    # the middle link of a line of 4 carries 2·2 quarters, a link of a ring of 2 × 2 half as many
    plan = Plan(fsdp=256, ep=4, microbatch=8.0, remat="full")
    job = job_of("mixtral-8x22b", 2048, 4096)
    line, ring = (
        estimate(job, dataclasses.replace(plan, rings=rings), MACHINE, "maxtext")
        for rings in (0, 4)
    )
    assert line.collectives_total["ep"] == pytest.approx(2 * ring.collectives_total["ep"], rel=1e-3)
    assert line.memory == ring.memory


def test_an_expert_axis_that_is_no_ring_is_refused() -> None:
    with pytest.raises(InputError, match="one axis beside the innermost of 4"):
        plan_placements(MACHINE, Plan(fsdp=256, ep=8, rings=4))
