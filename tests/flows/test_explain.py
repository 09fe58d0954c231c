"""Every figure of an answer shows its working, down to leaves that say where they are from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chipshift.cli.roofline import setting_on
from chipshift.estimate import estimate
from chipshift.estimate.explain import figures
from chipshift.estimate.output import at_path, estimate_json, jsonable
from chipshift.flows.asked import present_machine
from chipshift.flows.assess import assess, plan_target
from chipshift.flows.code import with_code
from chipshift.flows.explain import assessment_tree, plan_tree, whole, worked_at
from chipshift.flows.options import Measured, Options, read_duration
from chipshift.flows.output import assessment_json
from chipshift.flows.planning import plan_json
from chipshift.flows.roofline import figures_of_one_sequence, of_one_sequence
from chipshift.jobs.read import read_job
from chipshift.worked import Worked

EXAMPLE = "examples/llama3-8b-torchtitan.toml"
OPTIONS = Options(
    prices={"v6e": 1.22}, measured=Measured(step_time_s=2.6, memory_bytes=72 * 2**30),
    tokens=15e12, deadline_s=read_duration("60d", "--deadline"),
)  # fmt: skip

Both = tuple[dict[str, Any], Any]
"""An answer as ``--json`` prints it, and its mirror."""


def assessed() -> Both:
    job, machine = present_machine(read_job([EXAMPLE]), "h100*128")
    found = assess(job, machine, ["v6e", "v7x:4x4x4"], OPTIONS)
    answer = jsonable(assessment_json(found))
    return answer, whole(assessment_tree(found, answer))


def with_code_and_experts() -> Both:
    """A mixture of experts from a launch script, whose own code is looked at as well."""
    job, machine = present_machine(read_job(["examples/mixtral-8x7b-megatron.sh"]), "h100*128")
    found = with_code(assess(job, machine, ["v7x:4x4x4"], Options()), Path("tests/trace_steps"))
    answer = jsonable(assessment_json(found))
    return answer, whole(assessment_tree(found, answer))


def estimated() -> Both:
    job, machine = present_machine(read_job([EXAMPLE]), "h100*128")
    assert job.plan is not None
    plain = estimate(job, job.plan.value, machine)
    worked = estimate(job, job.plan.value, machine, explain=True)
    return jsonable(estimate_json(plain)), figures(worked)


def planned() -> Both:
    job, _ = present_machine(read_job([EXAMPLE]), "h100*128")
    found = plan_target(job, "v7x:4x4x4", OPTIONS)
    return jsonable(plan_json(found, OPTIONS, job)), whole(plan_tree(found, OPTIONS))


def does_not_fit() -> Both:
    job, _ = present_machine(read_job([EXAMPLE]), "h100*128")
    found = plan_target(job, "v6e:1x1", Options())
    assert found.estimate is None
    return jsonable(plan_json(found, Options(), job)), whole(plan_tree(found, Options()))


def roofs() -> Both:
    job = read_job(["examples/mixtral-8x7b-megatron.sh"])
    settings = [setting_on(job, name, {}) for name in ("h100", "v6e", "v7x")]
    asked = (settings, 1.0, 2, 4)
    return jsonable(of_one_sequence(*asked)), figures_of_one_sequence(*asked)


ANSWERS = (assessed, with_code_and_experts, estimated, planned, does_not_fit, roofs)


@pytest.fixture(scope="module", params=ANSWERS, ids=lambda f: f.__name__)
def both(request: pytest.FixtureRequest) -> Both:
    return request.param()  # type: ignore[no-any-return]


def numbers(tree: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of an answer by its dotted path; a derivation's own tree is not walked again."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key != "worked":
                yield from numbers(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from numbers(value, f"{path}.{index}")
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield path, tree


def leaves(value: Worked, seen: dict[int, Worked]) -> Iterator[Worked]:
    if id(value) in seen:
        return
    seen[id(value)] = value
    if not value.inputs:
        yield value
    for one in value.inputs:
        yield from leaves(one, seen)


def test_every_number_has_a_derivation_that_comes_to_it(both: Both) -> None:
    answer, tree = both
    wrong = []
    for path, number in numbers(answer):
        found = worked_at(tree, answer, path)
        if not isinstance(found, Worked) or found.value != pytest.approx(number, rel=1e-9):
            wrong.append((path, number, getattr(found, "value", found)))
    assert wrong == []


def test_every_derivation_ends_in_leaves_with_a_source(both: Both) -> None:
    answer, tree = both
    seen: dict[int, Worked] = {}
    without = {
        (path, one.name or one.expression)
        for path, _ in numbers(answer)
        for one in leaves(worked_at(tree, answer, path), seen)
        if not one.source
    }
    assert without == set()


def test_a_step_of_a_derivation_in_the_answer_is_a_figure_too() -> None:
    answer, tree = assessed()
    path = "transfers.0.worked.from.inputs.0.value"
    assert worked_at(tree, answer, path).value == at_path(answer, path)
