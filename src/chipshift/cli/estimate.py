"""``chipshift estimate``: one plan of one job on one machine."""

from __future__ import annotations

from typing import Annotated

import typer

from chipshift.cli.completion import machines
from chipshift.cli.inputs import (
    Explain,
    Files,
    Json,
    Model,
    Set,
    Torch,
    load,
    print_json,
    print_worked,
)
from chipshift.estimate import Price, estimate
from chipshift.estimate.explain import figures
from chipshift.estimate.output import at_path, estimate_json
from chipshift.flows.asked import plan_asked
from chipshift.flows.options import Options, by_chip, check_asked, read_numbers, runs


def command(
    files: Files,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="Machine, e.g. v6e:16x16; else the one in the file.",
            autocompletion=machines,
        ),
    ] = "",
    plan: Annotated[
        str, typer.Option("--plan", help="Plan, e.g. fsdp=256,tp=1,remat=full; else the job's own.")
    ] = "",
    stack: Annotated[str, typer.Option("--stack", help="Framework and compiler.")] = "",
    price: Annotated[list[str], typer.Option("--price", help="CHIP=USD a chip-hour.")] = [],  # noqa: B006
    model: Model = "",
    torch: Torch = "",
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
    job, machine = load(files, on, model, set_, torch)
    chosen = plan_asked(job, plan, machine)
    if stack:
        runs(stack, machine.chip)
    prices = by_chip(read_numbers(price, "--price")) if price else {}
    check_asked(prices, "--price", (machine.chip.key,))
    cost: Price = Options(prices=prices).price_of(machine)
    found = estimate(job, chosen, machine, stack or None, price=cost, explain=bool(explain),
                     plan_source=f"--plan {plan}" if plan else "")  # fmt: skip
    if explain:
        return print_worked("estimate", at_path(figures(found), explain), explain, json)
    if json:
        print_json({"schema": "chipshift/estimate/1", **estimate_json(found)})
        return 0
    from chipshift.report.estimate_screen import print_estimate

    print_estimate(found)
    return 0
