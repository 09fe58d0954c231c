"""Eight virtual CPU devices for the tests that run the step, set before jax is imported; a user's
folder for those that run the command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

HERE = Path(__file__).parent
SOURCE = str(HERE.parents[1] / "src")
TINY = HERE / "tiny.json"
"""A Llama of one layer, which compiles soonest, whose vocabulary makes its logits large."""


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's code in it, to run from, and an empty cache."""
    (tmp_path / "users_code.py").write_text((HERE / "users_code.py").read_text("utf8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHIPSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    return tmp_path


@pytest.fixture
def job_file(users_folder: Path) -> Path:
    """A job of that model: 16 sequences of 4,096 a step."""
    (users_folder / "tiny.json").write_text(TINY.read_text("utf8"))
    file = users_folder / "job.toml"
    file.write_text(
        'chipshift = 1\nname = "tiny"\n[model]\nconfig = "tiny.json"\n'
        "[job]\nsequences_per_step = 16\nseq_len = 4096\n"
    )
    return file
