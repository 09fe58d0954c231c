"""Which runs of a file the constants were fitted on, and that the answer says so."""

from __future__ import annotations

from dataclasses import replace

from chipshift.validate.case import Case
from chipshift.validate.run import carried, read_data, run, to_json
from chipshift.validate.table import seen_lines

from .test_records import case


def some_carried() -> list[Case]:
    rows = [r for r in read_data(carried("measured_training.jsonl")) if isinstance(r, Case)]
    return [r for r in rows if r.quality == "A" and r.stack == "llm-foundry"][:5]


def test_a_carried_run_is_known_by_another_name_too() -> None:
    rows = [replace(row, id=f"mine {i}") for i, row in enumerate(some_carried())]
    report = run(rows)
    assert report.seen == (True,) * 5
    assert seen_lines(report) == ["The constants were fitted on 5 of the 5 scored rows"]


def test_other_runs_are_said_to_be_others() -> None:
    report = run([case(), case(id="other")])
    assert report.seen == (False, False)
    assert seen_lines(report) == ["The constants were fitted on none of these rows"]


def test_of_a_mixture_the_others_are_summed_up_apart() -> None:
    report = run([*some_carried(), case()])
    assert [row.case.id for row in report.unseen] == ["r"]
    first, others = seen_lines(report)
    assert first == "The constants were fitted on 5 of the 6 scored rows"
    assert "step time of the others: n 1" in others
    answer = to_json(report)
    assert answer["fitted_on"] == 5
    assert [one["fitted_on"] for one in answer["records"]] == [True] * 5 + [False]


def test_grades_and_tasks_that_no_fit_takes_are_not_counted_in() -> None:
    rows = [r for r in read_data(carried("measured_training.jsonl")) if isinstance(r, Case)]
    lora = [row for row in rows if row.task == "lora"][:2]
    assert run(lora).seen == (False, False)
