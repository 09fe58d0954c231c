"""Every launch format is read as its framework documents it."""

from pathlib import Path
from typing import Any

import pytest

from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

from .cases import CASES as FIRST_CASES
from .cases import Case
from .more_cases import MORE_CASES
from .test_native import assert_same

CASES = FIRST_CASES + MORE_CASES


def read(case: Case, folder: Path) -> TrainJob:
    paths = []
    for name, text in case.files.items():
        file = folder / name
        file.write_text(text)
        paths.append(str(file))
    job = read_job(paths, overrides=case.settings)
    return resolve_machine(job, parse_machine(case.on)) if case.on else job


def value_of(job: TrainJob, path: str) -> Any:
    found: Any = job
    for part in path.split("."):
        found = getattr(found, part)
        found = getattr(found, "value", found)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_files_say(case: Case, tmp_path: Path) -> None:
    job = read(case, tmp_path)
    found = {path: value_of(job, path) for path in case.expect}
    assert found == {path: pytest.approx(v) if isinstance(v, float) else v
                     for path, v in case.expect.items()}  # fmt: skip
    assert case.flags <= {flag.kind for flag in job.flags}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_written_as_a_native_file_it_reads_back_the_same(case: Case, tmp_path: Path) -> None:
    from chipshift.jobs.write import to_toml

    job = read(case, tmp_path)
    native = tmp_path / "native.toml"
    native.write_text(to_toml(job))
    assert_same(read_job([str(native)]), job)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_entry_has_its_place(case: Case, tmp_path: Path) -> None:
    job = read(case, tmp_path)
    for entry in job.understood:
        if entry.file == "--set":
            continue
        assert entry.line is not None, entry
        lines = Path(entry.file).read_text().split("\n")
        assert 1 <= entry.line <= len(lines)


def test_nothing_in_a_script_runs(tmp_path: Path) -> None:
    target = tmp_path / "never"
    script = next(case for case in CASES if "train.py" in case.files).files["train.py"]
    file = tmp_path / "train.py"
    file.write_text(script.replace("/tmp/never", str(target)))
    read_job([str(file)], overrides={"seq_len": "64"})
    assert not target.exists()


def test_conflicts_between_files_are_reported_and_the_first_wins(tmp_path: Path) -> None:
    for name, batch in (("a.yaml", 4), ("b.yaml", 8)):
        (tmp_path / name).write_text(
            f"model_name_or_path: meta-llama/Llama-3.1-8B\nmax_seq_length: 64\n"
            f"per_device_train_batch_size: {batch}\n"
        )
    job = read_job([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    assert job.plan is not None and job.plan.value.microbatch == 4
    (entry,) = [entry for entry in job.ignored if entry.key == "microbatch"]
    assert entry.matters and entry.line == 3 and "is 8 here and 4 in" in entry.why


def answer_of(job: TrainJob, on: str) -> Any:
    """``assess`` as the command prints it, but for the clock and for where a figure was written."""
    from chipshift.cli.inputs import finite
    from chipshift.estimate.output import jsonable
    from chipshift.flows.asked import present_machine
    from chipshift.flows.assess import assess
    from chipshift.flows.options import Options
    from chipshift.flows.output import assessment_json

    there, machine = present_machine(job, on)
    answer = assessment_json(assess(there, machine, ["v6e:4x4"], Options()))
    return _timeless(finite(jsonable(answer)))


def _timeless(answer: Any) -> Any:
    if isinstance(answer, dict):
        dropped = ("job", "search_time_s", "plans_per_s", "assumptions", "source", "where")
        return {key: _timeless(value) for key, value in answer.items() if key not in dropped}
    return [_timeless(one) for one in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_native_file_assesses_to_the_same_numbers(case: Case, tmp_path: Path) -> None:
    from chipshift.jobs.write import to_toml

    job = read(case, tmp_path)
    if job.machine is not None:
        on = job.machine.value
    elif job.devices is not None:
        on = case.on or f"h100*{job.devices.value}"
    else:
        on = case.on or "h100*8"
    native = tmp_path / "native.toml"
    native.write_text(to_toml(job))
    assert answer_of(read_job([str(native)]), on) == answer_of(job, on)
