"""``chipshift validate``: the estimate against measured runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chipshift.cli.inputs import check_place
from chipshift.cli.progress import working
from chipshift.errors import InputError

if TYPE_CHECKING:
    from chipshift.validate.case import Case, Skip


def command(
    data: Annotated[
        Path | None,
        typer.Argument(help="Measured runs: JSON records a line, or the sweep's CSV."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    cross: Annotated[
        bool,
        typer.Option(
            "--cross",
            help="Also refit the constants on the carried runs, each row's own model left out.",
        ),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Count every grade and task in the chips' groups."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write scatter plots and the worst rows here.")
    ] = None,
    fail_over: Annotated[
        str | None,
        typer.Option(help="Exit with 1 when a chip's median error exceeds this (0.07 or 7%)."),
    ] = None,
) -> None:
    """Predicted against measured step time and memory, grouped, with the naive baseline beside.

    Without DATA: the runs that the package carries (public records and one H100 sweep).

    \b
    Examples:
      chipshift validate
      chipshift validate measured.jsonl --json
      chipshift validate sweep.csv --html out/sweep.html
      chipshift validate --cross --fail-over 10%
    """
    from chipshift.validate.cross import cross_validate
    from chipshift.validate.run import carried, carried_cases, read_data, run, to_json
    from chipshift.validate.table import print_report

    limit = _fraction(fail_over)
    if html is not None:
        check_place(str(html))
    names = ("measured_training.jsonl", "nanotron_h100_sweep.csv")
    rows = [row for path in ([data] if data else map(carried, names)) for row in read_data(path)]
    with working("scoring the runs") as say:
        report = run(_told(rows, say), everything=everything)
    cases = [row.case for row in report.scored]
    left_out = cross_validate(cases, list(carried_cases())) if cross else None
    if as_json:
        typer.echo(json.dumps(to_json(report, left_out), allow_nan=False))
    else:
        from rich.console import Console

        from chipshift.report.lines import room, without_blanks

        console = Console(width=room(), highlight=False)
        with without_blanks(console):
            print_report(console, report, left_out)
    if html:
        from chipshift.validate.page import write_page

        write_page(report, html)
        typer.echo(f"wrote {html}", err=True)
    worst = max((s.median_abs_rel for s in report.by["chip"].values()), default=0.0)
    if limit is not None and worst > limit:
        raise typer.Exit(1)


def _told(rows: list[Case | Skip], say: Callable[[str], None]) -> Iterator[Case | Skip]:
    """The rows, each said to be scored as it is taken."""
    for number, row in enumerate(rows, 1):
        say(f"scoring {number:,} of {len(rows):,} runs")
        yield row


def _fraction(text: str | None) -> float | None:
    """``0.07`` or ``7%`` as a fraction.

    Raises:
        InputError: neither.
    """
    if text is None:
        return None
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = float("nan")
    if not 0 < share < float("inf"):
        raise InputError(f"--fail-over '{text}': expected a fraction (0.07) or '7%'")
    return share
