"""Findings made by hand, so that these tests say nothing about the rules themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chipshift.audit.finding import AuditResult, Entry, Finding, Unresolved
from chipshift.audit.lines import SourceLines

MakeFinding = Callable[..., Finding]


@pytest.fixture
def finding() -> MakeFinding:
    """A finding with everything filled in but what the test says."""

    def make(**fields: Any) -> Finding:
        line = fields.get("line", 1)
        base = {
            "rule": "host-sync-in-step",
            "target": "torchtpu",
            "topic": "other",
            "severity": "medium",
            "file": "train.py",
            "line": 1,
            "end_line": line,
            "message": "the loss is read in every step",
            "instead": "keep the tensor and read every 100 steps",
            "loop": "step",
            "targets": ("torchtpu",),
        }
        return Finding(**{**base, **fields})

    return make


@pytest.fixture
def result() -> Callable[..., AuditResult]:
    """A result that holds the findings given."""

    def make(*findings: Finding, **fields: Any) -> AuditResult:
        base = {
            "target": "torchtpu",
            "files": 2,
            "entry": Entry("train.py", "train_step"),
            "portable_fraction": 0.75,
            "findings": findings,
            "skipped": (),
            "unresolved": Unresolved(0, 0),
            "seconds": 0.1,
        }
        return AuditResult(**{**base, **fields})

    return make


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., SourceLines]:
    """A folder with the files given as ``name=text`` (dots written as ``__``)."""

    def make(**files: str) -> SourceLines:
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return SourceLines(tmp_path)

    return make
