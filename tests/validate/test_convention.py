"""FLOPs of a token as each source counts them, and what the carried runs say of the counting."""

from __future__ import annotations

from typing import Any

import pytest

from chipshift.validate.case import Case, Prediction
from chipshift.validate.convention import (
    Convention,
    convention_of,
    flops_per_token,
    stated_tflops,
)
from chipshift.validate.gaps import completed
from chipshift.validate.run import carried, read_data
from chipshift.validate.score import compare, nearest_rank

from .test_records import case, record

LLAMA_3_8B = {"layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 8, "d_ff": 14336,
              "vocab": 128256, "seq_len": 8192}  # fmt: skip
# a layer multiplies 4096·128·(2·32 + 2·8) = 41,943,040 and 3·4096·14336 = 176,160,768 weights, the
# head 4096·128256 = 525,336,576: 7,504,658,432 in all; attention's square is 12·32·4096·8192
WEIGHTS = 32 * (41_943_040 + 176_160_768) + 525_336_576
SQUARE = 12 * 32 * 4096 * 8192


def counted(convention: Convention, **model: Any) -> float:
    run = case(model=LLAMA_3_8B | model)
    return flops_per_token(run.job.model, 8192, convention)


def test_attention_is_counted_whole_half_or_not_at_all() -> None:
    assert counted(Convention(1.0)) == pytest.approx(6 * WEIGHTS + SQUARE)
    assert counted(Convention(0.5)) == pytest.approx(6 * WEIGHTS + SQUARE / 2)
    assert counted(Convention(0.0)) == pytest.approx(6 * WEIGHTS)


def test_the_input_embedding_may_count_and_lora_counts_two_thirds() -> None:
    with_input = 6 * (WEIGHTS + 525_336_576) + SQUARE / 2
    assert counted(Convention(0.5, input_embedding=True)) == pytest.approx(with_input)
    assert counted(Convention(0.0, share=2 / 3)) == pytest.approx(4 * WEIGHTS)


def test_all_parameters_hold_the_tied_embedding_once_and_the_norms() -> None:
    # 32 layers of two norms of 4096 and a last one
    assert counted(Convention(1.0, all_parameters=True), tied=True) == pytest.approx(
        6 * (WEIGHTS + 65 * 4096) + SQUARE
    )


def test_keys_and_values_may_be_counted_for_every_head() -> None:
    # 24 more heads of keys and of values: 32 layers of 4096·128·2·24
    more = 32 * 4096 * 128 * 48
    assert counted(Convention(1.0, multi_head=True)) == pytest.approx(6 * (WEIGHTS + more) + SQUARE)


def test_experts_may_be_counted_with_two_matrices() -> None:
    # 2 of 8 experts a token: 3 or 2 matrices of 4096·14336, the router 4096·8
    moe = {"experts": 8, "topk": 2}
    three, two = (counted(Convention(0.5, expert_matrices=n), **moe) for n in (None, 2))
    assert three - two == pytest.approx(6 * 32 * 2 * 4096 * 14336)


def test_a_window_counts_only_where_the_source_counts_it() -> None:
    # every second layer has a window of 128: 16 layers meet 128 keys for 8192
    windowed = {"name": "gpt-oss-x", "sliding_window": 128}
    assert counted(Convention(0.5), **windowed) == pytest.approx(6 * WEIGHTS + SQUARE / 2)
    found = counted(Convention(0.5, windows=True), **windowed)
    assert found == pytest.approx(6 * WEIGHTS + SQUARE / 4 * (1 + 128 / 8192))


def test_a_layer_for_multi_token_prediction_has_a_head_and_a_projection() -> None:
    # one more layer, one more head, and 2·4096 × 4096 that joins hidden state and embedding
    layer = 41_943_040 + 176_160_768
    more = 6 * (layer + 525_336_576 + 2 * 4096 * 4096) + SQUARE / 2 / 32
    plain = counted(Convention(0.5))
    assert counted(Convention(0.5, predicted_layers=1)) == pytest.approx(plain + more)


@pytest.mark.parametrize(
    ("text", "task", "expected"),
    [
        ("README notes: full non-causal attention + MLP + LM head", "pretrain", Convention(1.0)),
        ("README notes: full non-causal attention + MLP + LM head", "sft", Convention(0.0)),
        ("LoRA: 2/3 of the full-training FLOPs", "lora", Convention(0.0, share=2 / 3)),
        ("not identified; AutoModel LoRA rows count 2/3 of full training FLOPs", "lora",
         Convention(0.5, share=2 / 3)),
        ("source README: 6*N + full non-causal attention 12*L*d*S", "pretrain",
         Convention(1.0, all_parameters=True)),
        ("causal HALF attention (MLA), LM head, plus one MTP layer", "pretrain",
         Convention(0.5, predicted_layers=1)),
        ("causal HALF attention on global layers, half window on sliding layers", "pretrain",
         Convention(0.5, windows=True)),
        ("Megatron-Bridge formula (causal HALF attention); not re-derived", "pretrain", None),
        ("not identified: source 2481.5 GFLOP/token", "pretrain", None),
        ("not stated", "pretrain", None),
        (None, "pretrain", None),
    ],
)  # fmt: skip
def test_a_convention_is_read_from_its_words(
    text: str | None, task: str, expected: Convention | None
) -> None:
    assert convention_of({"flop_convention": text, "task": task}) == expected


def test_an_mfu_means_tflops_by_the_peak_that_its_source_divides_by() -> None:
    def stated(**changes: Any) -> float | None:
        return stated_tflops(completed(record(**changes))[0])

    assert stated(measured={"mfu": 0.4}) == pytest.approx(0.4 * 989)
    assert stated(measured={"mfu": 0.4}, dtype_class="fp8") == pytest.approx(0.4 * 1979)
    assert stated(measured={"mfu": 0.4, "tflops_per_chip": 400.0}) == 400.0
    assert stated(measured={"mfu": 0.4}, chip_key="mi300x") is None
    assert stated(measured={"mfu": 40}) is None  # a percentage: no fraction of a peak


def test_tflops_are_compared_in_the_sources_own_convention() -> None:
    # 4 layers of 512·(2·512 + 2·128) + 3·512·1536 weights, head 512·1000: 12,570,624; attention
    # 12·4·512·4096 = 100,663,296 a token; 64·4096 tokens on 16 chips in 2 s at 1.0 TFLOP/s stated
    run = case(
        scored_step_time_s=2.0, measured={"tflops_per_chip": 1.0},
        flop_convention="full non-causal attention + LM head",
    )  # fmt: skip
    rate = (6 * 12_570_624 + 100_663_296) * 64 * 4096 / 16 / 2.0 / 1e12
    found = compare(run, Prediction(2.0, 0.0, 0.0, True), "none")
    assert found.error["tflops_per_chip"] == pytest.approx(rate - 1)
    assert "tflops_per_chip" not in compare(case(), Prediction(2.0, 0, 0, True), "none").error


def test_the_sources_own_figures_come_back_from_their_measured_times() -> None:
    """FLOPs so counted, over the measured time, are the TFLOP/s that each source states."""
    rows = read_data(carried("measured_training.jsonl"))
    off = [
        abs(rate / row.measured.tflops_per_chip - 1)
        for row in rows
        if isinstance(row, Case)
        and row.measured.step_time_s
        and row.measured.tflops_per_chip
        and (rate := row.tflops_per_chip(row.measured.step_time_s))
    ]
    assert len(off) >= 500
    assert nearest_rank(off, 0.5) <= 0.002
    assert nearest_rank(off, 0.95) <= 0.01
