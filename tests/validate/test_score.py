"""Errors, percentiles, ratios and verdicts, on made-up runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.validate.baseline import Baseline, model_flops
from chipshift.validate.case import Case, Measured, Prediction
from chipshift.validate.score import (
    compare,
    groupings,
    nearest_rank,
    ordering,
    ratios,
    special,
    summary,
    verdicts,
)
from chipshift.validate.sweep import to_case

from .test_records import case
from .test_sweep import ROW


def predicted(step_time_s: float, *, fits: bool = True) -> Prediction:
    return Prediction(step_time_s, 0.0, 0.0, fits)


def test_nearest_rank_takes_a_value_that_occurred() -> None:
    # rank ceil(0.5·4) = 2 and ceil(0.9·4) = 4 of 1, 2, 3, 4
    assert nearest_rank([4, 1, 3, 2], 0.5) == 2
    assert nearest_rank([4, 1, 3, 2], 0.9) == 4


@given(st.lists(st.floats(-0.9, 9), min_size=1))
def test_a_summary_is_bounded_by_its_errors(errors: list[float]) -> None:
    found = summary(errors)
    sizes = sorted(map(abs, errors))
    assert sizes[0] <= found.median_abs_rel <= found.p90_abs_rel <= sizes[-1]
    assert min(errors) <= found.bias <= max(errors)


def test_the_error_is_signed_and_relative_to_the_measurement() -> None:
    run = case(scored_step_time_s=2.0)
    assert compare(run, predicted(1.5), "none").step_error == pytest.approx(-0.25)


def test_only_grade_a_pretraining_counts_for_a_chip() -> None:
    rows = [
        compare(case(scored_step_time_s=1.0), predicted(1.1), "none"),
        compare(case(scored_step_time_s=1.0, quality="B"), predicted(9.0), "none"),
        compare(case(scored_step_time_s=1.0, task="lora"), predicted(9.0), "none"),
    ]
    assert groupings(rows)["chip"]["h100"].n == 1
    assert groupings(rows, everything=True)["chip"]["h100"].n == 3
    assert set(groupings(rows)["task"]) == {"pretrain", "lora"}


def test_a_ratio_compares_each_chips_best_measured_row() -> None:
    # chip-seconds a token: h100 1.0 s × 16, a100 3.0 s × 16: measured ratio h100 / a100 = 1/3
    slow = replace(case(), measured=Measured(step_time_s=5.0))
    rows = [
        compare(slow, predicted(4.0), "none"),
        compare(replace(case(), measured=Measured(1.0)), predicted(1.2), "none"),
        compare(replace(case(chip_key="a100"), measured=Measured(3.0)), predicted(3.0), "none"),
    ]
    (found,) = ratios(rows)
    assert (found["from"], found["to"]) == ("a100", "h100")
    assert found["measured"] == pytest.approx(1 / 3)
    assert found["predicted"] == pytest.approx(0.4)


def sweep_row(*, oom: bool, fits: bool) -> object:
    run = to_case(ROW | ({"status": "OOM"} if oom else {}), 0)
    assert isinstance(run, Case)
    return compare(run, predicted(1.0, fits=fits), "none")


def test_verdicts_balance_the_two_truths() -> None:
    # ran: 2 of 2 called so; out of memory: 1 of 2; 3 called "fits", 1 of them ran out
    rows = [
        sweep_row(oom=False, fits=True), sweep_row(oom=False, fits=True),
        sweep_row(oom=True, fits=False), sweep_row(oom=True, fits=True),
    ]  # fmt: skip
    found = verdicts(rows)  # type: ignore[arg-type]
    assert found is not None
    assert found.balanced_accuracy == pytest.approx(0.75)
    assert found.false_fits == pytest.approx(1 / 3)


@pytest.mark.parametrize(("third_fits", "loss"), [(False, 0.1), (True, 4.0)])
def test_ordering_is_the_loss_of_the_fastest_plan_that_is_said_to_fit(
    third_fits: bool, loss: float
) -> None:
    # of those said to fit the second is predicted fastest and ran at 1.1 s, the best at 1.0 s; the
    # third is predicted faster still, and ran at 5 s
    other, third = (case(parallelism={"dp": 16 // tp // 2, "tp": tp}) for tp in (1, 4))
    rows = [
        compare(replace(case(), measured=Measured(1.0)), predicted(2.0), "none"),
        compare(replace(other, measured=Measured(1.1)), predicted(1.5), "none"),
        compare(replace(third, measured=Measured(5.0)), predicted(0.5, fits=third_fits), "none"),
    ]
    found = ordering(rows)
    assert found is not None
    assert found.median_abs_rel == pytest.approx(loss)


def test_badly_planned_runs_take_half_again_as_long_as_the_best_of_their_kind() -> None:
    # 1.0 s, 1.49 s and 1.5 s on the same 16 chips; 9 s on 32 chips is alone of its kind
    rows = [
        compare(case(scored_step_time_s=time, id=f"{time}"), predicted(1.2), "none")
        for time in (1.0, 1.49, 1.5)
    ]
    large = case(n_chips=32, parallelism={"dp": 8}, scored_step_time_s=9.0, id="large")
    found = special([*rows, compare(large, predicted(1.2), "none")])
    assert [row.case.id for row in found["bad_plan"]] == ["1.5"]
    assert len(found["dense"]) == 4


def test_special_groups_count_what_a_chip_counts() -> None:
    rows = [
        compare(case(model={"experts": 8, "topk": 2}, quality=grade), predicted(1.0), "none")
        for grade in "AB"
    ]
    assert len(special(rows)["moe"]) == 1
    assert len(special(rows, everything=True)["moe"]) == 2


def test_the_baseline_leaves_the_rows_own_model_out() -> None:
    mine = case(scored_step_time_s=1.0)
    twin = case(scored_step_time_s=7.0, id="twin")
    other = case(scored_step_time_s=2.0, model={"name": "other"})
    baseline = Baseline([mine, twin, other])
    # the other model reached its FLOPs in 2 s: the same model size at that rate takes 2 s
    assert model_flops(mine) == model_flops(other)
    assert baseline.step_time_s(mine) == pytest.approx(2.0)
    assert Baseline([mine, twin]).step_time_s(mine) is None


def test_model_flops_count_every_matmul_and_half_the_attention() -> None:
    # one layer a token forward: q, k, v, o 2·512·(512 + 2·128 + 512)... = 2·512·1280 = 1,310,720;
    # gated feed-forward 2·3·512·1536 = 4,718,592; attention 4·2048·8·64 = 4,194,304;
    # head 2·512·1000 = 1,024,000; 4 layers; × 3 for forward and backward
    run = case()
    per_token = 3 * (4 * (1_310_720 + 4_718_592 + 4_194_304) + 1_024_000)
    assert model_flops(run) == pytest.approx(per_token * 64 * 4096)
