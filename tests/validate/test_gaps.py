"""Whatever a record leaves out, it is scored where the model's sizes and a time are known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chipshift.validate.case import Case, Skip
from chipshift.validate.gaps import completed
from chipshift.validate.records import to_case
from chipshift.validate.run import carried, predict_case, predict_plan
from tests.validate.test_records import record

TEN_CHIPS = {"h100", "a100", "b200", "b300", "gb200", "gb300", "v5e", "v5p", "v6e", "v7x"}


def rows() -> list[dict[str, Any]]:
    text = carried("measured_training.jsonl").read_text("utf8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


ROWS = rows()
HEADLINE = [
    row
    for row in ROWS
    if row["quality"] == "A" and row["task"] == "pretrain" and row["chip_key"] in TEN_CHIPS
]
OPTIONAL = ("source", "slice_topology", "microbatch", "remat", "remat_class", "optimizer",
            "framework", "measured", "flop_convention", "notes", "params", "dtype", "dtype_class",
            "stack", "task", "quality", "derived", "step_time_derived", "scored_from", "id",
            "chip")  # fmt: skip
OF_MODEL = ("name", "kv_heads", "head_dim", "mlp_matrices", "tied", "topk", "moe_d_ff", "attention",
            "shared_experts", "first_dense_layers", "sliding_window", "kv_lora_rank",
            "v_head_dim")  # fmt: skip


def scored(row: dict[str, Any]) -> float:
    """The predicted step time; fails where the row is skipped."""
    found = to_case(row)
    assert isinstance(found, Case), found
    seconds = predict_case(found, predict_plan).predicted.step_time_s
    assert 0 < seconds < float("inf")
    return seconds


def test_every_headline_row_is_a_case() -> None:
    skipped = [found for row in HEADLINE if isinstance(found := to_case(row), Skip)]
    assert len(HEADLINE) > 500
    assert skipped == []


@settings(max_examples=60, deadline=None)
@given(
    row=st.sampled_from(HEADLINE),
    gone=st.sets(st.sampled_from(OPTIONAL)),
    of_model=st.sets(st.sampled_from(OF_MODEL)),
    degrees=st.sets(st.sampled_from(("dp", "fsdp", "tp", "pp", "vpp", "cp", "ep", "sp", "zero"))),
    null=st.booleans(),
)
def test_optional_fields_may_be_absent_or_null(
    row: dict[str, Any], gone: set[str], of_model: set[str], degrees: set[str], null: bool
) -> None:
    def without(whole: dict[str, Any], keys: set[str]) -> dict[str, Any]:
        return {k: None if k in keys else v for k, v in whole.items() if null or k not in keys}

    changed = without(row, gone)
    changed["model"] = without(row["model"], of_model)
    changed["parallelism"] = without(row["parallelism"], degrees)
    scored(changed)


@settings(max_examples=40, deadline=None)
@given(
    row=st.sampled_from(HEADLINE),
    name=st.text(max_size=12),
    stack=st.one_of(st.none(), st.text(max_size=12), st.just("NeMo 26.10")),
    dtype=st.one_of(st.none(), st.text(max_size=8), st.sampled_from(("FP8-E4M3", "BFloat16"))),
    times=st.sampled_from((1, 2, 3)),
)
def test_names_spellings_and_sizes_may_be_any(
    row: dict[str, Any], name: str, stack: str | None, dtype: str | None, times: int
) -> None:
    batch = {k: row[k] and row[k] * times for k in ("global_batch", "tokens_per_step", "n_chips")}
    model = {**row["model"], "name": name}
    scored({**row, **batch, "model": model, "stack": stack, "dtype_class": dtype})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"dtype_class": None, "dtype": "MXFP8 (E4M3)"}, "fp8"),
        ({"dtype_class": "FP8-E4M3"}, "fp8"),
        ({"dtype_class": "bfloat16"}, "bf16"),
        ({"dtype_class": None, "dtype": None}, "bf16"),
        ({"dtype_class": None, "dtype": "fp8/nvfp4"}, "fp8"),
        ({"dtype_class": None, "dtype": "fp8/nvfp4", "notes": "config_1x8_fp4.sh"}, "nvfp4"),
    ],
)
def test_precision_in_other_words(said: dict[str, Any], kind: str) -> None:
    row, inferred = completed(record(**said))
    assert row["dtype_class"] == kind
    assert any(what == "precision of the matmuls" for what, _, _ in inferred)


@pytest.mark.parametrize(
    ("stack", "framework", "name"),
    [
        (None, "NeMo 24.07 / Megatron-Core", "megatron"),
        ("nemo-automodel", "", "automodel"),
        (None, "NeMo AutoModel (PyTorch FSDP2)", "automodel"),
        ("MaxText 2026", "", "maxtext"),
        ("my own", "in-house", "other"),
    ],
)
def test_a_stack_in_other_words(stack: str | None, framework: str, name: str) -> None:
    assert completed(record(stack=stack, framework=framework))[0]["stack"] == name


def test_the_batch_follows_from_rate_chips_and_time() -> None:
    # 12,412.1 tokens/s × 16 chips × 1.32 s = 262,143.6 tokens = 64.0 sequences of 4,096
    row, inferred = completed(
        record(tokens_per_step=None, global_batch=None, scored_step_time_s=1.32,
               measured={"tokens_per_s_per_chip": 12412.1})
    )  # fmt: skip
    assert (row["global_batch"], row["tokens_per_step"]) == (64, 64 * 4096)
    assert ("sequences a step", "64", "tokens a second a chip × chips × step time") in inferred


def test_a_rounded_time_still_gives_a_whole_batch_for_each_chip() -> None:
    # 12,412 × 16 × 1.33 = 264,127 tokens = 64.5 sequences: 4 a chip is 0.8 % away
    changes = {"tokens_per_step": None, "global_batch": None, "scored_step_time_s": 1.33}
    row, _ = completed(record(measured={"tokens_per_s_per_chip": 12412}, **changes))
    assert row["global_batch"] == 64


def test_the_time_follows_from_tokens_chips_and_rate() -> None:
    # 262,144 tokens / 16 chips / 8,192 tokens/s = 2 s
    row, _ = completed(record(scored_step_time_s=None, measured={"tokens_per_s_per_chip": 8192.0}))
    assert row["scored_step_time_s"] == 2.0


def test_a_model_known_by_name_alone_is_its_public_config() -> None:
    gone = dict.fromkeys(("layers", "d_model", "heads", "kv_heads", "d_ff", "vocab"))
    found = to_case(record(model={**gone, "name": "Kimi_K2"}, parallelism={"ep": 4}))
    assert isinstance(found, Case)
    assert found.job.model.n_layers == 61
    assert "moe" in found.groups


def test_a_chip_by_its_vendors_name() -> None:
    assert completed(record(chip_key=None, chip="TPU v6e (Trillium)"))[0]["chip_key"] == "v6e"
    assert completed(record(chip_key=None, chip="NVIDIA H100 80GB HBM3"))[0]["chip_key"] == "h100"
    assert completed(record(chip_key="gh200", chip="GH200"))[0]["chip_key"] is None


def test_degrees_that_no_source_states_are_the_least_that_fit() -> None:
    # 70e9 parameters × 18 bytes of state are 1,260 GB, sharded in part over 32 devices of 80 GB:
    # neither whole weights and fp32 gradients (6 × 70 = 420 GB) nor a half of them fit on one
    big = {"layers": 80, "d_model": 8192, "heads": 64, "kv_heads": 8, "d_ff": 28672,
           "vocab": 128256}  # fmt: skip
    none = dict.fromkeys(("dp", "tp", "pp", "cp"))
    found = to_case(record(n_chips=32, model=big, parallelism={**none, "zero": 1}))
    assert isinstance(found, Case)
    degrees = [(p.tp, p.pp) for p in (found.plan, *found.wider)]
    assert degrees[:4] == [(1, 1), (2, 1), (1, 2), (4, 1)]
    result = predict_case(found, predict_plan)
    assert result.predicted.fits


def test_experts_are_dealt_out_before_a_mixture_is_cut() -> None:
    # 128 experts over the data axis of 32 devices: by 2, 4, 8, 16 and 32 before tp and pipelines;
    # over tp=2 that axis is 16
    none = dict.fromkeys(("dp", "tp", "pp", "cp", "ep"))
    gone = dict.fromkeys(("layers", "d_model", "heads", "kv_heads", "d_ff", "vocab"))
    mixture = {**gone, "name": "Qwen3-30B-A3B"}
    found = to_case(record(n_chips=32, model=mixture, parallelism={**none, "zero": 1}))
    assert isinstance(found, Case)
    degrees = [(p.ep, p.tp, p.pp) for p in (found.plan, *found.wider)]
    assert degrees[:6] == [(1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (16, 1, 1), (32, 1, 1)]
    assert degrees[6:8] == [(1, 2, 1), (2, 2, 1)]
    assert max(ep for ep, tp, _ in degrees if tp == 2) == 16


def test_chips_that_no_slice_has_are_several_slices() -> None:
    # 96 v5p chips: no such slice; 3 slices of 32
    row = record(chip_key="v5p", n_chips=96, stack="maxtext", slice_topology=None, global_batch=96,
                 tokens_per_step=96 * 4096, parallelism={"dp": None, "tp": 1, "pp": 1})  # fmt: skip
    found = to_case(row)
    assert isinstance(found, Case)
    assert found.machine == "v5p:2x4x4*3"


def test_what_runs_on_trainium_is_built_by_its_own_compiler() -> None:
    # 512 chips of two cores: dp 32 × tp 8 × pp 4 = 1,024
    row = record(chip_key="trn1", n_chips=512, stack="megatron", global_batch=1024,
                 tokens_per_step=1024 * 2048, parallelism={"dp": 32, "tp": 8, "pp": 4},
                 model={"name": "GPT3-23B", "seq_len": 2048, "layers": None, "d_model": None,
                        "heads": None, "kv_heads": None, "d_ff": None, "vocab": None})  # fmt: skip
    found = to_case(row)
    assert isinstance(found, Case)
    assert found.stack == "neuron"
    # AWS's script: 28 layers of 8,192, plain feed-forward of four times that
    assert (found.job.model.n_layers, found.job.model.d_model) == (28, 8192)
    assert found.plan.devices == 1024


def test_a_mesh_of_rings_that_its_degrees_do_not_make_is_placed_as_jax_would() -> None:
    # hybrid_ring_64x4: an innermost axis of 4 on 256 chips; tp=8 is no such mesh, tp=4 is
    told = {"chip_key": "v5e", "n_chips": 256, "stack": "maxtext", "global_batch": 256,
            "tokens_per_step": 256 * 4096, "slice_topology": None,
            "notes": "custom_mesh=hybrid_ring_64x4"}  # fmt: skip
    rings = to_case(record(**told, parallelism={"fsdp": 64, "tp": 4}))
    other = to_case(record(**told, parallelism={"fsdp": 32, "tp": 8}))
    assert isinstance(rings, Case)
    assert isinstance(other, Case)
    assert (rings.plan.rings, other.plan.rings) == (4, 0)
    assert "custom_mesh" in {what for what, _, _ in other.inferred}
    assert predict_case(other, predict_plan).predicted.step_time_s > 0
