"""Weights kept or gathered in 8 bits: bytes held and sent, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.setting import setting
from chipshift.jobs.job import Assumed, Flag, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.planner.search import search
from chipshift.worked import plain
from tests.estimate.conftest import job_of

REPLICAS = Plan(dp=8, microbatch=1.0, accumulation=4, optimizer_sharding="zero1")
PARAMS = 8_030_261_248
"""Llama 3.1 8B."""
TABLES = 2 * 128256 * 4096 + 4096
"""Its embedding, its head and the norm before it, which stay in 16 bits."""


def told(recipe: str, machine: str = "h100*8", stack: str = "megatron", plan: Plan = REPLICAS,
         explain: bool = False, **precision: Any) -> Estimate:  # fmt: skip
    kept = (Flag("fp8_params", "--fp8-param-gather", recipe, "run.sh", 3),) if recipe else ()
    fields = {"compute": "fp8", "reduce": "bf16", "gradients": "bf16"} | precision
    made = job_of(
        "llama-3.1-8b", round(plan.global_batch), 4096, flags=kept,
        precision=Assumed(Precision(**fields), "test"),
    )  # fmt: skip
    return estimate(made, plan, parse_machine(machine), stack, explain=explain)


@pytest.mark.parametrize(
    ("recipe", "machine", "each"),
    [
        ("tensorwise", "b200*8", 1.0),
        ("tensorwise", "h100*8", 2.0),  # a transposed copy beside
        ("delayed", "gb200*8", 1.0),
        ("mxfp8", "b200*8", 2 * (1 + 1 / 32)),  # by rows and by columns, a scale for each 32
        ("blockwise", "h100*8", 2 * (1 + 4 / 16384)),  # and one of 4 bytes for each 128 × 128
    ],
)
def test_bytes_of_weights_held_between_steps(recipe: str, machine: str, each: float) -> None:
    held = (PARAMS - TABLES) * each + TABLES * 2
    found, wide = told(recipe, machine), told("", machine)
    assert found.memory["weights"] == pytest.approx(held, rel=1e-12)
    assert wide.memory["weights"] == PARAMS * 2
    assert found.update_memory - wide.update_memory == pytest.approx(held - PARAMS * 2, abs=1)
    for part in ("gradients", "optimizer", "activations", "logits"):
        assert found.memory[part] == wide.memory[part]


@pytest.mark.parametrize(
    ("recipe", "machine", "share"),
    [
        ("tensorwise", "h100*8", 0.75),  # the gradients' scatter in 16 bits, the gather in 8
        ("mxfp8", "b200*8", 1.0),  # gathered in bf16 through the gradients' buffer
    ],
)
def test_bytes_that_replicas_gather(recipe: str, machine: str, share: float) -> None:
    sent = told(recipe, machine).collectives_total["dp"]
    assert sent == pytest.approx(share * told("", machine).collectives_total["dp"], rel=1e-3)


def test_other_stacks_and_chips_keep_the_weights_of_their_precision() -> None:
    for machine, stack in (("h100*8", "torchtitan"), ("v6e:2x4", "maxtext")):
        found, wide = told("tensorwise", machine, stack), told("", machine, stack)
        assert found.memory == wide.memory and found.step_time_s == wide.step_time_s


def test_sharded_weights_are_gathered_in_8_bits() -> None:
    shards = Plan(fsdp=8, microbatch=1.0, accumulation=4)
    narrow = {"weights": "fp32", "gather": "fp8", "master": "none", "reduce": "fp32"}
    wide = {**narrow, "gather": "bf16"}
    one, two = (told("", stack="torchtitan", plan=shards, **each) for each in (narrow, wide))
    # a gather of 1 byte forward and backward and a scatter of 4, in place of 2, 2 and 4
    moved = one.collectives_total["fsdp"] / two.collectives_total["fsdp"]
    assert moved == pytest.approx(6 / 8, rel=0.03)
    # whole on a device: the embedding's table of 128,256 × 4,096 in 16 bits either way
    assert one.memory["collectives"] >= 128256 * 4096 * 2


def test_the_explained_numbers_are_the_plain_ones() -> None:
    worked, bare = told("tensorwise", "b200*8", explain=True), told("tensorwise", "b200*8")
    assert plain(worked.step_time_s) == pytest.approx(plain(bare.step_time_s), rel=1e-12)
    assert plain(worked.memory["total"]) == pytest.approx(plain(bare.memory["total"]), rel=1e-12)


@pytest.mark.parametrize("recipe", ["tensorwise", "mxfp8"])
def test_the_planner_scores_as_the_estimate(recipe: str) -> None:
    machine, made = parse_machine("b200*8"), told(recipe, "b200*8").job
    found = search(setting(made, machine, "megatron"), keep=40)
    assert found.fitting
    for kept in found.fitting:
        one = estimate(made, kept.plan, machine, "megatron")
        assert kept.step_time_s == pytest.approx(float(plain(one.step_time_s)), rel=1e-9)
        assert kept.memory_bytes == pytest.approx(float(plain(one.memory["total"])), rel=1e-9)
    every = search(setting(made, machine, "megatron"), keep=1, prune=False)
    assert every.fitting[0].step_time_s == pytest.approx(found.fitting[0].step_time_s, rel=1e-12)
