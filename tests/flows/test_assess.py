"""The main job: what an assessment must say, on Llama-3.1-8B and on jobs that do not fit."""

from __future__ import annotations

import dataclasses

import pytest

from chipshift.estimate import estimate
from chipshift.estimate.output import at_path
from chipshift.flows.assess import Assessment, assess, plan_target
from chipshift.flows.brief import explained_json
from chipshift.flows.explain import explained
from chipshift.flows.measured import anchored_time, relative_error
from chipshift.flows.options import Measured, Options, read_duration, read_numbers
from chipshift.flows.output import (
    assessment_json,
    target_figures,
    with_working,
)
from chipshift.flows.run import run_seconds
from chipshift.flows.verdict import UNVALIDATED_P50, believed, flip_price, verdict
from chipshift.jobs.job import Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.planner.choose import with_batch
from chipshift.worked import Worked, plain
from tests.estimate.conftest import job_of

PRESENT = "h100*128"


@pytest.fixture(scope="module")
def job() -> TrainJob:
    plan = Plan(fsdp=128, microbatch=2, remat="full")
    return job_of(
        "llama-3.1-8b", plan=Given(plan, "job.toml", 4), stack=Given("torchtitan", "f", 1)
    )


@pytest.fixture(scope="module")
def answer(job: TrainJob) -> Assessment:
    options = Options(tokens=1e12, measured=Measured(step_time_s=1.5))
    return assess(job, parse_machine(PRESENT), ["v6e", "v7x:4x4x4"], options)


def test_a_target_without_a_size_is_the_smallest_slice_that_keeps_up(answer: Assessment) -> None:
    target = answer.targets[0]
    assert target.estimate is not None
    assert target.estimate.step_time_s <= answer.present.step_time_s
    smaller = parse_machine("v6e:8x16")
    below = plan_target(answer.job, smaller.name, Options(), answer.present)
    if target.machine.chips > smaller.chips:
        assert below.estimate is not None
        assert below.estimate.step_time_s > answer.present.step_time_s
    assert target.sizings is not None
    assert target.sizings.match_throughput is not None
    assert target.sizings.equal_chips is not None
    assert target.sizings.equal_chips.machine.chips == 128


def test_a_target_with_a_size_has_its_best_plan_there(answer: Assessment) -> None:
    target = answer.targets[1]
    assert target.machine.name == "v7x:4x4x4"
    assert target.estimate is not None
    for other in target.runners_up:
        assert other.estimate.step_time_s >= target.estimate.step_time_s
        assert other.loses_because
    assert target.unchanged is not None
    assert target.unchanged.step_time_s >= target.estimate.step_time_s * (1 - 1e-9) or (
        not target.unchanged.fits
    )


def test_tokens_a_step_are_held_fixed(answer: Assessment) -> None:
    for target in answer.targets:
        assert target.estimate is not None
        assert target.estimate.plan.global_batch == 256


def test_the_flip_price_makes_tokens_cost_the_same(answer: Assessment) -> None:
    target = answer.targets[1]
    assert target.verdict is not None
    assert target.estimate is not None
    flip = target.verdict.flips_at_usd_per_chip_hour
    assert flip is not None
    per_token = flip * 64 * target.estimate.step_time_s
    assert per_token == pytest.approx(6.88 * 128 * answer.present.step_time_s)
    # twice as dear at $4: level at $2
    assert flip_price(4.0, 2.0) == 2.0


def test_a_measurement_anchors_and_is_never_mixed_in(answer: Assessment) -> None:
    assert answer.measured is not None
    predicted = plain(answer.present.step_time_s)
    assert answer.measured.error_step_time == pytest.approx((predicted - 1.5) / 1.5)
    row = answer.measured.targets[0]
    assert row.raw_step_time_s == plain(answer.targets[0].estimate.step_time_s)  # type: ignore[union-attr]
    assert row.anchored_step_time_s == pytest.approx(row.raw_step_time_s / predicted * 1.5)
    assert anchored_time(2.0, 4.0, 3.0) == 1.5
    assert relative_error(3.0, 4.0) == -0.25


def test_a_run_takes_its_tokens_over_goodput() -> None:
    # 1e12 tokens at 2^21 a step and 2 s a step, 90 % of the time making progress
    assert run_seconds(1e12, 2.0**21, 2.0, 0.9) == pytest.approx(1e12 / 2**21 * 2 / 0.9)


def test_every_number_of_a_target_explains_itself(answer: Assessment) -> None:
    tree = explained_json(answer)
    plain_tree = assessment_json(answer)
    for i, target in enumerate(tree["targets"]):
        for key in ("step_time", "tokens_per_s_per_chip", "cost_per_token", "memory_headroom"):
            value = target["ratio"][key]
            assert isinstance(value, Worked)
            assert value.value == pytest.approx(plain_tree["targets"][i]["ratio"][key])
        assert isinstance(target["flips_at"]["usd_per_chip_hour"], Worked)


def test_the_json_has_the_contracts_keys(answer: Assessment) -> None:
    row = assessment_json(answer)
    assert set(row) >= {"schema", "job", "from", "targets", "transfers", "relearn", "proof",
                        "measured"}  # fmt: skip
    assert row["schema"] == "chipshift/assess/1"
    for target in row["targets"]:
        assert set(target) >= {"ratio", "band", "verdict", "flips_at", "sizings",
                               "unchanged_plan", "alternatives", "constraints", "run",
                               "plans_considered", "plans_scored", "plans_fitting",
                               "search_time_s"}  # fmt: skip
    for transfer in row["transfers"]:
        assert set(transfer["to"]) == {"v6e:16x16", "v7x:4x4x4"} or len(transfer["to"]) == 2


def test_what_fits_nowhere_is_an_answer(job: TrainJob) -> None:
    big = dataclasses.replace(
        job_of("llama-3.1-405b", sequences=128),
        plan=Given(Plan(fsdp=128, microbatch=1, remat="full"), "job.toml", 4),
    )
    found = assess(big, parse_machine(PRESENT), ["v6e:2x2"])
    target = found.targets[0]
    assert target.estimate is None
    assert target.short_bytes is not None
    assert target.short_bytes > 0
    assert target.would_fit
    row = assessment_json(found)["targets"][0]
    assert row["plan"] is None
    assert row["verdict"] == "does_not_fit"


def test_what_planning_alone_would_give_is_told_from_what_the_machine_gives() -> None:
    """A poor plan on 64 H100s (pp 8 with tp 8, a microbatch a stage, all of it recomputed) makes
    any target look fast; planned anew on the same machine, it does not."""
    poor = dataclasses.replace(
        job_of("llama-3.1-8b", sequences=64),
        plan=Given(Plan(tp=8, pp=8, microbatch=8, accumulation=8, remat="full"), "job.toml", 4),
    )
    found = assess(poor, parse_machine("h100*64"), ["h100*64"])
    target = found.targets[0]
    assert found.replanned is not None and target.estimate is not None
    assert target.verdict is not None and target.verdict.word == "both"
    # the target is the present machine: planned anew, the two are the same plan
    assert found.replanned.plan == target.estimate.plan
    assert verdict(found.replanned, target.estimate).word == "within_the_error"
    assert target.verdict.deciding.startswith("the present plan: the best one on h100:8x8 takes")
    row = assessment_json(found)
    assert row["replanned"]["step_time_s"] == target.estimate.step_time_s

    best = dataclasses.replace(poor, plan=Given(target.estimate.plan, "job.toml", 4))
    again = assess(best, parse_machine("h100*64"), ["h100*64"])
    assert again.replanned is None and assessment_json(again)["replanned"] is None


def test_what_is_held_is_named_where_nothing_fits_because_of_it(job: TrainJob) -> None:
    """Llama-3.1-8B on eight v6e chips fits with tp = 8; held to replicas it cannot."""
    held = Options(fixed={"dp": 8})
    found = plan_target(job, "v6e:2x4", held)
    assert found.estimate is None and found.short_bytes is not None
    assert "v6e:2x4 without --fix dp=8" in found.would_fit
    assert plan_target(job, "v6e:2x4", Options()).estimate is not None


def test_an_unpriced_chip_has_no_cost(job: TrainJob) -> None:
    found = assess(job, parse_machine(PRESENT), ["trn2:4x4"])
    row = assessment_json(found)["targets"][0]
    assert row["cost"]["usd_per_1e12_tokens"] is None
    assert row["ratio"]["cost_per_token"] is None
    assert row["error_band"]["n"] == 0


def test_a_larger_batch_is_used_only_when_allowed(job: TrainJob) -> None:
    held = plan_target(job, "v6e:16x16", Options())
    free = plan_target(job, "v6e:16x16", Options(allow_batch=True))
    assert held.estimate is not None
    assert free.estimate is not None
    assert held.estimate.plan.global_batch == 256
    ratio = free.estimate.plan.global_batch / 256
    assert plain(free.estimate.step_time_s) / ratio <= plain(held.estimate.step_time_s)


def test_with_a_larger_batch_step_and_token_have_ratios_of_their_own(job: TrainJob) -> None:
    """Target over present, as they stand: a step of 4 times the tokens is not scaled down."""
    machine = parse_machine("v6e:16x16")
    now = estimate(job, Plan(fsdp=256, remat="full"), machine, "maxtext")
    four = estimate(with_batch(job, 4), Plan(fsdp=256, accumulation=4, remat="full"), machine,
                    "maxtext")  # fmt: skip
    found = verdict(now, four).ratio
    assert found.step_time == pytest.approx(four.step_time_s / now.step_time_s)
    assert found.step_time > 3
    # tokens/s a chip is tokens a step / step time / chips, on the same chips: its inverse
    assert found.time_per_token == pytest.approx(1 / found.tokens_per_s_per_chip)
    assert found.time_per_token == pytest.approx(found.step_time / 4)
    worked = target_figures(with_working(now), with_working(four), Options())["ratio"]
    assert worked["step_time"].value == pytest.approx(found.step_time)
    assert worked["time_per_token"].value == pytest.approx(found.time_per_token)


def test_a_deadline_picks_the_slice_and_leaves_the_sizings_to_the_present(
    job: TrainJob, answer: Assessment
) -> None:
    """1e12 tokens are 476,837 steps of 2,097,152; at goodput 0.9 in 5 days 0.815 s a step."""
    options = Options(tokens=1e12, deadline_s=5 * 86400, goodput=0.9)
    found = assess(job, parse_machine(PRESENT), ["v6e"], options).targets[0]
    assert found.estimate is not None
    limit_s = 5 * 86400 * 0.9 / (1e12 / 2_097_152)
    assert limit_s == pytest.approx(0.8153, abs=1e-4)
    assert plain(found.estimate.step_time_s) <= limit_s
    smaller = [e for e in found.frontier if e.machine.chips < found.machine.chips]
    assert all(plain(e.step_time_s) > limit_s for e in smaller)
    assert found.sizings is not None
    assert found.sizings.match_throughput is not None
    match = answer.targets[0].machine.name
    assert found.sizings.match_throughput.machine.name == match != found.machine.name


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2592000), ("12h", 43200), ("90", 90), ("2w", 1209600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text, "--deadline") == seconds


def test_prices() -> None:
    assert read_numbers(["h100=2.20", "v6e=1.22,v7x=5"], "--price") == {
        "h100": 2.2, "v6e": 1.22, "v7x": 5.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "transfers.0.from.value",
        "transfers.1.to.v7x:4x4x4.value",
        "measured.our_error.step_time_s",
        "measured.anchored.1.anchored_step_time_s",
    ],
)
def test_laws_and_measured_figures_show_their_working(answer: Assessment, path: str) -> None:
    tree = assessment_json(answer)
    worked = explained(answer, tree, path)
    assert isinstance(worked, Worked)
    assert worked.expression
    assert float(plain(worked)) == pytest.approx(at_path(tree, path), rel=1e-9)


def test_one_or_two_runs_are_no_measure_of_an_error() -> None:
    assert believed(None, 0) == UNVALIDATED_P50
    assert believed(0.01, 2) == UNVALIDATED_P50  # however near they came
    assert believed(0.45, 1) == 0.45  # nor do they narrow what they showed to be wide
    assert believed(0.01, 3) == 0.01
