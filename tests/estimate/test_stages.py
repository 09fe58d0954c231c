"""A pipeline goes at the pace of its heaviest stage, and each stage's layers are told by kind."""

from dataclasses import replace

import pytest

from chipshift.estimate import estimate
from chipshift.estimate.columns import Choice
from chipshift.estimate.setting import setting
from chipshift.estimate.stage import _laid_out
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from tests.estimate.conftest import job_of

PLAN = Plan(dp=16, pp=4, tp=2, microbatch=1, accumulation=16, remat="full")
H100 = parse_machine("h100*128")


def test_an_even_layout_written_out_is_the_even_layout() -> None:
    job = job_of("llama-3.1-8b")
    plain = estimate(job, PLAN, H100)
    stated = estimate(job, replace(PLAN, stage_layers=(8, 8, 8, 8)), H100)
    assert stated.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    for part, size in plain.memory.items():
        assert stated.memory[part] == pytest.approx(size, rel=1e-12)


def test_the_heaviest_stage_sets_the_pace() -> None:
    job = job_of("llama-3.1-8b")
    # the second stage's 10 layers against 8: attention has no part outside the layers
    uneven = estimate(job, replace(PLAN, stage_layers=(8, 10, 8, 6)), H100)
    even = estimate(job, replace(PLAN, stage_layers=(8, 8, 8, 8)), H100)
    lighter = estimate(job, replace(PLAN, stage_layers=(8, 9, 9, 6)), H100)
    assert uneven.time["attention"] == pytest.approx(even.time["attention"] * 10 / 8, rel=1e-9)
    # the head, 4096 × 128,256, is 2.4 layers of 218 M: even stages wait for the last one's 10.4,
    # which is too near the 10 to say which is slower, but not to the 9
    assert lighter.step_time_s < min(uneven.step_time_s, even.step_time_s)


def test_layers_are_told_by_kind() -> None:
    # DeepSeek-V3: 3 dense layers, then 58 with experts; in 8 chunks over 4 stages
    chunks = (7, 8, 8, 8, 8, 8, 8, 6)
    job = job_of("deepseek-v3")
    held = _laid_out(setting(job, H100, "megatron"), 4, chunks)
    # chunks 0 and 4 are the first stage: 3 dense and 4 + 8; stages 1 and 2 have 16 with experts
    assert held.counts == [0.0, 16.0] and held.on_stage == 16.0
    assert held.last == [0.0, 14.0] and held.kept == pytest.approx(14 / 16)
    assert Choice(stage_layers=chunks).stage_layers == chunks
