"""Whatever file a test of this room reads, its native file must assess to the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .same_numbers import assert_written_assesses_the_same

BROKEN_ON_PURPOSE = "test_fuzz"
"""The module whose files are mutated at random; it writes and reads them by itself."""


@pytest.fixture(autouse=True)
def every_job_read_is_written_and_assessed(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each job that a test's module reads goes to native TOML and back, numbers compared."""
    module = request.module
    if not hasattr(module, "read_job") or module.__name__.endswith(BROKEN_ON_PURPOSE):
        return
    folder: Path = tmp_path_factory.mktemp("written")

    def read_and_compare(*files: Any, **options: Any) -> TrainJob:
        job = read_job(*files, **options)
        assert_written_assesses_the_same(job, folder)
        return job

    monkeypatch.setattr(module, "read_job", read_and_compare)
