"""The planner by itself, as the output contract writes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.estimate.output import job_json
from chipshift.flows.assess import Target
from chipshift.flows.options import Options
from chipshift.flows.output import target_json
from chipshift.jobs.job import TrainJob
from chipshift.worked import formula

SCHEMA = "chipshift/plan/1"


@formula(unit="plans/s", source="plans scored over the seconds of the search")
def scored_per_s(scored: Any, seconds: Any) -> Any:
    """Plans scored a second; a search shorter than the clock's tick counts as one nanosecond."""
    return scored / np.maximum(seconds, 1e-9)


def plan_json(found: Target, options: Options, job: TrainJob) -> dict[str, Any]:
    """The contract's object for ``plan``."""
    row = target_json(found, options)
    return {
        "schema": SCHEMA,
        "job": row.get("job") or job_json(job),
        "machine": row["machine"],
        "best": row if found.estimate is not None else None,
        "alternatives": row["alternatives"],
        "constraints": row["constraints"],
        "frontier": row.get("frontier", []),
        "short_bytes": row["short_bytes"],
        "would_fit": row["would_fit"],
        "plans_considered": found.found.considered,
        "plans_scored": found.found.scored,
        "plans_pruned": found.found.pruned,
        "plans_fitting": found.found.counted_fitting,
        "search_time_s": found.found.seconds,
        "plans_per_s": float(scored_per_s(found.found.scored, found.found.seconds)),
    }
