"""Proof without a chip: a plan of a job put through the target's own compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chipshift.compiled import describe
from chipshift.compiled.report import report
from chipshift.compiled.request import Request
from chipshift.compiled.run import TIMEOUT_S, Progress
from chipshift.compiled.topology import TPU_NAMES, target
from chipshift.errors import InputError
from chipshift.flows.assess import Assessment
from chipshift.flows.compilation import compiled, request_of
from chipshift.flows.nearest_fit import best_plan, with_nearest
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine


def prove(
    job: TrainJob,
    plan: Plan,
    machine: Machine,
    *,
    mode: str = "fast",
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The compiler's report on one plan, or on the nearest that the step can be cut by, with a note
    that says why; where it does not fit, with the nearest that does.

    Raises:
        InputError: chipshift[compile] is not installed, the machine has no such compiler, or the
            step can be cut by no plan near this one.
    """
    request, plan, notes = nearest_request(job, plan, machine, mode)
    found = compiled(request, machine, timeout_s, progress)
    found = with_nearest(found, job, plan, machine, timeout_s, progress)
    return found | {"notes": [*notes, *found["notes"]]}


def nearest_request(
    job: TrainJob, plan: Plan, machine: Machine, mode: str
) -> tuple[Request, Plan, list[str]]:
    """The compilation of a plan, or of the nearest that the step can be cut by: the same devices
    cut otherwise, else the planner's best; with the plan compiled, and why it is another.

    Raises:
        InputError: there is none; says why not.
    """
    try:
        return request_of(job, plan, machine, mode), plan, []
    except InputError as error:
        why, refusal = str(error).split("; ")[0].removeprefix("plan: "), error
    near = describe.expressible(plan)
    try:
        request = request_of(job, near, machine, mode)
    except InputError:
        try:
            near = best_plan(job, machine)
        except InputError:
            raise refusal from None
        request = request_of(job, near, machine, mode)
    return request, near, [f"compiled --plan {describe.plan_text(near)} in its place: {why}"]


def proofs_of(found: Assessment, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The compiler's report on the chosen plan of each target that has such a compiler; where
    chipshift[compile] is not installed, or the step can be cut by neither that plan nor one near
    it, a report with that reason.
    """
    out: list[dict[str, Any]] = []
    for one in found.targets:
        if one.estimate is None or one.machine.chip.key not in TPU_NAMES:
            continue
        name = one.machine.name

        def progress(phase: str, seconds: float, name: str = name) -> None:
            say(f"compiling for {name}: {phase}")

        job, plan = one.estimate.job, one.estimate.plan
        try:
            describe.require_compilers("tpu")  # first: what is not installed costs no planning
            row = prove(job, plan, one.machine, progress=progress)
        except InputError as error:
            text = describe.plan_text(plan)
            asked = Request("job", f"{job.model.name}, {text}", target(one.machine), plan=text)
            row = report(asked, one.machine, {"reason": str(error)}, cached=False)
        out.append(row)
    return out
