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
        from chipshift.report.read_screen import print_reading

        print_reading(job, everything)


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
