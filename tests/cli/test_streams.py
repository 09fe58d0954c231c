"""Standard output that closes, is absent or cannot show a sign."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

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
def test_a_pipe_gets_no_blanks_at_the_end_of_a_line(command: str) -> None:
    lines = shell(f"{SHIFT} {command} | cat").stdout.decode().split("\n")
    assert [line for line in lines if line != line.rstrip()] == []


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


def on_terminal(columns: int, command: str) -> list[str]:
    """Lines on a terminal of so many columns, without their colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    unset = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    env = {**unset, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    line = ["bash", "-c", f"{SHIFT} {command}"]
    with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        read = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            read += part
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read.decode()).replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "command",
    [
        "chips",
        "chips v7x",
        "chips --compare h100,v6e,v7x,trn2",
        "fabric v6e:16x16 --mesh fsdp=64,tp=4 --bytes 1MiB,2MiB,4MiB,8MiB,16MiB,1GiB",
        f"audit {ROOT / 'examples'}",
        f"validate {ROOT / 'tests' / 'cli' / 'measured.jsonl'}",
        f"read {TORCHTITAN}",
    ],
    ids=lambda c: c.split("/")[0],
)
def test_a_terminal_of_80_columns_is_kept_to(command: str) -> None:
    lines = on_terminal(80, command)
    assert max(map(len, lines)) <= 80
    assert len(lines) >= 5


def test_sizes_beyond_the_width_have_a_table_of_their_own() -> None:
    """Seven sizes: four fit 80 columns beside the kind, three stand below."""
    sizes = [f"{n} MiB" for n in (1, 2, 3, 5, 6, 7, 9)]
    asked = ",".join(size.replace(" ", "") for size in sizes)
    lines = on_terminal(80, f"fabric v6e:4x4 --mesh tp=16 --bytes {asked}")
    heads = [line for line in lines if line.startswith("tp, V =")]
    assert [head.split("=")[1].split() for head in heads] == [
        " ".join(sizes[:4]).split(), " ".join(sizes[4:]).split()
    ]  # fmt: skip
    assert sum(line.startswith("all-gather") for line in lines) == 2
