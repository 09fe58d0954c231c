"""Adapters of a job by op: from a PEFT config, and to and from the native file."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from chipshift.jobs.write import to_toml

NATIVE = """
[model]
preset = "llama-3.1-8b"

[job]
seq_len = 4096
sequences_per_step = 8
task = "lora"
trainable_fraction = 0.01
document_len = 300
adapters = { qkv_proj = 3, out_proj = 1 }
"""


def native(tmp_path: Path, text: str) -> str:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return str(file)


def test_the_native_file_says_which_ops_have_adapters(tmp_path: Path) -> None:
    job = read_job([native(tmp_path, NATIVE)])
    assert job.adapters is not None
    assert job.adapters.maps == (("out_proj", 1), ("qkv_proj", 3))
    assert job.document_len == 300
    again = read_job([native(tmp_path, to_toml(job))])
    assert (again.adapters, again.document_len) == (job.adapters, job.document_len)


def test_an_op_that_has_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="qkv_proj"):
        read_job([native(tmp_path, NATIVE.replace("qkv_proj", "qkvproj"))])


def test_a_document_length_is_set_on_the_command_line(tmp_path: Path) -> None:
    file = native(tmp_path, NATIVE.replace("document_len = 300\n", ""))
    assert read_job([file]).document_len == 0
    assert read_job([file], overrides={"job.document_len": "512"}).document_len == 512
