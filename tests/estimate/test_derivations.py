"""Derivations read as a sceptic reads them: names tell terms apart, no term says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.output import estimate_json
from chipshift.flows.asked import present_machine
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines import parse_machine
from chipshift.report.derivation import figures_of
from chipshift.worked import Worked

LLAMA_8B = ("examples/llama3-8b-torchtitan.toml", "h100*128")
LLAMA_70B = ("examples/llama3-70b-megatron.sh", "h100*512")
MIXTRAL = ("examples/mixtral-8x7b-megatron.sh", "h100*128")
DEEPSEEK = ("examples/deepseek-v3-megatron.sh", "h100*1024")
DPO = ("examples/llama3-8b-dpo-trl.yaml", "h100*32")

# one plan of each kind of axis a machine, the job's own on its present one
RUNS = [
    (LLAMA_8B, "", None),
    (LLAMA_8B, "v6e:8x16", Plan(dp=32, tp=4, accumulation=8, optimizer_sharding="zero1")),
    (LLAMA_8B, "v7x:4x4x4", Plan(fsdp=128, microbatch=2)),
    (LLAMA_70B, "", None),
    (LLAMA_70B, "v6e:16x16", Plan(fsdp=256, accumulation=4, remat="full")),
    (LLAMA_70B, "v7x:8x8x4", Plan(fsdp=64, tp=8, accumulation=16, remat="full")),
    (MIXTRAL, "", None),
    (MIXTRAL, "v6e:16x16", Plan(fsdp=256, ep=8, remat="full")),
    (MIXTRAL, "v7x:4x4x8", Plan(fsdp=64, tp=4, ep=8, accumulation=4)),
    (DEEPSEEK, "", None),
    (DEEPSEEK, "v6e:16x16*4", Plan(fsdp=256, dp=4, ep=64, accumulation=8)),
    (DEEPSEEK, "v7x:8x8x8", Plan(fsdp=1024, ep=64, accumulation=8)),
    (DPO, "", None),
    (DPO, "v6e:8x16", Plan(fsdp=32, tp=4, microbatch=2, accumulation=16)),
]


def run_of(file: str, on: str, machine: str, plan: Plan | None) -> Estimate:
    job, present = present_machine(read_job([file]), on)
    if plan is None:
        assert job.plan is not None
        return estimate(job, job.plan.value, present, explain=True)
    batch = plan.global_batch / job.sequences_per_step.value
    sliced = Plan(**{**vars(plan), "accumulation": round(plan.accumulation / batch)})
    return estimate(job, sliced, parse_machine(machine), "maxtext", explain=True)


def steps(value: Worked, seen: dict[int, Worked]) -> Iterator[Worked]:
    """Every step of a derivation once."""
    if id(value) not in seen:
        seen[id(value)] = value
        yield value
        for one in value.inputs:
            yield from steps(one, seen)


@pytest.fixture(scope="module", params=RUNS, ids=lambda r: f"{r[0][0][9:-3]}-{r[1] or 'own'}")
def derivation(request: pytest.FixtureRequest) -> list[Worked]:
    (file, on), machine, plan = request.param
    figures = list(figures_of("", estimate_json(run_of(file, on, machine, plan))))
    seen: dict[int, Worked] = {}
    return [step for _, value in figures for step in steps(value, seen)]


NOTHING_ADDED = re.compile(r"(?<![\w.])0 [+×/]|[+-] 0(?![\w.])|× 1(?![\w.])|/ 1(?![\w.])")


def test_no_term_adds_zero_or_multiplies_by_one(derivation: list[Worked]) -> None:
    assert [s.expression for s in derivation if NOTHING_ADDED.search(s.expression)] == []


def test_inputs_of_a_step_have_names_of_their_own(derivation: list[Worked]) -> None:
    for step in derivation:
        by_name: dict[str, Worked] = {}
        for one in step.inputs:
            same = by_name.setdefault(one.name, one)
            assert (same.value, same.expression) == (one.value, one.expression), step.expression


def test_every_leaf_says_in_words_where_it_is_from(derivation: list[Worked]) -> None:
    leaves = {(s.name, s.source) for s in derivation if not s.expression}
    assert {name for name, source in leaves if not re.search(r"[\w.)]+[ :][\w(]", source)} == set()


def test_only_the_host_link_rests_on_the_assumed_rate_of_host_links(
    derivation: list[Worked],
) -> None:
    resting = {s.name for s in derivation if "30 GB/s" in s.source}
    assert resting <= {"host_link_bytes_per_s"}


def test_every_step_has_a_name(derivation: list[Worked]) -> None:
    assert [s.expression for s in derivation if not s.name] == []
