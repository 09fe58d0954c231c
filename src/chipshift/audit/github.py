"""Findings as GitHub workflow commands, which show as annotations on a pull request's lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chipshift.audit.finding import Finding, Severity
from chipshift.audit.lines import SourceLines

COMMAND: dict[Severity, str] = {
    "blocker": "error",
    "high": "error",
    "medium": "warning",
    "low": "notice",
}


def workflow_commands(
    findings: Iterable[Finding], lines: SourceLines, prefix: str = ""
) -> Iterator[str]:
    """One ``::error file=…`` line a finding; ``prefix`` leads from the repository's root here."""
    for finding in findings:
        line = lines.raw_line(finding.file, finding.line, finding.cell)
        last = line if finding.cell is not None else finding.end_line
        where = f"file={_property(prefix + finding.file)},line={line},endLine={max(line, last)}"
        title = _property(f"{finding.severity}: {finding.rule} ({finding.target})")
        instead = f"\nInstead: {finding.instead.replace('`', '')}" if finding.instead else ""
        text = _data(finding.message + instead)
        yield f"::{COMMAND[finding.severity]} {where},title={title}::{text}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
