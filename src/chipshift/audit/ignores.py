"""``# chipshift: ignore[rule] reason`` comments: the author's word that a finding is known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from chipshift.audit.finding import Finding
from chipshift.audit.lines import SourceLines

COMMENT = re.compile(r"#\s*chipshift:\s*ignore(?:\[(?P<rules>[^\]]*)\])?(?P<reason>[^#]*)")


@dataclass(frozen=True)
class IgnoreComment:
    """One comment: the rules it silences (empty: every rule) and the reason given."""

    rules: frozenset[str]
    reason: str

    def silences(self, rule: str) -> bool:
        """Whether a finding of ``rule`` on this comment's line is ignored."""
        return not self.rules or rule in self.rules


def ignore_on(line: str) -> IgnoreComment | None:
    """The ignore comment on a source line, if any."""
    match = COMMENT.search(line)
    if match is None:
        return None
    names = (match["rules"] or "").split(",")
    return IgnoreComment(frozenset(filter(None, map(str.strip, names))), match["reason"].strip())


def without_ignored(
    findings: Iterable[Finding], lines: SourceLines
) -> tuple[list[Finding], list[Finding]]:
    """The findings that remain, and those silenced by a comment.

    A comment counts on any line of the finding's expression, or alone on the line above it; on
    one of the further places it takes that place out and leaves the rest.
    """
    kept, ignored = [], []
    for finding in findings:
        at = range(finding.line, finding.end_line + 1)
        if any(_silenced(finding.rule, finding.file, n, finding.cell, lines) for n in at):
            ignored.append(finding)
            continue
        places = tuple(
            place
            for place in finding.places
            if not _silenced(finding.rule, place.file, place.line, finding.cell, lines)
        )
        kept.append(finding if places == finding.places else replace(finding, places=places))
    return kept, ignored


def _silenced(rule: str, file: str, line: int, cell: int | None, lines: SourceLines) -> bool:
    on = ignore_on(lines.line(file, line, cell))
    above = lines.line(file, line - 1, cell).strip()
    over = ignore_on(above) if above.startswith("#") else None
    return any(comment is not None and comment.silences(rule) for comment in (on, over))
