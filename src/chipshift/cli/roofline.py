"""``chipshift roofline``: where each op of a job sits under each machine's roof, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chipshift.cli.completion import machines
from chipshift.cli.inputs import (
    Explain,
    Files,
    Json,
    Model,
    Set,
    check_place,
    print_json,
    print_worked,
)
from chipshift.errors import InputError
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.stack import default_stack
from chipshift.flows.explain import worked_at
from chipshift.flows.options import by_chip, check_asked, runs
from chipshift.flows.roofline import figures_of_one_sequence, of_one_sequence
from chipshift.flows.sizing import machines_of
from chipshift.jobs.job import TrainJob
from chipshift.jobs.overrides import read_pairs
from chipshift.jobs.read import read_job
from chipshift.machines.machine import Machine
from chipshift.machines.names import chip_named, chip_of, has_size, parse_machine


def command(
    files: Files,
    on: Annotated[
        list[str],
        typer.Option(
            "--on", help="Machine or chip: h100, v6e:16x16; repeatable.", autocompletion=machines
        ),
    ],
    sequences: Annotated[
        float, typer.Option("--sequences", help="Sequences of one microbatch on a device.")
    ] = 1.0,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor parallel devices.")] = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, help="Expert parallel devices.")] = 1,
    stack: Annotated[
        list[str], typer.Option("--stack", help="CHIP=STACK, e.g. v6e=torchax; repeatable.")
    ] = [],  # noqa: B006
    html: Annotated[str, typer.Option("--html", help="Write the plot as a page here.")] = "",
    model: Model = "",
    set_: Set = [],  # noqa: B006
    explain: Explain = "",
    json: Json = False,
) -> int:
    """Time of each op of one microbatch on each chip, what bounds it, and why.

    Every machine is given the same microbatch, so that only the chips differ; the plan's own cut
    is in the report of `chipshift assess`.

    \b
    Examples:
      chipshift roofline examples/llama3-8b.toml --on h100 --on v6e --on v7x
      chipshift roofline examples/llama3-8b.toml --on h100 --on v7x --tp 8 --html out/roofline.html
      chipshift roofline examples/llama3-8b.toml --on v6e --json
      chipshift roofline examples/llama3-8b.toml --on v6e --explain machines.0.ops.2.time_s
    """
    if not 0 < sequences < 1e6:
        raise InputError(f"--sequences {sequences:g}: expected above 0, below 1e6")
    if html:
        check_place(html)
    job = read_job(files, model=model or None, overrides=read_pairs(set_, "--set"))
    stacks = by_chip(read_pairs(stack, "--stack", "v6e=maxtext"))
    check_asked(stacks, "--stack", (chip_of(name).key for name in on))
    settings = [setting_on(job, name, stacks) for name in dict.fromkeys(on)]
    _check_cut(settings[0][1], tp, ep)
    found = of_one_sequence(settings, sequences, tp, ep)
    if html:
        from chipshift.report.roofline_page import roofline_page

        _write(html, roofline_page(found))
    if explain:
        tree = figures_of_one_sequence(settings, sequences, tp, ep)
        return print_worked("roofline", worked_at(tree, found, explain), explain, json)
    if json:
        print_json(found)
        return 0
    from chipshift.report.roofline_screen import print_roofline

    print_roofline(found, html)
    return 0


def setting_on(job: TrainJob, name: str, stacks: dict[str, str]) -> tuple[str, Setting]:
    """The machine's own name, or its chip's where no size was asked for, and the setting."""
    machine = _machine(name)
    chip = machine.chip
    asked = stacks.get(chip.key)
    chosen = default_stack(chip.family, job.stack.value) if asked is None else runs(asked, chip)
    return machine.name if has_size(name) else chip.key, setting(job, machine, chosen)


def _machine(name: str) -> Machine:
    """A machine by its name; a chip alone stands for its smallest machine."""
    if has_size(name):
        return parse_machine(name)
    return next(machines_of(chip_named(name)))


def _check_cut(s: Setting, tp: int, ep: int) -> None:
    """Raise InputError when heads or experts do not divide."""
    for layer, _ in s.model.layers:
        heads = int(layer.attention.heads) if layer.attention else tp
        if heads % tp:
            raise InputError(_uneven("--tp", tp, heads, "attention heads"))
        experts = int(getattr(layer.mlp, "experts", ep) or ep)
        if experts % ep:
            raise InputError(_uneven("--ep", ep, experts, "experts"))


def _uneven(option: str, found: int, count: int, what: str) -> str:
    fits = [n for n in range(1, count + 1) if count % n == 0]
    near = min(fits, key=lambda n: abs(n - found))
    return (
        f"{option} {found} does not divide the model's {count} {what}; expected a divisor of "
        f"{count}, the nearest being {near}"
    )


def _write(path: str, text: str) -> None:
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf8")
    except OSError as error:
        raise InputError(f"--html {path}: cannot be written ({error.strerror})") from None
