"""Parts of a model that a file freezes: the share of its parameters that is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.models.preset import preset
from chipshift.models.trained import LANGUAGE, PROJECTOR, TOWERS, Trained, trained_share

from .test_spellings import job

LLAMA = 8_030_261_248
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
"""Llama 3.1 8B, and one of its layers: q and o, k and v, the feed-forward, two norms."""
VISION, MERGER, LANGUAGE_OF_VL = 676_550_144, 44_573_184, 7_615_616_512
"""Qwen2.5-VL 7B: the tower, of it the merger, and the language model, which is Qwen2.5 7B."""
FACTORY = (
    "stage: sft\ncutoff_len: 1024\nper_device_train_batch_size: 1\nbf16: true\nfinetuning_type: "
)


def factory(tmp_path: Path, model: str, rest: str):  # type: ignore[no-untyped-def]
    return job(tmp_path, f"model_name_or_path: {model}\n{FACTORY}{rest}")


def test_llama_factory_freezes_towers_by_default(tmp_path: Path) -> None:
    found = factory(tmp_path, "Qwen/Qwen2.5-VL-7B-Instruct", "full\n")
    whole = LANGUAGE_OF_VL + VISION
    assert found.trainable_fraction == pytest.approx(LANGUAGE_OF_VL / whole, abs=1e-6)
    assert found.task == "sft"
    tower = "full\nfreeze_vision_tower: false\nfreeze_multi_modal_projector: false\n"
    assert factory(tmp_path, "Qwen/Qwen2.5-VL-7B-Instruct", tower).trainable_fraction == 1
    alone = factory(tmp_path, "meta-llama/Llama-3.1-8B", "full\n")
    assert alone.trainable_fraction == 1  # a model without towers
    command = (
        "llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen2.5-VL-7B-Instruct "
        "--finetuning_type full --cutoff_len 1024 --per_device_train_batch_size 1 --bf16 True\n"
    )
    assert job(tmp_path, command, "go.sh").trainable_fraction == found.trainable_fraction


@pytest.mark.parametrize(
    ("count", "layers"),
    [("", 2), ("freeze_trainable_layers: 6", 6), ("freeze_trainable_layers: -4", 4)],
)
def test_few_layers_are_trained(count: str, layers: int, tmp_path: Path) -> None:
    found = factory(tmp_path, "meta-llama/Llama-3.1-8B", f"freeze\n{count}\n")
    assert found.trainable_fraction == pytest.approx(layers * LAYER / LLAMA, abs=1e-6)


SWIFT = "NPROC_PER_NODE=2 swift sft --train_type full --max_length 2048 "


def test_ms_swift_freezes_tower_and_aligner_unless_told_not_to(tmp_path: Path) -> None:
    model = SWIFT + "--model Qwen/Qwen2.5-VL-7B-Instruct"
    whole = LANGUAGE_OF_VL + VISION
    share = job(tmp_path, model, "go.sh").trainable_fraction
    assert share == pytest.approx(LANGUAGE_OF_VL / whole, abs=1e-6)
    aligner = job(tmp_path, model + " --freeze_aligner false", "go.sh").trainable_fraction
    assert aligner == pytest.approx((LANGUAGE_OF_VL + MERGER) / whole, abs=1e-6)
    old = (  # version 2 froze a tower only where it was asked for
        "NPROC_PER_NODE=2 swift sft --sft_type full --max_length 2048 "
        "--model_id_or_path Qwen/Qwen2.5-VL-7B-Instruct"
    )
    assert job(tmp_path, old, "go.sh").trainable_fraction == 1


def test_ms_swift_trains_what_it_names_alone(tmp_path: Path) -> None:
    text = SWIFT + "--model Qwen/Qwen3-8B --freeze_parameters_ratio 1 "
    found = job(tmp_path, text + "--trainable_parameters lm_head", "go.sh")
    # the head: 151,936 rows of 4,096, of 8,190,735,360 parameters
    assert found.trainable_fraction == pytest.approx(151_936 * 4096 / 8_190_735_360, abs=1e-6)


def test_axolotls_unfrozen_parameters(tmp_path: Path) -> None:
    text = (
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "datasets: []\nunfrozen_parameters:\n  - ^lm_head.weight$\n"
        "  - ^model.embed_tokens.weight$[:32000]\n  - model.layers.3[01].mlp.down_proj\n"
    )
    # head and embedding of 128,256 rows, and two of the maps 14336 → 4096
    trained = 2 * 128_256 * 4096 + 2 * 14336 * 4096
    assert job(tmp_path, text).trainable_fraction == pytest.approx(trained / LLAMA, abs=1e-6)


def test_experts_are_named_one_by_one() -> None:
    model = preset("mixtral-8x7b")
    half = Trained(names=(r"layers\.0\.block_sparse_moe\.experts\.[0-3]\.w2",))
    # four experts' maps 14336 → 4096 of 46,702,792,704 parameters
    assert trained_share(model, half) == pytest.approx(4 * 14336 * 4096 / 46_702_792_704)


def test_the_projector_alone() -> None:
    model = preset("qwen2.5-vl-7b")
    share = trained_share(model, Trained(frozen=(LANGUAGE, TOWERS)))
    assert share == pytest.approx(MERGER / (LANGUAGE_OF_VL + VISION))
    assert trained_share(model, Trained(frozen=(LANGUAGE, TOWERS, PROJECTOR))) == 0
