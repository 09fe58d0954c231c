"""Memory of a step whose compiler places every buffer (stack ``jax``): the loss and the layers'
backward pass share their room, so that the larger of the two moments counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chipshift.estimate import estimate
from chipshift.estimate.backward import (
    gathered_keys_elements,
    rows_in_tiles,
    unit_layers,
)
from chipshift.estimate.head import entries_over
from chipshift.estimate.planned import lane_padding, tile_padding
from chipshift.jobs.job import Assumed, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.models.preset import preset
from chipshift.worked import plain

LLAMA_8B = 8_030_261_248
LLAMA_1B = 1_235_814_400
LAYER_1B = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2048


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
    # of the layers alone; that of the embedding, which is the head, stands whole in bf16
    assert held["gradients"] == pytest.approx(16 * LAYER_1B * 4)
    assert held["logits"] == 0
    assert held["collectives"] == pytest.approx(128_256 * 2048 * 2)  # and nothing is gathered


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


def test_near_the_limit_replicas_gather_the_head_again_at_the_loss() -> None:
    """Llama 3.1 8B at two sequences of 8,192 holds 31.8 GB with sums of microbatches, 0.948 of
    33.55: a head of 128,256 x 4,096 in bf16 more. With one microbatch it holds 4 GB less."""
    head = 128_256 * 4096 * 2
    plan = Plan(dp=2, fsdp=8, microbatch=2, remat="full")
    one = memory("llama-3.1-8b", "v6e:4x4", 8192, plan)
    sums = memory("llama-3.1-8b", "v6e:4x4", 8192, replace(plan, accumulation=2))
    assert sums["collectives"] - one["collectives"] == pytest.approx(head)
    alone = Plan(fsdp=16, microbatch=2, accumulation=2, remat="full")  # windowed: no such head
    assert memory("llama-3.1-8b", "v6e:4x4", 8192, alone)["collectives"] <= one["collectives"]


def test_one_sequence_near_the_limit_gathers_the_head_again_for_a_sharded_optimizer() -> None:
    """Qwen3 32B at one sequence of 4,096 on v5e's 16.9 GB holds 16.5 with dp=4, fsdp=8, tp=2: half
    a head of 151,936 x 5,120 in bf16 more; at half the sequence it holds less and gathers none."""
    head = 151_936 * 5120 * 2 / 2
    plan = Plan(dp=4, fsdp=8, tp=2, accumulation=16, remat="full", optimizer_sharding="zero1")
    near, far = (memory("qwen3-32b", "v5e:8x8", seq_len, plan) for seq_len in (4096, 2048))
    assert near["collectives"] - far["collectives"] == pytest.approx(head)


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


def test_one_sequence_of_64_devices_of_v5e_has_the_heads_gradient_beside_fp32_logits() -> None:
    held = memory("qwen3-8b", "v5e:8x16", 8192, Plan(fsdp=128, remat="full"))
    assert held["logits"] == pytest.approx(8192 * 151_936 * 4)
    # the head gathered, and its gradient: 151,936 x 4,096 in bf16 each
    assert held["collectives"] == pytest.approx(2 * 151_936 * 4096 * 2)


def test_hybrid_sharding_on_v5e_sums_the_heads_gradient_whole() -> None:
    held = memory("llama-3.2-1b", "v5e:4x4", 4096, Plan(dp=4, fsdp=4, remat="full"))
    # the embedding is the head: gathered, and its gradient, 128,256 x 2,048 in bf16 each
    assert held["collectives"] == pytest.approx(2 * 128_256 * 2048 * 2)


LAYER_70B = 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28_672 + 2 * 8192


LAYER_8B = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14_336 + 2 * 4096


def test_over_slices_and_cp_one_head_stands_at_the_loss_beside_the_first_layer() -> None:
    # the gathered head is done with when its gradient is made; the first layer's weights, whose
    # backward pass is taken out of the loop, are gathered by then
    plan = Plan(dp=2, fsdp=8, cp=8, microbatch=2, remat="save_qkv_proj")
    held = memory("llama-3.1-8b", "v5e:8x8*2", 8192, plan)
    assert held["logits"] > 0
    assert held["collectives"] == pytest.approx((128_256 * 4096 + LAYER_8B) * 2)


def test_over_slices_the_first_layer_is_recomputed_beside_the_loss() -> None:
    """Llama 3.2 1B over two slices of v6e: its attention's tensors stand beside the logits."""
    held = memory("llama-3.2-1b", "v6e:2x2*2", 4096, Plan(dp=2, fsdp=4, remat="full"))
    assert held["logits"] == pytest.approx(4096 * 128_256 * 6)
    # 32 query, 8 key and 8 value heads and the 32 of the context, 64 wide, on 128 lanes; fp32 row
    # sums on 128 lanes, and as kept, one a query and head; four streams
    heads = 4096 * (32 + 8 + 8 + 32) * 128
    sums = 4096 * 32 * (128 * 2 + 2)
    around = heads + sums + 4 * 4096 * 2048
    stored = (16 + 2) * 4096 * 2048
    assert held["activations"] == pytest.approx(2 * (stored + around))
    assert held["collectives"] == pytest.approx((128_256 * 2048 + LAYER_1B) * 2)
    # not beside one sequence of 8,192
    long = memory("llama-3.2-1b", "v6e:2x2*2", 8192, Plan(dp=2, fsdp=4, remat="full"))
    assert long["activations"] == pytest.approx(2 * (16 + 2) * 8192 * 2048)
    assert long["collectives"] == pytest.approx(128_256 * 2048 * 2)


LAYER_13B = 4 * 5120**2 + 3 * 5120 * 13_824 + 2 * 5120


def test_replicas_inside_the_slices_leave_no_logits_to_the_layers_backward_pass() -> None:
    """Llama 2 13B on two sequences: with one replica a slice the fp32 logits are read after the
    layers' pass; with four the head's gradient is made at the loss."""
    one = Plan(dp=2, fsdp=16, microbatch=2, remat="none")
    held = memory("llama-2-13b", "v5p:2x2x4*2", 4096, one)["collectives"]
    assert held == pytest.approx(LAYER_13B * 2 + 2 * 4096 * 32_000 * 4)
    four = replace(one, dp=8, fsdp=4)
    held = memory("llama-2-13b", "v5p:2x2x4*2", 4096, four)["collectives"]
    assert held == pytest.approx(LAYER_13B * 2 + 5120 * 32_000 * 2)


def test_on_v5p_a_windowed_heads_gradient_is_made_before_the_layers_backward_pass() -> None:
    """Mixtral 8x7B on four sequences over 8 devices: on v7x the logits' bf16 gradient is held
    through that pass, on v5p a device's part of the head's, 4,096 x 32,000 in bf16."""
    plan = Plan(fsdp=8, ep=8, microbatch=4, remat="full")
    late = memory("mixtral-8x7b", "v7x:2x2x1", 4096, plan)["collectives"]
    early = memory("mixtral-8x7b", "v5p:2x2x2", 4096, plan)["collectives"]
    assert late - early == pytest.approx(4 * 4096 * 32_000 * 2 - 4096 * 32_000 * 2 / 8)


def test_on_v7x_a_sharded_optimizers_head_is_windowed() -> None:
    # scattered over dp and fsdp at once: the logits' bf16 gradient is a buffer beside them
    plan = Plan(dp=2, fsdp=4, microbatch=2, remat="full", optimizer_sharding="zero1")
    held = memory("llama-3.2-1b", "v7x:2x2x1", 4096, plan)
    assert held["logits"] == pytest.approx(2 * 4096 * 128_256 * (4 + 2))


def test_a_vocabulary_in_parts_is_what_an_early_head_needs() -> None:
    assert entries_over(49_155, 16) == 3  # Granite's: 16 x 3,072 and three
    assert entries_over(128_256, 16) == 0


def test_the_layers_backward_pass_holds_what_the_heads_gradient_is_made_from() -> None:
    # a gathered layer in bf16 and the logits' bf16 gradient
    logits = 4096 * 128_256 * 2
    plan = Plan(fsdp=32, tp=2, remat="full")
    held = memory("llama-3.1-70b", "v7x:2x4x4", 4096, plan)
    assert held["logits"] == 0
    assert held["collectives"] == pytest.approx(LAYER_70B / 2 * 2 + logits / 2)


def test_all_reduces_in_place_of_gathers_hold_their_operands() -> None:
    # on v7x over 64 devices: a layer once more, in the room of the feed-forward's four tensors
    logits = 4096 * 128_256 * 2
    held = memory("llama-3.1-70b", "v7x:2x4x4", 4096, Plan(fsdp=64, remat="full"))
    operands = LAYER_70B * 2 - 4 * 4096 * 28_672 * 2
    assert held["collectives"] == pytest.approx(LAYER_70B * 2 + operands + logits)
    # on v5p a third of it, which that room holds
    held = memory("llama-3.1-70b", "v5p:4x4x4", 4096, Plan(fsdp=64, remat="full"))
    assert held["collectives"] == pytest.approx(LAYER_70B * 2 + logits)


def test_hybrid_sharding_on_v7x_holds_the_fp32_logits_throughout() -> None:
    plan = Plan(dp=2, fsdp=4, remat="full", microbatch=2)
    held = memory("llama-3.2-1b", "v7x:2x2x1", 4096, plan)
    assert held["gradients"] == pytest.approx(16 * LAYER_1B * 4 / 4)
    assert held["collectives"] == pytest.approx(LAYER_1B * 2 + 2 * 4096 * 128_256 * 4)


def test_a_sharded_optimizer_has_the_only_wide_copy_of_the_weights() -> None:
    plan = Plan(dp=4, fsdp=4, remat="full", optimizer_sharding="zero1")
    held = memory("llama-3.2-1b", "v6e:4x4", 4096, plan)
    assert held["weights"] == pytest.approx(LLAMA_1B * 4 / 16)
    assert held["optimizer"] == pytest.approx(LLAMA_1B * 8 / 16)
    # with one replica there is nothing to cut it over
    alone = memory("llama-3.2-1b", "v6e:2x2", 4096, replace(plan, dp=1, fsdp=1, cp=4))
    assert alone["weights"] == pytest.approx(LLAMA_1B * 4)


def test_gradients_of_a_sharded_optimizer() -> None:
    plan = Plan(dp=16, remat="full", accumulation=4, optimizer_sharding="zero1")
    held = memory("llama-3.1-8b", "v5p:2x2x4", 512, plan)
    # fp32 sums and a microbatch's own in bf16, both cut over dp
    assert held["logits"] == 0
    assert held["gradients"] == pytest.approx(LLAMA_8B * (4 + 2) / 16)


def test_gradients_of_whole_weights_are_held_in_the_optimizers_cut() -> None:
    # scattered over dp as each layer's are made, in bf16, where fsdp does not cut them first
    plan = Plan(dp=16, remat="full", optimizer_sharding="zero1")
    held = memory("llama-3.2-1b", "v6e:4x4", 512, plan)
    assert held["logits"] == 0
    assert held["gradients"] == pytest.approx(16 * LAYER_1B * 2 / 16)
    # over fsdp too, where each is scattered a second time
    cut = memory("llama-3.1-8b", "v6e:4x4", 512, replace(plan, dp=8, fsdp=2))
    assert cut["gradients"] == pytest.approx(32 * LAYER_8B * 2 / 16)


def test_beside_cp_a_sharded_optimizer_keeps_no_logits_through_the_backward_pass() -> None:
    plan = Plan(dp=2, fsdp=8, cp=2, remat="full", microbatch=8)
    each = memory("olmoe-1b-7b", "v6e:4x8", 4096, plan)["collectives"]
    plan = replace(plan, optimizer_sharding="zero1")
    one = memory("olmoe-1b-7b", "v6e:4x8", 4096, plan)["collectives"]
    # fp32 logits of half of 8 sequences, in place of a device's part of the head's bf16 gradient,
    # 2,048 x 50,304 over 16
    assert each - one == pytest.approx(4 * 4096 * 50_304 * 4 - 2048 * 50_304 * 2 / 16)


def test_replicas_in_one_slice_make_the_heads_gradient_at_once_those_of_two_keep_logits() -> None:
    plan = Plan(dp=2, fsdp=16, remat="full", microbatch=4)
    one = memory("olmoe-1b-7b", "v6e:4x8", 4096, plan)["collectives"]
    two = memory("olmoe-1b-7b", "v6e:4x4*2", 4096, plan)["collectives"]
    # fp32 logits of 4 sequences, in place of a device's part of the head's bf16 gradient
    assert two - one == pytest.approx(4 * 4096 * 50_304 * 4 - 2048 * 50_304 * 2 / 16)


def test_large_logits_are_not_kept_over_64_devices_of_v7x() -> None:
    plan = Plan(fsdp=32, cp=2, remat="full", microbatch=4)
    kept = memory("llama-3.1-70b", "v7x:2x4x4", 8192, plan)["collectives"]
    # 4 sequences of 4,096 positions a device, 8.4 GB of fp32; no room is left for the operands of
    # all-reduces beside the feed-forward's four tensors
    assert kept == pytest.approx(LAYER_70B * 2 + 4 * 4096 * 128_256 * 4)
    # twice as many positions are 16.8 GB: the head's gradient is made at the loss, whole
    made = memory("llama-3.1-70b", "v7x:2x4x4", 8192, replace(plan, cp=1, fsdp=64))
    assert made["logits"] == pytest.approx(4 * 8192 * 128_256 * 4)
    # beside the gathered head
    assert made["collectives"] == pytest.approx(2 * 8192 * 128_256 * 2)


def test_four_devices_of_v5p_are_not_windowed() -> None:
    plan = Plan(fsdp=4, remat="full", microbatch=4)
    held = memory("llama-3.2-1b", "v5p:2x2x1", 8192, plan)
    assert held["logits"] == pytest.approx(4 * 8192 * 128_256 * 4)
    assert held["collectives"] == pytest.approx(2 * 128_256 * 2048 * 2)  # and the head's gradient
    held = memory("llama-3.2-1b", "v5p:2x2x2", 8192, replace(plan, fsdp=8))
    assert held["logits"] == pytest.approx(4 * 8192 * 128_256 * 6)


def test_at_the_loss_tensor_parallelism_gathers_the_last_hidden_state() -> None:
    plan = Plan(fsdp=8, tp=2, remat="full", microbatch=4)
    held = memory("llama-3.1-8b", "v6e:4x4", 8192, plan)
    assert held["logits"] > 0
    stream = 4 * 8192 * 4096 * 2
    # the inputs of 32 layers and two streams more, cut in two by the sequence; one whole
    assert held["activations"] == pytest.approx(34 * stream / 2 + stream)
    held = memory("llama-3.1-8b", "v6e:4x4", 8192, replace(plan, fsdp=4, tp=4))
    # over four devices one and a half more for the parts of its gradient that are passed on
    assert held["activations"] == pytest.approx(34 * stream / 4 + 2.5 * stream)


def test_routers_are_whole_on_every_device() -> None:
    # Qwen3 30B-A3B: 48 routers of 2,048 x 128; the state of one parameter is 12 bytes
    routers = 48 * 2048 * 128
    held = memory("qwen3-30b-a3b", "v6e:8x8", 4096, Plan(fsdp=64, remat="full"))
    assert held["weights"] == pytest.approx((30_532_122_624 - routers) * 4 / 64 + routers * 4)
    assert held["optimizer"] == pytest.approx(2 * held["weights"])


def test_rows_of_routed_experts_stand_four_times() -> None:
    """Qwen3 30B-A3B on 4 sequences over tp=4: a device sends 8 rows of 2,048 a token."""
    plan = Plan(fsdp=16, tp=4, remat="full", microbatch=4)
    tokens = 4 * 4096
    rows = tokens * 8 * 2048
    up = tokens * 8 * 2 * 192  # 768 wide, in four parts
    # 8 query and 1 key head of 128 each, keys and values; context; fp32 sums on 128 lanes, and
    # beside them as they are kept
    attention = tokens * (8 * 128 + 2 * 128 + 8 * (128 + 2) + 8 * 2 * 128)
    # four streams cut by tp, the inputs of the two halves whole
    streams = 4 * tokens * 2048 / 4 + 2 * tokens * 2048
    stored = 48 * tokens * 2048 / 4
    held = memory("qwen3-30b-a3b", "v6e:8x8", 4096, plan)
    assert held["logits"] == 0
    around = stored + attention + streams + up
    # and the activation; the gathered down projections, 128 of 192 x 2,048, are done with by then
    activated, matrix = tokens * 8 * 192, 128 * 192 * 2048
    assert held["activations"] == pytest.approx(2 * (around + 4 * rows + activated - matrix))
    held = memory("qwen3-30b-a3b", "v6e:8x8", 4096, replace(plan, ep=16))
    assert held["activations"] == pytest.approx(2 * (around + 4 * rows + activated))


def test_a_unit_of_many_layers_recomputes_all_of_them_at_once() -> None:
    # Gemma 3: five layers with a window and one without, in one loop; Gemma 2: one and one
    assert unit_layers((0, 0, 0, 0, 0, 1) * 10 + (0, 0)) == 6
    assert unit_layers((0, 1) * 13) == 1
    assert unit_layers((0,) * 32) == 1
    assert unit_layers((0, 1, 1, 1)) == 1  # kinds in runs


def test_eight_way_tensor_parallelism_windows_the_head_again() -> None:
    plan = Plan(dp=2, fsdp=4, tp=2, remat="full", microbatch=4)
    held = memory("llama-3.2-1b", "v6e:4x4", 8192, plan)
    assert held["logits"] == pytest.approx(4 * 8192 * 128_256 / 2 * 4)
    held = memory("llama-3.2-1b", "v6e:4x8", 8192, replace(plan, tp=4))
    assert held["logits"] == pytest.approx(4 * 8192 * 128_256 / 4 * 6)


def test_six_rows_of_a_token_fill_a_tile_of_eight() -> None:
    assert [float(rows_in_tiles(k)) for k in (1, 2, 4, 6, 8, 10)] == [1, 2, 4, 8, 8, 16]


def test_keys_and_values_are_gathered_over_cp() -> None:
    # 4 sequences of 4,096 positions, of which a device has half: 8 heads of 192 elements together
    assert gathered_keys_elements(4 * 2048, 8, 192, 2) == 4 * 4096 * 8 * 192
    assert gathered_keys_elements(4 * 4096, 8, 192, 1) == 0


def test_weights_in_parts_of_no_whole_tile_are_padded() -> None:
    assert tile_padding(7168, 256) == pytest.approx(32 / 28)
    assert tile_padding(7168, 512) == pytest.approx(16 / 14)
    assert tile_padding(4096, 64) == 1
    # a third of 3,000 parameters over 10 devices, 2 bytes each, in 128 lanes where 32 would do
    assert lane_padding(3000, 320, 10, 2) == pytest.approx(3000 / 10 * 2 / 3 * 3)


def test_a_layer_that_stands_alone_adds_nothing_at_the_loss() -> None:
    """DeepSeek-V2-Lite has one dense layer before 26 routed ones: at the loss stand the 27 layers'
    inputs and two streams beside the logits."""
    plan = Plan(fsdp=32, remat="full", microbatch=4)
    held = memory("deepseek-v2-lite", "v6e:4x8", 4096, plan)
    assert held["logits"] > 0
    tokens = 4 * 4096
    assert held["activations"] == pytest.approx(2 * tokens * (27 + 2) * 2048)


def test_experts_without_expert_parallelism_tp_and_cp_together_do_not_fit() -> None:
    """DeepSeek-V3 on v7x: the compiler wants 111.9 GiB, which do not fit."""
    plan = Plan(fsdp=128, tp=2, cp=2, microbatch=32, remat="full")
    held = memory("deepseek-v3", "v7x:4x8x8", 4096, plan)
    assert held["total"] > 94.8 * 2**30


LLAMA_13B = 40 * (4 * 5120**2 + 3 * 5120 * 13_824 + 2 * 5120) + 2 * 32_000 * 5120 + 5120


def test_over_slices_one_or_two_sequences_have_their_layers_inputs_turned() -> None:
    """The same tokens as two sequences and as four: 40 inputs of 8,192 x 5,120 in bf16 once more,
    and no fp32 gradients of a microbatch beside the sums, cut over 16."""
    two = Plan(dp=2, fsdp=16, microbatch=2, accumulation=2, remat="full")
    four = replace(two, microbatch=4)
    turned = memory("llama-2-13b", "v6e:4x4*2", 4096, two)["activations"]
    as_left = memory("llama-2-13b", "v6e:4x4*2", 2048, four)["activations"]
    more = 40 * 8192 * 5120 * 2 - LLAMA_13B * 4 / 16
    assert turned - as_left == pytest.approx(more)
    # in one slice, and on v5p, they stand as they were left
    for machine, plan in (("v6e:4x8", two), ("v5p:2x2x4*2", two)):
        once = memory("llama-2-13b", machine, 4096, plan)["activations"]
        again = memory("llama-2-13b", machine, 2048, replace(plan, microbatch=4))["activations"]
        assert once == pytest.approx(again)
