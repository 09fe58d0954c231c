"""Measured TPU runs against the compiler's cycles: one length of a cycle a chip, and its error.

    python benchmarks/time_compile.py --compile     # programs without a result yet, full effort
    python benchmarks/time_compile.py               # calibrate and score, compile nothing

time_reduction.py cuts a run to programs of one device. Cycles of a scan's body are counted once a
layer of its kind, and everything in proportion to the tokens. What the reduction leaves out is
added as the estimate has it for the run's own software: the attention kernel (splash, the older
flash kernel or none), the optimizer and the exposed collectives.
Results are kept in data/compile_time.jsonl, one program a line; runs that share a program (the
same shapes on more slices) share its line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from time_reduction import CHIPS, LAYERS, key, runs

from chipshift.compiled.hlo.cycles import read_cycles
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Module, parse
from chipshift.compiled.request import Request, config_from
from chipshift.compiled.run import run
from chipshift.compiled.step.config import Config
from chipshift.compiled.topology import target
from chipshift.estimate import estimate
from chipshift.machines.names import parse_machine
from chipshift.validate.case import Case
from chipshift.worked import plain

RESULTS = Path(__file__).parent / "data" / "compile_time.jsonl"
SLICE = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1", "v7x": "v7x:2x2x1"}
"""The program is compiled for the first device of these."""
ADDED = ("attention", "optimizer")
"""Parts of the estimate that a reduced program has no cycles for."""


def compiled(chip: str, config: Config) -> dict[str, Any]:
    """Cycles of the program inside the scan over layers, and outside it."""
    machine = parse_machine(SLICE[chip])
    os.environ["CHIPSHIFT_REDUCED"] = json.dumps(asdict(config))
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.hlo"
        request = Request(
            "entry", "reduced", target(machine), mode="time", entry="time_program:make_step",
            path=(str(Path(__file__).parent),), keep=str(program),
        )  # fmt: skip
        outcome = run(request, timeout_s=1200.0)
        cycles = parts(parse(program.read_text("utf8"))) if outcome["compiled"] else {}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "chip": chip,
        "config": asdict(config),
        "reason": outcome.get("reason"),
        "cycles": cycles,
        "peak_bytes": (outcome.get("memory_bytes") or {}).get("peak"),
        "cpu_s": round(after.ru_utime - before.ru_utime, 1),
        "wall_s": round(time.monotonic() - begun, 1),
        "versions": outcome.get("versions"),
    }


def parts(module: Module) -> dict[str, float]:
    """Cycles of the loops over layers, and of embedding, head and loss."""
    times = multiplicities(module)
    once = {name: found for name, found in module.computations.items() if times.get(name, 0) < 2}
    whole, ends = read_cycles(module), read_cycles(replace(module, computations=once))
    return {"layers": whole.compute - ends.compute, "ends": ends.compute}


def results() -> dict[str, dict[str, Any]]:
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text("utf8").splitlines() if line]
    return {key(row["chip"], config_from(row["config"])): row for row in rows}


def compile_missing(chosen: str, seconds: float) -> None:
    """Compile each program without a result for runs whose name holds ``chosen``; those that most
    runs share come first."""
    shared: Counter[str] = Counter()
    programs: dict[str, tuple[str, Config]] = {}
    for case, one in runs():
        for config, _ in one.programs:
            name = key(one.chip, config)
            shared[name] += chosen in f"{one.chip} {case.model}"
            programs[name] = one.chip, config
    ends = time.monotonic() + seconds
    for name, members in shared.most_common():
        if not members or name in results() or time.monotonic() > ends:
            continue
        chip, config = programs[name]
        row = compiled(chip, config)
        with RESULTS.open("a", encoding="utf8") as out:
            out.write(json.dumps(row) + "\n")
        print(chip, members, row["cycles"] or row["reason"], row["cpu_s"], flush=True)


@dataclass(frozen=True)
class Timed:
    """A run with the compiler's cycles and the seconds that are added to them; ``same`` where it
    ran the same program, so that a clock may rest on it."""

    case: Case
    cycles: float
    added_s: float
    same: bool = True

    def error(self, clock_hz: float) -> float:
        assert self.case.measured.step_time_s is not None
        return (self.cycles / clock_hz + self.added_s) / self.case.measured.step_time_s - 1

    @property
    def clock_hz(self) -> float:
        """The length of a cycle that makes this run exact, as cycles a second."""
        assert self.case.measured.step_time_s is not None
        return self.cycles / (self.case.measured.step_time_s - self.added_s)


def timed() -> list[Timed]:
    """Every run whose programs have all been compiled."""
    known, found = results(), []
    for case, one in runs():
        rows = [known.get(key(one.chip, config)) for config, _ in one.programs]
        parts = [row["cycles"] for row in rows if row is not None and not row["reason"]]
        if len(parts) < len(rows):
            continue
        counts = [layers / LAYERS for _, layers in one.programs]
        layers = sum(part["layers"] * n for part, n in zip(parts, counts, strict=True))
        machine = parse_machine(case.machine)
        seen = estimate(case.job, replace(case.plan, remat=case.remats[0]), machine, case.stack)
        exposed = sum(float(plain(x)) for x in seen.collectives_exposed.values())
        added = exposed + sum(float(plain(seen.time[part])) for part in ADDED)
        cycles = (layers + parts[0]["ends"]) * one.times
        found.append(Timed(case, cycles, added, one.same))
    return found


def fitted(rows: list[Timed]) -> float:
    """One clock for rows: the median of those that make each exact that ran the same program."""
    return statistics.median(row.clock_hz for row in rows if row.same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="compile what has no result yet")
    parser.add_argument("--only", default="", help="of runs whose chip and model hold this")
    parser.add_argument("--seconds", type=float, default=inf, help="begin nothing after so long")
    chosen = parser.parse_args()
    if chosen.compile:
        compile_missing(chosen.only, chosen.seconds)
        return 0
    rows = timed()
    for chip in CHIPS:
        print_chip(chip, [row for row in scored(rows) if row.timed.case.chip == chip])
    print_errors("runs of the same program", [row for row in scored(rows) if row.timed.same])
    print_errors("with dropless experts", scored(rows))
    return 0


@dataclass(frozen=True)
class Scored:
    """A run's error under its chip's clock, and under the clock of the chip's other models; None
    where it has no other."""

    timed: Timed
    error: float
    left_out: float | None


def scored(rows: list[Timed]) -> list[Scored]:
    """Every run against the clock that the runs of its chip give, it and its model apart."""
    found = []
    for row in rows:
        on_chip = [other for other in rows if other.case.chip == row.case.chip]
        rest = [other for other in on_chip if other.case.model != row.case.model and other.same]
        apart = row.error(fitted(rest)) if rest else None
        found.append(Scored(row, row.error(fitted(on_chip)), apart))
    return found


def middle(errors: list[float]) -> float:
    """Median of the absolute errors."""
    return statistics.median(map(abs, errors))


def print_errors(what: str, rows: list[Scored]) -> None:
    """One line: how many runs, and their median errors."""
    left_out = [row.left_out for row in rows if row.left_out is not None]
    models = len({row.timed.case.model for row in rows})
    print(
        f"{what}: {len(rows)} of {models} models, median {middle([r.error for r in rows]):.1%}, "
        f"{middle(left_out):.1%} with the model left out"
    )


def print_chip(chip: str, rows: list[Scored]) -> None:
    """A chip's clock and its runs."""
    clock = fitted([row.timed for row in rows])
    print_errors(f"{chip}, {clock / 1e9:.3f}e9 cycles a second", [r for r in rows if r.timed.same])
    for row in rows:
        case, apart = row.timed.case, "      –" if row.left_out is None else f"{row.left_out:+7.1%}"
        other = "" if row.timed.same else ", dropless experts: not in the clock"
        print(
            f"  {case.measured.step_time_s:8.3f} s {row.error:+7.1%} {apart}  "
            f"{case.model} {case.machine} {case.stack} {case.remats[0]}{other}"
        )


if __name__ == "__main__":
    sys.exit(main())
