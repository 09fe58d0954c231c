"""The planner and the compiler together: the best plan, and the nearest that fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from chipshift.compiled.describe import DTYPES, plan_text
from chipshift.compiled.run import Progress
from chipshift.errors import InputError
from chipshift.estimate.stack import RUNS_ON
from chipshift.flows.assess import plan_target
from chipshift.flows.compilation import compiled, request_of
from chipshift.flows.options import Options
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine

STACK = "jax"
"""The stack of the compiled step: what the planner takes to fit is what was held to compilers."""

HELD = (("dp", "fsdp", "cp", "tp", "ep", "pp"), ("cp", "tp", "ep", "pp"), ("pp",))
"""Degrees kept while the planner looks for a plan that fits: all of them, then ever fewer."""

TRIED = 6
"""Plans compiled at most; a refusal for memory takes seconds."""


def best_plan(job: TrainJob, machine: Machine, held: Plan | None = None,
              degrees: tuple[str, ...] = ("pp",)) -> Plan:  # fmt: skip
    """The planner's best plan that the compiled step can be cut by, with ``degrees`` as in
    ``held`` (without it, no pipeline).

    Raises:
        InputError: no plan fits, or the step can be cut by none of those that the planner kept.
    """
    fixed = {axis: getattr(held or Plan(), axis) for axis in degrees} | {"pp": 1}
    chip = machine.chip
    stacks = {chip.key: STACK} if STACK in RUNS_ON[chip.family] else {}
    found = plan_target(in_step_dtypes(job), machine.name, Options(fixed=fixed, stacks=stacks))
    if found.estimate is None:
        raise InputError(
            f"no plan of {job.name} fits on {machine.name} by the estimate: give one with --plan"
        )
    best = found.estimate.plan
    for plan in (best, *(kept.plan for kept in found.found.fitting)):
        with suppress(InputError):
            request_of(job, plan, machine)
            return plan
    request_of(job, best, machine)  # says why not
    return best


def in_step_dtypes(job: TrainJob) -> TrainJob:
    """The job with the matmuls' dtype that is compiled: bf16 for those that the step does not have,
    whose narrower activations would fit where the compiled ones do not."""
    said = job.precision.value
    if said.compute in DTYPES:
        return job
    return replace(job, precision=replace(job.precision, value=replace(said, compute="bf16")))


def less_memory(plan: Plan) -> list[Plan]:
    """Plans with the same degrees that hold less, nearest first: more rematerialisation, then
    smaller microbatches with the same global batch."""
    found = [plan] if plan.remat == "full" else [replace(plan, remat="full")]
    while found[-1].microbatch >= 2 and found[-1].microbatch % 2 == 0:
        last = found[-1]
        found.append(
            replace(last, microbatch=last.microbatch / 2, accumulation=last.accumulation * 2)
        )
    return [one for one in found if one != plan]


def candidates(job: TrainJob, plan: Plan, machine: Machine) -> Iterator[Plan]:
    """Plans to try, the nearest first, none twice: the planner's with all degrees kept and what
    holds less than that, then its best with fewer of them kept."""
    tried = {plan}
    for degrees in HELD:
        with suppress(InputError):
            best = best_plan(job, machine, plan, degrees)
            for one in (best, *less_memory(best)):
                if one not in tried:
                    tried.add(one)
                    yield one


def nearest_fit(
    job: TrainJob, plan: Plan, machine: Machine, timeout_s: float, progress: Progress | None = None
) -> dict[str, Any] | None:
    """The plan nearest to one that did not fit which the compiler says fits, with its memory; None
    where none of those tried does."""
    left = TRIED
    for candidate in candidates(job, plan, machine):
        if not left:
            break
        try:
            request = request_of(job, candidate, machine, detail=False)
        except InputError:
            continue  # the step cannot be cut so
        left -= 1
        found = compiled(request, machine, timeout_s, progress)
        if found["fits"]:
            return {
                "plan": plan_text(candidate),
                "memory_bytes": found["memory_bytes"],
                "compile_time_s": found["compile_time_s"],
            }
    return None


def with_nearest(
    found: dict[str, Any],
    job: TrainJob,
    plan: Plan,
    machine: Machine,
    timeout_s: float,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The report of a job's plan; where it does not fit, with the nearest that does, or a note that
    none was found."""
    if found["fits"] is not False:
        return found
    fit = nearest_fit(job, plan, machine, timeout_s, progress)
    notes = [] if fit else ["no other plan was found that fits"]
    return found | {"nearest_fit": fit, "notes": [*found["notes"], *notes]}
