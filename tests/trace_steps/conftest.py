"""Steps written to a file of their own, as a user's are."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chipshift.trace import TraceResult, trace


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TraceResult]]:
    """Write a module, trace its ``step``."""
    monkeypatch.chdir(tmp_path)
    paths = list(sys.path)

    def run(code: str, step: str = "step", **options: object) -> TraceResult:
        (tmp_path / "user_step.py").write_text(code)
        return trace(f"user_step.py:{step}", **options)  # type: ignore[arg-type]

    yield run
    sys.modules.pop("user_step", None)
    sys.path[:] = paths


def line_of(code: str, text: str) -> int:
    """The line of ``code`` that holds ``text``, from 1."""
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)
