"""The plan that is compiled: resized, the planner's best, and the nearest that fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chipshift.cli.compile import job_of
from chipshift.errors import InputError
from chipshift.flows import nearest_fit as flow
from chipshift.flows.compilation import resized
from chipshift.flows.nearest_fit import less_memory
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine

HERE = Path(__file__).parent


def test_a_plan_on_other_devices_keeps_the_tokens_of_a_step() -> None:
    plan = Plan(fsdp=16, tp=2, microbatch=2.0, accumulation=4, remat="full")  # 128 sequences
    smaller, larger = resized(plan, 8), resized(plan, 128)
    assert (smaller.fsdp, smaller.tp, smaller.microbatch, smaller.accumulation) == (4, 2, 2, 16)
    assert (larger.fsdp, larger.tp, larger.microbatch, larger.accumulation) == (64, 2, 2, 1)
    assert smaller.global_batch == larger.global_batch == plan.global_batch
    assert resized(plan, 256).microbatch == 1
    with pytest.raises(InputError, match="needs a multiple of 2 devices"):
        resized(plan, 7)
    with pytest.raises(InputError, match="128 sequences a step do not divide over the 256"):
        resized(plan, 512)


@pytest.mark.parametrize(
    ("fits", "fit", "notes"),
    [
        (True, None, []),
        (None, None, []),  # did not compile for another reason
        (False, {"plan": "fsdp=8,remat=full"}, []),
        (False, None, ["no other plan was found that fits"]),
    ],
)
def test_a_plan_is_looked_for_only_where_one_does_not_fit(
    fits: bool | None, fit: dict[str, Any] | None, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(flow, "nearest_fit", lambda *asked: looked.append(asked) or fit)
    job = job_of([str(HERE.parents[1] / "examples" / "llama3-8b.toml")], "", "", [])
    report = {"fits": fits, "nearest_fit": None, "notes": []}
    found = flow.with_nearest(report, job, Plan(fsdp=8), parse_machine("v6e:2x4"), 60.0)
    assert (found["nearest_fit"], found["notes"]) == (fit, notes)
    assert len(looked) == (fits is False)


def test_without_a_plan_the_best_that_the_step_can_be_cut_by_is_compiled() -> None:
    # The planner's best for Mixtral on 64 v6e puts its eight experts over dp and tp together, which
    # the step has no axis for; the planner's next ones have ep = 1 or ep inside fsdp.
    job = job_of([str(HERE.parents[1] / "examples" / "mixtral-8x7b-megatron.sh")], "", "", [])
    machine = parse_machine("v6e:8x8")
    plan = flow.best_plan(job, machine)
    assert plan.devices == 64
    assert flow.request_of(job, plan, machine).config is not None  # raises where it cannot be cut


def test_the_best_plan_is_the_best_in_the_dtypes_that_are_compiled() -> None:
    # DeepSeek-V3's job has fp8 matmuls, the step bf16 ones: with activations of one byte tp=2 would
    # fit on 512 v5p; with two bytes it does not (libtpu: 122 of 102 GB), tp=4 does (97)
    path = HERE.parents[1] / "examples" / "deepseek-v3-megatron.sh"
    job = job_of([str(path)], "", "", [])
    wide = flow.in_step_dtypes(job)
    assert (job.precision.value.compute, wide.precision.value.compute) == ("fp8", "bf16")
    assert replace(wide.precision.value, compute="fp8") == job.precision.value
    machine = parse_machine("v5p:8x8x8")
    assert flow.best_plan(job, machine) == flow.best_plan(wide, machine)


def test_where_the_step_can_be_cut_by_no_plan_the_first_reason_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(job: Any, plan: Plan, machine: Any) -> None:
        raise InputError(f"plan: {plan.devices} devices cannot be cut so")

    monkeypatch.setattr(flow, "request_of", refuse)
    job = job_of([str(HERE.parents[1] / "examples" / "llama3-8b.toml")], "", "", [])
    with pytest.raises(InputError, match="16 devices cannot be cut so"):
        flow.best_plan(job, parse_machine("v6e:4x4"))


def test_plans_that_hold_less_keep_the_global_batch() -> None:
    plan = Plan(fsdp=8, microbatch=4, remat="minimal")
    found = less_memory(plan)
    assert [(p.remat, p.microbatch, p.accumulation) for p in found] == [
        ("full", 4, 1), ("full", 2, 2), ("full", 1, 4),
    ]  # fmt: skip
    assert {p.global_batch for p in found} == {plan.global_batch}
