"""Axes that a job leaves to the machine, and what else grows as one of them is filled.

dp and fsdp take the devices that the other degrees leave. MaxText may leave any axis so, and one
axis more to the slices: its batch counts devices, so that a replica of more devices runs more
sequences; experts are cut over a part of fsdp.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan

GROWS = {"ep": "fsdp", "tp": "microbatch", "cp": "microbatch", "pp": "accumulation"}
"""What grows with an open axis besides itself."""


def grown(plan: Plan, axis: str, count: int) -> Plan:
    """The plan with an axis ``count`` times as long, and what goes with it."""
    fields = (axis, GROWS[axis]) if axis in GROWS else (axis,)
    return replace(plan, **{field: getattr(plan, field) * count for field in fields})


def over_slices(job: TrainJob, slices: int, there: str) -> TrainJob:
    """The job with the axis that takes the slices filled, once their number is known.

    Raises:
        InputError: the slices are not a multiple of the degrees that are told across them.
    """
    if not job.slices_open or job.plan is None:
        return job
    if slices % job.slices_known:
        raise InputError(
            f"{job.files[0]}: degrees across slices multiply to {job.slices_known}, which does "
            f"not divide the {slices} of {there}; expected a divisor"
        )
    count = slices // job.slices_known
    batch = job.sequences_per_step
    if job.batch_open:
        batch = replace(batch, value=batch.value * count)
    plan = replace(job.plan, value=grown(job.plan.value, job.slices_open, count))
    return replace(job, plan=plan, sequences_per_step=batch, slices_open="", slices_known=1)
