"""Formulas that the calibration brought, and how a stack's constants are looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.estimate import stack as stacks
from chipshift.estimate.collectives import (
    beside_exchange,
    expert_overlap,
    gathered_after,
    hiding_time,
    tensor_pairs_again,
)
from chipshift.estimate.estimate import error_band
from chipshift.estimate.idle import handover, host_pace, other_time, rare_stalls
from chipshift.estimate.op_times import backward_over_forward, sorted_by_rows, with_rows
from chipshift.estimate.traffic import (
    between_slices,
    exposed_beside,
    exposed_beyond,
    gradient_buckets,
    in_place,
    over_network,
    ring_latency,
)
from chipshift.estimate.update import added_gradient_bytes
from chipshift.jobs.stacks import STACKS
from chipshift.parallel.remat import policy
from chipshift.parallel.traffic import once_per_place
from chipshift.validate.free import MIN_MODELS, MIN_RUNS

ROOT = Path(__file__).parents[2]


def test_a_token_goes_to_a_place_once() -> None:
    # 2 experts on 2 nodes: distinct nodes 2·(1 − (1/2)²) = 1.5 of 2 copies
    assert once_per_place(2.0, 2.0, 16.0, 1.0) == pytest.approx(0.75)
    assert once_per_place(2.0, 2.0, 16.0, 0.0) == 1.0
    # inside one node 2 experts on 4 devices: 4·(1 − (3/4)²) = 1.75 of 2 copies
    assert once_per_place(2.0, 1.0, 4.0, 1.0) == pytest.approx(0.875)
    assert once_per_place(2.0, 1.0, 4.0, 0.0) == 1.0


def test_collectives_pace_the_host_in_jobs_of_several_nodes() -> None:
    # 10 collectives of 8 ranks, 0.2 ms each: 16 ms; alone on a host, or in a group of one, nothing
    assert host_pace(2e-4, 8.0, 4.0, 10.0) == pytest.approx(16e-3)
    assert host_pace(2e-4, 8.0, 1.0, 10.0) == 0.0
    assert host_pace(2e-4, 1.0, 4.0, 10.0) == 0.0


def test_gradients_are_summed_in_buckets_and_added_up_first() -> None:
    # 1 GB in buckets of 50 MB: 20; what is left over takes one more
    assert gradient_buckets(1.0e9, 5.0e7) == 20
    assert gradient_buckets(1.01e9, 5.0e7) == 21
    # 1e9 parameters, bf16 read, fp32 sum read and written, 4 microbatches: 40 GB
    assert added_gradient_bytes(1e9, 10.0, 4.0) == 4e10


def test_weights_are_gathered_in_a_quarter_of_the_fp32_sum() -> None:
    # an all-gather moves half of an all-reduce, bf16 half of fp32
    assert gathered_after(0.4, 2.0, 4.0) == pytest.approx(0.1)


def test_a_pipeline_inside_a_node_hands_over_at_once() -> None:
    # between nodes a middle stage waits for both neighbours, 1.2 s a microbatch, an end for one
    assert handover(1.2, 4.0, 2.0, 8.0) == pytest.approx(9.6)
    assert handover(1.2, 2.0, 2.0, 8.0) == pytest.approx(4.8)
    assert handover(1.2, 4.0, 1.0, 8.0) == 0.0
    assert handover(1.2, 1.0, 2.0, 8.0) == 0.0


def test_gaps_and_stalls_count_every_microbatch() -> None:
    # host 3 s against device 1 s: gap 2 s; 4 microbatches; stall 2 s; fixed 1 s; jitter 1 % × 2
    # doublings × 50 s busy = 1 s
    assert other_time(3.0, 1.0, 4.0, 0.0, 2.0, 1.0, 0.01, 2.0, 50.0) == pytest.approx(12.0)


def test_virtual_stages_hide_the_expert_exchange() -> None:
    assert expert_overlap(0.1, 0.8, 2.0) == pytest.approx(0.8)
    assert expert_overlap(0.1, 0.8, 1.0) == pytest.approx(0.1)


def test_virtual_stages_hide_the_gradient_sum_behind_a_round_of_microbatches() -> None:
    # 3 s a microbatch: alone without virtual stages, a round of pp = 4 with them, 2 at most of 2
    assert hiding_time(3.0, 4.0, 1.0, 16.0) == pytest.approx(3.0)
    assert hiding_time(3.0, 4.0, 3.0, 16.0) == pytest.approx(12.0)
    assert hiding_time(3.0, 4.0, 3.0, 2.0) == pytest.approx(6.0)


def test_no_more_of_the_expert_exchange_is_hidden_than_compute_stands_beside_it() -> None:
    # 10 s, nine tenths overlapped: 1 s is seen beside 20 s of compute, 4 s beside 6 s
    assert exposed_beside(10.0, 0.9, 20.0) == pytest.approx(1.0)
    assert exposed_beside(10.0, 0.9, 6.0) == pytest.approx(4.0)
    assert exposed_beside(10.0, 0.9, 0.0) == 10.0
    # virtual stages: all ops of the routed layers; else the experts' own alone
    assert beside_exchange(3.0, 8.0, 2.0) == 8.0
    assert beside_exchange(3.0, 8.0, 1.0) == 3.0


def test_the_backward_passs_collectives_hide_behind_what_waits_for_none_of_them() -> None:
    # 10 s, a fifth overlapped: 8 s, of which 5 s of weight gradients and recomputation hide 5
    assert exposed_beyond(10.0, 0.2, 5.0) == pytest.approx(3.0)
    assert exposed_beyond(10.0, 0.2, 9.0) == 0.0
    assert exposed_beyond(10.0, 0.2, 0.0) == pytest.approx(8.0)


def test_rows_that_take_time_beside_their_bytes_add_it() -> None:
    # 2 ms of passes and 4,096 tokens to 8 experts each, 0.2 µs a row: 6.55 ms
    assert sorted_by_rows(2e-3, 4096 * 8, 2e-7) == pytest.approx(8.5536e-3)


def test_a_collective_beside_compute_is_slower() -> None:
    assert in_place(1.0, 0.5) == pytest.approx(2.0)


def test_a_collective_over_slices_takes_what_their_network_takes() -> None:
    # 8 GB at 1e-10 s a byte are 0.8 s at the full rate, 2 s at 0.4 of it; inside takes 1 s or 3
    assert between_slices(1.0, 8e9, 1e-10, 0.4) == pytest.approx(3.0)
    assert between_slices(3.0, 8e9, 1e-10, 0.4) == pytest.approx(5.0)
    # NCCL pipelines the two
    assert over_network(1.0, 8e9, 1e-10, 0.4) == pytest.approx(2.0)
    assert over_network(3.0, 8e9, 1e-10, 0.4) == pytest.approx(3.0)


def test_rows_that_are_moved_cost_beside_their_elements() -> None:
    # 10 rows of 100 elements, each a transfer worth 4,096 more: 1,000 + 40,960
    assert with_rows(1000.0, 10.0, 4096.0) == 41_960.0


def test_attentions_backward_pass_is_its_matmuls_over_the_forwards_two() -> None:
    assert backward_over_forward(5.0) == 2.5
    assert backward_over_forward(7.0) == 3.5


def test_a_ring_over_nodes_takes_a_step_for_each_rank() -> None:
    assert ring_latency(5e-5, 16.0, 2.0) == pytest.approx(8e-4)
    assert ring_latency(5e-5, 8.0, 1.0) == 0.0


STACK = """
[constants]
matmul_scale = 0.8
memory_scale = { value = 0.5, evidence = "made up" }
tp_overlap = 0.5
[family.hopper]
chips = ["h100", "h200"]
tp_overlap = { odds = 3, evidence = "made up too" }
memory_scale = { times = 1.2, evidence = "more" }
[chip.h100]
matmul_scale = 0.7
[[release]]
since = "25.02"
[release.chip.h100]
matmul_scale = 0.75
[release.family.hopper]
chips = ["h100", "h200"]
memory_scale = { times = 0.5, evidence = "and less" }
[[release]]
since = "26.06"
[release.constants]
memory_scale = 0.9
"""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import tomllib

    data = {"megatron": tomllib.loads(STACK), "other": {"inherits": "megatron"}}
    monkeypatch.setattr(stacks, "_data", lambda name: data.get(name, {}))
    stacks.stack.cache_clear()
    yield  # type: ignore[misc]
    stacks.stack.cache_clear()


@pytest.mark.usefixtures("made_up")
def test_a_chip_overrides_its_stack_and_a_release_both() -> None:
    assert stacks.stack("megatron", "a100").matmul_scale == 0.8
    assert stacks.stack("megatron@24.11", "h100").matmul_scale == 0.7
    assert stacks.stack("megatron@25.04", "h100").matmul_scale == 0.75
    newest = stacks.stack("megatron", "h100")
    assert (newest.matmul_scale, newest.memory_scale) == (0.75, 0.9)


@pytest.mark.usefixtures("made_up")
def test_factors_multiply_a_value_or_its_odds() -> None:
    assert stacks.stack("megatron@24.11", "a100").memory_scale == 0.5
    assert stacks.stack("megatron@24.11", "h200").memory_scale == pytest.approx(0.6)
    # a release's factor stands on the family's: 0.5 × 1.2 × 0.5
    assert stacks.stack("megatron@25.04", "h200").memory_scale == pytest.approx(0.3)
    # odds of one to one, times three: three to one
    assert stacks.stack("megatron", "h100").tp_overlap == pytest.approx(0.75)


@pytest.mark.usefixtures("made_up")
def test_a_stack_without_runs_takes_anothers_constants() -> None:
    assert stacks.stack("other", "h100").matmul_scale == 0.75


@pytest.mark.usefixtures("made_up")
def test_constants_name_their_evidence() -> None:
    assert stacks.sources("megatron@24.11", "h100")["memory_scale"] == "made up; more"


FITTED = re.compile(r"(\d+) runs of (\d+) models")


def entries(table: dict[str, Any]) -> Iterator[str]:
    """Every evidence in a stack's file."""
    for value in table.values():
        if isinstance(value, dict):
            if "evidence" in value:
                yield str(value["evidence"])
            else:
                yield from entries(value)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from entries(one)


@pytest.mark.parametrize("name", sorted(set(STACKS) - {"nanotron"}))  # one sweep, one chip
def test_no_constant_is_fitted_on_fewer_than_three_runs_of_two_models(name: str) -> None:
    """The evidence in the files says on how many; one by hand names its source instead."""
    for evidence in entries(stacks._data(name)):
        if evidence.startswith("fitted on"):
            found = FITTED.search(evidence)
            assert found, f"{name}: {evidence}"
            assert int(found[1]) >= MIN_RUNS
            assert int(found[2]) >= MIN_MODELS


def names(table: dict[str, Any]) -> Iterator[str]:
    """Every constant that a stack's file gives a value, a factor or odds."""
    for key, value in table.items():
        if isinstance(value, dict):
            if "evidence" in value:
                yield key
            else:
                yield from names(value)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from names(one)


def test_docs_explain_every_constant() -> None:
    page = (ROOT / "docs" / "calibration.md").read_text("utf8")
    known = {field.name for field in fields(stacks.Stack)} - {"name"}
    given = {key for name in STACKS for key in names(stacks._data(name))}
    assert len(given) >= 79
    assert given <= known
    assert [key for key in sorted(known) if f"`{key}`" not in page] == []


def test_an_unknown_stack_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="megatron"):
        stacks.stack("megatrom@25.02", "h100")


def test_a_release_has_the_error_band_of_its_stack() -> None:
    assert error_band("h100", "megatron@24.11") == error_band("h100", "megatron")
    assert error_band("trn2", "neuron").n == 0
    assert stacks.stack("megatron@24.11", "h100").base == "megatron"
    assert stacks.default_stack("gpu", "megatron@24.11") == "megatron@24.11"


def test_a_stall_of_any_host_holds_up_the_step() -> None:
    # 100 s of busy time, 11 hosts, 1 in 1,000 of the step more for each beside the first: 1 s
    assert rare_stalls(1e-3, 11.0, 100.0) == pytest.approx(1.0)
    assert rare_stalls(1e-3, 1.0, 100.0) == 0.0


def test_a_compiler_gathers_for_the_rematerialisation_and_the_gradient_at_once() -> None:
    # Full rematerialisation gathers the inputs of two maps again, a pair each; XLA adds to the
    # gathers of the weight gradients the scatter behind attention alone, half a pair.
    full, kept = policy("full"), policy("minimal")
    assert tensor_pairs_again(stacks.stack("megatron", "h100"), full) == 2.0
    assert tensor_pairs_again(stacks.stack("maxtext", "v5p"), full) == 0.5
    assert tensor_pairs_again(stacks.stack("megatron", "h100"), kept) == 0.0
    assert tensor_pairs_again(stacks.stack("maxtext", "v5p"), kept) == 0.0
    # side by side neither half's scatter is read by anything that runs again
    assert tensor_pairs_again(stacks.stack("maxtext", "v5p"), full, side_by_side=True) == 0.0
