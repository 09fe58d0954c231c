"""Jobs and machines that the estimate's tests share."""

from __future__ import annotations

import pytest

from chipshift.jobs.job import Assumed, Given, Precision, TrainJob
from chipshift.models.preset import preset


def job_of(name: str, sequences: int = 256, seq_len: int = 8192, **changes: object) -> TrainJob:
    """A pretraining job of a shipped model with stated batch and defaults elsewhere."""
    fields: dict[str, object] = {
        "name": name,
        "files": ("job.toml",),
        "format": "native",
        "model": preset(name),
        "sequences_per_step": Given(sequences, "job.toml", 1),
        "seq_len": Given(seq_len, "job.toml", 2),
        "precision": Assumed(Precision(), "test"),
        "optimizer": Assumed("adamw", "test"),
        "stack": Given("megatron", "job.toml", 3),
    }
    return TrainJob(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def llama_8b() -> TrainJob:
    return job_of("llama-3.1-8b")
