"""A job, a plan and a machine as one compilation, run or read from the cache."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from chipshift.compiled import cache, describe
from chipshift.compiled.report import report
from chipshift.compiled.request import Request
from chipshift.compiled.run import MEMORY_LIMIT_BYTES, Progress, run
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.loss import LM
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine

ADAMS = ("adam", "adamw")
"""Optimizers whose step is the compiled one's: two moments a weight."""


def request_of(
    job: TrainJob, plan: Plan, machine: Machine, mode: str = "fast", detail: bool = True
) -> Request:
    """The compilation that a job, a plan and a machine come to.

    Raises:
        InputError: no compiler for the machine, a loss, adapters or a plan that the step does not
            have, or a plan for another number of devices.
    """
    if job.loss != LM:
        raise InputError(
            f"{job.files[0]}: the loss is {job.loss}, but the step that is compiled has that of "
            "the next token; expected --entry with your own step, or --set loss=lm"
        )
    if job.task == "lora":
        raise InputError(
            f"{job.files[0]}: the job trains adapters beside frozen weights, but the step that is "
            "compiled trains every weight; expected --entry with your own step, or a job without "
            "adapters"
        )
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
    if job.optimizer.value not in ADAMS:
        notes = (*notes, f"AdamW compiled in place of {job.optimizer.value}")
    text = describe.plan_text(plan)
    return Request(
        "job", f"{job.model.name}, {text}", aim, mode=mode, config=config, plan=text, notes=notes,
        detail=detail,
    )  # fmt: skip


def resized(plan: Plan, devices: int) -> Plan:
    """The same plan on another number of devices: its fsdp (or, without one, its dp) grows or
    shrinks, and the microbatches a step with it, so that a step has the same tokens.

    Raises:
        InputError: the rest of the plan does not divide the devices, or its sequences them.
    """
    if devices == plan.devices:
        return plan
    axis = "fsdp" if plan.fsdp > 1 else "dp"
    rest = plan.devices // getattr(plan, axis)
    if devices % rest:
        raise InputError(
            f"plan: {describe.plan_text(plan)} needs a multiple of {rest} devices, and there are "
            f"{devices}"
        )
    new = replace(plan, **{axis: devices // rest})
    share, left = divmod(round(plan.global_batch), new.dp * new.fsdp)
    if left or not share:
        raise InputError(
            f"plan: {plan.global_batch:g} sequences a step do not divide over the "
            f"{new.dp * new.fsdp} replicas of {devices} devices"
        )
    microbatch = gcd(share, max(round(plan.microbatch), 1))
    return replace(new, microbatch=float(microbatch), accumulation=share // microbatch)


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
