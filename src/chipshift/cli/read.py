"""``chipshift read``: what a job file was understood to say, line by line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chipshift.cli.completion import models

if TYPE_CHECKING:
    from chipshift.jobs.job import TrainJob


def command(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="The job's files.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Preset or config.json in place of the file's model.", autocompletion=models
        ),
    ] = None,
    torch: Annotated[
        str,
        typer.Option(help="MODULE:FUNCTION that builds your nn.Module; it is run."),
    ] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Lay a setting over the file's, such as loss=dpo."
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="The machine it runs on now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="The job in chipshift's format.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list ignored keys that do not matter.")
    ] = False,
) -> None:
    """Show how a job file is read: understood, assumed, ignored, each with its line.

    \b
    Examples:
      chipshift read examples/llama3-8b-torchtitan.toml
      chipshift read examples/llama3-70b-megatron.sh --set NNODES=16 --on 'h100*128'
      chipshift read examples/llama3-70b-megatron.sh --toml > job.toml
    """
    from chipshift.cli.inputs import chosen_model
    from chipshift.jobs.complete import resolve_machine
    from chipshift.jobs.overrides import read_pairs
    from chipshift.jobs.read import read_job

    job = read_job(files, model=chosen_model(model or "", torch), overrides=read_pairs(set_ or []))
    if on is not None:
        from chipshift.machines.names import parse_machine

        job = resolve_machine(job, parse_machine(on))
    if as_toml:
        from chipshift.jobs.write import to_toml

        sys.stdout.write(to_toml(job))
    elif as_json:
        print(json.dumps(as_object(job), ensure_ascii=False, allow_nan=False))
    else:
        _print_tables(job, everything)


def as_object(job: TrainJob) -> dict[str, Any]:
    """The object of ``read --json``; keys as docs/outputs.md lists them."""
    from dataclasses import asdict

    from chipshift.models.count import params, params_active, params_embedding

    model, plan = job.model, job.plan
    return {
        "schema": "chipshift/read/1",
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "params": params(model),
            "params_embedding": params_embedding(model),
            "params_active": params_active(model),
            "layers": model.n_layers,
            "d_model": model.d_model,
            "vocab": model.vocab,
        },
        "job": {
            "name": job.name,
            "files": list(job.files),
            "format": job.format,
            "framework": job.stack.value,
            "sequences_per_step": None if job.batch_open else job.sequences_per_step.value,
            "seq_len": job.seq_len.value,
            "tokens_per_step": (
                None if job.batch_open else job.sequences_per_step.value * job.seq_len.value
            ),
            "optimizer": job.optimizer.value,
            "task": job.task,
            "loss": job.loss,
            "reference": job.reference,
            "teacher": job.teacher.name if job.teacher else None,
            "precision": asdict(job.precision.value),
            "machine": job.machine.value if job.machine else None,
            "devices": job.devices.value if job.devices else None,
            "plan": None if plan is None else _plan(job),
            "plan_open": job.plan_open or None,
            "slices_open": job.slices_open or None,
        },
        "understood": [
            {
                "key": entry.key,
                "value": entry.value,
                "file": entry.file,
                "line": entry.line,
                "as": entry.understood_as,
            }
            for entry in job.understood
        ],
        "assumed": [{"what": what, "value": value, "why": why} for what, value, why in job.assumed],
        "ignored": [asdict(entry) for entry in job.ignored],
        "flags": [asdict(flag) for flag in job.flags],
    }


def _plan(job: TrainJob) -> dict[str, Any]:
    from dataclasses import asdict

    assert job.plan is not None
    table = asdict(job.plan.value)
    table["order"] = list(job.plan.value.order)
    if job.plan_open:
        for axis in (job.plan_open, job.slices_open):
            if axis:
                table[axis] = None
        if not job.batch_open:  # the machine tells one of them
            table["microbatch" if job.microbatch_rule == "all" else "accumulation"] = None
    return table


def _print_tables(job: TrainJob, everything: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from chipshift.models.count import params, params_active
    from chipshift.report.lines import room

    console = Console(width=room(), highlight=False, soft_wrap=False)
    total, active = params(job.model), params_active(job.model)
    size = f"{total / 1e9:.2f} B parameters"
    size += f", {active / 1e9:.2f} B active" if active != total else ""
    console.print(
        f"[bold]{_plain(job.name)}[/bold]  {job.format}, {job.model.n_layers} layers, {size}"
    )
    console.print(f"{_plain(_step(job))}\n")

    lengths = [len(entry.key) for entry in job.understood]
    lengths += [len(left.key) for left in job.ignored] + [len(flag.key) for flag in job.flags]
    short = max(lengths, default=0) <= 44  # else the longest key would squeeze the rest

    def table(title: str, *columns: str) -> Table:
        made = Table(
            title=title, title_justify="left", box=None, pad_edge=False, header_style="dim"
        )
        for at, column in enumerate(columns):
            made.add_column(column, overflow="fold", no_wrap=at == 0 and short)
        return made

    if job.understood:
        shown = table("Understood", "key", "value", "from", "as")
        for entry in job.understood:
            where = _where(entry.file, entry.line, job)
            shown.add_row(
                _plain(entry.key), _plain(entry.value), where, _plain(entry.understood_as)
            )
        console.print(shown)
    listed = {entry.key for entry in job.understood}
    unlisted = [flag for flag in job.flags if flag.key not in listed]
    if unlisted:
        shown = table("\nMatters for porting", "key", "value", "from", "as")
        for flag in unlisted:
            where = _where(flag.file, flag.line, job)
            shown.add_row(_plain(flag.key), _plain(flag.value), where, f"flag: {flag.kind}")
        console.print(shown)
    if job.assumed:
        shown = table("\nAssumed", "what", "value", "why")
        for row in job.assumed:
            shown.add_row(*(_plain(cell) for cell in row))
        console.print(shown)
    left_out = [entry for entry in job.ignored if entry.matters or everything]
    if left_out:
        shown = table("\nIgnored", "key", "from", "matters", "why")
        for left in left_out:
            matters = "[bold]yes[/bold]" if left.matters else "no"
            where = _where(left.file, left.line, job)
            shown.add_row(_plain(left.key), where, matters, _plain(left.why))
        console.print(shown)
    rest = len(job.ignored) - len(left_out)
    if rest:
        keys = "key" if rest == 1 else "keys"
        console.print(f"\n{rest} {keys} that do not matter to time or memory: --all lists them")


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
    name = _plain(file.rsplit("/", 1)[-1])
    return name if line is None else f"{name}:{line}"


def _plain(text: str) -> str:
    """Text of a user's file, so that no bracket in it is read as markup."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() else " " for c in text))
