"""``[tool.chipshift.audit]`` in pyproject.toml: what a team has agreed on."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chipshift.audit.finding import SEVERITIES, Finding, Severity, parse_target
from chipshift.audit.rules import rules
from chipshift.errors import InputError, nearest

KEYS = ("exclude", "select", "severity", "target", "entry", "baseline")
TABLE = "[tool.chipshift.audit]"


@dataclass(frozen=True)
class Settings:
    """The table's keys, checked.

    ``exclude`` are patterns in the syntax of .gitignore, relative to the audited path; ``select``
    the only rules that count (empty: all); ``severity`` replaces a rule's own, None switches the
    rule off; ``baseline`` is absolute; ``file`` is the pyproject.toml read, if any.
    """

    exclude: tuple[str, ...] = ()
    select: frozenset[str] = frozenset()
    severity: dict[str, Severity | None] = field(default_factory=dict)
    target: str | None = None
    entry: str | None = None
    baseline: Path | None = None
    file: Path | None = None

    def applied(self, findings: tuple[Finding, ...]) -> list[Finding]:
        """The findings of selected rules, with the team's severities."""
        kept = []
        for finding in findings:
            if self.select and finding.rule not in self.select:
                continue
            severity = self.severity.get(finding.rule, finding.severity)
            if severity is not None:
                kept.append(replace(finding, severity=severity))
        return kept


def read_settings(path: Path | str) -> Settings:
    """Settings of the pyproject.toml nearest above ``path``, inside its git checkout.

    Raises InputError for a key or value that is not understood.
    """
    start = Path(path).resolve()
    folder = start if start.is_dir() else start.parent
    for above in (folder, *folder.parents):
        file = above / "pyproject.toml"
        if file.is_file():
            return _settings(file, folder)
        if (above / ".git").exists():
            break
    return Settings()


def _settings(file: Path, audited: Path) -> Settings:
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not TOML ({error})") from error
    tool = document.get("tool", {})
    table = tool.get("chipshift", {}).get("audit", {}) if isinstance(tool, dict) else {}
    _check(file, "", table, dict)
    for key in table:
        if key not in KEYS:
            hint = nearest(key, KEYS)
            raise InputError(f"{file}: {TABLE}: found '{key}', expected {', '.join(KEYS)}{hint}")
    prefix = audited.relative_to(file.parent).as_posix()
    exclude = _strings(file, table, "exclude")
    baseline = _check(file, "baseline", table.get("baseline"), str)
    target = _check(file, "target", table.get("target"), str)
    parse_target(target)
    return Settings(
        exclude=tuple(p for e in exclude for p in _rebased(e, prefix)),
        select=frozenset(_rule(file, "select", name) for name in _strings(file, table, "select")),
        severity=_severities(file, table.get("severity", {})),
        target=target,
        entry=_check(file, "entry", table.get("entry"), str),
        baseline=None if baseline is None else file.parent / baseline,
        file=file,
    )


def _rebased(pattern: str, prefix: str) -> tuple[str, ...]:
    """A pattern relative to the folder of pyproject.toml as one relative to the audited path.

    Empty when it is tied to another folder.
    """
    tied = "/" in pattern.rstrip("/") and not pattern.startswith("**/")
    if prefix == "." or not tied:
        return (pattern,)
    anchored = pattern.lstrip("/")
    if anchored.startswith(prefix + "/"):
        return ("/" + anchored[len(prefix) + 1 :],)
    return ()


def _severities(file: Path, table: Any) -> dict[str, Severity | None]:
    _check(file, "severity", table, dict)
    choices: dict[str, Severity | None] = {name: name for name in SEVERITIES}
    choices["off"] = None
    for name, text in table.items():
        _rule(file, "severity", name)
        if text not in choices:
            raise InputError(
                f"{file}: {TABLE} severity.{name}: found {text!r}, expected "
                f"{', '.join(choices)}{nearest(str(text), list(choices))}"
            )
    return {name: choices[text] for name, text in table.items()}


def _rule(file: Path, key: str, name: str) -> str:
    if name not in rules():
        raise InputError(
            f"{file}: {TABLE} {key}: found '{name}', expected the name of a rule "
            f"(chipshift audit --rules lists them){nearest(name, list(rules()))}"
        )
    return name


def _strings(file: Path, table: dict[str, Any], key: str) -> list[str]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise InputError(f"{file}: {TABLE} {key}: found {found!r}, expected a list of strings")
    return found


def _check(file: Path, key: str, found: Any, kind: type) -> Any:
    if found is not None and not isinstance(found, kind):
        expected = "a table" if kind is dict else "a string"
        where = f"{TABLE} {key}".strip()
        raise InputError(f"{file}: {where}: found {found!r}, expected {expected}")
    return found
