"""Reports kept by content address, so that the same question is answered at once."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from chipshift.compiled.request import Request, key


def folder() -> Path:
    """``$CHIPSHIFT_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("CHIPSHIFT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(chosen) if chosen else Path(base) / "chipshift" / "compile"


def load(request: Request) -> dict[str, Any] | None:
    """The report kept for a request, unless a file of the user's that it read has changed."""
    path = folder() / f"{key(request)}.json"
    try:
        kept = json.loads(path.read_text("utf8"))
        files, report = dict(kept["files"]), dict(kept["report"])
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that another wrote over
        return None
    if any(_digest(Path(file)) != digest for file, digest in files.items()):
        return None
    if not (report.get("compiled") or report.get("out_of_memory")):
        return None  # nothing else is kept
    if request.detail and report.get("out_of_memory") and "largest" not in report:
        return None  # it was refused where nobody asked what is the largest
    return report


def save(request: Request, report: dict[str, Any]) -> None:
    """Keep a report; a folder that cannot be written is no reason to fail."""
    path = folder() / f"{key(request)}.json"
    files = {file: _digest(Path(file)) for file in report.get("files", [])}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        try:
            new.write_text(json.dumps({"files": files, "report": report}), "utf8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)  # interrupted, or no room left
    except OSError:
        return


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
