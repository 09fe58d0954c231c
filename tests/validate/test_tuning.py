"""What a record's publisher fine-tunes, by the recipe that its table names."""

from __future__ import annotations

from chipshift.validate.tuning import fine_tuning
from tests.validate.test_records import case, record


def test_pretraining_has_neither_documents_nor_adapters() -> None:
    found = fine_tuning(record())
    assert (found.adapters, found.document_len, found.inferred) == (None, 0, ())


def test_nemo_packs_squad_and_adapts_queries_keys_and_values_alone() -> None:
    found = case(task="lora", notes="LoRA fine-tuning with inputs packed to 4096")
    assert found.job.document_len == 200
    assert found.job.adapters is not None
    assert dict(found.job.adapters.maps) == {"qkv_proj": 1}
    assert ("document_len", "200", "NVIDIA's recipes: SQuAD, packed") in found.inferred


def test_sft_trains_every_weight_on_packed_documents() -> None:
    found = case(task="sft", notes="SFT fine-tuning")
    assert (found.job.adapters, found.job.document_len) == (None, 200)
    assert found.job.trainable_fraction == 1


def test_mlperf_attends_over_the_whole_row_and_freezes_in_8_bits() -> None:
    found = case(
        task="lora", notes="MLPerf Training v5.0", dtype_class="fp8",
        source="mlcommons/training_results_v5.0:NVIDIA/results/x.txt",
    )  # fmt: skip
    assert found.job.document_len == 0
    assert found.job.precision.value.weights == "fp8"
    assert found.job.adapters is not None
    assert dict(found.job.adapters.maps) == {"qkv_proj": 1, "out_proj": 1}


def test_automodel_checkpoints_every_layer_on_more_than_one_device() -> None:
    changes = {"task": "lora", "stack": "automodel", "remat_class": None, "notes": "TE + triton"}
    many = case(parallelism={"dp": 8, "tp": 2, "pp": 1}, **changes)
    assert many.remats == ("full",)
    assert not many.job.plan.value.sequence_parallel  # type: ignore[union-attr]
    alone = {"dp": 1, "tp": 1, "pp": 1}
    one = case(n_chips=1, parallelism=alone, **changes)
    assert one.remats[0] == "none"


def test_automodel_without_transformer_engine_runs_op_by_op() -> None:
    eager = case(stack="automodel", notes="PP interleaved")
    assert [flag.kind for flag in eager.job.flags] == ["eager_modules"]
    assert case(stack="automodel", notes="TE + DeepEP").job.flags == ()
