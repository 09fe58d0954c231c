"""The answer on one screen: verdict, what transfers, what to relearn, what it comes to, proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chipshift.flows.verdict import FEWEST_RUNS, believed
from chipshift.machines.names import parse_machine
from chipshift.report.lines import (
    WIDTH,
    Line,
    Span,
    cut,
    indented,
    print_lines,
    quantity,
    room,
)
from chipshift.report.proof import proof_lines, proofs_of
from chipshift.report.rows import Row, cell, plan_text, rows_for
from chipshift.report.words import (
    best_first,
    by_weight,
    compared,
    does_not_fit,
    grouped,
    item_cost,
    loss_words,
    nothing_to_relearn,
    place,
    verdict_words,
)
from chipshift.units import GIB, duration

LABEL = 27
MOST_TARGETS = 4
MOST_ITEMS = 5
LEAST_WORDS = 16
"""Room that words keep before a file and line is left out beside them."""

VERDICT_STYLES = {
    "both": "bold green", "faster": "bold green", "cheaper": "bold green",
    "within_the_error": "bold yellow", "neither": "bold red", "does_not_fit": "bold red",
}  # fmt: skip
SEVERITY_STYLES = {"blocker": "bold red", "high": "red", "medium": "yellow", "low": "dim"}


def print_answer(answer: Mapping[str, Any], html: str = "") -> None:
    """Print the screen; colour on a terminal only, and not where NO_COLOR is set.

    Args:
        html: where the report was written, "" when it was not.
    """
    print_lines(screen(answer, room(), html))


def screen(answer: Mapping[str, Any], width: int = WIDTH, html: str = "") -> Iterator[Line]:
    """The lines of the answer, none longer than ``width``."""
    fitting = [t for t in answer["targets"] if t.get("plan") is not None]
    shown = fitting[:MOST_TARGETS]
    yield from _head(answer, width)
    for target in answer["targets"]:
        yield from _verdict(target, width)
    columns = [answer["from"], *shown]
    yield []
    yield from _transfers(answer, columns, width)
    yield []
    yield from _relearn(answer, width)
    yield []
    yield from _figures(answer, columns, width)
    yield from _plans(columns, width)
    yield from _measured(answer, width)
    yield from _next(answer, width)
    yield []
    yield from _proof(answer, width)
    left = len(fitting) - len(shown)
    if left:
        yield [Span(f"{left} more targets are in --json and in the report", "dim")]
    where = html or "add --html out/report.html for the page in which every figure is worked"
    yield [Span("Report   ", "bold"), Span(where[: width - 9])]


def _head(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    job, present = answer["job"], answer["from"]
    words = (
        f": {job['framework']}, {loss_words(job)}{job['tokens_per_step']:,} tokens a step in "
        "sequences of "
        f"{job['seq_len']:,}, on {present['machine']['name']} now"
    )
    name = cut(job["name"], width - 40)
    first, *rest = textwrap.wrap(f"{name}{words}", width)
    yield [Span(name, "bold"), Span(first.removeprefix(name))]
    yield from ([Span(f"  {part}")] for part in rest)
    yield []


def _verdict(target: Mapping[str, Any], width: int) -> Iterator[Line]:
    name, word = target["machine"]["name"], target["verdict"]
    style = VERDICT_STYLES.get(word, "bold")
    if word == "does_not_fit":
        yield [Span(f"{name:<14} ", "bold"), Span(verdict_words(target).upper(), style)]
        yield from indented(does_not_fit(target), width)
        return
    readings = target["machine"].get("readings", "")
    beside = len(readings) <= width - 46
    yield [
        Span(f"{name:<14} ", "bold"),
        Span(f"{verdict_words(target).upper():<31}", style),
        Span(readings if beside else "", "dim"),
    ]
    for part in textwrap.wrap(compared(target), width - 15):
        yield [Span(f"{'':15}{part}")]
    notes = [] if beside else [readings]
    if target.get("batch_note"):
        notes.append(target["batch_note"])
    if target.get("deciding"):
        notes.append(f"changes it: {target['deciding']}")
    for note in notes:
        yield from indented(note, width)


def _heading(number: int, words: str, note: str = "") -> Line:
    return [Span(f"{number}  {words}", "bold"), Span(f"  {note}" if note else "", "dim")]


def _column_width(columns: Sequence[Any], width: int, label: int) -> int:
    return min(15, (width - label) // len(columns))


def _transfers(answer: Mapping[str, Any], columns: Sequence[Mapping[str, Any]], width: int
               ) -> Iterator[Line]:  # fmt: skip
    yield _heading(1, "What transfers unchanged")
    names = [c["machine"]["name"] for c in columns]
    rows = [
        (
            row["statement"],
            [quantity(row["from"]), *(quantity(row["to"].get(n)) for n in names[1:])],
        )
        for row in answer["transfers"]
    ]
    longest = max(len(text) for texts in [names, *(values for _, values in rows)] for text in texts)
    each = min(longest + 2, (width - 24) // len(columns))
    label = width - each * len(columns)
    yield [Span(" " * label + "".join(f"{cut(n, each - 1):>{each}}" for n in names), "dim")]
    for statement, texts in rows:
        words, *rest = textwrap.wrap(first_clause(statement), label - 4)
        yield [Span(f"   {words:<{label - 3}}"), *(Span(f"{t:>{each}}") for t in texts)]
        yield from ([Span(f"     {more}")] for more in rest)


def first_clause(statement: str) -> str:
    """A statement without its qualifications, which the report has whole."""
    return statement.split(";")[0].split(" (")[0].split(", in the plan")[0].rstrip(".")


def _relearn(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    items = by_weight(grouped(answer["relearn"]))
    note = f"{len(items)} found" if items else nothing_to_relearn(answer)
    yield _heading(2, "What must be relearned", note)
    for item in items[:MOST_ITEMS]:
        cost = item_cost(item, short=True)
        head = f"   {item['severity']:<8} {item['topic']:<9}"
        where = f" ({place(item, short=True)})" if place(item) else ""
        room = width - len(head) - len(cost) - 2
        beside = where if room - len(where) >= LEAST_WORDS else ""
        what = cut(item["what"], room - len(beside)) + beside
        yield [
            Span(f"   {item['severity']:<8}", SEVERITY_STYLES.get(item["severity"], "")),
            Span(f" {item['topic']:<9}{what:<{room}}  "), Span(cost, "bold"),
        ]  # fmt: skip
        instead = f"instead: {item['instead']}"
        if where and not beside:
            instead = f"{place(item, short=True)}; {instead}"
        yield [Span(" " * 21), Span(cut(instead, width - 21), "dim")]
    if len(items) > MOST_ITEMS:
        yield [Span(f"   {len(items) - MOST_ITEMS} more in the report and in --json", "dim")]


def _figures(answer: Mapping[str, Any], columns: Sequence[Mapping[str, Any]], width: int
             ) -> Iterator[Line]:  # fmt: skip
    yield _heading(3, "What it comes to", "the best plan found on each; per chip unless it says so")
    each = _column_width(columns, width, LABEL)
    names = [c["machine"]["name"] for c in columns]
    pad = " " * LABEL
    yield [Span(pad + "".join(f"{cut(n, each - 1):>{each}}" for n in names), "bold")]
    chips = [f"{c['machine']['chips']:,}" for c in columns]
    yield [Span(f"   {'Chips':<{LABEL - 3}}" + "".join(f"{t:>{each}}" for t in chips))]
    for row in rows_for(columns):
        yield from _figure(row, columns, each)
        if row.path == "step_time_s":
            same = "".join(f"{_unchanged(c):>{each}}" for c in columns)
            yield [Span(f"   {'  present plan unchanged':<{LABEL - 3}}{same}")]
            if answer.get("replanned"):
                best = f"{duration(answer['replanned']['step_time_s']):>{each}}"
                yield [Span(f"   {'  planned anew':<{LABEL - 3}}{best}")]
    yield from _errors(columns, each)
    yield from _sizings(columns, each)
    if any(c.get("long_run") for c in columns):
        runs = [c.get("long_run") or {} for c in columns]
        days = [f"{r['days']:,.1f}" if r.get("days") is not None else "–" for r in runs]
        cost = [f"${r['usd']:,.0f}" if r.get("usd") is not None else "–" for r in runs]
        yield [Span(f"   {'The run, days':<{LABEL - 3}}" + "".join(f"{t:>{each}}" for t in days))]
        yield [Span(f"   {'The run':<{LABEL - 3}}" + "".join(f"{t:>{each}}" for t in cost))]


SIZINGS = (("match_throughput", "Slice: the same speed"), ("equal_cost", "  same cost an hour"),
           ("equal_chips", "  as many chips"))  # fmt: skip


def _sizings(columns: Sequence[Mapping[str, Any]], each: int) -> Iterator[Line]:
    """For targets without a size, the slice and step time that answer "how many chips?"."""
    asked = [c.get("sizings") or {} for c in columns]
    if not any(e for sizing in asked for e in sizing.values()):
        return
    for key, words in SIZINGS:
        texts = [_sized(sizing, key, each) for sizing in asked]
        yield [Span(f"   {words:<{LABEL - 3}}"), *(Span(f"{t:>{each}}") for t in texts)]


def _sized(sizing: Mapping[str, Any], key: str, each: int) -> str:
    """``16x16 1.30 s``, without the time where it has no room; "none" where no slice does it."""
    if not any(sizing.values()):
        return "–" if sizing else ""
    found = sizing.get(key)
    if found is None:
        return "none"
    name = found["machine"]["name"].partition(":")[2]
    both = f"{name} {duration(found['step_time_s'])}"
    return both if len(both) < each else name


def _figure(row: Row, columns: Sequence[Mapping[str, Any]], each: int) -> Iterator[Line]:
    texts = [cell(column, row) for column in columns]
    if row.path == "memory_bytes.available":
        return
    if row.path == "mfu":
        dtypes = {c.get("peak_dtype") for c in columns} - {None}
        label = f"MFU ({', '.join(sorted(str(d) for d in dtypes))} peak)"
    elif row.path == "memory_bytes.total":
        label, texts = "Memory a device, GiB", [_memory(column) for column in columns]
    else:
        label = row.label
    yield [Span(f"   {label:<{LABEL - 3}}"), *(Span(f"{t:>{each}}") for t in texts)]


def _memory(column: Mapping[str, Any]) -> str:
    """``75.7 of 79.1``: what the plan takes of what a device can allocate."""
    held = column["memory_bytes"]
    return f"{held['total'] / GIB:,.1f} of {held['available'] / GIB:,.1f}"


def _plans(columns: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    for column in columns:
        name = column["machine"]["name"]
        if column.get("plan") is None:
            continue
        text = f"{plan_text(column['plan'])} ({column['stack']})"
        parts = textwrap.wrap(text, width - 18, break_on_hyphens=False)
        for i, part in enumerate(parts):
            yield [Span(f"   {name if i == 0 else '':<15}", "bold"), Span(part)]


def _unchanged(column: Mapping[str, Any]) -> str:
    """Step time of the present plan carried over as it is, or that it has no room."""
    same = column.get("unchanged_plan")
    if same is None:
        return "–" if "unchanged_plan" in column else duration(column["step_time_s"])
    return duration(same["step_time_s"]) if same["memory_bytes"]["fits"] else "does not fit"


def _errors(columns: Sequence[Mapping[str, Any]], each: int) -> Iterator[Line]:
    """The error that each chip and stack has shown on measured runs."""
    bands = [c.get("error_band") or {} for c in columns]
    half = [_median_error(band) for band in bands]
    most = [f"{b['p90_abs_rel']:.1%} ({b['n']})" if b.get("n") else "–" for b in bands]
    for words, texts in (("Error measured, median", half), ("  9 in 10 within (runs)", most)):
        yield [Span(f"   {words:<{LABEL - 3}}"), *(Span(f"{t:>{each}}") for t in texts)]


def _median_error(band: Mapping[str, Any]) -> str:
    """The median error of the runs, or the wide one that is taken where there are few or none."""
    runs = int(band.get("n") or 0)
    taken = f"{believed(band.get('median_abs_rel'), runs):.1%}"
    if runs >= FEWEST_RUNS:
        return taken
    return f"{'few' if runs else 'none'}: ±{taken.replace('.0%', '%')}"


def _measured(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    """Our error on the user's own run, and the targets anchored to it."""
    found = answer.get("measured")
    if not found:
        return
    errors = found["our_error"]
    parts = [
        f"{words} {errors[key]:+.1%}"
        for key, words in (("step_time_s", "step time"), ("memory_bytes", "memory"))
        if errors.get(key) is not None
    ]
    yield [Span("   Your run: our error ", "bold"), Span(", ".join(parts))]
    for row in found.get("anchored") or []:
        anchored, raw = duration(row["anchored_step_time_s"]), duration(row["raw_step_time_s"])
        words = f"{row['machine']}: {anchored} a step anchored to your run, {raw} as estimated"
        for part in textwrap.wrap(words, width - LABEL, break_on_hyphens=False):
            yield [Span(f"{'':<{LABEL}}{part}")]


def _next(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    """The best target's command, to be copied; where there are others is said."""
    fitting = best_first([t for t in answer["targets"] if t.get("plan") is not None])
    if not fitting:
        return
    target = fitting[0]
    words = f"{target['machine']['name']}: {target['run_note']}"
    for i, part in enumerate(textwrap.wrap(words, width - 10, break_on_hyphens=False)):
        yield [Span("   Next   " if i == 0 else " " * 10, "bold"), Span(part)]
    for command in target["run"].values():
        yield from continued(command, width)
    says = ((True, "the command is in the report and in --json"),
            (False, "no command is written; the report says where the degrees go"))  # fmt: skip
    for has, said in says:
        names = [t["machine"]["name"] for t in fitting[1:] if bool(t["run"]) == has]
        if names:
            yield [Span(" " * 10), Span(cut(f"{', '.join(names)}: {said}", width - 10), "dim")]


def continued(command: str, width: int) -> Iterator[Line]:
    """A command over lines that a shell joins, inside its quotation marks as well."""
    parts = textwrap.wrap(command, width - 8, break_long_words=False, break_on_hyphens=False)
    for i, part in enumerate(parts):
        yield [Span(" " * 6 + part + (" \\" if i + 1 < len(parts) else ""))]


def _proof(answer: Mapping[str, Any], width: int) -> Iterator[Line]:
    if answer.get("proof"):
        yield _heading(4, "Proof", "by the vendor's own compiler, on the real step")
        yield from proof_lines(proofs_of(answer), width)
        return
    commands = proof_commands({**answer, "targets": best_first(answer["targets"])})
    if not commands:
        yield _heading(4, "Proof", "no plan here has a compiler that runs without the chip")
        return
    more = f" ({len(commands) - 1} more in the report)" if len(commands) > 1 else ""
    words = f"not run; the vendor's own compiler gives it, no chip attached{more}:"
    yield _heading(4, "Proof", cut(words, width - 10))
    head, plan = commands[0].split(" --plan ")
    yield from ([Span(line)] for line in _broken(head, plan, width))


def _broken(head: str, plan: str, width: int) -> Iterator[str]:
    """A command and its plan on lines that a shell joins; the plan is moved left, never cut."""
    parts = textwrap.wrap(head, width - 5, break_long_words=False, break_on_hyphens=False)
    for i, part in enumerate(parts):
        yield f"{'   ' if i == 0 else '     '}{part} \\"
    argument = f"--plan {plan}"
    yield " " * max(min(7, width - len(argument)), 0) + argument


def proof_commands(answer: Mapping[str, Any]) -> list[str]:
    """The compile command that would prove each TPU target's plan."""
    files = " ".join(answer["job"]["file"].split(", "))
    now = answer["from"]["machine"]["name"]
    return [
        f"chipshift compile {files} --on {now} --to {t['machine']['name']} "
        f"--plan {plan_argument(t['plan'])}"
        for t in answer["targets"]
        if t.get("plan") is not None and parse_machine(t["machine"]["name"]).chip.family == "tpu"
    ]


def plan_argument(plan: Mapping[str, Any]) -> str:
    """A plan as ``--plan`` takes it."""
    degrees = [f"{axis}={plan[axis]}" for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp")
               if plan[axis] > 1]  # fmt: skip
    parts = [*degrees, f"microbatch={plan['microbatch']:g}", f"remat={plan['remat']}"]
    if plan["optimizer_sharding"] != "none":
        parts.append(f"optimizer_sharding={plan['optimizer_sharding']}")
    return ",".join(parts)
