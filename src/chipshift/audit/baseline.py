"""A baseline: the findings a team has accepted, so that only new ones count."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from chipshift.audit.finding import Finding
from chipshift.audit.lines import SourceLines
from chipshift.errors import InputError

SCHEMA = "chipshift/audit-baseline/1"


class Key(NamedTuple):
    """What identifies an accepted finding: never a line number, which every edit moves.

    ``file`` is relative to the baseline file's folder (POSIX); ``source`` is the stripped line.
    """

    rule: str
    file: str
    source: str


def key_of(finding: Finding, lines: SourceLines, folder: Path) -> Key:
    """The baseline key of a finding, for a baseline file in ``folder``."""
    file = os.path.relpath(lines.root / finding.file, folder).replace(os.sep, "/")
    return Key(finding.rule, file, lines.line(finding.file, finding.line, finding.cell).strip())


def write_baseline(path: Path, findings: Iterable[Finding], lines: SourceLines) -> int:
    """Write all ``findings`` as accepted; returns how many."""
    counts = Counter(key_of(finding, lines, path.parent) for finding in findings)
    rows = [{**key._asdict(), "count": count} for key, count in sorted(counts.items())]
    text = json.dumps({"schema": SCHEMA, "findings": rows}, indent=1, ensure_ascii=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: the baseline cannot be written ({error.strerror})") from error
    return sum(counts.values())


def read_baseline(path: Path) -> Counter[Key]:
    """How often each key was accepted. Raises InputError for a file that is not a baseline."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: the baseline cannot be read ({error.strerror}); "
            "--write-baseline makes one from the present findings"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: the baseline is not JSON ({error})") from error
    try:
        if document["schema"] != SCHEMA:
            raise InputError(f"{path}: schema: found {document['schema']!r}, expected '{SCHEMA}'")
        return Counter(
            {
                Key(str(row["rule"]), str(row["file"]), str(row["source"])): int(row["count"])
                for row in document["findings"]
            }
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: expected {{'schema', 'findings': [{{rule, file, source, count}}]}} as "
            "--write-baseline writes it"
        ) from error


def without_accepted(
    findings: Iterable[Finding], path: Path, lines: SourceLines
) -> tuple[list[Finding], list[Finding]]:
    """The findings that are new, and those the baseline at ``path`` accepts.

    A line accepted twice and now found three times leaves one finding.
    """
    left = read_baseline(path)
    new, accepted = [], []
    for finding in findings:
        key = key_of(finding, lines, path.parent)
        if left[key] > 0:
            left[key] -= 1
            accepted.append(finding)
        else:
            new.append(finding)
    return new, accepted
