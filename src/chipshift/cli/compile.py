"""``chipshift compile``: the real training step through the vendor's own compiler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from chipshift.cli.inputs import Json, Model, On, Set, print_json, read_pairs
from chipshift.cli.progress import working
from chipshift.compiled import against as comparison
from chipshift.compiled.request import Request
from chipshift.compiled.run import TIMEOUT_S
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.flows.asked import plan_asked
from chipshift.flows.compilation import compiled, request_of, resized
from chipshift.flows.nearest_fit import best_plan, with_nearest
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine
from chipshift.planner.space import read_fixed

PROGRAMS = (".hlo", ".stablehlo", ".mlir", ".txt")
"""Endings of files that are programs rather than jobs."""

TORCH_AXES = ("dp", "fsdp", "tp")


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
    ] = TIMEOUT_S,
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
    machines = [parse_machine(name) for name in (to, *also)]
    mode = "fast" if fast else "time"
    old = comparison.load(against) if against else None
    with working("reading the job") as say:
        kind = kind_of(files or [], entry, torch)
        if kind == "job":
            refuse({"--mesh": mesh}, "a job's mesh follows from its plan")
            job = job_of(files or [], on, model, set_)
            chosen = chosen_plan(job, plan, machines[0])
            requests = [request_of(job, resized(chosen, m.devices), m, mode) for m in machines]
        else:
            requests = [
                own_program(kind, entry or torch or (files or [""])[0], m, mode, plan, mesh)
                for m in machines
            ]
        if write:
            write_step(write, requests[0])
        reports = [
            compiled(request, machine, timeout, _progress(say, machine.name),
                     keep=kept(hlo, machine.name, n))
            for n, (request, machine) in enumerate(zip(requests, machines, strict=True))
        ]  # fmt: skip
        if kind == "job":
            reports = [
                with_nearest(
                    one, job, resized(chosen, machine.devices), machine, timeout,
                    _progress(say, f"{machine.name}, a plan that fits"),
                )
                for one, machine in zip(reports, machines, strict=True)
            ]  # fmt: skip
    first = reports[0]
    first["also"] = reports[1:]
    if old is not None:
        first["against"] = comparison.compare(against, old, first)
    if json:
        print_json(first)
    else:
        from chipshift.report.compile_screen import print_compile

        print_compile(first)
    return 0 if all(one["compiled"] and one["fits"] is not False for one in reports) else 1


def _progress(say: Any, name: str) -> Any:
    return lambda phase, seconds: say(f"{name}: {phase}")


def kind_of(files: list[str], entry: str, torch: str) -> str:
    """What is to be compiled: ``job``, ``entry``, ``torch`` or ``hlo``.

    Raises:
        InputError: none of them or several.
    """
    if sum((bool(entry), bool(torch), bool(files))) != 1:
        raise InputError(
            "compile one thing: job files, a StableHLO or HLO file, --entry or --torch"
        )
    if entry or torch:
        return "entry" if entry else "torch"
    programs = [file for file in files if file.endswith(PROGRAMS)]
    if programs and len(files) > 1:
        raise InputError(f"compile one program: {', '.join(files)}")
    return "hlo" if programs else "job"


def refuse(given: dict[str, str], why: str) -> None:
    """Refuse options that would change nothing.

    Raises:
        InputError: one of them was given.
    """
    for flag, value in given.items():
        if value:
            raise InputError(f"{flag} {value}: {why}")


def own_program(kind: str, name: str, machine: Machine, mode: str, plan: str, mesh: str) -> Request:
    """The user's own step, module or file, on a mesh of its own.

    Raises:
        InputError: a file that is not there, or a mesh or plan that cannot be used.
    """
    axes = mesh_of(mesh)
    here = (str(Path.cwd()),)
    if kind == "hlo":
        refuse({"--plan": plan}, "a program's shardings stand in the file already")
        if not Path(name).is_file():
            raise InputError(f"{name}: no such file; expected StableHLO or HLO text")
        return Request(kind, name, target(machine), mode=mode, file=name, mesh=axes)
    if kind == "entry":
        refuse({"--plan": plan}, "your step is sharded by your own code; --mesh names its mesh")
    elif plan:
        refuse({"--mesh": mesh}, "the mesh of a PyTorch module follows from --plan")
        axes = torch_mesh(plan, machine)
    file = name if name.endswith(".json") else ""
    if file and not Path(file).is_file():
        raise InputError(f"--torch {file}: no such file; expected a Hugging Face config.json")
    return Request(
        kind, name, target(machine), mode=mode, entry=name, file=file, path=here, mesh=axes,
        plan=plan,
    )  # fmt: skip


def torch_mesh(plan: str, machine: Machine) -> tuple[tuple[str, int], ...]:
    """The mesh of a plan for a traced PyTorch module.

    Raises:
        InputError: a part of a plan that a traced module cannot be given.
    """
    given = read_fixed(plan)
    for key in given:
        if key not in TORCH_AXES:
            raise InputError(
                f"--plan {key}: a traced PyTorch module is cut over {', '.join(TORCH_AXES)} only; "
                "what it recomputes and how it accumulates is in its own code"
            )
    degrees = {axis: int(given.get(axis, 1)) for axis in TORCH_AXES}
    if "fsdp" not in given and machine.devices % (degrees["dp"] * degrees["tp"]) == 0:
        degrees["fsdp"] = machine.devices // (degrees["dp"] * degrees["tp"])
    return tuple(degrees.items())


def kept(hlo: str, machine: str, number: int) -> str:
    """Where the optimised program of a machine is written: the file asked for, or beside it."""
    if not hlo or not number:
        return hlo
    file = Path(hlo)
    return str(file.with_name(f"{file.stem}.{re.sub(r'[^a-z0-9]+', '-', machine)}{file.suffix}"))


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
    return plan_asked(job, text, machine) if text else best_plan(job, machine)


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
