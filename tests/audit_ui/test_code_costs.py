"""Costs of findings from a job: the numbers handed over, and a finding's cost worked from them."""

from dataclasses import replace

import pytest

from chipshift.audit.cost import JOB_KEYS, cost_from_job
from chipshift.flows.code_costs import job_numbers
from chipshift.jobs.job import Assumed, Given, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.models.preset import preset


@pytest.fixture
def job() -> TrainJob:
    """Llama-3.1-8B (32 heads of 128, 32 layers, width 4096), 64 sequences of 8192."""
    return TrainJob(
        name="llama",
        files=("job.toml",),
        format="native",
        model=preset("llama-3.1-8b"),
        sequences_per_step=Given(64, "job.toml"),
        seq_len=Given(8192, "job.toml"),
        precision=Assumed(Precision(), "default"),
        optimizer=Given("adamw", "job.toml"),
        stack=Given("torchtitan", "job.toml"),
        plan=Given(Plan(fsdp=8, tp=4, pp=2, microbatch=2, accumulation=4), "job.toml"),
    )


def test_the_numbers_are_a_devices_share_under_the_plan(job: TrainJob) -> None:
    numbers = job_numbers(job)
    assert set(numbers) <= set(JOB_KEYS)
    # tp 4 leaves 32 / 4 = 8 heads, pp 2 leaves 32 / 2 = 16 layers; 64 × 8192 = 524,288 tokens.
    assert numbers["heads"] == 8 and numbers["layers"] == 16 and numbers["batch"] == 2
    assert numbers["tokens_per_step"] == 524_288
    assert "step_time_s" not in numbers  # nothing said it


def test_without_a_plan_only_the_architecture_is_known(job: TrainJob) -> None:
    numbers = job_numbers(replace(job, plan=None))
    assert numbers["head_dim"] == 128 and numbers["hidden"] == 4096
    assert not {"batch", "heads", "layers", "devices"} & set(numbers)


def test_attention_scores_cost_what_the_job_makes_of_them(job: TrainJob) -> None:
    cost = cost_from_job("sdpa-math-fallback", job_numbers(job))
    assert cost is not None and cost.basis == "job"
    # 2 (forward and backward) × 16 layers × 2 sequences × 8 heads × 8192² × 2 bytes
    assert cost.bytes == 2 * 16 * 2 * 8 * 8192**2 * 2
