"""Which plan stands for one that the compiled step cannot be cut by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chipshift.cli.app import run
from chipshift.cli.compile import job_of
from chipshift.compiled import describe
from chipshift.errors import InputError
from chipshift.flows import prove
from chipshift.flows.prove import nearest_request
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine

MIXTRAL = Path(__file__).parents[2] / "examples" / "mixtral-8x7b-megatron.sh"
ON = "h100*128"
SIXTEEN = parse_machine("v6e:4x4")


def test_experts_cut_across_axes_are_proved_by_the_nearest_plan_and_it_is_said() -> None:
    job = job_of([str(MIXTRAL)], ON, "", [])
    across = Plan(dp=4, fsdp=4, ep=8, microbatch=1, accumulation=64, remat="full")
    request, plan, notes = nearest_request(job, across, SIXTEEN, "fast")
    # dp's four devices go to fsdp, whose 16 eight divides: 2 x 8 of the step's fsdp and ep
    assert (plan.dp, plan.fsdp, plan.ep) == (1, 16, 8)
    assert request.config is not None
    assert request.config.mesh == (1, 2, 8, 1, 1)
    (note,) = notes
    assert note.startswith("compiled --plan fsdp=16,ep=8")
    assert "ep=8 divides neither fsdp=4 nor, with fsdp=1, dp=4" in note


def test_a_plan_that_the_step_can_be_cut_by_is_compiled_as_it_is() -> None:
    job = job_of([str(MIXTRAL)], ON, "", [])
    plan = Plan(fsdp=16, ep=8, microbatch=1, accumulation=64, remat="full")
    assert nearest_request(job, plan, SIXTEEN, "fast")[1:] == (plan, [])


def test_what_no_plan_mends_is_refused_with_its_own_reason() -> None:
    job = replace(job_of([str(MIXTRAL)], ON, "", []), loss="dpo")
    with pytest.raises(InputError, match="the loss is"):
        nearest_request(job, Plan(fsdp=16), SIXTEEN, "fast")


def test_adapters_are_refused_where_every_weight_would_be_trained() -> None:
    job = replace(job_of([str(MIXTRAL)], ON, "", []), task="lora")
    with pytest.raises(InputError, match="trains adapters beside frozen weights"):
        nearest_request(job, Plan(fsdp=16), SIXTEEN, "fast")


@pytest.mark.parametrize(
    ("optimizer", "noted"), [("adamw", []), ("muon", ["AdamW compiled in place of muon"])]
)
def test_another_optimizer_than_the_steps_is_said(optimizer: str, noted: list[str]) -> None:
    job = job_of([str(MIXTRAL)], ON, "", [f"optimizer={optimizer}"])
    plan = Plan(fsdp=16, microbatch=1, accumulation=64)
    notes = nearest_request(job, plan, SIXTEEN, "fast")[0].notes
    assert [note for note in notes if "AdamW" in note] == noted


def test_without_a_compiler_the_answer_is_whole_and_part_four_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The answer is yes, so that the exit code is 0; nothing is planned for a compilation."""
    monkeypatch.setattr(describe, "find_spec", lambda name: None)
    monkeypatch.setattr(prove, "nearest_request", None)
    told = ["assess", str(MIXTRAL), "--on", ON, "--to", "v6e:8x8", "--to", "h200*64", "--prove"]
    assert run([*told, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["transfers"]
    assert found["targets"][0]["step_time_s"] > 0
    (proof,) = found["proofs"]  # of the TPU
    assert (proof["machine"], proof["compiled"], proof["fits"]) == ("v6e:8x8", False, None)
    assert proof["reason"] == (
        "compiling needs jax and libtpu, which are not installed: pip install 'chipshift[compile]'"
    )
    assert run(told) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "not compiled compiling needs jax and libtpu" in shown
