"""The analytic memory estimate (stack ``jax``) against the compilers' peaks of the kept cases.

    python benchmarks/compare_compile.py

Reads data/compile_results.jsonl, compiles nothing. Prints every case, the median and the 90th
percentile of the relative error, and verdicts on fitting that differ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.jobs.job import Assumed, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.models.preset import preset
from chipshift.worked import plain

RESULTS = Path(__file__).parent / "data" / "compile_results.jsonl"


def job_of(row: dict[str, Any], plan: Plan) -> TrainJob:
    """The case as a job: fp32 masters that are gathered in bf16, fp32 moments."""
    precision = Precision("bf16", "fp32", "fp32", row["reduce"], "none", "fp32", "bf16")
    return TrainJob(
        name=row["id"],
        files=(),
        format="case",
        model=preset(row["model"]),
        sequences_per_step=Assumed(round(plan.global_batch), "the case"),
        seq_len=Assumed(row["seq_len"], "the case"),
        precision=Assumed(precision, "the compiled step"),
        optimizer=Assumed("adamw", "the compiled step"),
        stack=Assumed("jax", "the compiled step"),
        loss_chunks=row["loss_chunks"],
    )


def main() -> int:
    errors: list[float] = []
    wrong: list[str] = []
    for line in RESULTS.read_text("utf8").splitlines():
        row = json.loads(line)
        plan, machine = Plan(**row["plan"]), parse_machine(row["machine"])
        try:
            found = estimate(job_of(row, plan), plan, machine, "jax")
        except InputError as error:
            print(f"{row['id']}: {error}", file=sys.stderr)
            continue
        total, available = float(plain(found.memory["total"])), float(plain(found.available))
        if bool(row["compiled"]) != (total <= available):
            wrong.append(row["id"])
        if not row["compiled"]:
            print(f"{'out of memory':>14} {total / 1e9:9.3f} GB          {row['id']}")
            continue
        peak = row["memory_bytes"]["peak"]
        errors.append(total / peak - 1)
        print(f"{peak / 1e9:11.3f} GB {total / 1e9:9.3f} GB {errors[-1]:+8.1%} {row['id']}")
    sizes = sorted(map(abs, errors))
    if sizes:
        middle, high = sizes[len(sizes) // 2], sizes[min(len(sizes) - 1, int(len(sizes) * 0.9))]
        print(f"{len(sizes)} cases: median {middle:.1%}, 90th percentile {high:.1%}")
    print(f"verdicts that differ: {len(wrong)} {wrong}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
