"""What must be relearned, from settings and shapes alone."""

from __future__ import annotations

import dataclasses

import pytest

from chipshift.audit.rules.rule import rules
from chipshift.estimate import estimate
from chipshift.flows.flag_rules import FLAG_RULES
from chipshift.flows.relearn import relearn, unfused_attention_bytes
from chipshift.jobs.job import Flag, Given, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.worked import plain
from tests.estimate.conftest import job_of


def found_for(job: TrainJob, plan: Plan, target_plan: Plan) -> dict[str, object]:
    now = estimate(job, plan, parse_machine("h100*128"))
    then = estimate(job, target_plan, parse_machine("v6e:8x16"), "maxtext")
    carried = estimate(job, plan, parse_machine("v6e:8x16"), "maxtext")
    return {r.rule: r for r in relearn(job, now, then, carried)}


TP8 = Plan(dp=16, tp=8, microbatch=1, accumulation=16, remat="full", optimizer_sharding="zero1")
FSDP = Plan(fsdp=128, microbatch=2, remat="full")


def test_every_flag_rule_is_one_of_the_audits() -> None:
    for kind, row in FLAG_RULES.items():
        assert row.rule in rules(), kind


def test_tensor_parallelism_of_the_node_is_named_with_what_it_costs_unchanged() -> None:
    job = dataclasses.replace(job_of("llama-3.1-8b"), plan=Given(TP8, "job.toml", 9))
    row = found_for(job, TP8, FSDP)["node8-topology"]
    assert (row.file, row.line) == ("job.toml", 9)  # type: ignore[attr-defined]
    assert "tp=8" in row.what  # type: ignore[attr-defined]
    carried = estimate(job, TP8, parse_machine("v6e:8x16"), "maxtext")
    best = estimate(job, FSDP, parse_machine("v6e:8x16"), "maxtext")
    if carried.fits:
        expected = plain(carried.step_time_s) - plain(best.step_time_s)
        assert row.seconds == pytest.approx(expected)  # type: ignore[attr-defined]


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
    assert (engine.severity, engine.file, engine.line) == ("blocker", "run.sh", 7)  # type: ignore[attr-defined]
    assert "1 more" in rows["nccl-backend"].what  # type: ignore[attr-defined]


def test_unfused_attention_costs_its_score_matrices() -> None:
    # one sequence of 8192, 32 heads: 5 passes × 2 bytes × 32 × 8192² = 21.5 GB a layer
    assert unfused_attention_bytes(1, 32, 8192, 8192) == 5 * 2 * 32 * 8192**2


def test_fp8_on_a_chip_without_it_costs_matmul_time() -> None:
    precision = Given(Precision(compute="fp8", weights="bf16"), "job.toml", 3)
    job = dataclasses.replace(job_of("llama-3.1-8b"), precision=precision)
    rows = found_for(job, FSDP, FSDP)
    row = next(r for r in rows.values() if "bf16 rate" in r.what)  # type: ignore[attr-defined]
    assert row.seconds is not None  # type: ignore[attr-defined]
    assert row.seconds > 0  # type: ignore[attr-defined]


def test_heads_narrower_than_the_matrix_unit_are_named() -> None:
    rows = found_for(job_of("llama-3.2-1b", sequences=256), FSDP, FSDP)
    assert "head-dim-lt-128" in rows  # 64 of v6e's 256


def test_gpus_have_nothing_to_relearn_from_gpus() -> None:
    job = job_of("llama-3.1-8b")
    now = estimate(job, FSDP, parse_machine("h100*128"))
    then = estimate(job, FSDP, parse_machine("h200*128"))
    assert relearn(job, now, then, None) == []
