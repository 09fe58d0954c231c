"""``chipshift compile``: the real training step through the vendor's own compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chipshift.cli.inputs import Json, Model, On, Set, print_json, read_pairs
from chipshift.cli.progress import working
from chipshift.compiled import against as comparison
from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.flows.prove import compiled, nearest_fit, request_of
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine

PROGRAMS = (".hlo", ".stablehlo", ".mlir", ".txt")
"""Endings of files that are programs rather than jobs."""


def command(
    files: Annotated[
        list[str] | None, typer.Argument(help="Job files, or one StableHLO or HLO file.")
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="Machine compiled for: v6e:4x4, v7x:2x2x1, h100:8x1.")
    ] = "",
    on: On = "",
    plan: Annotated[
        str, typer.Option("--plan", help="Plan, e.g. fsdp=16,remat=full; else the planner's best.")
    ] = "",
    fast: Annotated[
        bool, typer.Option("--fast/--time", help="Memory and collectives only, or time as well.")
    ] = True,
    also: Annotated[
        list[str], typer.Option("--also", help="Another machine, side by side; repeatable.")
    ] = [],  # noqa: B006
    against: Annotated[
        str, typer.Option("--against", help="Report of an earlier compile --json to compare.")
    ] = "",
    entry: Annotated[
        str, typer.Option("--entry", help="Your own JAX step: package.module:make_step.")
    ] = "",
    torch: Annotated[
        str, typer.Option("--torch", help="Your own PyTorch model: package.module:make_model.")
    ] = "",
    mesh: Annotated[
        str, typer.Option("--mesh", help="Mesh of your program, e.g. data=8,model=2.")
    ] = "",
    write: Annotated[
        str, typer.Option("--write", help="Write the step as a runnable file and compile it.")
    ] = "",
    hlo: Annotated[str, typer.Option("--hlo", help="Write the optimised program here.")] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds a compilation may take.")
    ] = 1800.0,
    model: Model = "",
    set_: Set = [],  # noqa: B006
    json: Json = False,
) -> int:
    """The real training step through the target's own compiler, with no chip attached.

    \b
    Examples:
      chipshift compile examples/llama3-8b.toml --to v6e:4x4 --plan fsdp=16,remat=full
      chipshift compile examples/llama3-8b.toml --to v6e:4x4 --plan fsdp=16 --write step.py
      chipshift compile --entry mypackage.train:make_step --to v7x:2x2x1 --mesh data=8
      chipshift compile program.stablehlo --to v5e:2x2 --also h100:4x1
    """
    if not to:
        raise InputError("--to: name the machine to compile for, such as --to v6e:4x4")
    if not timeout > 0:
        raise InputError(f"--timeout {timeout:g}: expected a number of seconds above 0")
    before = comparison.load(against) if against else None
    names = [to, *also]
    machines = [parse_machine(name) for name in names]
    mode = "fast" if fast else "time"
    with working("compiling") as say:
        requests = [
            _request(files or [], machine, mode, on=on, plan=plan, entry=entry, torch=torch,
                     mesh=mesh, model=model, sets=set_)
            for machine in machines
        ]  # fmt: skip
        if write:
            write_step(write, requests[0])
        reports = [
            compiled(request, machine, timeout, _progress(say, machine.name), keep=hlo)
            for request, machine in zip(requests, machines, strict=True)
        ]
        first = reports[0]
        first["nearest_fit"] = None
        if first["fits"] is False and requests[0].config is not None:
            job = job_of(files or [], on, model, set_)
            own = chosen_plan(job, plan, machines[0])
            first["nearest_fit"] = nearest_fit(
                job, own, machines[0], timeout, _progress(say, "a plan that fits")
            )
    first["also"] = reports[1:]
    if before is not None:
        first["against"] = comparison.compare(against, before, first)
    if json:
        print_json(first)
    else:
        from chipshift.report.compile_screen import print_compile

        print_compile(first)
    return 0 if all(one["compiled"] and one["fits"] is not False for one in reports) else 1


def _progress(say: Any, name: str) -> Any:
    return lambda phase, seconds: say(f"{name}: {phase}")


def _request(
    files: list[str], machine: Machine, mode: str, *, on: str, plan: str, entry: str, torch: str,
    mesh: str, model: str, sets: list[str],
) -> Request:  # fmt: skip
    """What is to be compiled: the job, the user's own code, or a program that is there already.

    Raises:
        InputError: none of them or several, or one that cannot be used.
    """
    programs = [file for file in files if file.endswith(PROGRAMS)]
    if sum((bool(entry), bool(torch), bool(files))) != 1 and not (torch and files):
        raise InputError(
            "compile one thing: job files, a StableHLO or HLO file, --entry or --torch"
        )
    here = (str(Path.cwd()),)
    axes = mesh_of(mesh)
    if entry or torch:
        return Request(
            "entry" if entry else "torch", entry or torch, target(machine), mode=mode,
            entry=entry or torch, path=here, mesh=axes,
        )  # fmt: skip
    if programs:
        if not Path(programs[0]).is_file():
            raise InputError(f"{programs[0]}: no such file; expected StableHLO or HLO text")
        return Request("hlo", programs[0], target(machine), mode=mode, file=programs[0], mesh=axes)
    job = job_of(files, on, model, sets)
    return request_of(job, chosen_plan(job, plan, machine), machine, mode)


def mesh_of(text: str) -> tuple[tuple[str, int], ...]:
    """``data=8,model=2`` as axes and sizes.

    Raises:
        InputError: another form, or a size that is no positive whole number.
    """
    pairs = read_pairs([part for part in text.split(",") if part], "--mesh", "data=8,model=2")
    for axis, size in pairs.items():
        if not size.isdecimal() or int(size) < 1:
            raise InputError(
                f"--mesh: the size of {axis} is '{size}'; expected a number of devices"
            )
    return tuple((axis, int(size)) for axis, size in pairs.items())


def job_of(files: list[str], on: str, model: str, sets: list[str]) -> TrainJob:
    """The job; the machine it runs on now is needed only where its batch depends on it."""
    from chipshift.cli.plan import _job

    return _job(files, on, model or None, sets)


def chosen_plan(job: TrainJob, text: str, machine: Machine) -> Plan:
    """The plan asked for, else the planner's best on this machine.

    Raises:
        InputError: a plan that cannot be read, or no plan that fits.
    """
    if text:
        from chipshift.flows.asked import plan_of

        return plan_of(None, text, machine.devices, job.sequences_per_step.value)
    from chipshift.flows.prove import best_plan

    return best_plan(job, machine)


def write_step(path: str, request: Request) -> None:
    """The built-in step as a file.

    Raises:
        InputError: the program is not the built-in step, or the file cannot be written.
    """
    from chipshift.compiled.step.write import source

    if request.config is None:
        raise InputError("--write: only the step that chipshift builds for a job can be written")
    try:
        Path(path).write_text(source(request.config, f"Training step: {request.program}."), "utf8")
    except OSError as error:
        raise InputError(f"--write {path}: cannot be written ({error.strerror})") from None
