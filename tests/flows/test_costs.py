"""Costs of what must be relearned: each formula by hand, each kind of flag to its sources."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.flows import kernel_costs, shape_costs
from chipshift.flows.collective_costs import hidden_of, padded_exchange
from chipshift.flows.flag_rules import COSTS, FLAG_RULES
from chipshift.flows.port import difference, share_of_step
from chipshift.flows.relearn import Relearn, relearn
from chipshift.flows.state_costs import (
    cast_bytes,
    host_s,
    host_state_bytes,
    restart_share,
    scaler_bytes,
    unhidden_s,
)
from chipshift.jobs.job import Flag, Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.ops import Op
from chipshift.roofline.kernels import MatmulKernel
from chipshift.worked import Worked
from tests.estimate.conftest import job_of

ROOT = Path(__file__).parents[2]


def test_a_cost_is_the_estimate_without_less_the_estimate_with() -> None:
    assert difference(3.0, 2.5) == 0.5
    assert share_of_step(0.5, 2.5) == 0.2


def test_passes_of_unfused_ops_are_their_lines_operands_and_results() -> None:
    # RMSNorm: to fp32, square, mean, scale, to bf16, weight; then the residual's sum
    norm = (2 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 2) + (2 + 2)
    assert norm + (2 + 2 + 2) == 2 * kernel_costs.NORM_PASSES
    # x·cos, minus a half, the halves put together, ·sin, the sum of two
    assert 2 * kernel_costs.ROPE_PASSES == (2 + 2) + (1 + 1) + (2 + 2) + (2 + 2) + (4 + 2)
    # silu reads and writes one of three tensors, the product reads two and writes one
    assert kernel_costs.GATED_SCALE == (1 + 1 + 2 + 1) / 3
    # to the experts: read, written; back: scaled (2), added to a row (3)
    assert kernel_costs.PERMUTE_PASSES == (2 + 5) / 2
    assert kernel_costs.LOSS_BYTES == (2 + 4) + (4 + 4)


def test_adamw_as_separate_kernels_moves_80_bytes_a_parameter_against_30() -> None:
    # fp32: decay 8, first moment 12, second 8 + 12, root 8, scale 8, shift 8, update 16
    by_kernel = 8 + 12 + 8 + 12 + 8 + 8 + 8 + 16
    assert kernel_costs.unfused_optimizer_bytes(4, 4, 2, 4) == by_kernel == 80
    # fused: 12 bytes of state read and written, 4 of gradient read, 2 of weights written = 30
    assert kernel_costs.slower_pass(0.03, 80, 30) == pytest.approx(0.05)


def test_materialised_scores_pass_through_memory_eleven_times() -> None:
    # 32 heads of 8192 × 8192 scores in bf16: 11 × 2 × 32 × 8192² = 47.2 GB a layer
    scores = 32 * 8192**2
    assert kernel_costs.score_traffic_bytes(scores, 2) == 22 * scores
    assert 22 * scores == pytest.approx(47.2e9, rel=1e-3)


def test_small_formulas_by_hand() -> None:
    assert kernel_costs.split_matmuls(2.0, 3) == 4.0  # two further passes of 2 s
    assert hidden_of(3.0, 1.0) == 2.0
    assert padded_exchange(2.0, 1.25) == 0.5
    assert shape_costs.padded_rows(4.0, 1.25) == 1.0
    assert scaler_bytes(1e9, 4) == 8e9  # read and written
    assert cast_bytes(1e9) == 6e9  # fp32 read, bf16 written
    assert host_state_bytes(1e9, 12) == 24e9  # to the device and back
    assert host_s(24e9, 32e9) == 0.75
    assert unhidden_s(3.0, 2.0) == 1.0
    assert unhidden_s(1.0, 2.0) == 0.0
    assert restart_share(9.0, 0.9) == pytest.approx(1.0)
    assert shape_costs.idle_share(2.0, 128, 256) == 1.0
    assert shape_costs.crossing_s(2.0, 2) == 1.0  # two documents: half the pairs cross
    assert kernel_costs.at_least_nothing(-1.0) == 0.0


def test_even_lengths_in_buckets_of_powers_of_two_are_a_quarter_padding() -> None:
    # half of the lengths fill a bucket of 1, a quarter one of 1/2 ...: Σ 2^-i · 2^-(i-1) = 2/3
    mean_bucket = sum(2.0**-i * 2.0 ** -(i - 1) for i in range(1, 40))
    assert mean_bucket == pytest.approx(2 / 3)
    assert shape_costs.padding_share(1 / 2, 2 / 3) == pytest.approx(1 / 4)
    assert shape_costs.padding_s(8.0, 1 / 4) == 2.0


def test_the_compile_time_lies_in_the_middle_half_of_the_carried_measurements() -> None:
    rows = (ROOT / "benchmarks" / "data" / "compile_results.jsonl").read_text("utf8").splitlines()
    whole = [found for row in rows if (found := json.loads(row))["mode"] == "time"]
    spent = [took for row in whole if (took := row.get("compile_time_s"))]
    assert len(spent) >= 20
    low, _, high = statistics.quantiles(spent, n=4)
    assert low < shape_costs.COMPILE_S < high


def test_a_dimension_of_300_on_a_unit_of_256_costs_212_of_512_columns() -> None:
    kernel = MatmulKernel(
        peak_flop_per_s=1e12, e_max=1.0, k_half=0.0, tile_m=8.0, tile_n=256.0, tile_k=256.0,
        units=1.0, wave_softness=0.0, hbm_bytes_per_s=1e30, e_hbm=1.0, launch_s=0.0,
        in_bytes=2.0, out_bytes=2.0,
    )  # fmt: skip
    op = Op("up", "matmul", m=4096.0, n=300.0, k=4096.0)
    # three passes of 2 · 4096 · 4096 · (512 − 300) FLOP at 1e12 a second
    assert shape_costs.fill_s(op, kernel, "n") == pytest.approx(3 * 2 * 4096**2 * 212 / 1e12)
    assert shape_costs.fill_s(op, kernel, "k") == 0.0
    # as the reduction the last pass meets tiles of 8 rows: 304, not 512
    op = Op("down", "matmul", m=4096.0, n=4096.0, k=300.0)
    by_hand = (2 * 2 * 4096**2 * 212 + 2 * 4096**2 * 4) / 1e12
    assert shape_costs.fill_s(op, kernel, "k") == pytest.approx(by_hand)


# --- every kind of flag, on the target's own estimate ---

KEYS = {"fused_ops": "use_liger_kernel", "nccl": "NCCL_ALGO", "cuda_environment": "CUBLAS_X"}
MIXTRAL = job_of("mixtral-8x7b", sequences=256, seq_len=4096, stack=Given("megatron", "f", 1))
NOW = Plan(dp=16, tp=8, accumulation=16, remat="full", optimizer_sharding="zero1")
THERE = Plan(fsdp=128, ep=8, microbatch=2, remat="full")
UNAFFECTED = {"cuda_graph", "cuda_environment"}
"""What the target's estimate does not depend on: worked as the same step twice."""
NONE_OF_IT = {"tp_overlap", "activation_partitioning", "tf32", "quantised_weights",
              "activation_offload"}  # fmt: skip
"""0 for this job and plan: tp is 1, no matmul is in fp32, weights are in bf16, compute hides it."""


def of_flag(kind: str, machine: str, explain: bool) -> list[Relearn]:
    flag = Flag(kind, KEYS.get(kind, kind), "true", "job.sh", 7)
    job: TrainJob = dataclasses.replace(MIXTRAL, flags=(flag,))
    there = parse_machine(machine)

    def run(plan: Plan, on: str) -> Estimate:
        stack = "megatron" if on.startswith("h100") else "maxtext"
        return estimate(job, plan, parse_machine(on), stack, explain=explain)

    carried = run(NOW, there.name)
    found = relearn(job, run(NOW, "h100*128"), run(THERE, machine), carried)
    return [row for row in found if row.file == "job.sh"]


def leaves(value: Worked) -> Iterator[Worked]:
    if not value.inputs:
        yield value
    for one in value.inputs:
        yield from leaves(one)


def test_every_kind_that_has_a_rule_has_a_cost() -> None:
    assert set(COSTS) == set(FLAG_RULES)


@pytest.mark.parametrize("machine", ["v6e:8x16", "v7x:4x4x4"])
@pytest.mark.parametrize("kind", sorted(COSTS))
def test_every_flag_costs_seconds_that_are_worked_to_their_sources(kind: str, machine: str) -> None:
    (row,) = of_flag(kind, machine, explain=False)
    (worked,) = of_flag(kind, machine, explain=True)
    assert (row.file, row.line) == ("job.sh", 7)
    if kind == "custom_code":
        assert row.seconds is None
        assert "--code" in row.evidence
        return
    assert isinstance(worked.seconds, Worked)
    assert math.isfinite(row.seconds)
    assert worked.seconds.value == pytest.approx(row.seconds, rel=1e-9, abs=1e-12)
    assert worked.fraction.value == pytest.approx(row.fraction, rel=1e-9, abs=1e-12)
    assert worked.seconds.expression, "a cost is worked, never given"
    assert {one.name for one in leaves(worked.seconds) if not one.source} == set()
    if kind in UNAFFECTED | NONE_OF_IT:
        assert row.seconds == 0
    else:
        assert row.seconds > 0


def test_tuning_of_nccl_is_worth_what_is_hidden_and_its_log_nothing() -> None:
    flags = {
        key: dataclasses.replace(MIXTRAL, flags=(Flag("nccl", key, "1", "job.sh", 7),))
        for key in ("NCCL_ALGO", "NCCL_DEBUG")
    }
    found = {}
    for key, job in flags.items():
        now = estimate(job, NOW, parse_machine("h100*128"))
        there = estimate(job, THERE, parse_machine("v7x:4x4x4"), "maxtext")
        rows = relearn(job, now, there, None)
        found[key] = next(r.seconds for r in rows if r.rule == "nccl-backend")
        hidden = sum(there.collectives_total.values()) - sum(there.collectives_exposed.values())
    assert found["NCCL_ALGO"] == pytest.approx(hidden)
    assert found["NCCL_DEBUG"] == 0


def test_degrees_that_do_not_divide_are_worked_from_the_best_plan_that_keeps_them() -> None:
    job = dataclasses.replace(MIXTRAL, plan=Given(NOW, "job.sh", 9))
    now = estimate(job, NOW, parse_machine("h100*128"))
    there = parse_machine("v7x:4x4x4")
    best = estimate(job, THERE, there, "maxtext")
    row = next(r for r in relearn(job, now, best, None) if r.rule == "node8-topology")
    assert row.seconds is not None
    assert "best plan with tp=8" in row.evidence
