"""Planner speed and memory: plans scored a CPU second on one core, and whole searches.

    python benchmarks/planner.py

For Llama-3.1-405B and DeepSeek-V3, each the best of three runs: every plan scored (every part of
time and memory computed) in every order of its mesh axes; every plan in the usual order alone; and
the pruned search, which finds the same winner. The first run of a process is among them: it
also places the mesh axes, which later ones find in caches.
For comparison: Calculon, the fastest public planner, evaluates 38 to 242 plans a CPU second.
"""

from __future__ import annotations

import resource
import time

from chipshift.estimate.setting import Setting, setting
from chipshift.jobs.job import Assumed, Given, Precision, TrainJob
from chipshift.machines import parse_machine
from chipshift.models.preset import preset
from chipshift.planner.search import Found, search

CASES = [
    ("llama-3.1-405b", "h100*4096", "megatron", 2048, 8192),
    ("llama-3.1-405b", "v7x:16x16x16", "maxtext", 2048, 8192),
    ("deepseek-v3", "h100*2048", "megatron", 15360, 4096),
    ("deepseek-v3", "v7x:8x16x16", "maxtext", 15360, 4096),
]
RUNS = 3
MODES = {
    "every order": {"prune": False},
    "usual order": {"prune": False, "usual_only": True},
    "pruned": {"prune": True},
}


def job_of(name: str, sequences: int, seq_len: int) -> TrainJob:
    """A pretraining job with the shipped model and default precision."""
    return TrainJob(
        name=name,
        files=("benchmark",),
        format="native",
        model=preset(name),
        sequences_per_step=Given(sequences, "benchmark"),
        seq_len=Given(seq_len, "benchmark"),
        precision=Assumed(Precision(), "benchmark"),
        optimizer=Assumed("adamw", "benchmark"),
        stack=Given("megatron", "benchmark"),
    )


def best_of(s: Setting, mode: dict[str, bool]) -> tuple[Found, list[float]]:
    """The last search, and the CPU seconds of each, the first of the process first."""
    seconds = []
    for _ in range(RUNS):
        cpu = time.process_time()
        found = search(s, **mode)
        seconds.append(time.process_time() - cpu)
    return found, seconds


def main() -> None:
    """Run every case in every mode."""
    for name, machine, stack, sequences, seq_len in CASES:
        s = setting(job_of(name, sequences, seq_len), parse_machine(machine), stack)
        print(f"{name} on {machine} under {stack}")
        for words, mode in MODES.items():
            found, seconds = best_of(s, mode)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"  {words:12} {found.considered:>12,} plans, {found.scored:>12,} scored, "
                f"{found.scored / min(seconds) / 1e6:5.2f} M a CPU s  "
                f"{min(seconds):5.2f} s CPU, the first {seconds[0]:5.2f} s  "
                f"{found.fitting[0].step_time_s:.4f} s a step  {peak:,.0f} MiB"
            )


if __name__ == "__main__":
    main()
