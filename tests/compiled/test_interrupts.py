"""A compilation that is ended from outside: no process, no file and no traceback is left."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.child import FOLDER
from chipshift.compiled.run import _watch as watch
from chipshift.compiled.run import remove_left_over

ENTRY = ["--entry", "users_code:make_step", "--mesh", "data=2,model=2"]


@pytest.mark.compiler
@pytest.mark.parametrize("mode", ["--fast", "--time"])
@pytest.mark.parametrize("whole_group", [False, True])
def test_an_interrupt_ends_the_compiler_and_leaves_nothing(
    users_folder: Path, mode: str, whole_group: bool
) -> None:
    pytest.importorskip("jax")
    # A job in the background starts with interrupts ignored, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = subprocess.Popen(
        [sys.executable, "-m", "chipshift", "compile", *ENTRY, "--to", "v6e:4x4",
         mode, "--hlo", "out.txt"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        child = _child_of(parent)
        (os.killpg if whole_group else os.kill)(parent.pid, signal.SIGINT)
        _, errors = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == 130
    assert errors.endswith("chipshift: interrupted\n")
    assert "Traceback" not in errors
    assert _gone(child)
    left = [file.name for file in users_folder.rglob("*") if file.is_file()]
    assert [name for name in left if not name.startswith("users_code.")] == []


@pytest.mark.compiler
@pytest.mark.parametrize("wanted", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_command_leaves_neither_compiler_nor_files(
    users_folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: signal.Signals
) -> None:
    """As a batch system, ``timeout`` or a closed terminal would end it."""
    pytest.importorskip("jax")
    passing = users_folder / "passing"
    passing.mkdir()
    monkeypatch.setenv("TMPDIR", str(passing))
    parent = subprocess.Popen(
        [sys.executable, "-m", "chipshift", "compile", *ENTRY, "--to", "v6e:4x4"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    child = _child_of(parent)
    deadline = time.monotonic() + 60
    while not list(passing.rglob("*.txt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(wanted)
    parent.wait()
    assert _gone(child)
    assert [file.name for file in passing.iterdir() if file.name.startswith(FOLDER)] == []


def test_a_listener_whose_pipe_is_closed_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As an interrupt closes it while the thread that names phases still begins."""
    child = subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    assert watch(child, ["starting"], 10.0, 2**40, None) is None
    assert capfd.readouterr().err == ""


def test_what_two_killed_processes_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that nobody holds for a minute; not one that is held or that was just made."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    left, held, new = (tmp_path / f"{FOLDER}{name}" / "errors.txt" for name in ("a", "b", "c"))
    for file in (left, held, new):
        file.parent.mkdir()
        file.write_text("said")
    for file in (left, held):
        os.utime(file, (time.time() - 61, time.time() - 61))
    with held.open("rb") as sink:
        fcntl.flock(sink, fcntl.LOCK_EX)
        remove_left_over()
    assert [file.parent.exists() for file in (left, held, new)] == [False, True, True]


def _gone(process: int, seconds: float = 30.0) -> bool:
    """Whether a process ends in time; one that waits for its reaper has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def _child_of(parent: subprocess.Popen[Any]) -> int:
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while time.monotonic() < deadline and parent.poll() is None:
        found = children.read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.1)
    raise AssertionError("the compiler was never started")
