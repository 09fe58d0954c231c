"""A job and the native file that is written of it, as numbers: every one of an estimate's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.estimate.output import estimate_json, jsonable
from chipshift.flows.asked import present_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.jobs.write import to_toml

WORDS = ("job", "assumptions", "source")
"""Parts of an answer that say where a figure was written, and so differ from file to file."""


def machine_of(job: TrainJob) -> str:
    """The job's own machine, or as many H100s as its files ask for."""
    if job.machine is not None:
        return job.machine.value
    if job.devices is not None:
        return f"h100*{job.devices.value}"
    return f"h100*{job.plan.value.devices if job.plan is not None else 1}"


def numbers(job: TrainJob, on: str) -> dict[str, float | str | None]:
    """Every figure of the present plan's estimate by its path; of one device where none is told.

    A job that cannot be estimated as it stands (a degree left open that the batch refuses) has
    its figures alone: the plan's, the batch, the dtypes.
    """
    plan = job.plan.value if job.plan is not None else None
    own = {"batch": job.sequences_per_step.value, "plan": str(plan), "model": job.model.name}
    try:
        job, machine = present_machine(job, on)
        plan = job.plan.value if job.plan is not None else None
        alone = Plan(microbatch=1.0, accumulation=job.sequences_per_step.value)
        answer = estimate_json(estimate(job, plan or alone, machine))
    except InputError as error:
        return {**own, "refused": str(error).partition(": ")[2]}
    return own | dict(_leaves(jsonable(answer), ""))


def _leaves(part: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(part, dict):
        inner = [(f"{path}.{k}", v) for k, v in part.items() if k not in WORDS]
    elif isinstance(part, (list, tuple)):
        inner = [(f"{path}.{i}", v) for i, v in enumerate(part)]
    else:
        return [(path, part)]
    return [leaf for name, value in inner for leaf in _leaves(value, name)]


def assert_written_assesses_the_same(job: TrainJob, folder: Path) -> None:
    """Original files → numbers; written file → numbers; each equal to 1e-9 of itself."""
    written = folder / "written.toml"
    written.write_text(to_toml(job), "utf8")
    again, on = read_job([str(written)]), machine_of(job)
    ours, theirs = numbers(again, on), numbers(job, on)
    assert ours == {
        path: pytest.approx(value, rel=1e-9, abs=0) if isinstance(value, float) else value
        for path, value in theirs.items()
    }
