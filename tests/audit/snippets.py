"""Audits a piece of code given as text, for tests that read as specifications."""

from __future__ import annotations

import textwrap

from chipshift.audit.facts import FileFacts
from chipshift.audit.finding import Finding, Target
from chipshift.audit.judge import findings_of
from chipshift.audit.link import link
from chipshift.audit.read import read_source


def found(code: str, target: Target | None = None, file: str = "snippet.py") -> list[Finding]:
    """The findings in ``code``; without a target those of any."""
    source = textwrap.dedent(code).lstrip("\n")
    facts = FileFacts(file, file.removesuffix(".py"), lines=source.count("\n"))
    read_source(source, facts)
    assert not facts.skipped, facts.skipped
    return findings_of(facts, link([facts]), target, None)


def rules_in(code: str, target: Target | None = None) -> set[str]:
    """The slugs of the findings in ``code``."""
    return {one.rule for one in found(code, target)}


def lines_of(rule: str, code: str, target: Target | None = None) -> set[int]:
    """The lines (places among them) at which ``rule`` fires."""
    lines: set[int] = set()
    for one in found(code, target):
        if one.rule == rule:
            lines.add(one.line)
            lines.update(place.line for place in one.places)
    return lines
