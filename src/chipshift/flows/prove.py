"""Proof without a chip: a plan of a job put through the target's own compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chipshift.compiled import cache, describe
from chipshift.compiled.report import report
from chipshift.compiled.request import Request
from chipshift.compiled.run import MEMORY_LIMIT_BYTES, Progress, run
from chipshift.compiled.topology import TPU_NAMES, target
from chipshift.errors import InputError
from chipshift.flows.assess import Assessment
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine


def request_of(job: TrainJob, plan: Plan, machine: Machine, mode: str = "fast") -> Request:
    """The compilation that a job, a plan and a machine come to.

    Raises:
        InputError: no compiler for the machine, a plan that the step cannot be cut by, or one for
            another number of devices.
    """
    aim = target(machine)
    if plan.devices != aim.devices:
        raise InputError(
            f"plan: dp x fsdp x cp x tp x pp = {plan.devices}, but {machine.name} has "
            f"{aim.devices} devices"
        )
    config, notes = describe.config(
        job.model,
        plan,
        seq_len=job.seq_len.value,
        precision=job.precision.value,
        slices=aim.slices,
        splash=aim.platform == "tpu",
        loss_chunks=job.loss_chunks,
    )
    program = "; ".join([f"{job.model.name}, {describe.plan_text(plan)}", *notes])
    return Request("job", program, aim, mode=mode, config=config)


def prove(
    job: TrainJob,
    plan: Plan,
    machine: Machine,
    *,
    mode: str = "fast",
    timeout_s: float = 1800.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The compiler's report on one plan; a plan that the step cannot build is a reason.

    Raises:
        InputError: chipshift[compile] is not installed, or the machine has no such compiler.
    """
    return compiled(request_of(job, plan, machine, mode), machine, timeout_s, progress)


def proofs_of(found: Assessment, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The compiler's report on the chosen plan of each target that has such a compiler.

    Raises:
        InputError: chipshift[compile] is not installed.
    """
    out: list[dict[str, Any]] = []
    for one in found.targets:
        if one.estimate is None or one.machine.chip.key not in TPU_NAMES:
            continue
        describe.require_compilers("tpu")
        name = one.machine.name

        def progress(phase: str, seconds: float, name: str = name) -> None:
            say(f"compiling for {name}: {phase}")

        try:
            row = prove(one.estimate.job, one.estimate.plan, one.machine, progress=progress)
        except InputError as error:  # a plan that the written step cannot be cut by (a pipeline)
            row = {
                "machine": {"name": name}, "program": one.estimate.job.model.name, "mode": "fast",
                "compiled": False, "reason": str(error), "memory_bytes": None, "collectives": [],
            }  # fmt: skip
        out.append(row)
    return out


def compiled(
    request: Request,
    machine: Machine,
    timeout_s: float,
    progress: Progress | None = None,
    *,
    keep: str = "",
) -> dict[str, Any]:
    """The report of a request, from the cache where it has it.

    Args:
        keep: file to write the optimised program to; then it is compiled whatever the cache has.

    Raises:
        InputError: the extra is not installed, or the child found the input unusable.
    """
    describe.require_compilers(request.target.platform)
    outcome = None if keep else cache.load(request)
    if outcome is not None:
        return report(request, machine, outcome, cached=True)
    outcome = run(
        replace(request, keep=keep),
        timeout_s=timeout_s,
        memory_limit_bytes=MEMORY_LIMIT_BYTES,
        progress=progress,
    )
    if "input_error" in outcome:
        raise InputError(outcome["input_error"])
    if outcome.get("compiled") or outcome.get("out_of_memory"):
        cache.save(request, outcome)
    return report(request, machine, outcome, cached=False)


def best_plan(job: TrainJob, machine: Machine) -> Plan:
    """The planner's best plan that the compiled step can build (no pipeline).

    Raises:
        InputError: no plan fits.
    """
    from chipshift.flows.assess import plan_target
    from chipshift.flows.options import Options

    found = plan_target(job, machine.name, Options(fixed={"pp": 1}))
    if found.estimate is None:
        raise InputError(
            f"no plan of {job.name} fits on {machine.name} by the estimate: give one with --plan"
        )
    return found.estimate.plan


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


def nearest_fit(
    job: TrainJob, plan: Plan, machine: Machine, timeout_s: float, progress: Progress | None = None
) -> dict[str, Any] | None:
    """The plan nearest to one that did not fit which the compiler says fits, with its memory.

    Tried by compiling: a refusal for memory takes seconds. Last comes the planner's best plan.
    """
    candidates = less_memory(plan)
    with contextlib.suppress(InputError):
        candidates.append(best_plan(job, machine))
    for candidate in candidates:
        try:
            found = prove(job, candidate, machine, timeout_s=timeout_s, progress=progress)
        except InputError:
            continue
        if found["fits"]:
            return {"plan": describe.plan_text(candidate), "memory_bytes": found["memory_bytes"]}
    return None
