"""One real answer for the report's tests, made once: torchtitan's Llama-3.1-8B on 128 H100s."""

from __future__ import annotations

import functools
from typing import Any

from chipshift.flows.assess import Assessment, assess
from chipshift.flows.brief import explained_json
from chipshift.flows.options import Measured, Options
from chipshift.flows.output import assessment_json
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

JOB = "examples/llama3-8b-torchtitan.toml"


@functools.cache
def assessment() -> Assessment:
    """Targets with a size, so that nothing has to be searched but their plans."""
    options = Options(prices={"h100": 2.2}, measured=Measured(1.4, 6e10), tokens=15e12, goodput=0.9)
    return assess(read_job([JOB]), parse_machine("h100*128"), ["v6e:16x16", "v7x:4x4x4"], options)


def answer() -> dict[str, Any]:
    return assessment_json(assessment())


def explained() -> dict[str, Any]:
    return explained_json(assessment())


@functools.cache
def refused() -> dict[str, Any]:
    """The same job on a slice where nothing fits."""
    found = assess(read_job([JOB]), parse_machine("h100*128"), ["v6e:1x1", "v6e:16x16"])
    return assessment_json(found)
