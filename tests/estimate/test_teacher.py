"""Distillation: what a frozen teacher of another shape costs a step, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.setting import setting
from chipshift.jobs.job import Assumed, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.model import Model
from chipshift.models.ops import forward_flops_per_token
from chipshift.models.preset import preset
from chipshift.planner.bounds import floors, layouts
from chipshift.planner.search import search
from chipshift.planner.space import applies, base_rows, choices
from chipshift.planner.table import prepare, scored, step_times
from chipshift.worked import plain
from tests.estimate.conftest import job_of

H100 = parse_machine("h100*8")
PLAN = Plan(fsdp=8, microbatch=2.0, accumulation=4)
STUDENT, TEACHER = preset("llama-3.2-1b"), preset("llama-3.2-3b")
TEACHER_PARAMS = 3_212_749_824
BF16 = Precision(weights="bf16", gradients="bf16", reduce="bf16", master="none", moments="bf16")
MOE = preset("olmoe-1b-7b")


def told(teacher: Model | None = TEACHER, plan: Plan = PLAN, stack: str = "other",
         name: str = "llama-3.2-1b", explain: bool = False, **job: Any) -> Estimate:  # fmt: skip
    made = job_of(
        name, round(plan.global_batch), 4096, precision=Assumed(BF16, "test"), teacher=teacher,
        **job,
    )  # fmt: skip
    return estimate(made, plan, H100, stack, explain=explain)


def test_a_token_takes_three_passes_of_the_student_and_one_of_the_teacher() -> None:
    own, taught = (forward_flops_per_token(model, 4096) for model in (STUDENT, TEACHER))
    assert told().model_flops_per_token == 3 * own + taught
    # MFU counts the teacher's work: the model's FLOPs over the step's time
    assert told().mfu == pytest.approx(
        told(None).mfu * (3 * own + taught) / (3 * own)
        * told(None).step_time_s / told().step_time_s, rel=1e-12,
    )  # fmt: skip


def numbers(parts: dict[str, Any]) -> dict[str, float]:
    return {name: float(plain(part)) for name, part in parts.items()}


PLANS = {
    "fsdp": PLAN,
    "tp, cp": Plan(fsdp=2, tp=2, cp=2, microbatch=2.0, accumulation=16),
    "pp": Plan(dp=2, pp=4, microbatch=2.0, accumulation=16, optimizer_sharding="zero1"),
    "ulysses": Plan(fsdp=2, cp=4, cp_kind="all_to_all", microbatch=2.0, accumulation=16),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
@pytest.mark.parametrize("stack", ["other", "torchtitan", "megatron"])
def test_a_teacher_of_the_students_shape_is_what_a_reference_of_its_own_is(
    plan: Plan, stack: str
) -> None:
    alike, dpo = (
        told(None if loss == "dpo" else STUDENT, plan, stack, loss=loss, reference=reference)
        for loss, reference in (("lm", "none"), ("dpo", "bf16"))
    )
    assert alike.step_time_s == pytest.approx(float(plain(dpo.step_time_s)), rel=1e-12)
    totals = numbers(dpo.collectives_total)
    assert numbers(alike.collectives_total) == pytest.approx(totals, rel=1e-12)
    assert numbers(alike.memory) == pytest.approx(numbers(dpo.memory), rel=1e-12)
    assert alike.model_flops_per_token == dpo.model_flops_per_token


def test_the_teachers_weights_are_held_as_the_students_are_cut() -> None:
    # 3.21 B parameters of 2 bytes over 8 shards; over 8 replicas each holds all of them, as an
    # optimizer in shards has nothing of a frozen weight
    assert told().memory["weights"] - told(None).memory["weights"] == TEACHER_PARAMS * 2 / 8
    whole = Plan(dp=8, microbatch=2.0, accumulation=4, optimizer_sharding="zero1")
    more = told(plan=whole).memory["weights"] - told(None, whole).memory["weights"]
    assert more == TEACHER_PARAMS * 2
    assert told().memory["gradients"] == told(None).memory["gradients"]
    assert told().memory["optimizer"] == told(None).memory["optimizer"]
    assert told().memory["activations"] == told(None).memory["activations"]
    assert told().update_memory - told(None).update_memory == TEACHER_PARAMS * 2 / 8


def test_a_stage_of_a_pipeline_holds_its_part_of_the_teacher() -> None:
    # 28 layers over 4 stages are 7 of q, o 3072·3072, k, v 3072·1024, gated 3072·8192 and two
    # norms; the first stage has the table of 128,256 rows too
    cut = Plan(dp=2, pp=4, microbatch=2.0, accumulation=16)
    layer = 2 * 3072 * 3072 + 2 * 3072 * 1024 + 3 * 3072 * 8192 + 2 * 3072
    first = 7 * layer + 128256 * 3072
    held, alone = (told(one, cut).first_stage_memory["weights"] for one in (TEACHER, None))
    assert held - alone == first * 2


def test_its_logits_stand_beside_the_students() -> None:
    # 2 sequences of 4,096 tokens × 128,256 logits in bf16
    assert told().memory["logits"] - told(None).memory["logits"] == 2 * 4096 * 128256 * 2


def test_its_layers_are_gathered_once_a_microbatch() -> None:
    # the student's 16 layers: two gathers and a scatter of 2 bytes a parameter; the teacher's 28:
    # one gather. A layer of Llama 3.2 1B: q, o 2048·2048, k, v 2048·512, gated 2048·8192
    student = 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048
    teacher = 2 * 3072 * 3072 + 2 * 3072 * 1024 + 3 * 3072 * 8192 + 2 * 3072
    more = told().collectives_total["fsdp"] / told(None).collectives_total["fsdp"]
    assert more == pytest.approx(1 + 28 * teacher / (3 * 16 * student), rel=0.02)


def test_experts_of_a_teacher_are_sent_and_fetched_once() -> None:
    # forward and backward of the student are four all-to-alls, the teacher's forward pass two
    cut = Plan(fsdp=8, ep=8, microbatch=2.0, accumulation=4)
    one, both = (told(teacher, cut, name="olmoe-1b-7b") for teacher in (None, MOE))
    assert both.collectives_total["ep"] == pytest.approx(1.5 * one.collectives_total["ep"])


def test_a_layout_is_the_students_alone() -> None:
    laid = Plan(
        dp=2, pp=4, microbatch=2.0, accumulation=16, stage_layers=(3, 4, 4, 5), schedule="1f1b"
    )
    assert told(plan=laid).step_time_s > told(None, laid).step_time_s


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_the_explained_numbers_are_the_plain_ones(plan: Plan) -> None:
    worked, bare = told(plan=plan, explain=True), told(plan=plan)
    assert plain(worked.step_time_s) == pytest.approx(plain(bare.step_time_s), rel=1e-12)
    assert plain(worked.memory["total"]) == pytest.approx(plain(bare.memory["total"]), rel=1e-12)
    assert plain(worked.model_flops_per_token) == bare.model_flops_per_token


@pytest.mark.parametrize(
    ("machine", "stack", "teacher"),
    [("h100*8", "megatron", TEACHER), ("h100*8", "other", MOE), ("v6e:2x4", "maxtext", TEACHER)],
)
def test_the_planner_scores_as_the_estimate(machine: str, stack: str, teacher: Model) -> None:
    on = parse_machine(machine)
    made = job_of("llama-3.2-1b", 16, 2048, precision=Assumed(BF16, "test"), teacher=teacher)
    found = search(setting(made, on, stack), keep=40)
    assert found.fitting
    heads = {layer.attention.heads for layer, _ in teacher.layers if layer.attention}
    for kept in found.fitting:
        one = estimate(made, kept.plan, on, stack)
        assert kept.step_time_s == pytest.approx(float(one.step_time_s), rel=1e-9)
        assert kept.memory_bytes == pytest.approx(float(one.memory["total"]), rel=1e-9)
        assert all(n % kept.plan.tp == 0 for n in heads)
    every = search(setting(made, on, stack), keep=1, prune=False)
    assert every.fitting[0].step_time_s == pytest.approx(found.fitting[0].step_time_s, rel=1e-12)


def test_the_bounds_stay_below_plans_with_a_teacher() -> None:
    made = job_of("llama-3.2-1b", 16, 2048, precision=Assumed(BF16, "test"), teacher=TEACHER)
    s = setting(made, H100, "megatron")
    base, options = base_rows(s, {}), choices(s, {})
    p = prepare(s, base, options[0].cp_kind)
    at, rng = layouts(s, p), np.random.default_rng(5)
    for choice in options[::7]:
        rows = np.flatnonzero(applies(choice, base))
        rows = rng.choice(rows, min(20, len(rows)), replace=False) if len(rows) else rows
        bound = floors(s, p, at, choice)
        for row in rows.tolist():
            of = base.tuple_of[row]
            sites = np.arange(p.sites.first[of], p.sites.first[of + 1])
            found = scored(s, p, np.full(len(sites), row), sites, choice)
            one = np.array([row])
            assert bound.time(one)[0] <= float(step_times(found).min()) * (1 + 1e-12)
            assert bound.memory(one)[0] <= float(np.max(found.memory["total"])) * (1 + 1e-12)


def test_a_job_without_a_teacher_is_as_before() -> None:
    made = replace(told(None).job, teacher=None)
    assert estimate(made, PLAN, H100, "other").step_time_s == told(None).step_time_s
