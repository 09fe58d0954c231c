"""The analytic memory and collectives (stack ``jax``) against the compilers' kept cases.

    python benchmarks/compare_compile.py               # memory of every case, and the verdicts
    python benchmarks/compare_compile.py --left-out    # each model in turn not used for constants
    python benchmarks/compare_compile.py --collectives # as compare_collectives.py
    python benchmarks/compare_compile.py --fast        # the fast mode's error; --write: kept

Reads data/compile_results.jsonl, compiles nothing: the estimate is held against the compiler's own
effort (mode fast), and what the fast mode strays by is taken from the cases compiled to the end.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from statistics import median_low
from typing import Any
from unittest import mock

import compare_collectives
from verify_compile import MODES, results

from chipshift.compiled import fast_mode as fast_mode_data
from chipshift.estimate import estimate, setting
from chipshift.estimate.stack import Stack, stack
from chipshift.jobs.job import Assumed, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.models.preset import preset
from chipshift.worked import plain

SHIPPED = Path(fast_mode_data.__file__).parent / "data" / "fast_mode.toml"

NEAR = 0.10
"""Share of the usable memory within which a case counts as near the limit."""

CHOICES: dict[str, tuple[float, ...]] = {
    "logit_memory_bytes": (4.0, 5.0, 6.0),
    "gathered_layers": (1.0, 2.0),
    "streams_at_loss": (0.0, 2.0),
    "cast_copies": (0.0, 1.0),
    "unwindowed_logit_bytes": (4.0, 6.0),
}
"""Constants of the stack, and values that could have been read off the buffers instead."""


@dataclass(frozen=True)
class Held:
    """One case: the compiler's bytes and ours.

    Attributes:
        peak: None where the compiler says that it does not fit; ``wanted`` is what it names then.
    """

    id: str
    model: str
    peak: float | None
    wanted: float | None
    ours: float
    available: float

    @property
    def error(self) -> float | None:
        return None if self.peak is None else self.ours / self.peak - 1

    @property
    def fits(self) -> bool:
        return self.peak is not None and self.peak <= self.available

    @property
    def we_say_fits(self) -> bool:
        return self.ours <= self.available

    @property
    def near(self) -> bool:
        """Within a tenth of the limit by the compiler's own figure."""
        size = self.peak or self.wanted
        return size is not None and abs(size / self.available - 1) <= NEAR


def rows(mode: str = "fast") -> list[dict[str, Any]]:
    """The kept cases of one mode."""
    return list(results(mode).values())


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


def held(row: dict[str, Any]) -> Held:
    plan, machine = Plan(**row["plan"]), parse_machine(row["machine"])
    found = estimate(job_of(row, plan), plan, machine, "jax")
    peak = row["memory_bytes"]["peak"] if row["compiled"] else None
    return Held(
        row["id"],
        row["model"],
        peak,
        row.get("wanted_bytes"),
        float(plain(found.memory["total"])),
        float(plain(found.available)),
    )


def percentile(errors: list[float], share: float) -> float:
    """Nearest-rank percentile of the absolute errors."""
    sizes = sorted(map(abs, errors))
    return sizes[max(0, ceil(share * len(sizes)) - 1)]


def memory(found: list[Held]) -> None:
    """Every case, then the figures that the bars are about."""
    for one in found:
        if one.error is None:
            print(f"{'does not fit':>14} {one.ours / 1e9:9.3f} GB          {one.id}")
        else:
            peak = (one.peak or 0) / 1e9
            print(f"{peak:11.3f} GB {one.ours / 1e9:9.3f} GB {one.error:+8.1%} {one.id}")
    errors = [one.error for one in found if one.error is not None]
    fitting = [one for one in found if one.fits]
    refused = [one.id for one in fitting if not one.we_say_fits]
    wrongly = [one.id for one in found if one.we_say_fits and not one.fits]
    print(
        f"{len(found)} cases, {sum(one.near for one in found)} near the limit: median "
        f"{percentile(errors, 0.5):.1%}, 90th percentile {percentile(errors, 0.9):.1%}"
    )
    print(f"said to fit where the compiler says no: {len(wrongly)} {wrongly}")
    share = len(refused) / len(fitting)
    print(f"refused of the {len(fitting)} that fit: {len(refused)} ({share:.1%}) {refused}")


@contextmanager
def constants(changed: dict[str, float]) -> Iterator[None]:
    """The estimate under other constants of the stack."""

    def other(name: str, chip: str) -> Stack:
        return replace(stack(name, chip), **changed)  # type: ignore[arg-type]

    with mock.patch.object(setting, "stack", other):
        yield


def left_out(kept: list[dict[str, Any]]) -> list[float]:
    """Errors of each model's cases under the constants that suit the others best."""
    compiled = [row for row in kept if row["compiled"]]
    table: dict[tuple[float, ...], list[Held]] = {}
    for values in itertools.product(*CHOICES.values()):
        with constants(dict(zip(CHOICES, values, strict=True))):
            table[values] = [held(row) for row in compiled]
    errors: list[float] = []
    for model in sorted({row["model"] for row in compiled}):
        best, least = table[next(iter(table))], inf
        for ours in table.values():
            others = [one.error or 0.0 for one in ours if one.model != model]
            size = percentile(others, 0.5) + percentile(others, 0.9)
            best, least = (ours, size) if size < least else (best, least)
        errors += [one.error or 0.0 for one in best if one.model == model]
    return errors


def fast_mode() -> dict[str, dict[str, Any]]:
    """By chip: what the fast mode strays by from compiling to the end, over the programs that
    compile in both."""
    own, pairs = results("time"), defaultdict(list)
    for line, row in results("fast").items():
        if row["compiled"] and line in own and own[line]["compiled"]:
            pairs[parse_machine(row["machine"]).chip.key].append((row, own[line]))
    return {chip: strayed(both) for chip, both in sorted(pairs.items())}


def strayed(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Fast over own, less one: the least, the median and the most."""
    peaks = [fast["memory_bytes"]["peak"] / own["memory_bytes"]["peak"] - 1 for fast, own in pairs]
    libtpu = {row["versions"]["libtpu"] for pair in pairs for row in pair}
    return {
        "programs": len(pairs),
        "models": len({own["model"] for _, own in pairs}),
        "peak": spread(peaks),
        "evidence": f"programs of benchmarks/data/compile_results.jsonl that libtpu "
        f"{', '.join(sorted(libtpu))} compiles in both modes",
    }


def spread(values: list[float]) -> dict[str, float]:
    return {
        "low": round(min(values), 4),
        "median": round(median_low(values), 4),
        "high": round(max(values), 4),
    }


def print_fast(found: dict[str, dict[str, Any]]) -> None:
    """The table of docs/compile.md."""
    for chip, one in found.items():
        peak = one["peak"]
        shown = " | ".join(f"{peak[key]:+.1%}" for key in ("median", "low", "high"))
        print(f"| {chip} | {one['programs']} | {one['models']} | {shown} |")


def write_fast(found: dict[str, dict[str, Any]]) -> None:
    """The figures that the product states, as its data file."""
    blocks = [
        "# Written by benchmarks/compare_compile.py --fast --write: fast over time, less one."
    ]
    for chip, one in found.items():
        counts = (f"{name} = {one[name]}" for name in ("programs", "models"))
        peak = ", ".join(f"{key} = {value}" for key, value in one["peak"].items())
        evidence = f'evidence = "{one["evidence"]}"'
        blocks.append("\n".join((f"[{chip}]", *counts, f"peak = {{ {peak} }}", evidence)))
    SHIPPED.write_text("\n\n".join(blocks) + "\n", "utf8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--left-out", action="store_true", help="leave each model out in turn")
    parser.add_argument("--collectives", action="store_true", help="bytes by kind and axis")
    parser.add_argument("--fast", action="store_true", help="what the fast mode strays by")
    parser.add_argument("--write", action="store_true", help="with --fast: as the product's data")
    parser.add_argument("--mode", choices=MODES, default="fast", help="programs of this mode")
    chosen = parser.parse_args()
    kept = rows(chosen.mode)
    if chosen.fast:
        print_fast(fast_mode())
        if chosen.write:
            write_fast(fast_mode())
    elif chosen.collectives:
        compare_collectives.main([])
    elif chosen.left_out:
        errors = left_out(kept)
        print(
            f"{len(errors)} cases, each model left out in turn: median "
            f"{percentile(errors, 0.5):.1%}, 90th percentile {percentile(errors, 0.9):.1%}"
        )
    else:
        memory([held(row) for row in kept])
    return 0


if __name__ == "__main__":
    sys.exit(main())
