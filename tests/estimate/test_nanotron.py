"""Stack ``nanotron``: what its ranks hold around the optimizer step, its stages cut by cost."""

from __future__ import annotations

import re

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.output import estimate_json
from chipshift.jobs.job import Assumed, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.parallel.memory import share_ahead
from chipshift.report.derivation import figures_of
from chipshift.worked import Worked, plain
from tests.estimate.conftest import job_of

LAYER = 4096 * (32 + 8) * (128 + 128) + 3 * 4096 * 14336 + 2 * 4096
TABLE = 128256 * 4096
WHOLE = 32 * LAYER + 2 * TABLE + 4096
WORKSPACE = 7.5e7


def run_of(plan: Plan, machine: str, *, explain: bool = False) -> Estimate:
    precision = Assumed(Precision(gradients="fp32", reduce="fp32"), "test")
    sequences = round(plan.global_batch)
    job = job_of("llama-3.1-8b", sequences=sequences, seq_len=4096, precision=precision)
    return estimate(job, plan, parse_machine(machine), "nanotron", explain=explain)


def test_eighteen_bytes_a_parameter_on_one_replica_and_twenty_on_more() -> None:
    # bf16 weights 2, fp32 sums of gradients 4, master 4, moments 8; DDP's bf16 buckets 2
    alone = run_of(Plan(), "h100*1")
    assert alone.update_memory == pytest.approx(18 * WHOLE + WORKSPACE, rel=1e-12)
    two = run_of(Plan(dp=2), "h100*2")
    assert two.update_memory == pytest.approx(20 * WHOLE + WORKSPACE, rel=1e-12)


def test_zero1_gathers_weights_through_flat_buffers() -> None:
    # 2 + 4 + 2 whole, 12 / 2 of a half; a flat bf16 buffer of all 2 and of the own half 1: 17
    plan = Plan(dp=2, optimizer_sharding="zero1")
    held = run_of(plan, "h100*2").update_memory
    assert held == pytest.approx(17 * WHOLE + WORKSPACE, rel=1e-12)


def test_tensor_parallelism_keeps_two_activations_of_full_width() -> None:
    # an eighth of all matrices and of the layers' norms, the last norm whole; 4096 tokens of 4096
    own = (WHOLE - 4096) / 8 + 4096
    held = run_of(Plan(tp=8), "h100*8").update_memory
    assert held == pytest.approx(18 * own + 2 * 2 * 4096 * 4096 + WORKSPACE, rel=1e-12)


def test_the_first_of_two_stages_makes_up_for_the_head() -> None:
    # the head's 525 M parameters are 2.41 layers of 218 M: (32 + 2.41) / 2 = 17.2, so 18 layers
    held = run_of(Plan(pp=2, accumulation=4), "h100*2").update_memory
    assert held == pytest.approx(18 * (18 * LAYER + TABLE) + WORKSPACE, rel=1e-12)


def test_its_weights_are_summed_whole_whatever_shards_the_optimizer() -> None:
    none = run_of(Plan(dp=16), "h100*16")
    zero1 = run_of(Plan(dp=16, optimizer_sharding="zero1"), "h100*16")
    # the same all-reduce, then a bf16 gather: a quarter of the fp32 sum
    whole = none.collectives_total["dp"]
    assert zero1.collectives_total["dp"] == pytest.approx(1.25 * whole)
    # beside nothing: all of it shows
    more = zero1.collectives_exposed["dp"] - none.collectives_exposed["dp"]
    assert more == pytest.approx(whole / 4)


@pytest.mark.parametrize("release", ["nanotron@0", "nanotron"])
def test_a_derivation_says_what_was_computed(release: str) -> None:
    plan = Plan(dp=2, tp=8, pp=2, accumulation=4, optimizer_sharding="zero1")
    job = job_of("llama-3.1-8b", sequences=8, seq_len=4096)
    machine = parse_machine("h100*32")
    shown = estimate(job, plan, machine, release, explain=True)
    computed = estimate(job, plan, machine, release)
    assert float(plain(shown.step_time_s)) == pytest.approx(computed.step_time_s, rel=1e-12)
    assert float(plain(shown.update_memory)) == pytest.approx(computed.update_memory, rel=1e-12)
    seen: list[Worked] = [value for _, value in figures_of("", estimate_json(shown))]
    known = {id(value) for value in seen}
    for step in seen:  # grows while it is read
        assert not re.search(r"(?<![\w.])0 \+|\+ 0(?![\w.])", step.expression), step.name
        for value in step.inputs:
            if id(value) not in known:
                known.add(id(value))
                seen.append(value)


def test_the_host_runs_ahead_of_a_slower_device() -> None:
    # as long on both: half; a device twice as slow: 1 / (1 + 1/16); three stages: all the way
    assert share_ahead(1.0, 1.0, 1.0) == 0.5
    assert share_ahead(1.0, 2.0, 2.0) == pytest.approx(16 / 17)
    assert share_ahead(2.0, 1.0, 2.0) == pytest.approx(1 / 17)
    assert share_ahead(2.0, 1.0, 3.0) == 1.0


def test_gathered_activations_wait_where_the_host_runs_ahead() -> None:
    # 40 tensors of 8 × 4,096 tokens × 4,096 in bf16 = 10.7 GB, on one device of a pipeline of four;
    # without tensor parallelism nothing is gathered
    each = 40 * 2 * 8 * 4096 * 4096
    plan = Plan(tp=2, pp=4, microbatch=8.0, accumulation=8)
    now = run_of(plan, "h100*8")
    early = estimate(now.job, plan, parse_machine("h100*8"), "nanotron@0")
    more = now.first_stage_memory["overhead"] - early.first_stage_memory["overhead"]
    assert more == pytest.approx(each, rel=1e-9)


def test_the_first_stages_memory_has_no_logits() -> None:
    run = run_of(Plan(pp=2, accumulation=1, microbatch=8.0), "h100*2")
    assert run.first_stage_memory["logits"] == 0
    assert run.memory["logits"] > 0  # the last stage holds most: its logits are 43 GB
    assert run.memory["total"] > run.first_stage_memory["total"]
