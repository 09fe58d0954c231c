"""The reading of a job on a terminal: what was understood, assumed and ignored, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chipshift.report.lines import room, without_blanks

if TYPE_CHECKING:
    from rich.table import Table

    from chipshift.jobs.job import TrainJob

LONGEST_KEY = 44
"""Characters of a key that is never folded; a longer one would squeeze the rest."""


def print_reading(job: TrainJob, everything: bool) -> None:
    """Print a job's tables.

    Args:
        everything: also the ignored keys that do not matter.
    """
    from rich.console import Console

    console = Console(width=room(), highlight=False, soft_wrap=False)
    with without_blanks(console):
        console.print(f"[bold]{_plain(job.name)}[/bold]  {job.format}, {_size(job)}")
        console.print(f"{_plain(_step(job))}\n")
        for table in _tables(job, everything):
            console.print(table)
        rest = 0 if everything else sum(not entry.matters for entry in job.ignored)
        if rest:
            keys = "key" if rest == 1 else "keys"
            console.print(f"\n{rest} {keys} that do not matter to time or memory: --all lists them")


def _size(job: TrainJob) -> str:
    from chipshift.models.count import params, params_active

    total, active = params(job.model), params_active(job.model)
    size = f"{job.model.n_layers} layers, {total / 1e9:.2f} B parameters"
    return size + (f", {active / 1e9:.2f} B active" if active != total else "")


def _tables(job: TrainJob, everything: bool) -> Iterator[Table]:
    """The tables that have rows, one after another."""
    lengths = [len(entry.key) for entry in job.understood]
    lengths += [len(left.key) for left in job.ignored] + [len(flag.key) for flag in job.flags]
    short = max(lengths, default=0) <= LONGEST_KEY

    understood = [
        (entry.key, entry.value, _where(entry.file, entry.line, job), entry.understood_as)
        for entry in job.understood
    ]
    listed = {entry.key for entry in job.understood}
    flags = [
        (flag.key, flag.value, _where(flag.file, flag.line, job), f"flag: {flag.kind}")
        for flag in job.flags
        if flag.key not in listed
    ]
    ignored = [
        (left.key, _where(left.file, left.line, job), "yes" if left.matters else "no", left.why)
        for left in job.ignored
        if left.matters or everything
    ]
    for title, columns, rows in (
        ("Understood", ("key", "value", "from", "as"), understood),
        ("\nMatters for porting", ("key", "value", "from", "as"), flags),
        ("\nAssumed", ("what", "value", "why"), job.assumed),
        ("\nIgnored", ("key", "from", "matters", "why"), ignored),
    ):
        if rows:
            yield _table(title, columns, rows, short)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], short: bool) -> Table:
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for at, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=at == 0 and short)
    for row in rows:
        made.add_row(
            *(
                f"[bold]{cell}[/bold]" if (name, cell) == ("matters", "yes") else _plain(cell)
                for name, cell in zip(columns, row, strict=True)
            )
        )
    return made


def _step(job: TrainJob) -> str:
    """The step in one line."""
    batch = f"{job.sequences_per_step.value} sequences"
    if job.batch_open:
        batch += f" × {job.plan_open}"
        batch += f" × {job.slices_open}" if job.slices_open else ""
    text = f"{batch} of {job.seq_len.value} tokens a step, {job.optimizer.value}"
    if job.loss != "lm":
        text += f", {job.loss}"
    if job.plan is not None:
        plan = job.plan.value
        told = {job.slices_open: "the slices", job.plan_open: "the rest"}
        degrees = [
            f"{name}={told.get(name, getattr(plan, name))}"
            for name in ("dp", "fsdp", "cp", "tp", "pp", "ep", "vpp")
            if getattr(plan, name) > 1 or name in told
        ]
        text += f"; {', '.join(degrees) or 'one device'}, remat {plan.remat}"
    if job.machine is not None:
        text += f"; on {job.machine.value}"
    elif job.devices is not None:
        text += f"; on {job.devices.value} devices"
    return text


def _where(file: str, line: int | None, job: TrainJob) -> str:
    """``file:line``, the file left out when there is only one."""
    if file in job.files and len(job.files) == 1 and line is not None:
        return f"line {line}"
    name = file.rsplit("/", 1)[-1]
    return name if line is None else f"{name}:{line}"


def _plain(text: str) -> str:
    """Text of a user's file, so that no bracket in it is read as markup."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() else " " for c in text))
