"""``chipshift assess``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    check_place,
    load,
    options_of,
    part_of,
    print_json,
    print_worked,
)
from chipshift.cli.progress import working
from chipshift.errors import InputError
from chipshift.flows.assess import Assessment, assess
from chipshift.flows.explain import explained
from chipshift.flows.output import assessment_json


def command(
    files: Files,
    to: Annotated[
        list[str],
        typer.Option(
            "--to", help="Machine asked about: v6e, v7x:4x4x4; repeatable.", autocompletion=machines
        ),
    ],
    on: On = "",
    code: Annotated[
        str, typer.Option("--code", help="The training code: its findings go into part two.")
    ] = "",
    html: Annotated[str, typer.Option("--html", help="Write the report to this file.")] = "",
    price: Annotated[list[str], typer.Option("--price", help="CHIP=USD a chip-hour.")] = [],  # noqa: B006
    commit: Annotated[str, typer.Option("--commit", help="od, 1y, 3y or spot prices.")] = "od",
    fix: Annotated[str, typer.Option("--fix", help="Hold part of the plan, e.g. tp=4.")] = "",
    objective: Annotated[str, typer.Option("--objective", help="time, cost or chips.")] = "time",
    allow_batch: Annotated[
        bool, typer.Option("--allow-batch", help="Tokens a step may change.")
    ] = False,
    measured: Annotated[
        str, typer.Option("--measured", help="Your run: step_time_s=4.2,memory_gib=61.")
    ] = "",
    tokens: Annotated[str, typer.Option("--tokens", help="Length of the run, e.g. 15e12.")] = "",
    deadline: Annotated[
        str, typer.Option("--deadline", help="The run must end in, e.g. 30d.")
    ] = "",
    goodput: Annotated[
        float, typer.Option("--goodput", help="Share of the time that makes progress.")
    ] = 0.9,
    stack: Annotated[
        list[str], typer.Option("--stack", help="CHIP=STACK, e.g. v6e=torchax; repeatable.")
    ] = [],  # noqa: B006
    model: Model = "",
    torch: Torch = "",
    set_: Set = [],  # noqa: B006
    prove: Annotated[
        bool, typer.Option("--prove", help="Put each chosen plan through the target's compiler.")
    ] = False,
    explain: Explain = "",
    json: Json = False,
) -> int:
    """What a training job becomes on other machines: the four-part answer.

    \b
    Examples:
      chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v6e --to v7x
      chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v7x --html out/r.html
      chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v6e --tokens 15e12
    """
    if not to:
        raise InputError("--to: name at least one machine, such as --to v6e")
    options = options_of(
        price=price, commit=commit, objective=objective, fix=fix, allow_batch=allow_batch,
        measured=measured, tokens=tokens, deadline=deadline, goodput=goodput, stack=stack,
    )  # fmt: skip
    if html:
        check_place(html)
    with working("reading the job") as say:
        job, machine = load(files, on, model, set_, torch)
        found = assess(job, machine, to, options, progress=say)
        if code:
            from chipshift.flows.code import with_code

            found = with_code(found, Path(code))
        answer = assessment_json(found)
        if prove:
            from chipshift.flows.prove import proofs_of

            answer["proofs"] = proofs_of(found, say)
            answer["proof"] = answer["proofs"][0] if answer["proofs"] else None
    if html:
        write_report(html, found, answer)
    status = 0 if any(t.estimate is not None for t in found.targets) else 1
    if explain:
        print_worked("assess", explained(found, answer, explain), explain, json)
        return status
    if json:
        print_json(answer)
        return status
    from chipshift.report.terminal import print_answer

    print_answer(answer, html)
    return status


def write_report(path: str, found: Assessment, answer: dict[str, Any]) -> None:
    """The self-contained HTML page, written whole or not at all."""
    from chipshift.flows.brief import explained_json
    from chipshift.flows.roofline import of_estimate
    from chipshift.report.page import page

    fitting = [t.estimate for t in found.targets if t.estimate is not None]
    roofs = [of_estimate(e) for e in (found.present, *fitting)]
    text = page(answer, explained_json(found), roofs)
    target = Path(path)
    part = part_of(target)
    try:
        part.write_text(text, "utf8")
        part.replace(target)
    except OSError as error:
        raise InputError(f"--html {path}: cannot be written ({error.strerror})") from None
