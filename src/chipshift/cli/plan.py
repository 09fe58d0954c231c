"""``chipshift plan``: the planner by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from chipshift.cli.completion import machines
from chipshift.cli.inputs import (
    Explain,
    Files,
    Json,
    Model,
    On,
    Set,
    Torch,
    chosen_model,
    options_of,
    print_json,
    print_worked,
)
from chipshift.cli.progress import working
from chipshift.errors import InputError
from chipshift.flows.asked import present_machine
from chipshift.flows.assess import plan_target
from chipshift.flows.explain import plan_tree, worked_at
from chipshift.flows.planning import plan_json
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import chip_of
from chipshift.models.model import Model as TracedModel


def command(
    files: Files,
    to: Annotated[
        str,
        typer.Option("--to", help="Machine: v7x:8x8x8, v6e, h100*256.", autocompletion=machines),
    ],
    on: On = "",
    fix: Annotated[str, typer.Option("--fix", help="Hold part of the plan, e.g. tp=4.")] = "",
    objective: Annotated[
        str, typer.Option("--objective", help="time, cost or chips: picks the slice.")
    ] = "time",
    price: Annotated[list[str], typer.Option("--price", help="CHIP=USD a chip-hour.")] = [],  # noqa: B006
    commit: Annotated[str, typer.Option("--commit", help="od, 1y, 3y or spot prices.")] = "od",
    allow_batch: Annotated[
        bool, typer.Option("--allow-batch", help="Tokens a step may change.")
    ] = False,
    stack: Annotated[
        list[str], typer.Option("--stack", help="CHIP=STACK, e.g. v6e=torchax; repeatable.")
    ] = [],  # noqa: B006
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Score every plan; prune none by its bounds.")
    ] = False,
    model: Model = "",
    torch: Torch = "",
    set_: Set = [],  # noqa: B006
    explain: Explain = "",
    json: Json = False,
) -> int:
    """The best plans of a job on a machine, why the others lose, and what each limit costs.

    \b
    Examples:
      chipshift plan examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v7x:4x4x4
      chipshift plan examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v6e:8x16 --fix tp=4
      chipshift plan examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v7x:4x4x4 \\
          --explain best.step_time_s
      chipshift plan examples/llama3-8b.toml --to v7x:4x4x4 --exhaustive
    """
    options = options_of(
        price=price, commit=commit, objective=objective, fix=fix, allow_batch=allow_batch,
        measured="", tokens="", deadline="", goodput=0.9, stack=stack, exhaustive=exhaustive,
    )  # fmt: skip
    with working("planning"):
        job = _job(files, on, chosen_model(model, torch), set_)
        present = [job.machine.value] if job.machine is not None else []
        options.check_asked(map(chip_of, (to, *present)))
        found = plan_target(job, to, options)
    answer = plan_json(found, options, job)
    if explain:
        print_worked("plan", worked_at(plan_tree(found, options), answer, explain), explain, json)
    elif json:
        print_json(answer)
    else:
        from chipshift.report.plan_screen import print_plan

        print_plan(answer)
    return 0 if found.estimate is not None else 1


def _job(files: list[str], on: str, model: str | TracedModel | None, sets: list[str]) -> TrainJob:
    """The job; the machine it runs on now is needed only where its batch depends on it."""
    from chipshift.jobs.overrides import read_pairs

    job = read_job(files, model=model, overrides=read_pairs(sets, "--set"))
    if on or (job.machine is not None and not job.batch_open):
        return present_machine(job, on)[0]
    if job.batch_open:
        raise InputError(
            f"{files[0]} gives the batch of one replica only: add --on, the machine it runs on "
            "now, or --set sequences_per_step=..."
        )
    return job
