"""What a Megatron step holds, worked by hand, and launch files that their publisher ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.estimate import estimate
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import Assumed, Flag, Precision
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines import parse_machine
from chipshift.worked import plain
from tests.estimate.conftest import job_of

FSDP2 = (Flag("torch_fsdp2", "--use-torch-fsdp2", "true", "train.sh", 1),)
BF16 = Assumed(Precision(gradients="bf16", reduce="bf16"), "test")


def test_a_logit_takes_its_bf16_and_the_softmax_in_fp32() -> None:
    """8,192 tokens × 128,256 rows × (2 + 4) bytes: the gradient is made in the softmax's place."""
    e = estimate(job_of("llama-3.1-8b", 8), Plan(dp=8, remat="full"), parse_machine("h100*8"))
    assert e.memory["logits"] == pytest.approx(8192 * 128_256 * 6, rel=1e-12)


def test_stored_activations_of_a_layer() -> None:
    """Korthikanti et al. 2022 without dropout and with flash attention, in elements a token:

    input, norm, norm, the residual's sum 4 × 4,096; queries, keys, values 4,096 + 2 × 1,024;
    attention's output 4,096 and its 32 row sums in fp32 (64); gate and up 2 × 14,336; their
    product 14,336: 69,696, at two bytes, over 8,192 tokens and 32 layers. Beside them the widest
    gradient of the layer at work, gate and up.
    """
    e = estimate(job_of("llama-3.1-8b", 8), Plan(dp=8, remat="none"), parse_machine("h100*8"))
    each = 4 * 4096 + 4096 + 2 * 1024 + 4096 + 64 + 3 * 14_336
    assert each == 69_696
    expected = 2 * 8192 * (each * 32 + 2 * 14_336)
    assert e.memory["activations"] == pytest.approx(expected, rel=1e-12)


@given(again=st.integers(1, 31))
def test_block_recomputation_keeps_the_other_layers_whole(again: int) -> None:
    """Of 32 layers ``again`` store their input alone, 4,096 elements a token, the rest 69,696.

    A recomputed layer at work holds its 65,600 others again. Each runs its forward pass once more.
    """
    m, job = parse_machine("h100*8"), job_of("llama-3.1-8b", 8)
    some = estimate(job, Plan(dp=8, remat=f"full:{again}/32"), m)
    stored = 69_696 * (32 - again) + 4096 * again
    expected = 2 * 8192 * (stored + 65_600 + 2 * 14_336)
    assert some.memory["activations"] == pytest.approx(expected, rel=1e-12)
    all_, none = (estimate(job, Plan(dp=8, remat=r), m) for r in ("full", "none"))
    assert some.recompute == pytest.approx(all_.recompute * again / 32, rel=1e-9)
    assert none.step_time_s < some.step_time_s < all_.step_time_s


def test_block_recomputation_on_the_first_of_two_stages() -> None:
    """16 layers a stage, 6 of them again, two microbatches in flight on the first."""
    plan = Plan(dp=4, pp=2, accumulation=4, remat="full:6/16")
    e = estimate(job_of("llama-3.1-8b", 16), plan, parse_machine("h100*8"))
    stored = (69_696 * 10 + 4096 * 6) * 2
    expected = 2 * 8192 * (stored + 65_600 + 2 * 14_336)
    assert e.first_stage_memory["activations"] == pytest.approx(expected, rel=1e-12)


def test_fully_shard_makes_gradients_while_activations_go() -> None:
    """With 2 × 8,030,261,248 / 8 bytes of gradients: none at the peak beside more activations."""
    job = job_of("llama-3.1-8b", 8, precision=BF16, flags=FSDP2)
    e = estimate(job, Plan(fsdp=8, remat="full"), parse_machine("h100*8"))
    whole = 2 * 8_030_261_248 / 8
    assert e.memory["activations"] + e.memory["logits"] > whole
    assert e.memory["gradients"] == 0


@given(seq_len=st.sampled_from((128, 256, 512, 1024, 4096)))
def test_the_larger_of_gradients_and_activations_is_held(seq_len: int) -> None:
    job = job_of("llama-3.1-8b", 8, seq_len, precision=BF16, flags=FSDP2)
    e = estimate(job, Plan(fsdp=8, remat="full"), parse_machine("h100*8"))
    moving = e.memory["activations"] + e.memory["logits"]
    held = max(2 * 8_030_261_248 / 8, moving)
    assert moving + e.memory["gradients"] == pytest.approx(held, rel=1e-12)


def test_sums_over_microbatches_stand_beside_the_activations() -> None:
    job = job_of("llama-3.1-8b", 16, precision=BF16, flags=FSDP2)
    e = estimate(job, Plan(fsdp=8, accumulation=2, remat="full"), parse_machine("h100*8"))
    assert e.memory["gradients"] == pytest.approx(2 * 8_030_261_248 / 8, rel=1e-12)


NODE = """
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: {model}.yaml
    overrides:
      micro_batch_size: {micro}
      global_batch_size: {total}
      seq_length: {seq}
      max_position_embeddings: {seq}
      tensor_model_parallel_size: 1
      pipeline_model_parallel_size: 1
      mock_data: true
      cross_entropy_fusion_impl: "te"
      cross_entropy_loss_fusion: true
"""
WHOLE = """
      use_torch_fsdp2: true
      use_distributed_optimizer: false
      recompute_granularity: full
      recompute_method: block
      recompute_num_layers: 80
"""
EXPERTS = "      expert_model_parallel_size: 8\n"
NARROW = """
      recompute_granularity: full
      recompute_method: block
      recompute_num_layers: 5
      use_precision_aware_optimizer: true
      main_grads_dtype: bf16
      exp_avg_dtype: bf16
      exp_avg_sq_dtype: bf16
"""


@pytest.mark.parametrize(
    ("machine", "model", "micro", "total", "seq", "more"),
    [
        ("mi300x*8", "llama2_70B", 7, 56, 4096, WHOLE),
        ("mi300x*8", "llama3.1_70B", 3, 24, 8192, WHOLE),
        ("mi300x*8", "qwen2.5_7B", 10, 640, 2048, ""),
        ("mi300x*8", "mixtral_8x7B_v0.1", 2, 32, 4096, EXPERTS),
        ("mi325x*8", "llama3.1_8B", 4, 128, 8192, ""),
        ("mi325x*8", "qwen2.5_72B", 16, 256, 2048, WHOLE),
        # of 256 GB; AMD notes that a larger grouped kernel runs out of memory beside it
        ("mi325x*8", "qwen3_30B_A3B", 8, 512, 4096, EXPERTS + NARROW),
        ("mi355x*8", "llama2_70B", 13, 104, 4096, WHOLE),
        ("mi355x*8", "llama3.3_70B", 6, 48, 8192, WHOLE),
    ],
)
def test_what_amd_publishes_for_one_node_fits_it(
    tmp_path: Path, machine: str, model: str, micro: int, total: int, seq: int, more: str
) -> None:
    """Model, batch and sharding: AMD, Primus, examples/megatron/configs/MI*, August 2026."""
    file = tmp_path / "pretrain.yaml"
    file.write_text(NODE.format(model=model, micro=micro, total=total, seq=seq) + more)
    named = parse_machine(machine)
    job = resolve_machine(read_job([str(file)]), named)
    assert job.plan is not None
    e = estimate(job, job.plan.value, named)
    assert e.fits, f"{plain(e.memory['total']) / 2**30:.1f} GiB"


def test_what_a_mixture_of_experts_holds_on_one_node() -> None:
    """Qwen3 30B-A3B over ep = 8, 8 sequences of 4,096 tokens, in elements a token:

    input, norm, the residual's sum, norm 4 × 2,048; queries, keys, values (32 + 2 × 4) × 128;
    attention's output 32 × 128 and 32 row sums in fp32 (64); each token's 8 rows of 2,048 for its
    experts, their gate and up 2 × 768 and product 768, a tenth more on the busiest rank. Beside
    the 48 layers the gradient of the widest, those rows with gate and up.
    """
    job = job_of("qwen3-30b-a3b", 64, 4096)
    plan = Plan(dp=8, ep=8, microbatch=8.0, optimizer_sharding="zero1")
    e = estimate(job, plan, parse_machine("mi325x*8"), "megatron")
    widest = 1.1 * 8 * (2048 + 2 * 768)
    each = 4 * 2048 + 40 * 128 + 32 * 128 + 64 + widest + 1.1 * 8 * 768
    expected = 2 * 8 * 4096 * (48 * each + widest)
    assert e.memory["activations"] == pytest.approx(expected, rel=1e-12)
    assert e.memory["logits"] == pytest.approx(8 * 4096 * 151_936 * 6, rel=1e-12)
