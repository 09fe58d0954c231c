"""The report of ``validate`` as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from chipshift.validate.run import Report
from chipshift.validate.score import Scored, Summary, nearest_rank, ordering, summary, verdicts


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a null prints as a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def print_report(report: Report, cross: dict[str, Summary] | None = None) -> None:
    """Chips against the naive baseline, the special groups, chip ratios and the sweep."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100, highlight=False)
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
    for title, key in (
        ("By framework", "framework"),
        ("By chip and framework", "chip_framework"),
        ("By group", "group"),
        ("By task", "task"),
        ("By source", "source"),
    ):
        console.print(_groups(title, report.by[key]))
    _print_ratios(console, report)
    for line in sweep_lines([row for row in report.scored if row.case.task == "sweep"]):
        console.print(line)


def _groups(title: str, groups: dict[str, Summary]) -> object:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None)
    for i, head in enumerate(("", "n", "median", "p90", "bias")):
        table.add_column(head, justify="left" if i == 0 else "right")
    for name, one in groups.items():
        table.add_row(
            name, str(one.n), percent(one.median_abs_rel), percent(one.p90_abs_rel),
            percent(one.bias),
        )  # fmt: skip
    return table


def _print_ratios(console: object, report: Report) -> None:
    errors = [abs(r["predicted"] / r["measured"] - 1) for r in report.ratios]
    if errors:
        console.print(  # type: ignore[attr-defined]
            f"Ratio of two chips, same model, length and precision: {len(errors)} pairs, "
            f"median error {percent(nearest_rank(errors, 0.5))}, "
            f"p90 {percent(nearest_rank(errors, 0.9))}"
        )


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
            one = summary(errors)
            lines.append(
                f"  {label}: n {one.n}, median {percent(one.median_abs_rel)}, "
                f"p90 {percent(one.p90_abs_rel)}, bias {percent(one.bias)}"
            )
    narrow = [row for row in rows if "width_16384" not in row.case.groups]
    for label, part in (("all models", rows), ("without width 16384", narrow)):
        lines += _verdict_line(label, part)
    order = ordering(rows)
    if order:
        lines.append(
            f"  ordering: the plan predicted fastest ran {percent(order.median_abs_rel)} slower "
            f"than the fastest measured (median of {order.n} groups)"
        )
    return lines


def _verdict_line(label: str, rows: Iterable[Scored]) -> list[str]:
    found = verdicts(rows)
    if found is None:
        return []
    return [
        f"  fits or out of memory, {label}: n {found.n}, balanced accuracy "
        f"{percent(found.balanced_accuracy)}, called 'fits' but ran out "
        f"{percent(found.false_fits)}"
    ]
