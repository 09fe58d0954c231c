"""Training on preferences: what a reference and a pair's second answer cost, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.setting import setting
from chipshift.jobs.job import Assumed, Precision
from chipshift.jobs.loss import LOSSES, with_scalar_head
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.adapters import Adapters
from chipshift.models.count import params
from chipshift.models.ops import forward_flops_per_token
from chipshift.models.preset import preset
from chipshift.planner.search import search
from chipshift.worked import plain
from tests.estimate.conftest import job_of

H100 = parse_machine("h100*8")
PLAN = Plan(fsdp=8, microbatch=2.0, accumulation=4)
PARAMS = 8_030_261_248
"""Llama 3.1 8B."""
QUERIES = Adapters((("qkv_proj", 1.0),))
BF16 = Precision(weights="bf16", gradients="bf16", reduce="bf16", master="none", moments="bf16")


def told(loss: str, reference: str = "none", plan: Plan = PLAN, **job: Any) -> Estimate:
    made = job_of(
        "llama-3.1-8b", round(plan.global_batch), 4096, precision=Assumed(BF16, "test"),
        loss=loss, reference=reference, **job,
    )  # fmt: skip
    return estimate(made, plan, H100, "other")


PLAIN = told("lm")


@pytest.mark.parametrize(
    ("loss", "reference", "forwards"),
    [
        ("dpo", "bf16", 1),  # the reference's pass over the same two answers
        ("dpo", "none", 0),  # its log-probabilities were computed beforehand
        (
            "kto",
            "bf16",
            1 + 2,
        ),  # mismatched answers too, and both kinds again
        ("kto", "none", 1),
        ("orpo", "none", 0),
        ("simpo", "none", 0),
    ],
)
def test_a_token_takes_three_forward_passes_and_those_without_gradient(
    loss: str, reference: str, forwards: int
) -> None:
    forward = forward_flops_per_token(preset("llama-3.1-8b"), 4096)
    found = told(loss, reference)
    assert found.model_flops_per_token == (3 + forwards) * forward
    busy = ("matmul", "attention", "memory_bound")
    one_pass = told("dpo", "bf16"), told("dpo", "none")
    for part in busy:  # each pass is as long as the reference's one of dpo
        each = one_pass[0].time[part] - one_pass[1].time[part]
        assert each > 0
        assert found.time[part] == pytest.approx(PLAIN.time[part] + forwards * each, rel=1e-12)


def test_a_forward_pass_is_as_long_as_the_bare_forward_pass_of_the_step() -> None:
    # 3 passes of matmuls, the weight gradient's among them, of equal FLOPs: between a quarter and
    # two fifths more of them with one more forward pass
    more = told("dpo", "bf16").time["matmul"] / PLAIN.time["matmul"]
    assert 1.25 < more < 1.4


def test_a_reference_of_its_own_is_held_as_the_weights_are_cut() -> None:
    # 8.03 B parameters of 2 bytes over 8 shards
    more = told("dpo", "bf16").memory["weights"] - PLAIN.memory["weights"]
    assert more == PARAMS * 2 / 8
    whole = replace(PLAN, fsdp=1, dp=8, optimizer_sharding="zero1")
    more = told("dpo", "bf16", whole).memory["weights"] - told("lm", plan=whole).memory["weights"]
    assert more == PARAMS * 2
    for elsewhere in ("base", "host"):
        found = told("dpo", elsewhere)
        assert found.memory["weights"] == PLAIN.memory["weights"]
        assert found.time["matmul"] == told("dpo", "bf16").time["matmul"]


def test_the_references_logits_are_held_beside_the_policys() -> None:
    # 2 sequences of 4,096 tokens × 128,256 logits in bf16
    more = told("dpo", "base").memory["logits"] - PLAIN.memory["logits"]
    assert more == 2 * 4096 * 128256 * 2
    assert told("orpo").memory == PLAIN.memory


def test_the_reference_gathers_its_shards_once_a_microbatch() -> None:
    # of three collectives of equal bytes (two gathers, a scatter) one gather more: the scatter
    # takes what a gather does, both in bf16
    more = told("dpo", "bf16").collectives_total["fsdp"] / PLAIN.collectives_total["fsdp"]
    assert more == pytest.approx(4 / 3, rel=0.02)


def test_tensor_and_pipeline_parallelism_carry_the_reference_too() -> None:
    cut = Plan(dp=1, tp=2, pp=4, microbatch=2.0, accumulation=32)
    lm, dpo = told("lm", plan=cut), told("dpo", "bf16", cut)
    # forward, backward, and forward again
    for axis in ("tp", "pp"):
        assert dpo.collectives_total[axis] == pytest.approx(
            1.5 * lm.collectives_total[axis], rel=1e-12
        )
    assert dpo.time["bubble"] > 1.2 * lm.time["bubble"]


def test_with_its_adapters_off_the_reference_streams_none() -> None:
    lora: dict[str, Any] = {"task": "lora", "trainable_fraction": 1e-3}
    on = told("dpo", "base", adapters=QUERIES, **lora)
    none = told("dpo", "none", adapters=QUERIES, **lora)
    bare, bare_none = (
        told("dpo", reference, adapters=Adapters(), **lora) for reference in ("base", "none")
    )
    more = on.time["memory_bound"] - none.time["memory_bound"]
    assert more == pytest.approx(
        bare.time["memory_bound"] - bare_none.time["memory_bound"], rel=1e-9
    )


def test_a_reward_model_has_one_output() -> None:
    model = with_scalar_head(preset("llama-3.1-8b"))
    # the head of 128,256 × 4,096 is one row of 4,096
    assert params(model) == PARAMS - 128256 * 4096 + 4096
    forward = forward_flops_per_token(preset("llama-3.1-8b"), 4096)
    less = 2 * 4096 * (128256 - 1)
    assert forward_flops_per_token(model, 4096) == forward - less
    tied = with_scalar_head(preset("llama-3.2-1b"))
    # a tied head goes, and its table stays as the embedding
    assert params(tied) == params(preset("llama-3.2-1b")) + 2048
    found = told("reward", model=model)
    assert found.memory["logits"] < PLAIN.memory["logits"] / 1e5
    assert found.model_flops_per_token == 3 * (forward - less)


@pytest.mark.parametrize(("loss", "reference"), [("dpo", "bf16"), ("kto", "bf16"), ("lm", "none")])
def test_the_explained_numbers_are_the_plain_ones(loss: str, reference: str) -> None:
    made = job_of("llama-3.1-8b", 64, 4096, loss=loss, reference=reference)
    worked = estimate(made, PLAN, H100, "other", explain=True)
    bare = estimate(made, PLAN, H100, "other")
    assert plain(worked.step_time_s) == pytest.approx(bare.step_time_s, rel=1e-12)
    assert plain(worked.memory["total"]) == pytest.approx(bare.memory["total"], rel=1e-12)
    assert plain(worked.model_flops_per_token) == bare.model_flops_per_token


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "lm"])
def test_the_planner_scores_as_the_estimate_and_keeps_pairs_together(loss: str) -> None:
    reference = "bf16" if LOSSES[loss].referred else "none"
    model = preset("llama-3.1-8b")
    made = job_of(
        "llama-3.1-8b", 32, 2048, loss=loss, reference=reference, precision=Assumed(BF16, "test"),
        model=with_scalar_head(model) if loss == "reward" else model,
    )  # fmt: skip
    found = search(setting(made, H100, "other"), keep=40)
    assert found.fitting
    for kept in found.fitting:
        one = estimate(made, kept.plan, H100, "other")
        assert kept.step_time_s == pytest.approx(float(one.step_time_s), rel=1e-9)
        assert kept.memory_bytes == pytest.approx(float(one.memory["total"]), rel=1e-9)
        assert kept.plan.microbatch % LOSSES[loss].answers == 0
    every = search(setting(made, H100, "other"), keep=1, prune=False)
    assert every.fitting[0].step_time_s == pytest.approx(found.fitting[0].step_time_s, rel=1e-12)
