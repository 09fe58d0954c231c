"""Switches of Megatron's recipes: what each changes in the constants, and the time it saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chipshift.estimate import estimate
from chipshift.estimate.stack import Stack, stack
from chipshift.estimate.switches import for_job
from chipshift.jobs.job import Flag, Given, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.model import MoeMlp
from chipshift.models.ops import Cut, mlp_ops

from .conftest import job_of

NODE = parse_machine("h100:8")
PLAN = Plan(dp=8, ep=8, microbatch=1, accumulation=2, optimizer_sharding="zero1")


def job(compute: str = "bf16", **on: str) -> TrainJob:
    flags = tuple(Flag(kind, kind, value, "job.yaml", 1) for kind, value in on.items())
    precision = Given(Precision(compute=compute), "job.yaml", 1)
    return job_of("gpt-oss-20b", sequences=16, seq_len=4096, flags=flags, precision=precision)


def constants(compute: str = "bf16", **on: str) -> Stack:
    return for_job(stack("megatron@25.11", "h100"), job(compute, **on), "gpu")


def test_a_job_that_switches_nothing_takes_the_stack_as_it_stands() -> None:
    assert constants() == stack("megatron@25.11", "h100")


def test_rows_of_8_bit_experts_behind_an_all_to_all_take_time_of_their_own() -> None:
    behind = constants("fp8", expert_kernels="alltoall")
    assert float(behind.permute_row_s) == float(behind.alltoall_row_s) > 0
    assert float(constants("fp8").permute_row_s) == 0
    assert float(constants("fp8", expert_kernels="deepep").permute_row_s) == 0
    assert float(constants("fp8", expert_kernels="hybridep").permute_row_s) == 0
    assert float(constants("bf16", expert_kernels="alltoall").permute_row_s) == 0


def test_an_all_to_all_sends_a_token_to_each_of_its_experts() -> None:
    assert float(constants().ep_once_per_place) == 1
    assert float(constants(expert_kernels="alltoall").ep_once_per_place) == 0


def test_attention_in_8_bits_is_faster_by_its_own_factor() -> None:
    plain, narrow = constants("mxfp8"), constants("mxfp8", fp8_attention="True")
    factor = float(plain.fp8_attention_scale)
    assert factor > 1
    assert float(narrow.attention_scale) == pytest.approx(float(plain.attention_scale) * factor)


def test_switches_are_megatrons_alone() -> None:
    made = for_job(Stack("automodel"), job(fused_experts="True", fp8_head="True"), "gpu")
    assert (made.fused_experts, made.narrow_head) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("switch", "value"),
    [("fused_experts", "True"), ("fp8_head", "True"), ("fp8_attention", "True")],
)
def test_each_switch_saves_time(switch: str, value: str) -> None:
    def step_s(**on: str) -> float:
        return float(estimate(job("fp8", **on), PLAN, NODE, stack="megatron@25.11").step_time_s)

    assert step_s(**{switch: value}) < step_s()


def test_the_hybrid_dispatcher_saves_the_time_of_an_all_to_all() -> None:
    def step_s(dispatcher: str) -> float:
        asked = job("fp8", expert_kernels=dispatcher)
        return float(estimate(asked, PLAN, NODE, stack="megatron@25.11").step_time_s)

    assert step_s("hybridep") < step_s("alltoall")


def test_biases_of_experts_are_added_to_each_of_their_rows() -> None:
    # 256 tokens x 2 experts = 512 rows of 64; without biases there is no such op
    moe, cut = MoeMlp(experts=4, top_k=2, width=32), Cut(tokens=256.0, seq_len=128.0)
    with_bias = replace(moe, expert_bias_params=2 * 32 + 64)
    found = {op.name: op for op in mlp_ops(with_bias, 64.0, cut)}
    assert float(found["experts_bias"].elements) == 512 * 64
    assert "experts_bias" not in {op.name for op in mlp_ops(moe, 64.0, cut)}


def test_the_explained_step_with_every_switch_is_the_plain_one() -> None:
    on = {"expert_kernels": "hybridep", "fused_experts": "True", "fp8_head": "True",
          "fp8_attention": "True", "cuda_graph": "full_iteration"}  # fmt: skip
    plain = estimate(job("fp8", **on), PLAN, NODE, stack="megatron@26.06")
    worked = estimate(job("fp8", **on), PLAN, NODE, stack="megatron@26.06", explain=True)
    assert float(worked.step_time_s) == pytest.approx(float(plain.step_time_s), rel=1e-12)


def test_experts_that_are_dealt_even_shares_have_no_busiest_rank() -> None:
    assert for_job(Stack("megatron", moe_imbalance=1.1), job(), "gpu").moe_imbalance == 1.1
    even = job(balanced_experts="true")
    assert for_job(Stack("megatron", moe_imbalance=1.1), even, "gpu").moe_imbalance == 1.0


def test_what_scales_by_the_tensors_own_largest_value_reads_it_once_more() -> None:
    assert float(constants("fp8").range_passes) == 0
    assert float(constants("fp8", fp8_recipe="hybrid delayed").range_passes) == 0
    assert float(constants("fp8", fp8_recipe="hybrid tensorwise").range_passes) == 1
    assert float(constants("mxfp8", fp8_recipe="mxfp8").range_passes) == 0
    assert float(constants("nvfp4").range_passes) == 1
