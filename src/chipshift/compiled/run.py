"""Run one compilation in its own process: progress, time-out, memory bound, clean interrupt."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chipshift.compiled.child import FOLDER, environment
from chipshift.compiled.request import Request

Progress = Callable[[str, float], None]

TIMEOUT_S = 1800.0
MEMORY_LIMIT_BYTES = 12 * 2**30
POLL_S = 0.2
SETTLED_S = 60.0
"""Age from which on a folder that nobody holds is left over; a younger one may not be held yet."""


def run(
    request: Request,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The child's report; a crash, a kill, a time-out or a refusal is a report with a reason."""
    remove_left_over()
    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        report = Path(folder) / "report.json"
        errors = Path(folder) / "errors.txt"
        phases = ["starting"]
        with errors.open("wb") as sink:
            fcntl.flock(sink, fcntl.LOCK_EX)  # held by the child too: until both are gone
            child = _start(request, report, sink)
            try:
                ended = _watch(child, phases, timeout_s, memory_limit_bytes, progress)
            finally:
                _stop(child)
                if request.keep:
                    request.part.unlink(missing_ok=True)
        if report.exists():
            outcome: dict[str, Any] = json.loads(report.read_text("utf8"))
            return outcome
        return {
            "program": request.program,
            "mode": request.mode,
            "compiled": False,
            "reason": ended or _last_words(child.returncode, errors, phases[-1]),
        }


def remove_left_over() -> None:
    """Remove what earlier compilations left that were killed together with their child."""
    for errors in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/errors.txt"):
        with contextlib.suppress(OSError), errors.open("rb") as sink:  # another's, or in use
            if time.time() - errors.stat().st_mtime < SETTLED_S:
                continue
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(errors.parent, ignore_errors=True)


def _start(request: Request, report: Path, sink: Any) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[2])
    paths = [source, *request.path, os.environ.get("PYTHONPATH", "")]
    child = subprocess.Popen(
        [sys.executable, "-m", "chipshift.compiled.child", str(report)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=sink,
        text=True,
        # its own group, so that a stop reaches whatever it started
        start_new_session=True,
        env={
            **os.environ,
            **environment(),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TMPDIR": str(report.parent),
        },
    )
    assert child.stdin is not None
    # It stays open: its end tells the child that this process is gone, however it went.
    with contextlib.suppress(BrokenPipeError):  # it died at once; its return code tells
        child.stdin.write(request.as_json() + "\n")
        child.stdin.flush()
    return child


def _watch(
    child: subprocess.Popen[str],
    phases: list[str],
    timeout_s: float,
    memory_limit_bytes: int,
    progress: Progress | None,
) -> str | None:
    """Wait for the child, adding its phases; the reason it was stopped, or None when it ended by
    itself."""

    def listen() -> None:
        assert child.stdout is not None
        with contextlib.suppress(ValueError):  # it was closed: nobody waits any longer
            phases.extend(line.strip() for line in child.stdout if line.strip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    started = time.monotonic()
    while child.poll() is None:
        elapsed = time.monotonic() - started
        if progress is not None:
            progress(phases[-1], elapsed)
        if elapsed > timeout_s:
            return f"timed out after {timeout_s:g} s while {phases[-1]}"
        held = resident_bytes(child.pid)
        if held > memory_limit_bytes:
            return (
                f"stopped at {held / 2**30:.1f} GiB of memory while {phases[-1]} "
                f"(limit {memory_limit_bytes / 2**30:.0f} GiB)"
            )
        try:
            child.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
    listener.join(1.0)
    return None


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stop(child: subprocess.Popen[str]) -> None:
    """End the child's whole group, kindly and then not."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            break
        try:
            os.killpg(child.pid, wanted)
            child.wait(2.0)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


_FATAL = re.compile(r"^F\d{4} |Check failed")
_RAISED = re.compile(r"^(\w+\.)*\w*(Error|Exception|Exit|Interrupt)\b")
"""How the line begins with which Python ends a traceback."""


def _last_words(code: int | None, errors: Path, phase: str) -> str:
    """What the compiler said before it died. What libtpu logs as an error on every machine without
    a TPU is not what ended it."""
    lines = [line.strip() for line in errors.read_text("utf8", "replace").splitlines()]
    last = next((line for line in reversed(lines) if _FATAL.search(line)), "") or next(
        (line for line in reversed(lines) if _RAISED.match(line)), ""
    )
    said = f": {last[:400]}" if last else ""
    if code == -signal.SIGKILL:  # by a person, or by the system
        said = ", as when the machine has no memory left"
    if code is not None and code < 0:
        return f"the compiler died of signal {signal.Signals(-code).name} while {phase}{said}"
    return f"the compiler's process ended with code {code} while {phase}{said}"
