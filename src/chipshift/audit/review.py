"""From every finding of a tree to those that are the reader's concern now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from chipshift.audit.baseline import without_accepted
from chipshift.audit.diff import Changes, only_changed
from chipshift.audit.finding import SEVERITIES, TOPICS, AuditResult, Finding, Severity
from chipshift.audit.ignores import without_ignored
from chipshift.audit.lines import SourceLines
from chipshift.audit.settings import Settings


@dataclass(frozen=True)
class Review:
    """An audit after settings, ignore comments, baseline, changed lines and severity.

    ``result.findings`` are those to show, by topic and worst first; the counts say where the
    others went. ``counted`` are those for ``--fail-on``: also the ones too mild to show.
    ``known`` are what a baseline would hold: everything but the ignored.
    """

    result: AuditResult
    counted: tuple[Finding, ...]
    known: tuple[Finding, ...]
    ignored: int
    baselined: int
    unchanged: int
    milder: int

    def worst_at_least(self, severity: Severity) -> bool:
        """Whether a finding that counts is as severe as ``severity`` or worse."""
        limit = SEVERITIES.index(severity)
        return any(SEVERITIES.index(f.severity) <= limit for f in self.counted)


def review(
    result: AuditResult,
    lines: SourceLines,
    settings: Settings,
    only_rules: Collection[str] = (),
    min_severity: Severity = "low",
    changes: Changes | None = None,
    baseline: Path | None = None,
) -> Review:
    """Sort out ``result``'s findings.

    Every finding is counted in one place: not of the rules asked for (not counted), ignored by a
    comment, accepted by the baseline, not on a changed line, milder than ``min_severity``, or kept.
    """
    found = settings.applied(result.findings)
    found = [f for f in found if not only_rules or f.rule in only_rules]
    found, ignored = without_ignored(found, lines)
    accepted: list[Finding] = []
    unchanged = 0
    new = found
    if baseline is not None:
        new, accepted = without_accepted(new, baseline, lines)
    if changes is not None:
        new, unchanged = only_changed(new, changes, lines)
    limit = SEVERITIES.index(min_severity)
    kept = [f for f in new if SEVERITIES.index(f.severity) <= limit]
    return Review(
        result=replace(result, findings=tuple(sorted(kept, key=_order))),
        counted=tuple(new),
        known=tuple(found),
        ignored=len(ignored),
        baselined=len(accepted),
        unchanged=unchanged,
        milder=len(new) - len(kept),
    )


def _order(finding: Finding) -> tuple[int, int, str, bool, str, int, int]:
    return (
        TOPICS.index(finding.topic),
        SEVERITIES.index(finding.severity),
        finding.rule,
        finding.loop != "step",  # what runs in the step is shown first
        finding.file,
        finding.cell or 0,
        finding.line,
    )


@dataclass(frozen=True)
class Task:
    """One line of the worklist: a rule, how bad at worst, and how much of it there is."""

    rule: str
    severity: Severity
    findings: int
    files: int
    in_step: bool


def worklist(findings: tuple[Finding, ...]) -> tuple[Task, ...]:
    """What to do in which order: the rules found, the worst first, then those inside the step.

    A blocker stops the first run, so all blockers come before anything that costs time; among
    equals, what runs in the step comes before what runs once, and what is everywhere before the
    rest.
    """
    tasks = []
    for rule in {f.rule for f in findings}:
        of_rule = [f for f in findings if f.rule == rule]
        worst = min((f.severity for f in of_rule), key=SEVERITIES.index)
        files = len({f.file for f in of_rule})
        tasks.append(Task(rule, worst, len(of_rule), files, any(f.loop == "step" for f in of_rule)))
    return tuple(
        sorted(tasks, key=lambda t: (SEVERITIES.index(t.severity), not t.in_step, -t.findings))
    )


def blockers_by_topic(findings: tuple[Finding, ...]) -> dict[str, int]:
    """The number of blockers of each topic, topics without one included."""
    counts = Counter(f.topic for f in findings if f.severity == "blocker")
    return {topic: counts[topic] for topic in TOPICS}
