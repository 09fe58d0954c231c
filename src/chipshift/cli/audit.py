"""``chipshift audit``: what of the code will not run, recompile, stall or waste the chip."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from chipshift.audit.finding import SEVERITIES, Severity, finding_json
from chipshift.errors import InputError, nearest

if TYPE_CHECKING:
    from chipshift.audit.lines import SourceLines
    from chipshift.audit.review import Review
    from chipshift.audit.settings import Settings

SCHEMA = "chipshift/audit/1"


def command(
    path: Annotated[Path | None, typer.Argument(help="File, folder or notebook.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="jax, torchax, torchtpu, torch_xla, neuron or all; by imports if unset."),
    ] = None,
    entry: Annotated[
        str | None, typer.Option(metavar="FILE:FUNC", help="The training step, if not found.")
    ] = None,
    diff: Annotated[
        str | None, typer.Option(metavar="BASE", help="Only lines changed since this commit.")
    ] = None,
    min_severity: Annotated[
        str, typer.Option(help="Show blocker, high, medium or low and worse.")
    ] = "low",
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule; repeatable.")] = None,
    max_per_rule: Annotated[
        int | None,
        typer.Option(min=0, help="Findings shown a rule; 0: all. By default the screen is brief."),
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="Exit with 1 on a finding this severe or worse.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Findings accepted before.")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Accept the present findings into --baseline.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write SARIF 2.1.0 for code scanning.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print GitHub annotations, not the screen.")
    ] = False,
    job: Annotated[
        list[Path] | None, typer.Option(help="Job file the costs are worked from; repeatable.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="With --job: the machine asked about.")
    ] = None,
    list_rules: Annotated[bool, typer.Option("--rules", help="List every rule.")] = False,
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Teach one rule.")] = None,
) -> int:
    """Name, with file and line, what in GPU training code must change on TPU or Trainium.

    Reads PyTorch and JAX code, notebooks, requirements, Dockerfiles, launch scripts and DeepSpeed
    or Accelerate configurations. Nothing of what is read is imported or executed. Exit code 0;
    1 with --fail-on when such a finding remains; 2 for input that cannot be used.

    \b
    Examples:
      chipshift audit train.py
      chipshift audit . --target jax --min-severity high
      chipshift audit . --diff main --fail-on blocker --github
      chipshift audit . --baseline audit-baseline.json --write-baseline
      chipshift audit --explain bool-mask-select
    """
    if list_rules or explain is not None:
        return _teach(explain, as_json)
    if as_json and github:
        raise InputError("audit: --json and --github both want standard output; choose one")
    floor, limit = _severity("--min-severity", min_severity), _severity("--fail-on", fail_on)
    path, settings, lines = _tree(path)
    accepted = baseline or settings.baseline
    if write_baseline and accepted is None:
        raise InputError("audit: --write-baseline needs --baseline FILE to write to")
    numbers = _job_numbers(job or [], to)
    reviewed = _reviewed(
        path, lines, settings, target, entry, diff, rule or [], floor or "low", numbers,
        None if write_baseline else accepted,
    )  # fmt: skip
    if write_baseline and accepted is not None:
        return _accept(accepted, reviewed, lines)
    if sarif is not None:  # before anything is printed: a closed pipe ends the command
        _write_sarif(sarif, reviewed, lines)
    every = (target or settings.target) == "all"
    _print(reviewed, lines, path, max_per_rule, as_json, github, every)
    return int(limit is not None and reviewed.worst_at_least(limit))


def _tree(path: Path | None) -> tuple[Path, Settings, SourceLines]:
    """What is audited: its place, the settings that lie there, its source lines.

    Raises:
        InputError: no place is named, or none that a file system takes.
    """
    from chipshift.audit.lines import SourceLines
    from chipshift.audit.settings import read_settings

    if path is None:
        raise InputError("audit: PATH is missing: name a file, a folder or a notebook")
    if not os.path.lexists(path) and len(str(path)) > 255:
        raise InputError(f"{path}: no such file or folder")
    return path, read_settings(path), SourceLines(path)


def _accept(baseline: Path, reviewed: Review, lines: SourceLines) -> int:
    """Write the present findings into a baseline."""
    from chipshift.audit.baseline import write_baseline

    count = write_baseline(baseline, reviewed.known, lines)
    print(f"chipshift: {count} findings accepted in {baseline}", file=sys.stderr)
    return 0


def _reviewed(
    path: Path,
    lines: SourceLines,
    settings: Settings,
    target: str | None,
    entry: str | None,
    diff: str | None,
    only_rules: list[str],
    floor: Severity,
    numbers: dict[str, float] | None,
    baseline: Path | None,
) -> Review:
    from chipshift.audit.diff import changes_since
    from chipshift.audit.review import review
    from chipshift.audit.run import audit

    for name in only_rules:
        _known_rule("--rule", name)
    changes = changes_since(diff, path) if diff is not None else None
    with _Progress() as progress:
        result = audit(
            path,
            target=target or settings.target,
            entry=entry or settings.entry,
            only_files=None if changes is None else tuple(changes.files),
            exclude=settings.exclude,
            job=numbers,
            progress=progress,
        )
    return review(result, lines, settings, only_rules, floor, changes, baseline)


def _job_numbers(job: list[Path], to: str | None) -> dict[str, float] | None:
    if not job:
        if to is not None:
            raise InputError("audit: --to needs --job JOB, whose costs it is asked about")
        return None
    from chipshift.flows.code_costs import job_numbers
    from chipshift.jobs.read import read_job

    read = read_job([str(path) for path in job])
    if to is None:
        return job_numbers(read)
    from chipshift.flows.assess import plan_target
    from chipshift.flows.options import Options

    return job_numbers(read, plan_target(read, to, Options()).estimate)


class _Progress:
    """A bar on standard error, once a run takes above two seconds, and only on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._started = 0.0

    def __enter__(self) -> _Progress:
        import time

        self._started = time.monotonic()
        return self

    def __call__(self, done: int, total: int) -> None:
        import time

        if not sys.stderr.isatty() or time.monotonic() - self._started < 2:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._bar.add_task("reading")
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _print(
    reviewed: Review,
    lines: SourceLines,
    path: Path,
    max_per_rule: int | None,
    as_json: bool,
    github: bool,
    all_targets: bool,
) -> None:
    if as_json:
        print(json.dumps(_document(reviewed, max_per_rule or 0), ensure_ascii=False))
        return
    if github:
        from chipshift.audit.github import workflow_commands

        for text in workflow_commands(reviewed.result.findings, lines, _prefix(lines.root)):
            print(text)
        return
    from rich.console import Console
    from rich.text import Text

    from chipshift.audit.screen import screen
    from chipshift.report.lines import room

    width = room()
    console = Console(width=width, highlight=False, soft_wrap=True)
    for row in screen(reviewed, lines, str(path), max_per_rule, all_targets, width):
        console.print(Text.assemble(*row), no_wrap=True, overflow="ignore", crop=False)


def _document(reviewed: Review, max_per_rule: int) -> dict[str, Any]:
    """The object of ``--json``: see docs/audit.md for its keys."""
    from chipshift.audit.review import blockers_by_topic, worklist

    result = reviewed.result
    seen: dict[str, int] = {}
    findings = []
    for finding in result.findings:
        seen[finding.rule] = seen.get(finding.rule, 0) + 1
        if not max_per_rule or seen[finding.rule] <= max_per_rule:
            findings.append(finding_json(finding))
    entry = result.entry
    return {
        "schema": SCHEMA,
        "target": result.target,
        "files": result.files,
        "configs": result.configs,
        "entry": None if entry is None else {"file": entry.file, "function": entry.function},
        "portable_fraction": result.portable_fraction,
        "findings": findings,
        "skipped": [{"file": skipped.file, "why": skipped.why} for skipped in result.skipped],
        "unresolved": {"files": result.unresolved.files, "imports": result.unresolved.imports},
        "seconds": result.seconds,
        "notes": list(result.notes),
        "blockers_by_topic": blockers_by_topic(result.findings),
        "worklist": [
            {
                "rule": task.rule,
                "severity": task.severity,
                "findings": task.findings,
                "files": task.files,
                "in_step": task.in_step,
            }
            for task in worklist(result.findings)
        ],
        "left_out": {
            "ignored": reviewed.ignored,
            "baselined": reviewed.baselined,
            "unchanged": reviewed.unchanged,
            "milder": reviewed.milder,
        },
    }


def _write_sarif(file: Path, reviewed: Review, lines: SourceLines) -> None:
    from chipshift.audit.sarif import sarif_log

    log = sarif_log(reviewed.result.findings, lines, _prefix(lines.root))
    try:
        file.write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: the SARIF log cannot be written ({error.strerror})") from error


def _prefix(root: Path) -> str:
    """The way from the root of the git checkout to the audited folder: "" or "sub/folder/"."""
    folder = root.resolve()
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            relative = folder.relative_to(above).as_posix()
            return "" if relative == "." else relative + "/"
    return ""


def _teach(explain: str | None, as_json: bool) -> int:
    from chipshift.audit.pages import index_page, rule_page
    from chipshift.audit.rules import rules

    if as_json:
        from dataclasses import asdict

        chosen = (
            rules().values() if explain is None else [rules()[_known_rule("--explain", explain)]]
        )
        print(
            json.dumps({"schema": "chipshift/audit-rules/1", "rules": [asdict(r) for r in chosen]})
        )
        return 0
    page = (
        index_page() if explain is None else rule_page(rules()[_known_rule("--explain", explain)])
    )
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        from chipshift.report.lines import room

        Console(width=room()).print(Markdown(page))
    else:
        print(page, end="")
    return 0


def _known_rule(option: str, name: str) -> str:
    from chipshift.audit.rules import rules

    if name not in rules():
        raise InputError(
            f"{option}: found '{name}', expected the name of a rule (chipshift audit --rules lists "
            f"them){nearest(name, list(rules()))}"
        )
    return name


def _severity(option: str, text: str | None) -> Severity | None:
    for severity in SEVERITIES:
        if text == severity:
            return severity
    if text is None:
        return None
    choices = get_args(Severity)
    raise InputError(
        f"{option}: found '{text}', expected one of {', '.join(choices)}{nearest(text, choices)}"
    )
