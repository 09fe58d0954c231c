"""Part two of the answer from the user's own code: the audit's findings, a rule a line."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

from chipshift.audit.finding import SEVERITIES, Finding
from chipshift.audit.lines import SourceLines
from chipshift.audit.review import review
from chipshift.audit.run import audit
from chipshift.audit.settings import read_settings
from chipshift.estimate import Estimate
from chipshift.flows.assess import Assessment, Target
from chipshift.flows.code_costs import job_numbers
from chipshift.flows.relearn import Relearn
from chipshift.jobs.job import TrainJob


def with_code(found: Assessment, code: Path) -> Assessment:
    """The assessment with what an audit of ``code`` finds for each target, costs from its plan.

    Settings, ignore comments and the baseline of the code's own pyproject.toml apply. Targets of
    the present chip's family, and those on which nothing fits, are left as they are.
    """
    family = found.present.machine.chip.family
    targets = [
        t
        if t.estimate is None or t.machine.chip.family == family
        else _with_findings(t, found.job, t.estimate, code)
        for t in found.targets
    ]
    return replace(found, targets=targets)


def _with_findings(target: Target, job: TrainJob, estimate: Estimate, code: Path) -> Target:
    rows = [*target.relearn, *code_relearn(job, estimate, code)]
    rows.sort(key=lambda row: (SEVERITIES.index(row.severity), -(row.seconds or 0.0)))
    return replace(target, relearn=rows)


def code_relearn(job: TrainJob, estimate: Estimate, code: Path) -> list[Relearn]:
    """What to relearn in ``code`` for one target: a rule a row, low findings left out."""
    settings = read_settings(code)
    trainium = estimate.machine.chip.family == "trainium"
    result = audit(
        code,
        target="neuron" if trainium else settings.target,
        entry=settings.entry,
        exclude=settings.exclude,
        job=job_numbers(job, estimate),
    )
    seen = review(
        result,
        SourceLines(code),
        settings,
        min_severity="medium",
        baseline=settings.baseline,
    )
    by_rule = sorted(seen.result.findings, key=lambda f: f.rule)
    return [_row(list(same)) for _, same in groupby(by_rule, key=lambda f: f.rule)]


def _row(findings: list[Finding]) -> Relearn:
    """A rule's findings as one row: the worst first, the others counted."""
    worst = min(findings, key=lambda f: SEVERITIES.index(f.severity))
    files = len({f.file for f in findings})
    others = len(findings) - 1
    also = f" ({others} more in {files} file{'s' * (files > 1)})" if others else ""
    return Relearn(
        topic=worst.topic,
        rule=worst.rule,
        severity=worst.severity,
        file=worst.file,
        line=worst.line,
        what=worst.message.rstrip(".") + also,
        seconds=worst.cost.seconds_per_step,
        fraction=worst.cost.fraction_of_step,
        bytes=worst.cost.bytes,
        instead=worst.instead.replace("`", ""),
        evidence=f"read in the code ({worst.confidence}); {worst.cost.formula}".rstrip("; "),
    )
