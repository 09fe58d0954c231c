"""The report of ``validate`` as tables on a terminal."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from chipshift.validate.case import Skip
from chipshift.validate.run import Report
from chipshift.validate.score import Scored, Summary, nearest_rank, ordering, summary, verdicts

if TYPE_CHECKING:
    from rich.console import Console


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a null prints as a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def print_report(console: Console, report: Report, cross: dict[str, Summary] | None = None) -> None:
    """Chips against the naive baseline, the special groups, chip ratios and the sweep, in the
    console's columns."""
    from rich.table import Table

    console.print(
        f"{len(report.scored)} of {report.rows} rows scored, {len(report.skipped)} skipped "
        "(--json lists each with its reason)"
    )
    table = Table(title="Step time: absolute relative error", title_justify="left", box=None)
    heads = ["chip", "n", "median", "p90", "bias", "naive median", "naive p90"]
    for i, head in enumerate(heads + (["left out"] if cross is not None else [])):
        table.add_column(head, justify="left" if i == 0 else "right")
    for chip, found in report.by["chip"].items():
        naive = report.baseline.get(chip)
        row = [chip, str(found.n), percent(found.median_abs_rel), percent(found.p90_abs_rel)]
        row += [percent(found.bias), percent(naive.median_abs_rel if naive else None)]
        row += [percent(naive.p90_abs_rel if naive else None)]
        if cross is not None:
            row.append(percent(cross[chip].median_abs_rel if chip in cross else None))
        table.add_row(*row)
    if table.row_count:
        console.print(table)
    for title, key, beside in (
        ("By framework", "framework", None),
        ("By chip and framework", "chip_framework", None),
        ("By group: grade A pretraining, and the sweep", "group", report.baseline_group),
        ("By task, every row", "task", None),
        ("By source, every row", "source", None),
    ):
        if report.by[key]:
            console.print(_groups(title, report.by[key], beside))
    swept = [row for row in report.scored if row.case.task == "sweep"]
    for line in (*_last_lines(report), *sweep_lines(swept), *skipped_lines(report.skipped)):
        for part in textwrap.wrap(line, console.width, subsequent_indent="    "):
            console.print(part, soft_wrap=True)


def _groups(
    title: str, groups: dict[str, Summary], beside: dict[str, Summary] | None = None
) -> object:
    """A table of summaries, with the naive estimate's beside where it is given."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None)
    naive = ("naive median", "naive p90") if beside is not None else ()
    for i, head in enumerate(("", "n", "median", "p90", "bias", *naive)):
        table.add_column(head, justify="left" if i == 0 else "right")
    for name, one in groups.items():
        found = (beside or {}).get(name)
        last = (found.median_abs_rel, found.p90_abs_rel) if found else (None, None)
        table.add_row(
            name, str(one.n), percent(one.median_abs_rel), percent(one.p90_abs_rel),
            percent(one.bias), *map(percent, last[: len(naive)]),
        )  # fmt: skip
    return table


def _last_lines(report: Report) -> list[str]:
    """Ratios of chips, rates in the sources' conventions, and what the constants have seen."""
    lines = []
    errors = [abs(r["predicted"] / r["measured"] - 1) for r in report.ratios]
    if errors:
        lines.append(
            f"Ratio of two chips, same model, length and precision: {len(errors)} pairs, "
            f"median error {percent(nearest_rank(errors, 0.5))}, "
            f"p90 {percent(nearest_rank(errors, 0.9))}"
        )
    rates = [e for row in report.scored if (e := row.error.get("tflops_per_chip")) is not None]
    if rates:
        lines.append("TFLOP/s a chip in each source's own FLOP convention: " + said(summary(rates)))
    return lines + seen_lines(report)


def seen_lines(report: Report) -> list[str]:
    """How many of the rows the constants were fitted on, and the error of the timed others."""
    if not report.scored:
        return []
    lines = [
        f"The constants were fitted on {sum(report.seen)} of the {len(report.scored)} scored rows"
        if any(report.seen)
        else "The constants were fitted on none of these rows"
    ]
    errors = [row.step_error for row in report.unseen if row.step_error is not None]
    if any(report.seen) and errors:
        lines.append(f"  step time of the others: {said(summary(errors))}")
    return lines


def said(one: Summary) -> str:
    """A summary in a line."""
    return (
        f"n {one.n}, median {percent(one.median_abs_rel)}, p90 {percent(one.p90_abs_rel)}, "
        f"bias {percent(one.bias)}"
    )


def skipped_lines(skipped: Iterable[Skip]) -> list[str]:
    """Why rows were skipped: each reason with its number of rows and the first one's line."""
    rows: dict[str, list[Skip]] = defaultdict(list)
    for row in skipped:
        rows[row.why].append(row)
    out = ["Skipped"] if rows else []
    for why, of in sorted(rows.items(), key=lambda item: -len(item[1])):
        place = f"line {of[0].line}" if of[0].line else of[0].id
        out.append(f"  {len(of)}: {why} ({place}{' and on' if len(of) > 1 else ''})")
    return out


def sweep_lines(rows: list[Scored]) -> list[str]:
    """Time, state, peak, verdicts and ordering of the sweep, a line each."""
    if not rows:
        return []
    lines = ["Sweep"]
    for name, label in (
        ("step_time_s", "step time"),
        ("state_memory_bytes", "state memory against allocated"),
        ("memory_bytes", "peak memory against reserved"),
    ):
        errors = [row.error[name] for row in rows if name in row.error]
        if errors:
            lines.append(f"  {label}: {said(summary(errors))}")
    narrow = [row for row in rows if "width_16384" not in row.case.groups]
    for label, part in (("all models", rows), ("without width 16384", narrow)):
        lines += _verdict_line(label, part)
    order = ordering(rows)
    if order:
        lines.append(
            f"  ordering: the preferred plan ran {percent(order.median_abs_rel)} slower than the "
            f"fastest measured (median of {order.n}; p90 {percent(order.p90_abs_rel)})"
        )
    return lines


def _verdict_line(label: str, rows: Iterable[Scored]) -> list[str]:
    found = verdicts(rows)
    if found is None:
        return []
    return [
        f"  fits or runs out, {label}: n {found.n}, balanced accuracy "
        f"{percent(found.balanced_accuracy)}, of those called 'fits' {percent(found.false_fits)} "
        "ran out"
    ]
