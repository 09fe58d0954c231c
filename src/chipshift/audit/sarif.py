"""Findings as SARIF 2.1.0, the format of code-scanning services (OASIS, Static Analysis Results
Interchange Format Version 2.1.0 Plus Errata 01, 2023-08-28)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from chipshift import __version__
from chipshift.audit.finding import Finding, Severity
from chipshift.audit.lines import SourceLines
from chipshift.audit.pages import rule_page
from chipshift.audit.rules import Rule, rules

SCHEMA_URI = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVEL: dict[Severity, str] = {
    "blocker": "error",
    "high": "error",
    "medium": "warning",
    "low": "note",
}
FINGERPRINT = "chipshiftRuleFileLine/v1"


def sarif_log(findings: Sequence[Finding], lines: SourceLines, prefix: str = "") -> dict[str, Any]:
    """The SARIF log of one run; ``prefix`` leads from the repository's root to the audited folder.

    ``partialFingerprints`` hash the rule, the file, the stripped source line and how many equal
    ones came before, so that they survive edits elsewhere in the file.
    """
    used = [rule for slug, rule in rules().items() if any(f.rule == slug for f in findings)]
    index = {rule.slug: i for i, rule in enumerate(used)}
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        text = "\0".join((finding.rule, prefix + finding.file, _source(finding, lines)))
        digest = hashlib.sha256(f"{text}\0{seen[text]}".encode()).hexdigest()[:32]
        seen[text] += 1
        results.append(_result(finding, lines, prefix, index, digest))
    driver = {
        "name": "chipshift",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in used],
    }
    root = {"SRCROOT": {"description": {"text": "The root of the audited repository."}}}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": root,
        "results": results,
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _source(finding: Finding, lines: SourceLines) -> str:
    return lines.line(finding.file, finding.line, finding.cell).strip()


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.slug,
        "name": "".join(word.capitalize() for word in rule.slug.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.summary},
        "help": {"text": rule.summary, "markdown": rule_page(rule)},
        "defaultConfiguration": {"level": LEVEL[rule.severity]},
        "properties": {"tags": ["portability", rule.topic], "severity": rule.severity},
    }


def _result(
    finding: Finding, lines: SourceLines, prefix: str, index: dict[str, int], digest: str
) -> dict[str, Any]:
    text = finding.message + (
        f"\nInstead: {finding.instead.replace('`', '')}" if finding.instead else ""
    )
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": LEVEL[finding.severity],
        "message": {"text": text},
        "locations": [_location(finding, finding.line, finding.end_line, lines, prefix)],
        "partialFingerprints": {FINGERPRINT: digest},
        "properties": {
            "severity": finding.severity,
            "target": finding.target,
            "topic": finding.topic,
            "loop": finding.loop,
            "confidence": finding.confidence,
        },
    }
    if finding.rule in index:
        result["ruleIndex"] = index[finding.rule]
    if finding.places:
        result["relatedLocations"] = [
            {
                "id": number,
                "message": {"text": "changes for the same reason"},
                **_location(finding, place.line, place.line, lines, prefix, place.file),
            }
            for number, place in enumerate(finding.places, start=1)
        ]
    return result


def _location(
    finding: Finding,
    first: int,
    last: int,
    lines: SourceLines,
    prefix: str,
    file: str | None = None,
) -> dict[str, Any]:
    file = file or finding.file
    region: dict[str, Any] = {"startLine": lines.raw_line(file, first, finding.cell)}
    if finding.cell is None:
        region["endLine"] = max(first, last)
    snippet = lines.line(file, first, finding.cell).strip()
    if snippet:
        region["snippet"] = {"text": snippet}
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(prefix + file), "uriBaseId": "SRCROOT"},
            "region": region,
        }
    }
    if finding.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {finding.cell}", "kind": "module"}]
    return location
