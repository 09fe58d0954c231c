"""Batches that several keys or files tell differently, in their own words."""

from __future__ import annotations

from collections.abc import Iterable

from chipshift.jobs.job import TrainJob, Understood
from chipshift.jobs.plan import Plan

FROM_BATCH = "global batch / (microbatch × accumulation)"
"""Why there are as many replicas as there are, where the batches alone tell it."""

_WORDS = (
    *("global batch", "sequences a step", "sequences a device", "sequences a device a forward"),
    *("microbatch", "accumulation", "forwards a step", "sequences a replica a forward"),
)


def told_batch(understood: Iterable[Understood]) -> str:
    """The keys, values and places that the batch was read from, as a clause; "" where none."""
    told = [
        f"{one.key} is {one.value} in {one.file}" + (f":{one.line}" if one.line else "")
        for one in understood
        if one.understood_as in _WORDS and one.value not in ("auto", "None")
    ]
    return f" ({', '.join(told[:6])})" if told else ""


def nearest_batch(total: float, each: float) -> int:
    """The multiple of ``each`` that is nearest to a batch, at least one of it."""
    return int(max(1, round(total / each)) * each)


def fitting_batch(job: TrainJob, plan: Plan, devices: int) -> str:
    """What batch would fit the devices, where the replicas were told from the batches alone."""
    if not any(why == FROM_BATCH for _, _, why in job.assumed):
        return ""
    others = plan.devices // (plan.dp * plan.fsdp)
    if devices % others:
        return ""
    batch = plan.microbatch * plan.accumulation * (devices // others)
    return (
        f", or batches that say as many{told_batch(job.understood)}: {batch:g} sequences a step is "
        f"the nearest for {devices} devices"
    )
