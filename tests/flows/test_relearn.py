"""What must be relearned, from settings and shapes alone."""

from __future__ import annotations

import dataclasses

import pytest

from chipshift.audit.rules.rule import rules
from chipshift.estimate import estimate
from chipshift.flows.flag_rules import FLAG_RULES
from chipshift.flows.relearn import Relearn, relearn
from chipshift.jobs.job import Flag, Given, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.worked import plain
from tests.estimate.conftest import job_of


def found_for(job: TrainJob, plan: Plan, target_plan: Plan, machine: str = "v6e:8x16",
              explain: bool = False) -> dict[str, Relearn]:  # fmt: skip
    there = parse_machine(machine)
    now = estimate(job, plan, parse_machine("h100*128"), explain=explain)
    then = estimate(job, target_plan, there, "maxtext", explain=explain)
    carried = estimate(job, plan, there, "maxtext", explain=explain)
    return {r.rule: r for r in relearn(job, now, then, carried)}


TP8 = Plan(dp=16, tp=8, microbatch=1, accumulation=16, remat="full", optimizer_sharding="zero1")
FSDP = Plan(fsdp=128, microbatch=2, remat="full")


def test_every_flag_rule_is_one_of_the_audits() -> None:
    for kind, row in FLAG_RULES.items():
        assert row.rule in rules(), kind


def test_tensor_parallelism_of_the_node_is_named_with_what_it_costs_unchanged() -> None:
    job = dataclasses.replace(job_of("llama-3.1-8b"), plan=Given(TP8, "job.toml", 9))
    row = found_for(job, TP8, FSDP)["node8-topology"]
    assert (row.file, row.line) == ("job.toml", 9)
    assert "tp=8" in row.what
    carried = estimate(job, TP8, parse_machine("v6e:8x16"), "maxtext")
    best = estimate(job, FSDP, parse_machine("v6e:8x16"), "maxtext")
    if carried.fits:
        expected = plain(carried.step_time_s) - plain(best.step_time_s)
        assert row.seconds == pytest.approx(expected)


def test_a_plan_without_node_shaped_degrees_has_no_such_item() -> None:
    assert "node8-topology" not in found_for(job_of("llama-3.1-8b"), FSDP, FSDP)


def test_flags_become_their_rule_with_file_and_line_once() -> None:
    flags = (
        Flag("transformer_engine", "--transformer-impl", "transformer_engine", "run.sh", 7),
        Flag("nccl", "NCCL_IB_HCA", "mlx5", "run.sh", 2),
        Flag("nccl", "NCCL_DEBUG", "INFO", "run.sh", 3),
    )
    rows = found_for(dataclasses.replace(job_of("llama-3.1-8b"), flags=flags), FSDP, FSDP)
    engine = rows["transformer-engine"]
    assert (engine.severity, engine.file, engine.line) == ("blocker", "run.sh", 7)
    assert "1 more" in rows["nccl-backend"].what


FP8 = dataclasses.replace(
    job_of("llama-3.1-8b"),
    precision=Given(Precision(compute="fp8", weights="bf16"), "job.toml", 3),
)


def test_fp8_on_a_chip_without_it_costs_about_half_the_matmul_time() -> None:
    row = found_for(FP8, FSDP, FSDP)["transformer-engine"]
    assert "bf16 rate" in row.what
    matmul = plain(estimate(FP8, FSDP, parse_machine("v6e:8x16"), "maxtext").time["matmul"])
    # twice the rate leaves half; the head stays in bf16, the casts are in both
    assert 0.3 * matmul < row.seconds < 0.55 * matmul


def test_fp8_on_a_chip_that_has_it_costs_nothing_and_shows_why() -> None:
    row = found_for(FP8, FSDP, FSDP, "v7x:4x4x4", explain=True)["transformer-engine"]
    assert row.seconds.value == 0
    assert [one.name for one in row.seconds.inputs] == [
        "matmul_as_estimated_s", "matmul_in_fp8_s"
    ]  # fmt: skip
    assert row.seconds.inputs[0].value == row.seconds.inputs[1].value > 0


def test_heads_narrower_than_the_matrix_unit_are_named() -> None:
    rows = found_for(job_of("llama-3.2-1b", sequences=256), FSDP, FSDP)
    assert "head-dim-lt-128" in rows  # 64 of v6e's 256


def test_gpus_have_nothing_to_relearn_from_gpus() -> None:
    job = job_of("llama-3.1-8b")
    now = estimate(job, FSDP, parse_machine("h100*128"))
    then = estimate(job, FSDP, parse_machine("h200*128"))
    assert relearn(job, now, then, None) == []
