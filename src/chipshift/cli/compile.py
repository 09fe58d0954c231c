"""``chipshift compile``: the real training step through the vendor's own compiler."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from chipshift.cli.completion import machines
from chipshift.cli.inputs import Json, Model, On, Set, part_of, print_json
from chipshift.cli.progress import working
from chipshift.compiled import against as comparison
from chipshift.compiled import describe
from chipshift.compiled.request import Request
from chipshift.compiled.run import TIMEOUT_S, Progress
from chipshift.compiled.topology import target
from chipshift.compiled.users import folder_of
from chipshift.errors import InputError
from chipshift.flows.asked import plan_asked
from chipshift.flows.compilation import compiled, request_of, resized
from chipshift.flows.nearest_fit import best_plan, with_nearest
from chipshift.jobs.job import TrainJob
from chipshift.jobs.overrides import read_pairs
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine
from chipshift.planner.space import read_fixed

PROGRAMS = (".hlo", ".stablehlo", ".mlir", ".mlirbc", ".txt")
"""Endings of files that are programs rather than jobs."""

TORCH_AXES = ("dp", "fsdp", "tp")

Say = Callable[[str], None]


Inputs = Annotated[
    list[str] | None, typer.Argument(help="Job files, or one StableHLO or HLO file.")
]
To = Annotated[
    str,
    typer.Option(
        "--to", help="Machine compiled for: v6e:4x4, v7x:2x2x1, h100:8x1.", autocompletion=machines
    ),
]
PlanText = Annotated[
    str, typer.Option("--plan", help="Plan, e.g. fsdp=16,remat=full; else the planner's best.")
]
Fast = Annotated[
    bool, typer.Option("--fast/--time", help="Memory and collectives only, or time as well.")
]
Also = Annotated[
    list[str], typer.Option("--also", help="Another machine, side by side; repeatable.")
]
Against = Annotated[
    str, typer.Option("--against", help="Report of an earlier compile --json to compare.")
]
Entry = Annotated[str, typer.Option("--entry", help="Your own JAX step: package.module:make_step.")]
Torch = Annotated[
    str, typer.Option("--torch", help="Your own PyTorch model: package.module:make_model.")
]
Mesh = Annotated[str, typer.Option("--mesh", help="Mesh of your program, e.g. data=8,model=2.")]
Write = Annotated[
    str, typer.Option("--write", help="Write the step as a runnable file and compile it.")
]
Hlo = Annotated[str, typer.Option("--hlo", help="Write the optimised program here.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds a compilation may take.")]


@dataclass(frozen=True)
class Program:
    """What is compiled for one machine; with the job and its plan where it is the built-in step."""

    machine: Machine
    request: Request
    job: TrainJob | None = None
    plan: Plan | None = None


def command(
    files: Inputs = None,
    to: To = "",
    on: On = "",
    plan: PlanText = "",
    fast: Fast = True,
    also: Also = [],  # noqa: B006
    against: Against = "",
    entry: Entry = "",
    torch: Torch = "",
    mesh: Mesh = "",
    write: Write = "",
    hlo: Hlo = "",
    timeout: Timeout = TIMEOUT_S,
    model: Model = "",
    set_: Set = [],  # noqa: B006
    json: Json = False,
) -> int:
    """The real training step through the target's own compiler, with no chip attached.

    \b
    Examples:
      chipshift compile examples/llama3-8b.toml --to v6e:4x4 --also h100:8x2
      chipshift compile examples/llama3-8b.toml --to v6e:4x4 --write step.py
      chipshift compile --entry mypackage.train:make_step --to v7x:2x2x1 --mesh data=8
      chipshift compile program.stablehlo --to v5e:2x2 --also h100:4x1
    """
    if not timeout > 0:
        raise InputError(f"--timeout {timeout:g}: expected a number of seconds above 0")
    for option, file in (("--hlo", hlo), ("--write", write)):
        if file and (not Path(file).parent.is_dir() or Path(file).is_dir()):
            raise InputError(f"{option} {file}: expected a file in a folder that is there")
    machines, mode = machines_of(to, also), "fast" if fast else "time"
    old = comparison.load(against) if against else None
    with working("reading the job") as say:
        kind, names = kind_of(files or [], entry, torch, model), files or [entry or torch]
        if kind != "job":
            refuse({"--on": on, "--set": " ".join(set_)}, "goes with a job, and this is a program")
        if kind == "job":
            refuse({"--mesh": mesh}, "a job's mesh follows from its plan")
            programs = job_programs(job_of(names, on, model, set_), plan, machines, mode)
        else:
            requests = [own_program(kind, names[0], m, mode, plan, mesh) for m in machines]
            programs = [Program(m, one) for m, one in zip(machines, requests, strict=True)]
        if write:
            write_step(write, programs[0].request, programs[0].job)
        reports = [
            report_of(one, timeout, say, kept(hlo, one.machine.name, number))
            for number, one in enumerate(programs)
        ]
    if write:
        from chipshift.compiled.writing.lines import by_written_lines

        reports = [by_written_lines(one, write) for one in reports]
    first = reports[0] | {"also": reports[1:]}
    if old is not None:
        first["against"] = comparison.compare(against, old, first)
    show(first, json)
    for what, file in (("step", write), ("program", hlo)) if not json else ():
        if file:
            print(f"  the {what} is in {file}")
    return 0 if all(one["compiled"] and one["fits"] is not False for one in reports) else 1


def machines_of(to: str, also: list[str]) -> list[Machine]:
    """The machine compiled for, and those beside it.

    Raises:
        InputError: none is named, or a name that stands for no machine or one without a compiler.
    """
    if not to:
        raise InputError("--to: name the machine to compile for, such as --to v6e:4x4")
    machines = [parse_machine(name) for name in (to, *also)]
    for machine in machines:
        target(machine)
    return machines


def job_programs(job: TrainJob, plan: str, machines: list[Machine], mode: str) -> list[Program]:
    """The built-in step for each machine, the plan resized to its devices.

    Raises:
        InputError: a plan that cannot be read or that the step cannot be cut by.
    """
    chosen = chosen_plan(job, plan, machines[0])
    plans = [resized(chosen, machine.devices) for machine in machines]
    return [
        Program(machine, request_of(job, own, machine, mode), job, own)
        for machine, own in zip(machines, plans, strict=True)
    ]


def report_of(one: Program, timeout_s: float, say: Say, hlo: str) -> dict[str, Any]:
    """The compiler's report on a program; where a job's plan does not fit, with the nearest that
    does."""
    name = one.machine.name
    found = compiled(one.request, one.machine, timeout_s, _progress(say, name), keep=hlo)
    if one.job is None or one.plan is None:
        return found
    progress = _progress(say, f"{name}, a plan that fits")
    return with_nearest(found, one.job, one.plan, one.machine, timeout_s, progress)


def show(report: dict[str, Any], json: bool) -> None:
    """As JSON, or for people."""
    if json:
        print_json(report)
        return
    from chipshift.report.compile_screen import print_compile

    print_compile(report)


def _progress(say: Say, name: str) -> Progress:
    return lambda phase, seconds: say(f"{name}: {phase}")


def kind_of(files: list[str], entry: str, torch: str, model: str = "") -> str:
    """What is to be compiled: ``job``, ``entry``, ``torch`` or ``hlo``.

    Raises:
        InputError: none of them or several, or a model without a job.
    """
    own = entry or torch or next((file for file in files if file.endswith(PROGRAMS)), "")
    if own and model:
        raise InputError(f"--model {model}: {own} is a program already; --model goes with a job")
    if model and not files:
        raise InputError(
            f"--model {model}: a model alone has no batch and no sequence length; expected a job "
            "file beside it, such as examples/llama3-8b.toml (--torch config.json compiles a "
            "Hugging Face config by itself)"
        )
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
    here = (*folder_of(name.rpartition(":")[0]), str(Path.cwd()))
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
        InputError: a part of a plan that a traced module cannot be given, or another number of
            devices than the machine's.
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
    held, devices = degrees["dp"] * degrees["tp"], machine.devices
    if held * degrees["fsdp"] != devices:
        fits = (
            f"fsdp={devices // held}" if devices % held == 0 else f"dp × tp that divides {devices}"
        )
        raise InputError(
            f"--plan {plan}: dp × fsdp × tp = {held * degrees['fsdp']} devices, but {machine.name} "
            f"has {devices} devices; expected {fits}"
        )
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


RANDOM = "The weights are random; load your own before training."


def _title(request: Request, job: TrainJob | None) -> str:
    """What the written file says of itself: the job, and where its step departs from it."""
    said = describe.values_said(job.model) if job is not None else ()
    departs = "\n".join(
        textwrap.fill(f"- {note}", 100, subsequent_indent="  ") for note in (*request.notes, *said)
    )
    return "\n\n".join(filter(None, (f"Training step: {request.program}.", RANDOM, departs)))


def write_step(path: str, request: Request, job: TrainJob | None = None) -> None:
    """The built-in step as a file.

    Args:
        job: whose model's values the step has or lacks; the file says which.

    Raises:
        InputError: the program is not the built-in step, or the file cannot be written.
    """
    from chipshift.compiled.writing.write import source

    if request.config is None:
        raise InputError("--write: only the step that chipshift builds for a job can be written")
    target_file = Path(path)
    part = (
        target_file if target_file.exists() and not target_file.is_file() else part_of(target_file)
    )
    try:
        part.write_text(source(request.config, _title(request, job)), "utf8")
        if part != target_file:
            part.replace(target_file)
    except OSError as error:
        if part != target_file:
            part.unlink(missing_ok=True)
        raise InputError(f"--write {path}: cannot be written ({error.strerror})") from None
