"""An audit on the terminal: grouped by topic, each finding with its source line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from chipshift.audit.finding import (
    SEVERITIES,
    TARGETS,
    AuditResult,
    Cost,
    Finding,
    Severity,
    Target,
)
from chipshift.audit.lines import SourceLines
from chipshift.audit.pages import TOPIC_TITLES
from chipshift.audit.review import Review, Task, blockers_by_topic, worklist
from chipshift.audit.rules import rules

WIDTH = 100
"""Columns where no terminal says how many it has."""
LOCATION_WIDTH = 34  # a longer location stands on a line of its own
STYLES: dict[Severity, str] = {
    "blocker": "bold red",
    "high": "red",
    "medium": "yellow",
    "low": "dim",
}
MANY = 60
"""Findings above which a tree is shown in brief: a first screen must be readable."""
PER_RULE = 3
FEW_PER_RULE = 2
TASKS_SHOWN = 10
SKIPPED_SHOWN = 5


class Span(NamedTuple):
    """A piece of a line with its style, a Rich style name ("" for plain)."""

    text: str
    style: str = ""


Row = list[Span]


@dataclass(frozen=True)
class View:
    """What every finding is shown against: the source, and the target that goes without saying.

    With ``all_targets`` a finding names those it holds for, unless it holds for all.
    """

    lines: SourceLines
    target: Target
    all_targets: bool
    width: int


def screen(
    review: Review,
    lines: SourceLines,
    name: str,
    max_per_rule: int | None = None,
    all_targets: bool = False,
    width: int = WIDTH,
) -> Iterator[Row]:
    """The lines to print; ``max_per_rule`` findings a rule are shown in full (0: all).

    When it is None, the mild rules take a line each: the low ones, and in a tree with many
    findings the medium ones as well. The summary comes last, where a reader's eye is when the
    command ends.
    """
    many = len(review.result.findings) > MANY
    most = max_per_rule if max_per_rule is not None else FEW_PER_RULE if many else PER_RULE
    brief: tuple[Severity, ...] = ()
    if max_per_rule is None:
        brief = ("medium", "low") if many else ("low",)
    name = printable(name)
    view = View(lines, review.result.target, all_targets, width)
    if not (review.result.files or review.result.configs or review.result.findings):
        yield [Span(name, "bold"), Span(": no Python code, notebook or launch script to read")]
        yield from _not_read(review, width)
        return
    yield from _head(review, name, all_targets, width)
    for topic, group in groupby(review.result.findings, key=lambda finding: finding.topic):
        findings = list(group)
        yield []
        yield _rule_off(TOPIC_TITLES[topic], _counted(findings), width)
        in_short = False
        for (severity, _), same in groupby(findings, key=lambda f: (f.severity, f.rule)):
            of_rule = list(same)
            if severity in brief:
                yield from [] if in_short else [[]]
                in_short = True
                yield _in_one_line(of_rule, width)
                continue
            yield []
            yield from _rule(of_rule, view, most)
    yield []
    yield from _summary(review, max_per_rule, width)


def _head(review: Review, name: str, all_targets: bool, width: int) -> Iterator[Row]:
    result = review.result
    several = {finding.target for finding in result.findings} - {result.target}
    others = f" (some files for {', '.join(sorted(several))})" if several else ""
    whom = "all targets" if all_targets else f"{result.target}{others}"
    said = f": {_read(result)} read, for {whom}"
    if len(name) + len(said) <= width:
        yield [Span(name, "bold"), Span(said)]
    else:
        yield [Span(name, "bold")]
        yield from _wrapped(said.removeprefix(": "), "  ", width)
    if not all_targets:
        for note in result.notes:
            yield from _wrapped(note, "  ", width, "dim")


def _read(result: AuditResult) -> str:
    """What was read, code apart from what starts it: its findings alone say nothing of code."""
    files, many = _plural(result.files, "file"), result.configs != 1
    starts = f"{result.configs:,} launch script{'s' * many} or configuration{'s' * many}"
    if not result.configs:
        return files
    return f"{files} and {starts}" if result.files else starts


def _rule(findings: Sequence[Finding], view: View, max_per_rule: int) -> Iterator[Row]:
    first = findings[0]
    rule = rules().get(first.rule)
    title = f"  {rule.title}" if rule else ""
    fits = 9 + len(first.rule) + len(title) <= view.width
    yield [
        Span(f"{first.severity:9}", STYLES[first.severity]),
        Span(first.rule, "bold"),
        Span(title if fits else ""),
    ]
    if not fits:
        yield from _wrapped(title, " " * 9, view.width)
    shown = findings[:max_per_rule] if max_per_rule else findings
    lengths = [len(_where(finding)) for finding in shown]
    column = max((n for n in lengths if n <= LOCATION_WIDTH), default=0)
    general = rule.on_device if rule else ""
    for what, same in groupby(shown, key=lambda f: _particular(f.message, general)):
        for finding in same:
            yield from _finding(finding, view, column)
        yield from _wrapped(what, "    ", view.width)
    yield from _wrapped(general, "    ", view.width, "italic")
    for target, way in dict.fromkeys((f.target, f.instead) for f in shown if f.instead):
        lead = f"instead ({target}): " if view.all_targets else "instead: "
        yield from _wrapped(way.replace("`", ""), "    ", view.width, "green", lead=lead)
    known = (_figures(f.cost) for f in shown if not _unknown(f.cost))
    for formula in dict.fromkeys(known):
        yield from _wrapped(formula, "    ", view.width, "dim", lead="cost: ")
    if len(shown) < len(findings):
        more = findings[len(shown) :]
        files = _plural(len({finding.file for finding in more}), "file")
        yield [Span(f"    and {len(more)} more in {files}", "dim")]


def _particular(message: str, general: str) -> str:
    """What a message says beyond its rule's own text, which is printed once a rule."""
    return message.replace(f". {general.rstrip('.')}", "", 1) if general else message


def _in_one_line(findings: Sequence[Finding], width: int) -> Row:
    """A mild rule: its first place and how many more there are."""
    first = findings[0]
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    where = _where(first)
    room = width - 9 - len(first.rule) - 2 - len(more)
    cut = where if len(where) <= room else "…" + where[-room + 1 :]
    return [
        Span(f"{first.severity:9}", STYLES[first.severity]),
        Span(f"{first.rule}  ", "bold"),
        Span(cut, "cyan"),
        Span(more, "dim"),
    ]


def _finding(finding: Finding, view: View, column: int) -> Iterator[Row]:
    where = Span(_where(finding).ljust(column), "cyan")
    source = printable(view.lines.line(finding.file, finding.line, finding.cell).strip())
    aside = _aside(finding, view)
    if len(where.text) > LOCATION_WIDTH:
        yield [Span("  "), where, Span(aside and f"  {aside}", "dim")]
        yield [Span("      "), Span(_cut(source, view.width - 6))]
    else:
        room = view.width - 2 - len(where.text) - 2 - (len(aside) + 2 if aside else 0)
        yield [
            Span("  "),
            where,
            Span("  "),
            Span(_cut(source, room)),
            Span(aside and f"  {aside}", "dim"),
        ]
    here = [str(place.line) for place in finding.places if place.file == finding.file]
    there = [f"{p.file}:{p.line}" for p in finding.places if p.file != finding.file]
    if here or there:
        also = ", ".join(
            ([f"line{'s' * (len(here) > 1)} " + ", ".join(here)] if here else []) + there
        )
        yield from _wrapped(also, "      ", view.width, "dim", lead="with it: ")


def _aside(finding: Finding, view: View) -> str:
    place = "in evaluation" if finding.loop == "eval" else ""
    sure = "" if finding.confidence == "sure" else finding.confidence
    if view.all_targets:
        held = "" if set(finding.targets) == set(TARGETS) else f"for {', '.join(finding.targets)}"
    else:
        held = "" if finding.target == view.target else f"for {finding.target}"
    inside = ", ".join(filter(None, (place, sure, held)))
    return f"({inside})" if inside else ""


def _unknown(cost: Cost) -> bool:
    figures = (cost.seconds_per_step, cost.fraction_of_step, cost.bytes, cost.recompiles)
    return not cost.formula or (cost.formula.startswith("unknown") and not any(figures))


def _figures(cost: Cost) -> str:
    """The figures of a cost, then how they were worked out."""
    told = []
    if cost.seconds_per_step is not None:
        told.append(f"{cost.seconds_per_step * 1e3:.3g} ms a step")
    if cost.fraction_of_step is not None:
        told.append(f"{cost.fraction_of_step:.1%} of the step")
    if cost.bytes is not None:
        told.append(f"{cost.bytes / 1e9:.3g} GB")
    if cost.recompiles is not None:
        told.append(f"{cost.recompiles:,.0f} compilations")
    return ", ".join(told) + (" (" if told else "") + cost.formula + (")" if told else "")


def _where(finding: Finding) -> str:
    cell = "" if finding.cell is None else f"[cell {finding.cell}]"
    return printable(f"{finding.file}{cell}:{finding.line}")


def _summary(review: Review, max_per_rule: int | None, width: int) -> Iterator[Row]:
    result = review.result
    yield _rule_off("What it comes to", _counted(result.findings) or "no findings", width)
    yield from _item("carries over", _carried(result), width)
    blockers = blockers_by_topic(result.findings)
    if any(blockers.values()):
        yield from _item(
            "blockers", ", ".join(f"{topic} {n}" for topic, n in blockers.items()), width
        )
    yield from _worklist(worklist(result.findings), width)
    if result.files:
        yield from _item("step", _step(review), width)
        yield from _item("not resolved", _coverage(review), width)
    yield from _not_read(review, width)
    if max_per_rule is None and result.findings:
        yield from _item(
            "in full", "--max-per-rule 0 shows every finding, --json lists them", width
        )
    left_out = _left_out(review)
    if left_out:
        yield from _item("not shown", left_out, width)


def _carried(result: AuditResult) -> str:
    """The share of the step that stays as it is, or why that is unknown."""
    if result.portable_fraction is not None:
        share = _share(result.portable_fraction)
        return f"{share} of the training step's lines (no blocker, high or medium finding)"
    if not result.files:
        return "unknown: no Python code was among what was read"
    if result.entry is not None:
        return (
            f"unknown: {result.entry.function} is the step by its name alone; --entry "
            f"{result.entry.file}:{result.entry.function} says that it is"
        )
    return "unknown: no training step was found; name it with --entry FILE:FUNCTION"


def _not_read(review: Review, width: int) -> Iterator[Row]:
    """The files passed over, with the reasons."""
    skipped = review.result.skipped
    if skipped:
        some = [f"{printable(s.file)} ({s.why})" for s in skipped[:SKIPPED_SHOWN]]
        rest = len(skipped) - len(some)
        more = [f"and {rest} more (--json lists them)"] if rest else []
        yield from _item("not read", ", ".join(some + more), width)


def _share(fraction: float) -> str:
    """A percentage that says 100 only when it is all."""
    return "over 99%" if 0.995 <= fraction < 1 else f"{fraction:.0%}"


def _step(review: Review) -> str:
    entry = review.result.entry
    if entry is None:
        return "none found"
    return f"{entry.function} in {entry.file} was taken as it (--entry FILE:FUNCTION corrects it)"


def _coverage(review: Review) -> str:
    unresolved = review.result.unresolved
    if not unresolved.imports:
        return "nothing: every import was followed or is known"
    return (
        f"{_plural(unresolved.imports, 'import')} in {_plural(unresolved.files, 'file')}: what "
        "stands behind them was not judged"
    )


def _left_out(review: Review) -> str:
    counts = (
        (review.ignored, "ignored by comments"),
        (review.baselined, "accepted by the baseline"),
        (review.unchanged, "on unchanged lines"),
        (review.milder, "below --min-severity"),
    )
    return ", ".join(f"{count} {why}" for count, why in counts if count)


def _worklist(tasks: Sequence[Task], width: int) -> Iterator[Row]:
    """The rules to work through, in order, as a table."""
    shown = tasks[:TASKS_SHOWN]
    column = max((len(task.rule) for task in shown), default=0)
    for number, task in enumerate(shown, start=1):
        room = width - 16 - 4 - column - 2 - 9
        yield [
            Span("  worklist      " if number == 1 else " " * 16, "dim"),
            Span(f"{number:2}. {task.rule.ljust(column)}  "),
            Span(f"{task.severity:9}", STYLES[task.severity]),
            Span(_amount(task, room)),
        ]
    if len(tasks) > len(shown):
        yield [Span(f"{'':16}    and {len(tasks) - len(shown)} rules more", "dim")]


def _amount(task: Task, room: int) -> str:
    """How many findings in how many files, in the words that there is room for."""
    files = _plural(task.files, "file")
    whole, short = (
        f"{_plural(task.findings, 'finding')} in {files}",
        f"{task.findings:,} in {files}",
    )
    if not task.in_step:
        return whole
    forms = (f"{whole}, in the step", f"{whole}, in step", f"{short}, in step")
    return next((form for form in forms if len(form) <= room), short)


def _counted(findings: Sequence[Finding]) -> str:
    counts = {s: sum(f.severity == s for f in findings) for s in SEVERITIES}
    return ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)


def _rule_off(title: str, right: str, width: int) -> Row:
    line = "─" * max(3, width - len(title) - len(right) - 5)
    return [Span(f"─ {title} ", "bold"), Span(f"{line} ", "dim"), Span(right)]


def _item(label: str, text: str, width: int) -> Iterator[Row]:
    pieces = textwrap.wrap(text, width - 16) or [""]
    yield [Span(f"  {label:14}", "dim"), Span(pieces[0])]
    for piece in pieces[1:]:
        yield [Span(" " * 16), Span(piece)]


def _wrapped(text: str, indent: str, width: int, style: str = "", lead: str = "") -> Iterator[Row]:
    for piece in textwrap.wrap(
        printable(lead + " ".join(text.split())),
        width,
        initial_indent=indent,
        subsequent_indent=indent + " " * len(lead),
        break_long_words=True,
    ):
        yield [Span(piece, style)]


def printable(text: str) -> str:
    """``text`` without what could steer a terminal or break a table: one space for each."""
    return "".join(char if char.isprintable() else " " for char in text)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
