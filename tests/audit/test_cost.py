"""What a finding costs, worked from a job's numbers by hand."""

import pytest

from chipshift.audit.cost import cost_from_job, score_matrix_bytes, without_job


def test_attention_scores_written_out() -> None:
    # 2 passes · 32 layers · 1 sequence · 32 heads · 8192² · 2 bytes
    #   = 2 · 32 · 32 · 67,108,864 · 2 = 274,877,906,944
    job = {"batch": 1.0, "heads": 32.0, "seq_len": 8192.0, "layers": 32.0, "dtype_bytes": 2.0}
    assert score_matrix_bytes(job) == 274_877_906_944
    cost = cost_from_job("sdpa-math-fallback", job)
    assert cost is not None and cost.bytes == 274_877_906_944 and cost.basis == "job"


def test_half_filled_matrix_unit_costs_half_of_attention() -> None:
    # Heads of 64 on a 128-wide unit leave half of it idle; attention is
    # S / (S + 6·hidden) = 6144 / (6144 + 6·1024) = 1/2 of the step: a quarter is lost.
    job = {"matrix_unit_width": 128.0, "seq_len": 6144.0, "hidden": 1024.0}
    cost = cost_from_job("head-dim-lt-128", job, {"head_dim": 64.0})
    assert cost is not None and cost.fraction_of_step == pytest.approx(0.25)


@pytest.mark.parametrize("size", [128.0, 256.0])
def test_a_filled_matrix_unit_costs_nothing(size: float) -> None:
    job = {"matrix_unit_width": 128.0, "attention_fraction": 0.3}
    cost = cost_from_job("head-dim-lt-128", job, {"head_dim": size})
    assert cost is not None and cost.fraction_of_step == 0


def test_unsharded_logits() -> None:
    # 2 sequences · 4096 tokens · 128,256 words · 4 bytes = 4,202,692,608
    job = {"batch": 2.0, "seq_len": 4096.0}
    cost = cost_from_job("vocab-not-128-multiple", job, {"vocab": 128_256.0})
    assert cost is not None and cost.bytes == 4_202_692_608


def test_the_job_s_vocabulary_is_truer_than_the_line_s() -> None:
    job = {"batch": 1.0, "seq_len": 1.0, "vocab": 10.0}
    cost = cost_from_job("vocab-not-128-multiple", job, {"vocab": 99.0})
    assert cost is not None and cost.bytes == 40


def test_a_host_read_is_a_share_of_the_step() -> None:
    cost = cost_from_job("host-sync-in-step", {"host_round_trip_s": 0.001, "step_time_s": 0.5})
    assert cost is not None
    assert (cost.seconds_per_step, cost.fraction_of_step) == (0.001, 0.002)


def test_one_compile_for_each_length() -> None:
    cost = cost_from_job("variable-length-input", {"distinct_lengths": 37.0})
    assert cost is not None and cost.recompiles == 37


@pytest.mark.parametrize(
    "rule", ["host-sync-in-step", "variable-length-input", "growing-concat", "sdpa-math-fallback"]
)
def test_a_job_that_does_not_say_leaves_the_cost_unknown(rule: str) -> None:
    assert cost_from_job(rule, {"params": 8e9}) is None


def test_padding_to_the_next_tile() -> None:
    # 50,257 is padded to 393 · 128 = 50,304: 0.09 % more; 160 to 256: 60 % more.
    assert "= 0.60" in without_job("dim-not-128-multiple", "", {"dim": 160.0}).formula


def test_no_formula_is_said_to_be_unknown() -> None:
    cost = without_job("some-rule", "", {})
    assert cost.basis == "unknown" and cost.seconds_per_step is None
