"""Files beside a job file: its bases, idle ones, and bf16 beside fp16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

JOB = """\
_base_: ["./default.yaml"]
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
lora_target: all
template: qwen
per_device_train_batch_size: 2
bf16: true
"""

Make = Callable[..., TrainJob]


@pytest.fixture
def job(tmp_path: Path) -> Make:
    def make(**files: str) -> TrainJob:
        paths = []
        for name, text in files.items():
            path = tmp_path / name.replace("_yaml", ".yaml")
            path.write_text(text)
            paths.append(str(path))
        return read_job(paths)

    return make


def accumulation(job: TrainJob) -> int:
    assert job.plan is not None
    return job.plan.value.accumulation


def test_a_base_is_laid_under_the_file_that_names_it(job: Make) -> None:
    base = "cutoff_len: 3072\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 4\n"
    read_ = job(job_yaml=JOB, default_yaml=base)
    assert (read_.seq_len.value, accumulation(read_), read_.sequences_per_step.value) == (
        3072,
        4,
        8,
    )


def test_a_base_of_a_base(job: Make) -> None:
    read_ = job(
        job_yaml=JOB,
        default_yaml="_base_: root.yaml\ngradient_accumulation_steps: 4\n",
        root_yaml="cutoff_len: 1024\ngradient_accumulation_steps: 2\n",
    )
    assert (read_.seq_len.value, accumulation(read_)) == (1024, 4)


def test_bases_in_a_circle_end(job: Make) -> None:
    with pytest.raises(InputError, match="_base_ goes in a circle"):
        job(job_yaml=JOB, default_yaml="_base_: job.yaml\nmodel_length: 4\n")


def test_bases_that_share_a_base_are_read_once_each(job: Make) -> None:
    """Two names a level would be 2^16 readings at the sixteenth."""
    chain = {f"f{n}_yaml": f"_base_: [f{n + 1}.yaml, g{n + 1}.yaml]\n" for n in range(16)}
    chain |= {f"g{n}_yaml": f"_base_: [f{n + 1}.yaml]\n" for n in range(1, 16)}
    last = {"f16_yaml": "cutoff_len: 512\n", "g16_yaml": "save_steps: 4\n"}
    read_ = job(job_yaml=JOB.replace("./default", "f0"), **chain, **last)
    assert read_.seq_len.value == 512


def test_a_base_that_is_not_given_is_said(job: Make) -> None:
    assert any(one.key == "_base_" and one.matters for one in job(job_yaml=JOB).ignored)


def test_a_file_of_no_format_is_set_aside_only_where_it_says_nothing(job: Make) -> None:
    own = JOB.split("\n", 1)[1] + "cutoff_len: 1024\n"
    idle = job(job_yaml=own, names_yaml="reporter: me\nval_size: 0.1\n")
    assert any(one.key == "names.yaml" for one in idle.ignored)
    with pytest.raises(InputError, match="in no format known here"):
        job(job_yaml=own, names_yaml="reporter: me\nglobal_batch: 64\n")
    with pytest.raises(InputError, match="in no format known here"):
        job(job_yaml=own, names_yaml="runs:\n  - reporter: me\n    global_batch: 64\n")


def test_bf16_goes_before_fp16(job: Make) -> None:
    text = (
        "base_model: NousResearch/Llama-2-7b-hf\nadapter: lora\nlora_r: 8\n"
        "lora_target_linear: true\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "datasets:\n  - path: d\n    type: alpaca\nbf16: auto\nfp16: true\n"
    )
    read_ = job(job_yaml=text)
    assert read_.precision.value.compute == "bf16"
    assert any(one.key == "fp16" and one.matters for one in read_.ignored)
