"""Models and plans as configurations of the compiled step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled import describe
from chipshift.compiled.expected import expected
from chipshift.compiled.step.config import table_rows
from chipshift.errors import InputError
from chipshift.jobs.job import Precision
from chipshift.jobs.plan import Plan
from chipshift.models.preset import preset


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ((0, 0, 0, 1, 1), [((0,), 3), ((1,), 2)]),
        ((0, 1, 0, 1, 0), [((0, 1), 2), ((0,), 1)]),
        ((0,), [((0,), 1)]),
        ((0, 0, 0, 0, 0, 1) * 2, [((0, 0, 0, 0, 0, 1), 2)]),
    ],
)
def test_layers_are_scanned_in_their_repeating_units(
    order: tuple[int, ...], found: list[tuple[tuple[int, ...], int]]
) -> None:
    assert describe.segments(order) == found


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_segments_give_back_the_layers_in_order(order: list[int]) -> None:
    flat = [i for unit, repeats in describe.segments(tuple(order)) for i in unit * repeats]
    assert flat == order


@pytest.mark.parametrize(
    ("plan", "mesh"),
    [
        (Plan(dp=2, fsdp=8, tp=4), (2, 8, 1, 1, 4)),
        (Plan(fsdp=16, ep=4), (1, 4, 4, 1, 1)),
        (Plan(dp=8, ep=4, cp=2), (2, 1, 4, 2, 1)),
    ],
)
def test_the_expert_axis_is_taken_out_of_fsdp_or_dp(
    plan: Plan, mesh: tuple[int, int, int, int, int]
) -> None:
    assert describe.mesh_of(plan) == mesh


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(pp=2), "no pipeline"),
        (Plan(microbatch=0.5, fsdp=4), "whole sequences"),
        (Plan(tp=3), "divide"),
        (Plan(fsdp=4, ep=3), "expert axis"),
        (Plan(fsdp=8, ep=4, tp=2, etp=1), "etp=1: the compiled step cuts experts by tp"),
        (Plan(cp=8, cp_shards=True), "shards weights over fsdp"),
        (Plan(fsdp=8, remat="full:1/2"), "recomputes in all layers alike.*remat=full$"),
    ],
)
def test_what_the_step_cannot_be_cut_by_is_said_in_a_sentence(plan: Plan, words: str) -> None:
    with pytest.raises(InputError, match=words):
        describe.config(preset("llama-3.2-1b"), plan, seq_len=4096)


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        # 2 x 8 x 4 = 64 sequences over 4 x 4 replicas: 4 each
        (
            Plan(fsdp=4, pp=4, vpp=2, microbatch=2, accumulation=8),
            "fsdp=16,microbatch=2,accumulation=2",
        ),
        # 8 sequences over 16 replicas: half of the replicas, each over two devices
        (Plan(fsdp=16, microbatch=0.5), "fsdp=8,cp=2"),
        (Plan(dp=16, microbatch=0.5), "dp=8,cp=2"),
        # 4 sequences over 4 stages of 4 replicas: a sequence over 4 devices
        (Plan(fsdp=4, pp=4), "fsdp=4,cp=4"),
        (Plan(fsdp=8, tp=2, ep=4, etp=1), "fsdp=8,tp=2,ep=4"),
    ],
)
def test_the_nearest_plan_that_the_step_has_is_named(asked: Plan, nearest: str) -> None:
    found = describe.expressible(asked)
    assert sorted(describe.plan_text(found).split(",")) == sorted(nearest.split(","))
    assert (found.devices, found.global_batch) == (asked.devices, asked.global_batch)
    text = describe.plan_text(found)
    with pytest.raises(InputError, match=f"; the nearest plan that it has: {text}$"):
        describe.config(preset("mixtral-8x7b"), asked, seq_len=4096)
    describe.config(preset("mixtral-8x7b"), found, seq_len=4096)


def test_fsdp_moves_each_weight_three_times() -> None:
    """Llama 3.2 1B, tied, over 16 devices in bf16: two gathers of the layers' matrices and one of
    the table, and one reduction of each.

    A layer: 2048 x (2048 + 512 + 512 + 2048) + 3 x 2048 x 8192 = 60,817,408 parameters;
    16 layers 973,078,528; table 128,256 x 2048 = 262,668,288.
    """
    cfg, _ = describe.config(
        preset("llama-3.2-1b"), Plan(fsdp=16, remat="full"), seq_len=4096,
        precision=Precision(reduce="bf16"),
    )  # fmt: skip
    sums = expected(cfg)
    layers, table = 973_078_528, 262_668_288
    assert sums["all_gather", "fsdp"] == pytest.approx((2 * layers + table) * 2 * 15 / 16)
    assert sums["reduce_scatter", "fsdp"] == pytest.approx((layers + table) * 2 * 15 / 16)
    # 4,096 rows of 2,048 exchanged for parts of rows, forward and backward
    assert sums["all_to_all", "fsdp"] == pytest.approx(2 * 4096 * 2048 * 2 * 15 / 16)


def test_hybrid_sharding_reduces_the_shards_over_dp() -> None:
    cfg, _ = describe.config(
        preset("llama-3.2-1b"), Plan(dp=2, fsdp=8, remat="full"), seq_len=4096,
        precision=Precision(reduce="bf16"),
    )  # fmt: skip
    # All-reduce of an eighth of every gradient over 2: 2 x 1/2 of it sent. The tied table has two
    # gradients, of the lookup and of the head, summed over dp each.
    layers, table = 973_078_528, 262_668_288
    assert expected(cfg)["all_reduce", "dp"] == pytest.approx((layers + 2 * table) * 2 / 8)


@pytest.mark.parametrize("tied", [True, False])
def test_a_sharded_optimizer_scatters_gradients_and_gathers_weights_once(tied: bool) -> None:
    """Llama 3.2 1B over dp=4: three quarters of every gradient for each microbatch, of every weight
    once a step. A tied table's two gradients are added before they are scattered: the compiled
    step for v6e:2x2 sends the same 1,853,620,224 bytes and, with four microbatches, four times."""
    layers, table = 973_078_528, 262_668_288
    model = replace(preset("llama-3.2-1b"), tied=tied)
    held = (layers + (1 if tied else 2) * table) * 2 * 3 / 4
    norms = 2 * 33 * 2048 * 4 * 3 / 4  # 33 of 2,048 in fp32, whole on every device
    for accumulation in (1, 4):
        plan = Plan(dp=4, accumulation=accumulation, optimizer_sharding="zero1", remat="full")
        precision = Precision(reduce="bf16")
        sums = expected(describe.config(model, plan, seq_len=4096, precision=precision)[0])
        assert sums["all_gather", "dp"] == pytest.approx(held)
        assert sums["reduce_scatter", "dp"] == pytest.approx(accumulation * held)
        assert sums["all_reduce", "dp"] == pytest.approx(accumulation * norms)


def test_a_step_without_the_tpus_kernel_says_that_it_computes_masked_scores() -> None:
    model, plan = preset("llama-3.2-1b"), Plan(fsdp=8)
    notes = {s: describe.config(model, plan, seq_len=4096, splash=s)[1] for s in (True, False)}
    assert [note for note in notes[False] if note not in notes[True]] == [
        "attention in plain JAX blocks, masked scores too: the kernel is the TPU's"
    ]


def test_kept_experts_input_saves_an_all_to_all() -> None:
    """Mixtral 8x7B, 32 layers, one sequence of 4,096 on each device, experts over 8: 8,192 rows of
    4,096 in bf16, of which 7/8 leave; there and back, forward, recomputed and backward."""
    sent = 8192 * 4096 * 2 * 7 / 8 * 32
    for remat, times in (("full", 6), ("minimal", 6), ("none", 5)):
        plan = Plan(fsdp=16, ep=8, remat=remat)
        cfg, _ = describe.config(preset("mixtral-8x7b"), plan, seq_len=4096)
        assert expected(cfg)["all_to_all", "ep"] == pytest.approx(times * sent)


def test_experts_cut_across_axes_have_a_nearest_plan_that_the_step_can_be_cut_by() -> None:
    # ep=8 over dp=2 x fsdp=4: dp's devices go to fsdp, whose 8 the 8 experts' devices divide
    across = Plan(dp=2, fsdp=4, ep=8, microbatch=2, accumulation=3)
    with pytest.raises(InputError, match="the nearest plan that it has: fsdp=8,ep=8"):
        describe.expert_axis(across)
    near = describe.expressible(across)
    assert (near.dp, near.fsdp, near.ep, near.devices) == (1, 8, 8, 8)
    assert near.global_batch == across.global_batch
    # ep=8 over fsdp=4 x tp=2 has four devices at most: gcd(8, 4)
    assert describe.expressible(Plan(fsdp=4, tp=2, ep=8)).ep == 4
    # what the step can be cut by stays: experts over fsdp=8, and over dp=8 alone
    for plan in (Plan(dp=2, fsdp=8, ep=8), Plan(dp=8, ep=8), Plan(dp=2, fsdp=4, ep=4)):
        assert (describe.expressible(plan).dp, describe.expressible(plan).ep) == (plan.dp, plan.ep)


@pytest.mark.parametrize(("degree", "over"), [(0, "over cp;"), (2, "over 2 devices of cp;")])
def test_heads_dealt_out_by_the_plan_are_said_to_be_compiled_otherwise(
    degree: int, over: str
) -> None:
    plan = Plan(fsdp=4, cp=4, cp_kind="all_to_all", ulysses_degree=degree)
    _, notes = describe.config(preset("llama-3.1-8b"), plan, seq_len=8192)
    [said] = [note for note in notes if "all-to-all of heads" in note]
    assert "keys and values all-gathered over cp" in said and over in said
    assert "ulysses" not in describe.plan_text(plan) and "cp_kind" not in describe.plan_text(plan)


def test_a_vocabulary_that_tp_does_not_divide_is_padded_and_a_note_says_so() -> None:
    """49,155 words over tp=2: the next multiple of 2 x 128 is 193 x 256 = 49,408. Over fsdp alone
    they stay as they are."""
    granite = preset("granite-3.1-8b")
    padded, notes = describe.config(granite, Plan(fsdp=4, tp=2), seq_len=4096)
    assert (padded.vocab, table_rows(padded)) == (49155, 49408)
    assert any("49,155 padded to 49,408 rows, so that tp=2 divides it" in note for note in notes)
    whole, notes = describe.config(granite, Plan(fsdp=8), seq_len=4096)
    assert table_rows(whole) == 49155
    assert not any("padded" in note for note in notes)
