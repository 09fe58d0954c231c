"""What MaxText's flags change on a TPU: ranges of 8-bit operands, attention's backward kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.estimate import recomputed_flops_per_token
from chipshift.estimate.op_times import cast_elements
from chipshift.estimate.setting import setting
from chipshift.estimate.stack import stack
from chipshift.estimate.switches import for_job
from chipshift.jobs.job import Assumed, Flag, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.parallel.remat import policy, tensor_of

from .conftest import job_of

PLAN = Plan(fsdp=128, remat="full")
FIXED = Flag("fixed_ranges", "act_quantization_calibration_method", "fixed,-224,224", "job.yml", 1)
TWO = Flag("separate_backward", "sa_use_fused_bwd_kernel", "False", "job.yml", 2)


def on_v7x(*flags: Flag, compute: str = "fp8", name: str = "maxtext") -> Estimate:
    precision = Assumed(Precision(compute=compute), "test")
    job = job_of("llama-3.1-8b", 128, precision=precision, flags=flags)
    return estimate(job, PLAN, parse_machine("v7x:4x4x4"), name)


def test_weights_are_read_where_they_are_cast_in_every_matmul() -> None:
    # 16 rows of 64 into 32 columns, 2 groups: 2·16·64 inputs, and 2·32·64 weights beside them
    assert cast_elements(16.0, 64.0, 32.0 * 64.0, 2.0, 0.0) == 2048.0
    assert cast_elements(16.0, 64.0, 32.0 * 64.0, 2.0, 1.0) == 6144.0


def test_a_range_that_is_given_is_not_looked_for() -> None:
    assert float(on_v7x(FIXED).step_time_s) < float(on_v7x().step_time_s)
    found = for_job(stack("maxtext", "v7x"), job_of("llama-3.1-8b"), "tpu")
    assert (found.range_passes, found.casts_weights) == (1.0, 1.0)
    given = for_job(stack("maxtext", "v7x"), job_of("llama-3.1-8b", flags=(FIXED,)), "tpu")
    assert (given.range_passes, given.casts_weights) == (0.0, 0.0)


def test_ranges_cost_nothing_in_bf16_nor_on_a_gpu_whose_kernels_count_them() -> None:
    at = [float(on_v7x(*flags, compute="bf16").step_time_s) for flags in ((), (FIXED,))]
    assert at[0] == at[1]
    gpu = for_job(stack("maxtext", "h100"), job_of("llama-3.1-8b"), "cuda")
    assert gpu == stack("maxtext", "h100")


def test_two_backward_kernels_make_the_scores_and_their_gradient_twice() -> None:
    # queries' kernel: scores, their gradient, queries' gradient; keys': the first two, keys' and
    # values' gradients: 7 matmuls, where one kernel for all has 5
    job = job_of("llama-3.1-8b", flags=(TWO,))
    assert for_job(stack("maxtext", "v7x"), job, "tpu").attention_backward_matmuls == 7.0
    assert for_job(stack("torchtitan", "v7x"), job, "tpu").attention_backward_matmuls == 5.0
    # forward and again 2 matmuls each, backward 5 or 7: more than the forward's share alone, and
    # less than 7 of 5
    one, two = (float(on_v7x(*flags).time["attention"]) for flags in ((FIXED,), (FIXED, TWO)))
    assert 1.0 < two / one < 7 / 5


def test_nothing_that_runs_again_reads_the_output_of_attention_beside_the_feed_forward() -> None:
    full, kept = policy("full"), policy("full", reruns_output=True)
    assert tensor_of("out_proj", False) == "out_proj"
    assert tensor_of("out_proj", True) == "down" == tensor_of("mlp_down", True)
    assert full.recomputes("out_proj") and not full.recomputes("out_proj", side_by_side=True)
    assert kept.recomputes("out_proj", side_by_side=True)  # PyTorch's checkpoint runs it all


def test_a_compiler_does_not_run_attentions_output_map_again_side_by_side() -> None:
    # Llama 3.1 8B's is 4096 by 4096: 2 · 4096² FLOP a token in each of 32 layers
    def again(side_by_side: bool) -> float:
        job = job_of("llama-3.1-8b")
        layers = tuple(
            (replace(layer, side_by_side=side_by_side), n) for layer, n in job.model.layers
        )
        job = replace(job, model=replace(job.model, layers=layers))
        s = setting(job, parse_machine("v7x:4x4x4"), "maxtext")
        return float(recomputed_flops_per_token(s, PLAN))

    assert again(False) - again(True) == pytest.approx(32 * 2 * 4096**2)
