"""Fine-tuning: documents packed into a sequence, adapters beside frozen weights, eager modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.stack import Stack, stack
from chipshift.estimate.switches import for_job
from chipshift.jobs.job import Assumed, Flag, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.adapters import Adapters
from chipshift.worked import plain
from tests.estimate.conftest import job_of

H100 = parse_machine("h100*8")
PLAN = Plan(dp=8, accumulation=4, optimizer_sharding="zero1")
QUERIES = Adapters((("qkv_proj", 1.0),))
EVERY = Adapters((("mlp_down", 1.0), ("mlp_up", 2.0), ("out_proj", 1.0), ("qkv_proj", 3.0)))


def tuned(seq_len: int = 4096, plan: Plan = PLAN, stack: str = "megatron", **job: Any) -> Estimate:
    made = job_of("llama-3.1-8b", round(plan.global_batch), seq_len, **job)
    return estimate(made, plan, H100, stack)


def lora(adapters: Adapters | None, **job: Any) -> Estimate:
    return tuned(trainable_fraction=1e-3, adapters=adapters, task="lora", **job)


def test_packed_documents_attend_as_sequences_of_their_length_do() -> None:
    # the same tokens in rows of 512 instead of 4,096: attention is that of documents of 512
    packed = tuned(document_len=512)
    short = tuned(512, replace(PLAN, microbatch=8.0))
    assert packed.time["attention"] == pytest.approx(short.time["attention"], rel=1e-12)
    assert packed.model_flops_per_token == short.model_flops_per_token
    assert packed.time["attention"] < tuned().time["attention"] / 2


def test_a_sequence_of_one_document_is_a_sequence() -> None:
    assert tuned(document_len=4096).step_time_s == tuned().step_time_s


def test_adapters_cost_what_they_stream() -> None:
    # a layer's fused qkv maps 4,096 to 6,144; 4 microbatches of 4,096 tokens, 32 layers.
    # Forward 2 × rows × (4,096 + 4 × 6,144), backward 2 × rows × (5 × 4,096 + 2 × 6,144).
    rows = 4096 * 4 * 32
    moved = 2 * rows * (4096 + 4 * 6144) + 2 * rows * (5 * 4096 + 2 * 6144)
    chip = H100.chip
    rate = chip.value("hbm_bandwidth_bytes_per_s")
    with_them, without = lora(QUERIES), lora(Adapters())
    more = with_them.time["memory_bound"] - without.time["memory_bound"]
    assert more * rate > moved  # a stream reaches less than the peak
    assert more * rate < moved * 1.3


def test_magnitudes_cost_the_norm_of_the_weights_and_their_outputs_scaling() -> None:
    # a layer's fused qkv, 4,096 to 6,144, in bf16: 7 passes over its 25.2 M weights a forward pass,
    # 7 more over its outputs and 15 backward; 4 microbatches of 4,096 tokens, 32 layers
    weights, outputs = 4096 * 6144, 4096 * 6144
    moved = 2 * (7 * weights + (7 + 15) * outputs) * 4 * 32
    rate = H100.chip.value("hbm_bandwidth_bytes_per_s")
    dora = replace(QUERIES, dora=True)
    more = lora(dora).time["memory_bound"] - lora(QUERIES).time["memory_bound"]
    assert moved < more * rate < moved * 1.3  # a stream reaches less than the peak
    assert dora.launches == QUERIES.launches + 12
    assert lora(dora).time["matmul"] == lora(QUERIES).time["matmul"]


@pytest.mark.parametrize(("stack_name", "kept"), [("other", 2), ("megatron", 1)])
def test_magnitudes_keep_the_outputs_that_they_scale(stack_name: str, kept: int) -> None:
    # PEFT scales the frozen map's output and the adapter's, Megatron-Bridge their sum. 16 bits ×
    # 4,096 tokens × 32 layers: q, k, v 6,144 wide, o 4,096, gate and up 28,672, down 4,096
    one = Plan(dp=8, accumulation=4)
    each = 2 * 4096 * 32 * stack(stack_name, "h100").activation_memory_scale
    every = replace(EVERY, dora=True)

    def held(adapters: Adapters, remat: str) -> float:
        plan = replace(one, remat=remat)
        return float(plain(lora(adapters, plan=plan, stack=stack_name).memory["activations"]))

    # the step's own layer works on its widest tensor, up, the magnitudes' with it
    widest = 2 * 4096 * 28672 * kept * stack(stack_name, "h100").working_layers
    more = held(every, "none") - held(EVERY, "none") - widest
    assert more == pytest.approx(each * (6144 + 4096 + 28672 + 4096) * kept, rel=1e-9)
    # made again in the backward pass, a layer's at a time
    assert held(every, "full") - held(EVERY, "full") < more / 8
    # a layer in two has an adapter on its queries, keys and values
    half = Adapters((("qkv_proj", 0.5),))
    more = held(replace(half, dora=True), "none") - held(half, "none")
    assert more == pytest.approx(each * 6144 * kept / 2, rel=1e-9)


def test_inputs_of_frozen_maps_are_kept_for_adapters_alone() -> None:
    # 16 bits × 4,096 tokens × 32 layers: the norms before qkv and up (4,096 wide each) and the
    # activation (14,336) are read for weight gradients only; without adapters none is kept
    each = 2 * 4096 * 32 * stack("megatron", "h100").activation_memory_scale
    one = Plan(dp=8, accumulation=4)
    every, queries = lora(EVERY, plan=one), lora(QUERIES, plan=one)
    kept = every.memory["activations"] - queries.memory["activations"]
    assert kept == pytest.approx(each * (4096 + 14336), rel=1e-9)
    none = lora(Adapters(), plan=one)
    kept = queries.memory["activations"] - none.memory["activations"]
    assert kept == pytest.approx(each * 4096, rel=1e-9)


def test_frozen_weights_in_8_bits_take_a_byte_each() -> None:
    narrow = Precision(weights="fp8", gradients="fp32", reduce="bf16")
    wide = Precision(gradients="fp32", reduce="bf16")
    half = lora(QUERIES, precision=Assumed(narrow, "test")).memory["weights"]
    assert half * 2 == lora(QUERIES, precision=Assumed(wide, "test")).memory["weights"]


def test_the_explained_numbers_are_the_plain_ones() -> None:
    made = job_of("llama-3.1-8b", 32, 4096, trainable_fraction=1e-3, adapters=EVERY,
                  task="lora", document_len=300)  # fmt: skip
    told = estimate(made, PLAN, H100, "megatron", explain=True)
    assert plain(told.step_time_s) == pytest.approx(
        estimate(made, PLAN, H100, "megatron").step_time_s, rel=1e-12
    )


def test_modules_run_op_by_op_take_more_passes() -> None:
    # an RMSNorm in 18 passes and a residual's sum in 3; SiLU and product in 5 for 3
    eager = (Flag("eager_modules", "force_hf", "true", "job.yaml", 1),)
    made = for_job(Stack("automodel"), job_of("llama-3.1-8b", flags=eager), "gpu")
    assert (made.norm_passes, made.activation_scale) == (21, 5 / 3)
    fused = tuned(stack="automodel")
    assert tuned(stack="automodel", flags=eager).step_time_s > fused.step_time_s
