"""Planner speed and memory: plans scored a second on one core, and whole searches.

    python benchmarks/planner.py

Prints plans scored a second for Llama-3.1-405B and DeepSeek-V3 without pruning (every part of time
and memory computed), and the seconds of a pruned search of Llama-3.1-405B on 4,096 chips.
For comparison: Calculon, the fastest public planner, evaluates 38 to 242 plans a CPU second.
"""

from __future__ import annotations

import resource
import time

from chipshift.estimate.setting import setting
from chipshift.jobs.job import Assumed, Given, Precision, TrainJob
from chipshift.machines import parse_machine
from chipshift.models.preset import preset
from chipshift.planner.search import search

CASES = [
    ("llama-3.1-405b", "h100*4096", "megatron", 2048, 8192),
    ("llama-3.1-405b", "v7x:16x16x16", "maxtext", 2048, 8192),
    ("deepseek-v3", "h100*2048", "megatron", 15360, 4096),
    ("deepseek-v3", "v7x:8x16x16", "maxtext", 15360, 4096),
]


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


def main() -> None:
    """Run every case whole and pruned."""
    for name, machine, stack, sequences, seq_len in CASES:
        s = setting(job_of(name, sequences, seq_len), parse_machine(machine), stack)
        cpu = time.process_time()
        whole = search(s, prune=False)
        cpu_whole = time.process_time() - cpu
        cpu = time.process_time()
        pruned = search(s)
        cpu_pruned = time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name:16} {machine:14} {whole.considered:>10,} plans  "
            f"{whole.scored / cpu_whole / 1e6:5.2f} M plans/CPU s  "
            f"whole {cpu_whole:6.2f} s  pruned {cpu_pruned:5.2f} s CPU "
            f"({pruned.seconds:5.2f} s wall, {pruned.scored:,} scored)  {peak:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
