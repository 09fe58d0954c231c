"""MaxText's kernels: attention's backward pass, ranges of 8-bit operands."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

BASE = "model_name: qwen3-0.6b\nper_device_batch_size: 2\nmax_target_length: 512\n"


def read(folder: Path, text: str) -> TrainJob:
    (folder / "job.yml").write_text(BASE + text)
    return read_job([str(folder / "job.yml")])


def kinds(folder: Path, text: str) -> set[str]:
    return {flag.kind for flag in read(folder, text).flags}


@pytest.mark.parametrize(
    ("text", "two"),
    [
        ("", True),  # base.yml: attention autoselected, sa_use_fused_bwd_kernel false
        ("attention: flash\n", True),
        ("attention: flash\nsa_use_fused_bwd_kernel: true\n", False),
        ("attention: flash\nuse_tokamax_splash: true\n", False),  # has no other
        ("attention: dot_product\n", False),  # no splash attention at all
        ("attention: cudnn_flash_te\nhardware: gpu\n", False),
    ],
)
def test_splash_attention_has_two_backward_kernels_unless_told(
    text: str, two: bool, tmp_path: Path
) -> None:
    assert ("separate_backward" in kinds(tmp_path, text)) is two


def test_ranges_are_fixed_where_both_operands_have_one(tmp_path: Path) -> None:
    eight, fixed = "quantization: fp8_full\nuse_qwix_quantization: true\n", "fixed,-224,224"
    weight = f"weight_quantization_calibration_method: {fixed}\n"
    act = f"act_quantization_calibration_method: {fixed}\n"
    assert "fixed_ranges" in kinds(tmp_path, eight + weight + act)
    assert "fixed_ranges" not in kinds(tmp_path, eight + weight)
    assert "fixed_ranges" not in kinds(tmp_path, eight + weight + act.replace(fixed, "absmax"))
    assert "fixed_ranges" not in kinds(tmp_path, eight)
    assert "fixed_ranges" not in kinds(tmp_path, weight + act)  # of no use in bf16
