"""Options that several commands share, and what they are turned into."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from chipshift.cli.completion import machines, models
from chipshift.errors import InputError, nearest
from chipshift.estimate.output import figure, jsonable
from chipshift.flows.asked import present_machine
from chipshift.flows.options import (
    Measured,
    Options,
    by_chip,
    positive,
    read_duration,
    read_numbers,
)
from chipshift.jobs.job import TrainJob
from chipshift.jobs.overrides import read_pairs
from chipshift.jobs.read import read_job
from chipshift.machines.machine import Machine
from chipshift.models.model import Model as TracedModel
from chipshift.planner.space import read_fixed
from chipshift.units import GB, GIB
from chipshift.worked.tree import lines

Files = Annotated[list[str], typer.Argument(help="Job files, merged in this order.")]
On = Annotated[
    str,
    typer.Option(
        "--on", help="Machine the job runs on now, e.g. h100*128.", autocompletion=machines
    ),
]
Model = Annotated[
    str,
    typer.Option("--model", help="Preset name or config.json of the model.", autocompletion=models),
]
Torch = Annotated[
    str, typer.Option("--torch", help="MODULE:FUNCTION that builds your nn.Module; it is run.")
]
Set = Annotated[
    list[str], typer.Option("--set", help="KEY=VALUE over the files, e.g. nodes=4, loss=dpo.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Explain = Annotated[
    str, typer.Option("--explain", help="Print the derivation of a figure, by its dotted path.")
]


def chosen_model(model: str, torch: str) -> str | TracedModel | None:
    """What replaces the files' model: ``--model``'s name, or the module that ``--torch`` builds.

    Raises:
        InputError: both are given, PyTorch is absent, or the user's function fails.
    """
    if not torch:
        return model or None
    if model:
        raise InputError("--model and --torch both name the model; expected one of them")
    from chipshift.trace.torch_model import read_torch_model

    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints is not the answer
        return read_torch_model(torch)


def load(
    files: list[str], on: str, model: str, sets: list[str], torch: str = ""
) -> tuple[TrainJob, Machine]:
    """The job and the machine it runs on now.

    Raises:
        InputError: files that cannot be read, or no machine named anywhere.
    """
    chosen = chosen_model(model, torch)
    job = read_job(files, model=chosen, overrides=read_pairs(sets))
    return present_machine(job, on)


def options_of(*, price: list[str], commit: str, objective: str, fix: str, allow_batch: bool,
               measured: str, tokens: str, deadline: str, goodput: float, stack: list[str],
               exhaustive: bool = False) -> Options:  # fmt: skip
    """The options as their dataclass.

    Raises:
        InputError: a value that cannot be used.
    """
    if deadline and not tokens:
        raise InputError("--deadline needs --tokens: the length of the run that must meet it")
    return Options(
        prices=by_chip(read_numbers(price, "--price")) if price else {},
        commit=commit,
        objective=objective,
        fixed=read_fixed(fix),
        allow_batch=allow_batch,
        measured=read_measured(measured),
        tokens=positive(tokens, "--tokens") if tokens else None,
        deadline_s=read_duration(deadline, "--deadline") if deadline else None,
        goodput=goodput,
        stacks=by_chip(read_pairs(stack, "--stack", "v6e=maxtext")),
        exhaustive=exhaustive,
    )


def read_measured(text: str) -> Measured:
    """``step_time_s=4.2,memory_gib=61`` as the user's measurement.

    Raises:
        InputError: another key, or no number.
    """
    if not text:
        return Measured()
    given = read_numbers([text], "--measured", "step_time_s=4.2,memory_gib=61")
    known = {"step_time_s", "memory_gib", "memory_gb", "memory_bytes"}
    unknown = set(given) - known
    if unknown:
        raise InputError(
            f"--measured '{', '.join(sorted(unknown))}' is not known (expected step_time_s, "
            f"memory_gib, memory_gb or memory_bytes){nearest(min(unknown), sorted(known))}"
        )
    memory = given.get("memory_bytes")
    if "memory_gib" in given:
        memory = given["memory_gib"] * GIB
    elif "memory_gb" in given:
        memory = given["memory_gb"] * GB
    return Measured(given.get("step_time_s"), memory)


def print_json(value: Any) -> None:
    """One JSON object on standard output, every number finite; derivations are not indented."""
    mark, compact = uuid.uuid4().hex, []

    def folded(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: fold(one) if key == "worked" else folded(one)
                    for key, one in tree.items()}  # fmt: skip
        return [folded(one) for one in tree] if isinstance(tree, list) else tree

    def fold(tree: Any) -> str:
        compact.append(dumps(tree, separators=(",", ":")))
        return mark

    dumps = functools.partial(json.dumps, ensure_ascii=False, allow_nan=False)
    parts = dumps(folded(finite(jsonable(value))), indent=1).split(f'"{mark}"')
    print("".join(part + one for part, one in zip(parts, [*compact, ""], strict=True)))


def print_worked(command: str, value: Any, path: str, as_json: bool) -> int:
    """Print the derivation of the figure at a path, as a tree of lines or as one JSON object.

    Raises:
        InputError: what stands there is no figure.
    """
    worked = figure(value, path)
    if as_json:
        print_json({"schema": f"chipshift/{command}/1", "path": path, "worked": worked})
    else:
        print("\n".join(lines(value)))
    return 0


def finite(value: Any) -> Any:
    """The same with numbers that are not finite as null: unknown is null, never a word."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list) else value


def check_place(path: str) -> None:
    """Refuse a report's path before anything is worked out.

    Raises:
        InputError: a folder, or a place where no file can be written.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"--html {path} is a folder; expected the name of a file in it")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = part_of(target)
        part.write_bytes(b"")
        part.unlink()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--html {path}: cannot be written ({reason})") from None


def part_of(target: Path) -> Path:
    """Where a page is written before it takes its name."""
    return target.with_name(f".{target.name[:200]}.part")
