"""Seconds and memory of whole processes, started cold: no cache of results exists.

    python benchmarks/startup.py

Prints, for each command, the least of five runs' wall time and CPU time and the peak memory, beside
its limit; leaves with 1 when one is exceeded. Run it on an idle machine: wall time is what counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOB = str(ROOT / "examples" / "llama3-8b-torchtitan.toml")
RUNS = 5


@dataclass(frozen=True)
class Case:
    """One command and its limits."""

    args: tuple[str, ...]
    wall_s: float
    memory_bytes: float


def cases(folder: str) -> list[Case]:
    """What is measured; the report is written to ``folder``."""
    assess = ("assess", JOB, "--on", "h100*128", "--to", "v6e", "--to", "v7x")
    return [
        Case(("--help",), 0.4, 100e6),
        Case(("chips",), 1.0, 100e6),
        Case(("estimate", JOB, "--on", "h100*128"), 1.5, 200e6),
        Case(assess, 3.0, 400e6),
        Case((*assess, "--html", f"{folder}/report.html"), 3.0, 400e6),
    ]


def measure(args: tuple[str, ...]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak bytes of one run."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "chipshift", *args], env=env,
                             stdout=subprocess.DEVNULL)  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started
    if child.returncode not in (0, 1):
        raise RuntimeError(f"chipshift {' '.join(args)} left with {child.returncode}")
    return wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0


def main() -> int:
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'command':36} {'wall':>8} {'CPU':>8} {'memory':>9}   limits")
        for case in cases(folder):
            runs = [measure(case.args) for _ in range(RUNS)]
            wall_s, cpu_s, memory = (min(column) for column in zip(*runs, strict=True))
            over += wall_s > case.wall_s or memory > case.memory_bytes
            name = " ".join(Path(word).name for word in case.args)[:36]
            print(f"{name:36} {wall_s:6.2f} s {cpu_s:6.2f} s {memory / 1e6:6.0f} MB   "
                  f"{case.wall_s} s, {case.memory_bytes / 1e6:.0f} MB")  # fmt: skip
    load = os.getloadavg()[0]
    print(f"load of the machine: {load:.1f} on {os.cpu_count()} cores")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
