"""Standard output that closes, is absent or cannot show a sign."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.call import ROOT, TORCHTITAN

SHIFT = f"{sys.executable} -m chipshift"
H100 = "--on 'h100*128'"
COMMANDS = [
    "--help",
    "assess --help",
    f"assess {TORCHTITAN} {H100} --to v6e:8x16",
    f"assess {TORCHTITAN} {H100} --to v6e:8x16 --json",
    f"estimate {TORCHTITAN} {H100}",
    f"estimate {TORCHTITAN} {H100} --json",
    f"estimate {TORCHTITAN} {H100} --explain step_time_s",
    f"plan {TORCHTITAN} {H100} --to v6e:8x16 --json",
    f"read {TORCHTITAN}",
    f"read {TORCHTITAN} --toml",
    "chips --json",
    "chips v6e",
    "fabric v6e:16x16 --mesh dp=16,tp=16",
    "audit --rules",
    f"audit {ROOT / 'examples'}",
]


def shell(line: str, **extra: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **extra}
    return subprocess.run(["bash", "-c", line], capture_output=True, env=env, check=False)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split("/")[0] + c.split()[-1])
def test_a_reader_that_leaves_after_one_line(command: str) -> None:
    found = shell(f"set -o pipefail; {SHIFT} {command} | head -n 1")
    assert found.stderr == b""
    assert found.returncode == 0
    assert found.stdout.count(b"\n") <= 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split("/")[0] + c.split()[-1])
def test_standard_output_that_was_closed_before_the_start(command: str) -> None:
    found = shell(f"{SHIFT} {command} >&-")
    assert (found.returncode, found.stderr) == (0, b"")


def test_a_disk_that_is_full() -> None:
    found = shell(f"{SHIFT} chips --json > /dev/full")
    assert found.returncode == 2
    assert found.stderr.decode().count("\n") == 1 and b"standard output" in found.stderr


def test_a_terminal_that_knows_ascii_only() -> None:
    found = shell(f"{SHIFT} read {TORCHTITAN}", PYTHONIOENCODING="ascii")
    assert found.returncode == 0 and found.stderr == b""


def test_no_colour_in_a_pipe_and_100_columns() -> None:
    for command in (f"assess {TORCHTITAN} {H100} --to v6e:8x16", "chips --compare h100,v6e,v7x"):
        out = shell(f"{SHIFT} {command}", COLUMNS="200").stdout.decode()
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 100
