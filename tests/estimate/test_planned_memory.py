"""Memory of a step whose compiler places every buffer (stack ``jax``): the loss and the layers'
backward pass share their room, so that the larger of the two moments counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chipshift.estimate import estimate
from chipshift.jobs.job import Assumed, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.models.preset import preset
from chipshift.worked import plain

LLAMA_8B = 8_030_261_248
LLAMA_1B = 1_235_814_400


def memory(model: str, machine: str, seq_len: int, plan: Plan, **changed: Any) -> dict[str, float]:
    """Bytes by part under fp32 masters gathered in bf16."""
    precision = Precision("bf16", "fp32", "fp32", "bf16", "none", "fp32", "bf16")
    job = TrainJob(
        name=model,
        files=(),
        format="test",
        model=preset(model),
        sequences_per_step=Assumed(round(plan.global_batch), "test"),
        seq_len=Assumed(seq_len, "test"),
        precision=Assumed(precision, "test"),
        optimizer=Assumed("adamw", "test"),
        stack=Assumed("jax", "test"),
    )
    found = estimate(replace(job, **changed), plan, parse_machine(machine), "jax")
    return {name: float(plain(part)) for name, part in found.memory.items()}


def test_at_the_loss_there_are_logits_and_no_gradients() -> None:
    held = memory("llama-3.1-8b", "v6e:4x4", 8192, Plan(fsdp=16, remat="full"))
    assert held["weights"] == pytest.approx(LLAMA_8B * 4 / 16)
    assert held["optimizer"] == pytest.approx(LLAMA_8B * 8 / 16)
    assert held["gradients"] == 0
    # fp32 logits and their bf16 gradient: 8,192 tokens x 128,256 entries x 6 bytes
    assert held["logits"] == pytest.approx(8192 * 128_256 * 6)
    # the inputs of 32 layers, the last hidden state and its gradient: 34 streams of 8,192 x 4,096
    assert held["activations"] == pytest.approx(34 * 8192 * 4096 * 2)
    # the head, gathered
    assert held["collectives"] == pytest.approx(128_256 * 4096 * 2)
    # the layers' weights cast to bf16: q and o 4,096 x 4,096, k and v 4,096 x 1,024, three matrices
    # of the feed-forward, two norms
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14_336 + 2 * 4096
    assert held["overhead"] == pytest.approx(32 * layer * 2 / 16)


def test_weights_kept_in_the_compute_dtype_are_not_cast() -> None:
    narrow = Precision("bf16", "bf16", "fp32", "bf16", "fp32", "fp32", "bf16")
    plan = Plan(fsdp=16, remat="full")
    held = memory("llama-3.1-8b", "v6e:4x4", 8192, plan, precision=Assumed(narrow, "test"))
    assert held["overhead"] == 0


def test_in_the_backward_pass_there_are_gradients_and_no_logits() -> None:
    # 12 bytes a parameter whole on each device: gradients outweigh the logits
    held = memory("llama-3.2-1b", "v6e:2x2", 4096, Plan(dp=4, remat="full"))
    assert held["gradients"] == pytest.approx(LLAMA_1B * 4)
    assert held["logits"] == 0
    assert held["collectives"] == 0  # nothing is gathered where nothing is sharded


def test_accumulated_gradients_live_through_the_loss_as_well() -> None:
    plan = Plan(fsdp=16, remat="full", accumulation=4)
    held = memory("llama-3.2-1b", "v6e:4x4", 4096, plan)
    assert held["logits"] > 0
    assert held["gradients"] == pytest.approx(LLAMA_1B * 4 / 16)


def test_heads_narrower_than_the_lanes_are_stored_padded() -> None:
    # 32 query and 8 + 8 key/value heads 64 wide, each stored 128 wide, of 16 layers
    plan = Plan(fsdp=16, remat="save_qkv_proj")
    kept = memory("llama-3.2-1b", "v6e:4x4", 4096, plan)["activations"]
    without = memory("llama-3.2-1b", "v6e:4x4", 4096, replace(plan, remat="full"))["activations"]
    assert kept - without == pytest.approx(16 * 4096 * (32 + 8 + 8) * 128 * 2)


def test_a_loss_in_pieces_holds_the_gathered_head_and_its_gradient_throughout() -> None:
    plan = Plan(fsdp=16, remat="full")
    held = memory("llama-3.2-1b", "v6e:4x4", 4096, plan, loss_chunks=8)
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2048
    # the embedding is the head: 128,256 x 2,048 in bf16, twice, and one gathered layer
    assert held["collectives"] == pytest.approx((2 * 128_256 * 2048 + layer) * 2)


def test_hybrid_sharding_keeps_fp32_logits_alone_where_the_matmul_is_not_windowed() -> None:
    hybrid = Plan(dp=4, fsdp=4, remat="full")
    held = memory("llama-3.2-1b", "v5e:4x4", 4096, hybrid)
    assert held["logits"] == pytest.approx(4096 * 128_256 * 4)
    held = memory("llama-3.2-1b", "v6e:4x4", 4096, hybrid)
    assert held["logits"] == pytest.approx(4096 * 128_256 * 6)
    held = memory("llama-3.2-1b", "v6e:4x4", 4096, replace(hybrid, microbatch=2))
    assert held["logits"] == pytest.approx(2 * 4096 * 128_256 * 4)


def test_two_devices_and_64_are_not_windowed_either() -> None:
    two = Plan(fsdp=2, tp=2, remat="full", microbatch=4)
    held = memory("llama-3.2-1b", "v6e:2x2", 8192, two)
    assert held["logits"] == pytest.approx(4 * 8192 * 128_256 / 2 * 4)
    many = Plan(fsdp=64, remat="full", microbatch=2)
    held = memory("llama-3.1-8b", "v6e:8x8", 8192, many)
    assert held["logits"] == pytest.approx(2 * 8192 * 128_256 * 4)
    # with one sequence the gradient is a buffer of its own
    held = memory("llama-3.1-8b", "v6e:8x8", 8192, replace(many, microbatch=1))
    assert held["logits"] == pytest.approx(8192 * 128_256 * 6)


def test_hybrid_sharding_on_v5e_sums_the_heads_gradient_whole() -> None:
    held = memory("llama-3.2-1b", "v5e:4x4", 4096, Plan(dp=4, fsdp=4, remat="full"))
    # the embedding is the head: gathered, and its gradient, 128,256 x 2,048 in bf16 each
    assert held["collectives"] == pytest.approx(2 * 128_256 * 2048 * 2)


LAYER_70B = 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28_672 + 2 * 8192


def test_the_layers_backward_pass_holds_what_the_heads_gradient_is_made_from() -> None:
    # a gathered layer in bf16; the logits' bf16 gradient; half a layer more for all-reduces in
    # place of gathers, on v7x over 64 devices
    logits = 4096 * 128_256 * 2
    plan = Plan(fsdp=64, remat="full")
    held = memory("llama-3.1-70b", "v7x:2x4x4", 4096, plan)
    assert held["logits"] == 0
    assert held["collectives"] == pytest.approx(1.5 * LAYER_70B * 2 + logits)
    held = memory("llama-3.1-70b", "v5p:4x4x4", 4096, plan)
    assert held["collectives"] == pytest.approx(LAYER_70B * 2 + logits)


def test_hybrid_sharding_on_v7x_holds_the_fp32_logits_throughout() -> None:
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2048
    plan = Plan(dp=2, fsdp=4, remat="full", microbatch=2)
    held = memory("llama-3.2-1b", "v7x:2x2x1", 4096, plan)
    assert held["gradients"] == pytest.approx(LLAMA_1B * 4 / 4)
    assert held["collectives"] == pytest.approx(layer * 2 + 2 * 4096 * 128_256 * 4)
