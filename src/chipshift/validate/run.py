"""Scoring a file of measured runs: read, predict each, compare, sum up."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.estimate.estimate import estimate
from chipshift.estimate.stack import stack as stack_constants
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine
from chipshift.validate.baseline import Baseline
from chipshift.validate.case import Case, Predict, Prediction, Skip
from chipshift.validate.files import text_of
from chipshift.validate.records import read_records
from chipshift.validate.score import (
    MEASURES,
    Scored,
    Summary,
    compare,
    groupings,
    headline,
    ratios,
    special,
    summary,
)
from chipshift.validate.seen import Seen
from chipshift.validate.sweep import read_sweep


def read_data(path: Path) -> list[Case | Skip]:
    """Rows of a records file (JSON a line) or of the sweep (CSV).

    Raises:
        InputError: no such file, or neither format.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected measured runs, .jsonl or .csv")
    if not path.is_file():
        raise InputError(f"{path}: no such file (expected measured runs, .jsonl or .csv)")
    first = text_of(path).lstrip().partition("\n")[0]
    if first.startswith("{"):
        return read_records(path)
    if "," in first:
        return read_sweep(path)
    raise InputError(f"{path}: expected JSON records, one a line, or the sweep's CSV")


def carried(name: str) -> Path:
    """A data file that the package carries: ``measured_training.jsonl``, the sweep's CSV."""
    return Path(str(resources.files("chipshift.validate") / "data" / name))


def predict_plan(job: TrainJob, plan: Plan, machine: Machine, stack: str) -> Prediction:
    """The estimate of one plan as a prediction.

    ``memory_bytes`` is what the framework's allocator holds at its peak, as the runs report it: the
    first stage's (its rank writes the log) less the driver's context, the communication library's
    buffers and the stack's guard band; ``fits`` is of the fullest stage. ``state_memory_bytes`` is
    what stays allocated around the optimizer step.
    """
    found = estimate(job, plan, machine, stack)
    constants = stack_constants(stack, machine.chip.key)
    groups = sum(n > 1 for n in (plan.tp, plan.cp, plan.ep, plan.pp, plan.dp * plan.fsdp))
    first = {key: float(value) for key, value in found.first_stage_memory.items()}
    dynamic = first["activations"] + first["logits"] + first["collectives"]
    outside = constants.context_bytes + constants.margin_share * dynamic
    outside += groups * constants.comm_buffer_bytes
    parts = {key: float(value) for key, value in found.time.items()}
    parts |= {f"{axis} collectives": float(v) for axis, v in found.collectives_exposed.items()}
    return Prediction(
        step_time_s=float(found.step_time_s),
        state_memory_bytes=float(found.update_memory),
        memory_bytes=first["total"] - outside,
        fits=found.fits,
        parts_s={key: value for key, value in parts.items() if value},
    )


@functools.cache
def _machine(name: str) -> Machine:
    return parse_machine(name)


def predict_case(case: Case, predict: Predict) -> Scored:
    """The prediction of a case; unstated remat and degrees are the least that fit.

    As a planner would: before anything is computed again the model is cut further.

    Raises:
        InputError: the estimate cannot take the run.
    """
    machine = _machine(case.machine)
    found: Prediction | None = None
    for remat, plan in itertools.product(case.remats, (case.plan, *case.wider)):
        found = predict(case.job, replace(plan, remat=remat), machine, case.stack_release)
        if found.fits:
            break
    if found is None:
        raise InputError(f"{case.id}: no rematerialisation to try")
    if not 0 < found.step_time_s < math.inf:
        raise InputError(f"{case.id}: no step time comes of its sizes")
    return compare(case, found, remat)


@dataclass(frozen=True)
class Report:
    """What ``validate`` says of a file.

    Attributes:
        baseline: the naive estimate's errors on the same headline rows, by chip.
        baseline_group: and on those of each special group.
        seen: of each scored row, whether the constants were fitted on it.
    """

    rows: int
    scored: list[Scored]
    skipped: list[Skip]
    by: dict[str, dict[str, Summary]]
    baseline: dict[str, Summary]
    baseline_group: dict[str, Summary]
    ratios: list[dict[str, Any]]
    seen: tuple[bool, ...]

    @property
    def unseen(self) -> list[Scored]:
        """Scored rows that no constant was fitted on."""
        return [row for row, seen in zip(self.scored, self.seen, strict=True) if not seen]


def run(
    data: Iterable[Case | Skip], predict: Predict = predict_plan, *, everything: bool = False
) -> Report:
    """Predict and compare every row."""
    scored: list[Scored] = []
    skipped: list[Skip] = []
    count = 0
    for row in data:
        count += 1
        if isinstance(row, Skip):
            skipped.append(row)
            continue
        try:
            scored.append(predict_case(row, predict))
        except (InputError, KeyError) as error:
            skipped.append(Skip(row.id, str(error.args[0]), row.line))
    counted = headline(scored, everything=everything)
    apart = special(scored, everything=everything)
    return Report(
        rows=count,
        scored=scored,
        skipped=skipped,
        by=groupings(scored, everything=everything),
        baseline=naive({chip: [row.case for row in counted if row.case.chip == chip]
                        for chip in sorted({row.case.chip for row in counted})}),
        baseline_group=naive({name: [row.case for row in of] for name, of in apart.items()}),
        ratios=ratios(scored),
        seen=tuple(row.case in _seen() for row in scored),
    )  # fmt: skip


@functools.cache
def carried_cases() -> tuple[Case, ...]:
    """Every carried run that can be scored."""
    names = ("measured_training.jsonl", "nanotron_h100_sweep.csv")
    rows = itertools.chain.from_iterable(read_data(carried(name)) for name in names)
    return tuple(row for row in rows if isinstance(row, Case))


@functools.cache
def _carried_baseline() -> Baseline:
    return Baseline(carried_cases())


@functools.cache
def _seen() -> Seen:
    return Seen(carried_cases())


def naive(groups: Mapping[str, Iterable[Case]]) -> dict[str, Summary]:
    """Errors of the naive baseline by group: fitted on the carried runs, own model left out.

    The sweep has none: its plans are bad on purpose, and no rate is typical of them.
    """
    out = {}
    for name, cases in groups.items():
        errors = []
        for case in cases:
            if case.task == "sweep" or not case.measured.step_time_s:
                continue
            guess = _carried_baseline().step_time_s(case)
            if guess:
                errors.append(guess / case.measured.step_time_s - 1)
        if errors:
            out[name] = summary(errors)
    return out


def to_json(report: Report, cross: dict[str, Summary] | None = None) -> dict[str, Any]:
    """The report as outputs.md's ``validate`` has it."""

    def table(group: dict[str, Summary]) -> dict[str, Any]:
        return {name: asdict(one) for name, one in group.items()}

    return {
        "schema": "chipshift/validate/1",
        "rows": report.rows,
        "scored": len(report.scored),
        "fitted_on": sum(report.seen),
        "skipped": [asdict(skip) for skip in report.skipped],
        "by": {name: table(group) for name, group in report.by.items()},
        "baseline": table(report.baseline),
        "baseline_group": table(report.baseline_group),
        "cross": table(cross or {}),
        "ratios": report.ratios,
        "records": [_record(*one) for one in zip(report.scored, report.seen, strict=True)],
    }


def _record(row: Scored, seen: bool) -> dict[str, Any]:
    c, m, p = row.case, row.case.measured, row.predicted
    rate = c.tflops_per_chip(p.step_time_s)
    return {
        "id": c.id,
        "chip": c.chip,
        "stack": c.stack,
        "model": c.model,
        "remat": row.remat,
        "flop_convention": c.counted[0] or None,
        "fitted_on": seen,
        "predicted": {
            **{name: getattr(p, name) for name in MEASURES}, "fits": p.fits, "tflops_per_chip": rate
        },
        "measured": {
            **{name: getattr(m, name) for name in MEASURES}, "oom": m.oom,
            "tflops_per_chip": m.tflops_per_chip,
        },
        "rel_error": {name: row.error.get(name) for name in (*MEASURES, "tflops_per_chip")},
        "inferred": [{"what": w, "value": v, "why": why} for w, v, why in c.inferred],
    }  # fmt: skip
