"""Measured TPU runs against the compiler's cycles: one length of a cycle a chip, and its error.

    python benchmarks/time_compile.py --compile     # programs without a result yet, full effort
    python benchmarks/time_compile.py               # calibrate and score, compile nothing

A run's smallest faithful reduction is one device's part of one microbatch, cut to 4,096 tokens and
two layers (two units of layers, where several kinds repeat), with no other device and no
optimizer: the same matmuls at the same shapes. Cycles of the scan's body are counted once a layer,
and everything in proportion to the tokens. What the reduction leaves out is added: attention
kernels at their measured share of the peak, and the estimate's optimizer and exposed collectives.
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
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from chipshift.compiled import describe
from chipshift.compiled.hlo.cycles import read_cycles
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import Module, parse
from chipshift.compiled.request import Request, config_from
from chipshift.compiled.run import run
from chipshift.compiled.seconds import attention_seconds
from chipshift.compiled.step.config import Block, Config
from chipshift.compiled.step.remat_names import choice
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.validate.case import Case
from chipshift.validate.records import read_records
from chipshift.validate.run import carried
from chipshift.worked import plain

RESULTS = Path(__file__).parent / "data" / "compile_time.jsonl"
CHIPS = ("v6e", "v5p", "v5e", "v7x")
SLICE = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1", "v7x": "v7x:2x2x1"}
"""The program is compiled for the first device of these."""
TOKENS, LAYERS = 4096, 2


@dataclass(frozen=True)
class Reduced:
    """A measured run as a program of one device, and what turns its cycles into the run's.

    Attributes:
        config: the program.
        layers: of the whole model, or units of layers where these repeat in several kinds.
        times: the run's tokens on a device over the program's.
    """

    chip: str
    config: Config
    layers: int
    times: float


def reduced(case: Case) -> Reduced | str:
    """The run's reduction, or why it has none."""
    job, plan = case.job, case.plan
    if case.precision != "bf16" or len(case.remats) != 1:
        return "not bf16, or its rematerialisation is not stated"
    if "moe" in case.groups or plan.cp > 1 or plan.pp > 1:
        return "experts, context parallelism or a pipeline"
    if job.optimizer.value == "muon":
        return "an optimizer with matmuls of its own"
    whole = Plan(remat=kept(case.remats[0]))
    try:
        config, _ = describe.config(job.model, whole, seq_len=int(job.seq_len.value))
    except InputError as error:
        return str(error)
    (unit, repeats), *others = config.segments
    if others:
        return "layers that do not repeat"
    seq_len = int(job.seq_len.value)
    replica_tokens = plan.microbatch * seq_len * plan.accumulation
    part = replace(
        config,
        segments=((tuple(cut(block, plan.tp) for block in unit), LAYERS),),
        vocab=-(-config.vocab // plan.tp),
        batch=max(1, TOKENS // seq_len),
        master_dtype="bfloat16",
        gradient_dtype="bfloat16",
    )
    tokens = part.batch * seq_len
    return Reduced(case.chip, part, repeats, replica_tokens / tokens)


def kept(remat: str) -> str:
    """A policy with its offloaded tensors kept: the same matmuls run."""
    saved, moved = choice(remat)
    names = [name for name in (*saved, *moved) if name != "block_input"]
    return f"custom:saved={'+'.join(names)}" if names else "full"


def cut(block: Block, tp: int) -> Block:
    """One tensor-parallel device's part of a layer."""
    return replace(
        block,
        heads=block.heads // tp,
        kv_heads=max(1, block.kv_heads // tp),
        mlp_width=block.mlp_width // tp,
    )


def runs() -> Iterator[tuple[Case, Reduced]]:
    """Measured runs on TPU that can be reduced."""
    for row in read_records(carried("measured_training.jsonl")):
        if not isinstance(row, Case) or row.chip not in CHIPS or row.task != "pretrain":
            continue
        found = reduced(row)
        if row.measured.step_time_s and isinstance(found, Reduced):
            yield row, found


def key(one: Reduced) -> str:
    return json.dumps([one.chip, asdict(one.config)], sort_keys=True)


def compiled(one: Reduced) -> dict[str, Any]:
    """Cycles of the program inside the scan over layers, and outside it."""
    machine = parse_machine(SLICE[one.chip])
    os.environ["CHIPSHIFT_REDUCED"] = json.dumps(asdict(one.config))
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
        "chip": one.chip,
        "config": asdict(one.config),
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
    return {json.dumps([row["chip"], row["config"]], sort_keys=True): row for row in rows}


def compile_missing(seconds: float) -> None:
    """Compile each program that has no result: those that most runs share first."""
    shared: dict[str, list[Reduced]] = defaultdict(list)
    for _, one in runs():
        shared[key(one)].append(one)
    ends = time.monotonic() + seconds
    for name, members in sorted(shared.items(), key=lambda item: -len(item[1])):
        if name in results() or time.monotonic() > ends:
            continue
        row = compiled(members[0])
        with RESULTS.open("a", encoding="utf8") as out:
            out.write(json.dumps(row) + "\n")
        print(
            members[0].chip, len(members), row["cycles"] or row["reason"], row["cpu_s"], flush=True
        )


@dataclass(frozen=True)
class Timed:
    """A run with the compiler's cycles and the seconds that are added to them."""

    case: Case
    cycles: float
    added_s: float

    def error(self, clock_hz: float) -> float:
        assert self.case.measured.step_time_s is not None
        return (self.cycles / clock_hz + self.added_s) / self.case.measured.step_time_s - 1

    @property
    def clock_hz(self) -> float:
        """The length of a cycle that makes this run exact, as cycles a second."""
        assert self.case.measured.step_time_s is not None
        return self.cycles / (self.case.measured.step_time_s - self.added_s)


def timed() -> list[Timed]:
    """Every run whose program has been compiled."""
    known, found = results(), []
    for case, one in runs():
        row = known.get(json.dumps(json.loads(key(one)), sort_keys=True))
        if row is None or row["reason"]:
            continue
        config = config_from(row["config"])
        cycles = row["cycles"]["layers"] * one.layers / LAYERS + row["cycles"]["ends"]
        machine = parse_machine(case.machine)
        whole = replace(config, segments=((config.segments[0][0], one.layers),))
        plan = replace(case.plan, remat=case.remats[0])
        seen = estimate(case.job, plan, machine, case.stack)
        exposed = sum(float(plain(x)) for x in seen.collectives_exposed.values())
        added = attention_seconds(whole, machine) * one.times + exposed
        added += float(plain(seen.time["optimizer"]))
        found.append(Timed(case, cycles * one.times, added))
    return found


def fitted(rows: list[Timed]) -> float:
    """One clock for rows: the median of those that make each exact."""
    return statistics.median(row.clock_hz for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="compile what has no result yet")
    parser.add_argument("--seconds", type=float, default=inf, help="begin nothing after so long")
    chosen = parser.parse_args()
    if chosen.compile:
        compile_missing(chosen.seconds)
        return 0
    rows = timed()
    own: list[float] = []
    others: list[float] = []
    for chip in CHIPS:
        on_chip = [row for row in rows if row.case.chip == chip]
        if on_chip:
            scored = score(on_chip)
            own += [one for one, _ in scored]
            others += [other for _, other in scored if other is not None]
    for name, errors in (("in sample", own), ("model left out", others)):
        if errors:
            print(f"{name}: {len(errors)} runs, median {middle(errors):.1%}")
    return 0


def middle(errors: list[float]) -> float:
    """Median of the absolute errors."""
    return statistics.median(map(abs, errors))


def score(rows: list[Timed]) -> list[tuple[float, float | None]]:
    """Prints one chip's runs; each run's error under the clock of all of them, and of the other
    models' alone."""
    clock = fitted(rows)
    found: list[tuple[float, float | None]] = []
    for row in rows:
        rest = [other for other in rows if other.case.model != row.case.model]
        found.append((row.error(clock), row.error(fitted(rest)) if rest else None))
    left_out = [other for _, other in found if other is not None]
    shown = f", {middle(left_out):.1%} with the model left out" if left_out else ""
    models = len({row.case.model for row in rows})
    print(
        f"{rows[0].case.chip}: {len(rows)} runs of {models} models, {clock / 1e9:.3f}e9 cycles a "
        f"second, median {middle([error for error, _ in found]):.1%}{shown}"
    )
    for row, (error, other) in zip(rows, found, strict=True):
        apart = "      –" if other is None else f"{other:+7.1%}"
        print(
            f"  {row.case.measured.step_time_s:8.3f} s {error:+7.1%} {apart}  "
            f"{row.case.model} {row.case.machine} {row.case.stack} {row.case.remats[0]}"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
