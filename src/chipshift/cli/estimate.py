"""``chipshift estimate``: one plan of one job on one machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from chipshift.cli.inputs import Explain, Files, Json, Model, Set, load, print_json
from chipshift.errors import InputError
from chipshift.estimate import Price, estimate
from chipshift.estimate.output import at_path, estimate_json, worked
from chipshift.flows.options import Options, by_chip, read_numbers, runs
from chipshift.jobs.check import complaints
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.planner.space import read_fixed
from chipshift.worked import Worked
from chipshift.worked.tree import lines


def command(
    files: Files,
    on: Annotated[
        str, typer.Option("--on", help="Machine, e.g. v6e:16x16; else the one in the file.")
    ] = "",
    plan: Annotated[
        str, typer.Option("--plan", help="Plan, e.g. fsdp=256,tp=1,remat=full; else the job's own.")
    ] = "",
    stack: Annotated[str, typer.Option("--stack", help="Framework and compiler.")] = "",
    price: Annotated[list[str], typer.Option("--price", help="CHIP=USD a chip-hour.")] = [],  # noqa: B006
    model: Model = "",
    set_: Set = [],  # noqa: B006
    explain: Explain = "",
    json: Json = False,
) -> int:
    """Time, memory and cost of one plan of a job on one machine, part by part.

    \b
    Examples:
      chipshift estimate examples/llama3-8b-torchtitan.toml --on 'h100*128'
      chipshift estimate examples/llama3-8b.toml --on v6e:8x16 --plan fsdp=128,remat=full
      chipshift estimate examples/llama3-8b-torchtitan.toml --on 'h100*128' --explain step_time_s
    """
    job, machine = load(files, on, model, set_)
    chosen = plan_of(job.plan.value if job.plan is not None else None, plan, machine.devices,
                     job.sequences_per_step.value)  # fmt: skip
    if plan:
        _check(job, chosen, plan)
    if stack:
        runs(stack, machine.chip)
    prices = by_chip(read_numbers(price, "--price")) if price else {}
    cost: Price = Options(prices=prices).price_of(machine)
    found = estimate(job, chosen, machine, stack or None, price=cost, explain=bool(explain))
    tree = estimate_json(found)
    if explain:
        value = at_path(tree, explain)
        if json:
            print_json({"schema": "chipshift/estimate/1", "path": explain,
                        "worked": worked(tree, explain)})  # fmt: skip
        elif isinstance(value, Worked):
            print("\n".join(lines(value)))
        else:
            print(f"{explain} = {worked(tree, explain)['value']}")
        return 0
    if json:
        print_json({"schema": "chipshift/estimate/1", **tree})
        return 0
    from chipshift.report.estimate_screen import print_estimate

    print_estimate(found)
    return 0


def _check(job: TrainJob, plan: Plan, text: str) -> None:
    """Refuse what no framework runs; a stack's own limits (uneven stages, copied heads) pass."""
    for complaint in complaints(replace(job, kv_replicated=True, uneven_pp=True), plan):
        raise InputError(f"--plan {text}: {complaint}")


def plan_of(own: Plan | None, text: str, devices: int, sequences: int) -> Plan:
    """The plan that ``--plan`` asks for: its own keys over the job's plan or one device.

    With degrees given and none for the rest, fsdp takes the devices that are left, and the
    accumulation follows the global batch.

    Raises:
        InputError: no plan at all, or one that does not divide.
    """
    if not text:
        if own is None:
            raise InputError("the job has no plan of its own: add --plan, such as --plan fsdp=64")
        return own
    given = read_fixed(text)
    degrees = {axis: int(given.get(axis, 1)) for axis in ("dp", "tp", "cp", "pp")}
    held = degrees["dp"] * degrees["tp"] * degrees["cp"] * degrees["pp"]
    if "fsdp" not in given and devices % held == 0:
        given["fsdp"] = devices // held
    replicas = degrees["dp"] * int(given.get("fsdp", 1))
    if sequences % replicas:
        raise InputError(
            f"--plan {text}: {sequences} sequences a step do not divide over {replicas} replicas"
        )
    share = sequences // replicas
    if "microbatch" not in given:
        given["microbatch"] = share / int(given.get("accumulation", 1))
    if "accumulation" not in given:
        given["accumulation"] = max(round(share / float(given["microbatch"])), 1)
    return Plan(**given)  # type: ignore[arg-type]
