"""The sweep's rows: step time from tokens a second, GiB, out of memory and other failures."""

from __future__ import annotations

import pytest

from chipshift.units import GIB
from chipshift.validate.case import Case, Skip
from chipshift.validate.sweep import to_case

ROW = {
    "status": "Success", "nodes": "4.0", "seq_len": "4096", "mbs": "2", "batch_accum": "4.0",
    "gbs": "256.0", "tok/s/gpu": "36989.97", "Mem Alloc (GB)": "13.12", "Mem Res (GB)": "34.86",
    "dp": "32", "pp": "1", "tp": "1", "tp_mode": "REDUCE_SCATTER", "hidden_size": "2048",
    "num_layers": "16", "num_heads": "32", "num_kv_heads": "32.0", "vocab_size": "131072",
    "tie_word_embeddings": "True", "zero_stage": "1", "after_pp_fix": "True",
}  # fmt: skip


def test_step_time_is_tokens_over_throughput() -> None:
    # 32 × 2 × 4 × 4096 tokens over 36989.97 tokens/s × 32 GPUs
    found = to_case(ROW, 7)
    assert isinstance(found, Case)
    assert found.id == "7"
    assert found.measured.step_time_s == pytest.approx(256 * 4096 / (36989.97 * 32))
    assert found.measured.state_memory_bytes == 13.12 * GIB
    assert found.plan.devices == 32
    assert found.plan.global_batch == found.job.sequences_per_step.value == 256


def test_out_of_memory_has_a_verdict_and_no_times() -> None:
    row = ROW | {"status": "OOM", "num_kv_heads": "", "tie_word_embeddings": "", "gbs": "1048576.0"}
    found = to_case(row | {"tok/s/gpu": "", "Mem Alloc (GB)": "", "Mem Res (GB)": ""}, 0)
    assert isinstance(found, Case)
    assert found.measured.oom
    assert found.measured.step_time_s is None
    attention = found.job.model.layers[0][0].attention
    assert attention is not None
    assert (attention.kv_heads, found.job.model.tied) == (32, True)


def test_other_failures_are_neither() -> None:
    assert isinstance(to_case(ROW | {"status": "Other"}, 0), Skip)


@pytest.mark.parametrize(
    ("fix", "pp", "nodes", "expected"),
    [("False", 1, 8, "2"), ("False", 1, 64, "1"), ("False", 4, 8, "0"), ("True", 1, 8, "1"),
     ("True", 4, 8, "1")],
)  # fmt: skip
def test_a_row_belongs_to_one_of_three_series(fix: str, pp: int, nodes: int, expected: str) -> None:
    row = ROW | {"after_pp_fix": fix, "pp": str(pp), "dp": "32", "nodes": str(nodes)}
    found = to_case(row, 0)
    assert isinstance(found, Case)
    assert found.stack_release == f"nanotron@{expected}"
