"""``chipshift compile``: its JSON, its cache, comparisons, the written step and interrupts."""

from __future__ import annotations

import ast
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chipshift.cli.app import run
from chipshift.cli.compile import job_of, torch_mesh, write_step
from chipshift.compiled import against, cache
from chipshift.compiled.child import FOLDER
from chipshift.compiled.reading import write_kept
from chipshift.compiled.request import Request
from chipshift.compiled.run import _watch as watch
from chipshift.compiled.run import remove_left_over
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.flows import nearest_fit as flow
from chipshift.flows.compilation import request_of, resized
from chipshift.flows.nearest_fit import less_memory
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.report.compile_screen import (
    _against,
    _collectives,
    _padding,
    _unplanned,
    below_the_sum,
    place,
)
from tests.cli.test_outputs import complaints

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SOURCE = str(HERE.parents[1] / "src")
ENTRY = ["--entry", "users_code:make_step", "--mesh", "data=2,model=2"]
TINY = HERE / "tiny.json"
"""A Llama of one layer, which compiles soonest, whose vocabulary makes its logits large."""


@pytest.fixture
def job_file(users_folder: Path) -> Path:
    """A job of that model: 16 sequences of 4,096 a step."""
    (users_folder / "tiny.json").write_text(TINY.read_text("utf8"))
    file = users_folder / "job.toml"
    file.write_text(
        'chipshift = 1\nname = "tiny"\n[model]\nconfig = "tiny.json"\n'
        "[job]\nsequences_per_step = 16\nseq_len = 4096\n"
    )
    return file


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's code in it, to run from, and an empty cache."""
    (tmp_path / "users_code.py").write_text((HERE / "users_code.py").read_text("utf8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHIPSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    return tmp_path


@pytest.mark.compiler
def test_json_cache_and_comparison(users_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")

    def compiled(*more: str) -> dict[str, Any]:
        assert run(["compile", *ENTRY, "--to", "v5e:2x2", "--json", *more]) == 0
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    first = compiled()
    assert complaints(first) == []
    assert (first["compiled"], first["cached"], first["estimated_time_s"]) == (True, False, None)
    (users_folder / "old.json").write_text(json.dumps(first))
    second = compiled("--against", "old.json")
    assert second["cached"] is True
    assert second["against"]["collectives"] == []
    assert set(second["against"]["memory_bytes"].values()) == {0}
    # the second run in a process of its own: under 2 s, and jax is never imported
    begun = time.monotonic()
    command = [sys.executable, "-X", "importtime", "-m", "chipshift", "compile", *ENTRY]
    again = subprocess.run(
        [*command, "--to", "v5e:2x2", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(again.stdout)["cached"] is True
    assert time.monotonic() - begun < 2.0 * float(os.environ.get("CHIPSHIFT_SLOW", "4"))
    assert "| jax\n" not in again.stderr
    # a change of the user's own file is another program
    with (users_folder / "users_code.py").open("a") as file:
        file.write("\n# changed\n")
    assert compiled()["cached"] is False


@pytest.mark.compiler
@pytest.mark.parametrize("mode", ["--fast", "--time"])
@pytest.mark.parametrize("whole_group", [False, True])
def test_an_interrupt_ends_the_compiler_and_leaves_nothing(
    users_folder: Path, mode: str, whole_group: bool
) -> None:
    pytest.importorskip("jax")
    # A job in the background starts with interrupts ignored, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = subprocess.Popen(
        [sys.executable, "-m", "chipshift", "compile", *ENTRY, "--to", "v6e:4x4",
         mode, "--hlo", "out.txt"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        child = _child_of(parent)
        (os.killpg if whole_group else os.kill)(parent.pid, signal.SIGINT)
        _, errors = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == 130
    assert errors.endswith("chipshift: interrupted\n")
    assert "Traceback" not in errors
    assert _gone(child)
    left = [file.name for file in users_folder.rglob("*") if file.is_file()]
    assert [name for name in left if not name.startswith("users_code.")] == []


@pytest.mark.compiler
@pytest.mark.parametrize("wanted", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_command_leaves_neither_compiler_nor_files(
    users_folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: signal.Signals
) -> None:
    """As a batch system, ``timeout`` or a closed terminal would end it."""
    pytest.importorskip("jax")
    passing = users_folder / "passing"
    passing.mkdir()
    monkeypatch.setenv("TMPDIR", str(passing))
    parent = subprocess.Popen(
        [sys.executable, "-m", "chipshift", "compile", *ENTRY, "--to", "v6e:4x4"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    child = _child_of(parent)
    deadline = time.monotonic() + 60
    while not list(passing.rglob("*.txt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(wanted)
    parent.wait()
    assert _gone(child)
    assert [file.name for file in passing.iterdir() if file.name.startswith(FOLDER)] == []


def test_a_listener_whose_pipe_is_closed_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As an interrupt closes it while the thread that names phases still begins."""
    child = subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    assert watch(child, ["starting"], 10.0, 2**40, None) is None
    assert capfd.readouterr().err == ""


def test_what_two_killed_processes_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that nobody holds for a minute; not one that is held or that was just made."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    left, held, new = (tmp_path / f"{FOLDER}{name}" / "errors.txt" for name in ("a", "b", "c"))
    for file in (left, held, new):
        file.parent.mkdir()
        file.write_text("said")
    for file in (left, held):
        os.utime(file, (time.time() - 61, time.time() - 61))
    with held.open("rb") as sink:
        fcntl.flock(sink, fcntl.LOCK_EX)
        remove_left_over()
    assert [file.parent.exists() for file in (left, held, new)] == [False, True, True]


def _gone(process: int, seconds: float = 30.0) -> bool:
    """Whether a process ends in time; one that waits for its reaper has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def _child_of(parent: subprocess.Popen[Any]) -> int:
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while time.monotonic() < deadline and parent.poll() is None:
        found = children.read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.1)
    raise AssertionError("the compiler was never started")


@pytest.mark.compiler
def test_where_a_plan_does_not_fit_the_nearest_that_does_is_compiled(
    job_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Logits of four sequences in fp32: 4 x 4096 x 262,144 x 4 B = 16 GiB, above v5e's 15.75."""
    pytest.importorskip("jax")
    told = ["--to", "v5e:2x2", "--plan", "fsdp=4,microbatch=4,remat=full"]
    assert run(["compile", str(job_file), *told, "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert complaints(found) == []
    memory = found["memory_bytes"]
    assert (found["compiled"], found["fits"]) == (False, False)
    assert found["short_bytes"] == memory["peak"] - memory["available"] > 0
    logits = found["largest"][0]
    assert logits["shape"] == "f32[4,4096,262144]"
    assert logits["physical_bytes"] == 16 * 2**30
    file, line = logits["source"]
    assert "project(mesh, cfg, weight" in Path(file).read_text("utf8").splitlines()[line - 1]
    fit = found["nearest_fit"]
    assert fit["memory_bytes"]["peak"] <= fit["memory_bytes"]["available"]
    assert run(["compile", str(job_file), "--to", "v5e:2x2", "--plan", fit["plan"]]) == 0


def test_a_plan_on_other_devices_keeps_the_tokens_of_a_step() -> None:
    plan = Plan(fsdp=16, tp=2, microbatch=2.0, accumulation=4, remat="full")  # 128 sequences
    smaller, larger = resized(plan, 8), resized(plan, 128)
    assert (smaller.fsdp, smaller.tp, smaller.microbatch, smaller.accumulation) == (4, 2, 2, 16)
    assert (larger.fsdp, larger.tp, larger.microbatch, larger.accumulation) == (64, 2, 2, 1)
    assert smaller.global_batch == larger.global_batch == plan.global_batch
    assert resized(plan, 256).microbatch == 1
    with pytest.raises(InputError, match="needs a multiple of 2 devices"):
        resized(plan, 7)
    with pytest.raises(InputError, match="128 sequences a step do not divide over the 256"):
        resized(plan, 512)


@pytest.mark.parametrize("routed", [False, True])
def test_the_written_step_runs(routed: bool, users_folder: Path) -> None:
    """The step of a small model, as one file, run by itself: it makes the CPU's virtual devices."""
    pytest.importorskip("jax")
    from dataclasses import replace

    from chipshift.compiled.writing.write import source
    from tests.compiled.small import DENSE, MOE, config

    block, mesh = (MOE, (1, 1, 2, 1, 1)) if routed else (DENSE, (1, 2, 1, 1, 1))
    cfg = replace(config(block, mesh), remat="none", attention="splash")
    file = users_folder / "step.py"
    file.write_text(source(cfg, "A small decoder."))
    assert "chipshift" not in file.read_text()
    modules = re.findall(r"^from (\S+) import", file.read_text(), re.MULTILINE)
    assert len(modules) == len(set(modules))
    alone = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ran = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=True, env=alone
    )
    losses = [float(loss) for loss in re.findall(r"'loss': ([\d.]+)", ran.stdout)]
    assert len(losses) == 3
    assert losses[2] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--to: name the machine"),
        (["--to", "v6e:4x4"], "compile one thing"),
        (["--to", "v6e:4x4", "--model", "llama-3.1-8b"], "a model alone has no batch"),
        (["--to", "v6e:4x4", "--model", "llama-3.1-8b", *ENTRY], "is a program already"),
        (["--to", "v6e:4x4", *ENTRY, "--hlo", "nowhere/out.txt"], "in a folder that is there"),
        (["--to", "mi300x*8", *ENTRY], "no compiler that works without the chip"),
        (["--to", "v6e:4x4", "--entry", "a:b", "--torch", "c:d"], "compile one thing"),
    ],
)
def test_unusable_input_is_one_sentence_and_exit_2(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", *arguments]) == 2
    errors = capfd.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


def test_a_plan_that_the_step_cannot_be_cut_by_is_one_sentence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The job is read, with the model that its file names, before any compiler is started."""
    job = str(HERE.parents[1] / "examples" / "llama3-8b.toml")
    assert run(["compile", job, "--to", "v6e:4x4", "--plan", "fsdp=4,pp=4"]) == 2
    assert "pp=4: the compiled step has no pipeline stages" in capfd.readouterr().err


def test_against_a_file_of_another_kind(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text('{"schema": "chipshift/plan/1"}')
    with pytest.raises(InputError, match="expected 'chipshift/compile/1'"):
        against.load(str(old))


WHOLE: dict[str, Any] = {
    "schema": "chipshift/compile/1", "memory_bytes": {"peak": 1}, "collectives": [],
}  # fmt: skip
ROW = {"kind": "all_gather", "mesh_axis": "dp", "bytes_per_device_per_step": 1.0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_bytes", "x"),
        ("memory_bytes", {"peak": "much"}),
        ("collectives", 5),
        ("collectives", [ROW | {"bytes_per_device_per_step": None}]),
        ("collectives", [{"kind": "all_gather"}]),
    ],
)
def test_against_a_report_that_is_not_whole(tmp_path: Path, key: str, value: Any) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps(WHOLE))
    assert against.load(str(old)) == WHOLE
    old.write_text(json.dumps(WHOLE | {key: value}))
    with pytest.raises(InputError, match=f"{key} is not as compile --json writes it"):
        against.load(str(old))


def test_a_comparison_says_what_the_old_report_is_of() -> None:
    """Another program's figures are another program's, whatever they are."""
    new = WHOLE | {"machine": "v6e:4x4", "program": "p", "mode": "fast", "versions": {"jax": "2"}}
    old = new | {"program": "q", "versions": {"jax": "1", "libtpu": "7"}}
    change = against.compare("old.json", old, new)
    assert change["differs"] == [
        {"what": "program", "old": "q", "new": "p"},
        {"what": "jax", "old": "1", "new": "2"},
        {"what": "libtpu", "old": "7", "new": None},
    ]
    words = ["".join(span.text for span in line) for line in _against(change, 100)]
    assert words[:2] == ["Against old.json", "  of another program: q, now p"]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"files": 3, "report": {}}', '{"files": {}, "report": []}',
        '{"files": {}, "report": {}}', '{"files": {}, "report": {"compiled": false}}',
    ],
)  # fmt: skip
def test_a_kept_report_that_is_not_whole_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("CHIPSHIFT_CACHE", str(tmp_path))
    asked = Request("hlo", "p", target(parse_machine("v5e:2x2")))
    cache.save(asked, {"compiled": True})
    assert cache.load(asked) == {"compiled": True}
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert cache.load(asked) is None


def test_changes_are_new_minus_old() -> None:
    def report(peak: int, sent: float) -> dict[str, Any]:
        row = {"kind": "all_gather", "mesh_axis": "fsdp", "bytes_per_device_per_step": sent}
        return {"memory_bytes": {"peak": peak}, "collectives": [row], "estimated_time_s": None}

    change = against.compare("old.json", report(100, 5.0), report(90, 8.0))
    assert change["memory_bytes"] == {"peak": -10}
    assert change["collectives"] == [{"kind": "all_gather", "mesh_axis": "fsdp", "change": 3.0}]
    assert change["estimated_time_s"] is None


@pytest.mark.parametrize(
    ("fits", "fit", "notes"),
    [
        (True, None, []),
        (None, None, []),  # did not compile for another reason
        (False, {"plan": "fsdp=8,remat=full"}, []),
        (False, None, ["no other plan was found that fits"]),
    ],
)
def test_a_plan_is_looked_for_only_where_one_does_not_fit(
    fits: bool | None, fit: dict[str, Any] | None, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(flow, "nearest_fit", lambda *asked: looked.append(asked) or fit)
    job = job_of([str(HERE.parents[1] / "examples" / "llama3-8b.toml")], "", "", [])
    report = {"fits": fits, "nearest_fit": None, "notes": []}
    found = flow.with_nearest(report, job, Plan(fsdp=8), parse_machine("v6e:2x4"), 60.0)
    assert (found["nearest_fit"], found["notes"]) == (fit, notes)
    assert len(looked) == (fits is False)


def test_without_a_plan_the_best_that_the_step_can_be_cut_by_is_compiled() -> None:
    # The planner's best for Mixtral on 64 v6e puts its eight experts over dp and tp together, which
    # the step has no axis for; the planner's next ones have ep = 1 or ep inside fsdp.
    job = job_of([str(HERE.parents[1] / "examples" / "mixtral-8x7b-megatron.sh")], "", "", [])
    machine = parse_machine("v6e:8x8")
    plan = flow.best_plan(job, machine)
    assert plan.devices == 64
    assert flow.request_of(job, plan, machine).config is not None  # raises where it cannot be cut


def test_the_best_plan_is_the_best_in_the_dtypes_that_are_compiled() -> None:
    # DeepSeek-V3's job has fp8 matmuls, the step bf16 ones: with activations of one byte tp=2 would
    # fit on 512 v5p; with two bytes it does not (libtpu: 122 of 102 GB), tp=4 does (97)
    path = HERE.parents[1] / "examples" / "deepseek-v3-megatron.sh"
    job = job_of([str(path)], "", "", [])
    wide = flow.in_step_dtypes(job)
    assert (job.precision.value.compute, wide.precision.value.compute) == ("fp8", "bf16")
    assert replace(wide.precision.value, compute="fp8") == job.precision.value
    machine = parse_machine("v5p:8x8x8")
    assert flow.best_plan(job, machine) == flow.best_plan(wide, machine)


def test_where_the_step_can_be_cut_by_no_plan_the_first_reason_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(job: Any, plan: Plan, machine: Any) -> None:
        raise InputError(f"plan: {plan.devices} devices cannot be cut so")

    monkeypatch.setattr(flow, "request_of", refuse)
    job = job_of([str(HERE.parents[1] / "examples" / "llama3-8b.toml")], "", "", [])
    with pytest.raises(InputError, match="16 devices cannot be cut so"):
        flow.best_plan(job, parse_machine("v6e:4x4"))


def test_lines_of_an_unplanned_collective_add_up_to_what_is_sent() -> None:
    # 100 GB sent where the plan has 60: 40 unplanned; two lines known send 70 + 20, 10 are left.
    file = "/elsewhere/model.py"
    row = {
        "kind": "all_gather", "mesh_axis": "tp", "bytes_per_device_per_step": 100e9,
        "expected_bytes_per_device_per_step": 60e9, "instead_of": None,
        "sources": [
            {"file": file, "line": 7, "bytes_per_device_per_step": 70e9},
            {"file": file, "line": 9, "bytes_per_device_per_step": 20e9},
        ],
    }  # fmt: skip
    words = ["".join(span.text for span in line) for line in _unplanned(row, 100)]
    assert words == [
        "  unplanned: 40.0 GB of all_gather over tp; all 100 GB by line",
        f"    {file}:7  70.0 GB",
        f"    {file}:9  20.0 GB",
        "    other lines, or none known  10.0 GB",
    ]


def test_plans_that_hold_less_keep_the_global_batch() -> None:
    plan = Plan(fsdp=8, microbatch=4, remat="minimal")
    found = less_memory(plan)
    assert [(p.remat, p.microbatch, p.accumulation) for p in found] == [
        ("full", 4, 1), ("full", 2, 2), ("full", 1, 4),
    ]  # fmt: skip
    assert {p.global_batch for p in found} == {plan.global_batch}


def test_the_model_is_the_files_own_where_no_other_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'chipshift = 1\nname = "long"\n[model]\npreset = "llama-3.1-405b"\n'
        "[job]\nseq_len = 8192\nsequences_per_step = 512\n"
    )
    file = str(tmp_path / "job.toml")
    assert job_of([file], "", "", []).model.n_layers == 126  # the 405B's depth
    assert job_of([file], "", "llama-3.1-8b", []).model.n_layers == 32


def _row(**more: Any) -> dict[str, Any]:
    return {
        "kind": "all_gather", "mesh_axis": "fsdp", "count_per_step": 3, "algorithm": "",
        "bytes_per_device_per_step": 6e6, "expected_bytes_per_device_per_step": 6e6,
        "lowered_bytes_per_device_per_step": None, "planned": True, "insertions": [],
    } | more  # fmt: skip


def _table(mode: str, *rows: dict[str, Any]) -> list[str]:
    stated = {"programs": 1} if mode == "fast" else None
    report = {
        "collectives": list(rows), "versions": {"libtpu": "0.0.42.1"}, "fast_mode": stated,
        "plan": "fsdp=8",
    }  # fmt: skip
    return ["".join(span.text for span in line).rstrip() for line in _collectives(report, 100)]


def test_a_way_longer_than_its_column_has_a_line_of_its_own() -> None:
    ways = "RotatedPincerEmitter 2DAllGatherNonMajorDim"
    lines = _table("time", _row(algorithm=ways), _row(algorithm="short"))
    assert lines[2] == f"    how: {ways}"
    assert lines[3].endswith("  short")
    assert max(map(len, lines)) <= 100


def test_the_fast_mode_says_which_mode_names_the_algorithm() -> None:
    assert any("--time says it" in line for line in _table("fast", _row()))
    for lines in (_table("time", _row()), _table("fast", _row(algorithm="windowed einsum"))):
        assert not any("--time" in line for line in lines)


def test_where_no_rule_of_libtpus_is_known_its_column_goes_and_a_line_says_so() -> None:
    unknown = _table("time", _row())
    assert "by libtpu" not in unknown[0]
    assert "is not foretold" in " ".join(unknown)
    known = _table("time", _row(lowered_bytes_per_device_per_step=6e6))
    assert "by libtpu" in known[0]
    assert "is not foretold" not in " ".join(known)


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        # arguments 6, outputs 5, temporaries 4, together 15: under 6 + 5 outputs must lie in
        # arguments, under 6 + 4 temporaries must share room; above both it may be either
        (9, ": outputs take the room of donated arguments, and not all temporaries"),
        (10, ": outputs take the room of donated arguments"),
        (12, "donated arguments, or not all temporaries"),
        (15, None),
    ],
)
def test_a_peak_below_the_sum_of_its_parts_is_explained(peak: int, said: str | None) -> None:
    parts = {"peak": peak, "arguments": 6, "outputs": 5, "temporaries": 4}
    found = list(below_the_sum(parts))
    assert [said is not None and said in words for words in found] == [True] * (said is not None)


def test_a_tensors_padding_is_shown_where_it_can_be_seen() -> None:
    """Of 1 GiB each: a thirtieth more is nothing to read about, a third more is."""
    size = 2**30
    tensors = [
        {"shape": f"f32[{name}]", "name": name, "logical_bytes": size, "physical_bytes": physical}
        for name, physical in (("little", size * 31 // 30), ("much", size * 4 // 3))
    ]
    padding = {"padding": {"bytes": 0, "fraction": 0.0, "tensors": tensors}}
    words = ["".join(span.text for span in line) for line in _padding(padding, 100)]
    assert words == ["    f32[much] takes 1.3x its size: much"]


def test_lines_of_the_built_in_step_are_named_from_the_package_on() -> None:
    file = f"{SOURCE}/chipshift/compiled/step/model.py"
    assert place((file, 7)) == "chipshift/compiled/step/model.py:7"
    assert place(("/opt/site-packages/flax/nnx.py", 7)) == "flax/nnx.py:7"
    assert place(("/elsewhere/train.py", 7)) == "/elsewhere/train.py:7"


def test_a_written_step_says_where_it_departs_from_the_job(job_file: Path) -> None:
    """The notes of the report: a later reader has only the file."""
    job = job_of([str(job_file)], "", "", ["optimizer=muon"])
    asked = request_of(job, Plan(fsdp=4, microbatch=4), parse_machine("v5e:2x2"))
    write_step("step.py", asked, job)
    text = Path("step.py").read_text()
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert said.startswith("Training step: tiny, fsdp=4,microbatch=4.")
    assert said.endswith("- AdamW compiled in place of muon")


def test_a_written_step_has_the_models_own_rotary_positions_and_epsilon(job_file: Path) -> None:
    """Llama 3.1's base, its scaling by 8 from 8,192 positions on, and 1e-5: nothing to set."""
    job = job_of([str(EXAMPLES / "llama3-8b.toml")], "", "", [])
    asked = request_of(job, Plan(fsdp=4, microbatch=64.0), parse_machine("v5e:2x2"))
    write_step("step.py", asked, job)
    text = Path("step.py").read_text()
    for part in ("rope_theta=500000.0", "rope_factor=8.0", "rope_length=8192", "eps=1e-05"):
        assert part in text
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert said.endswith("The weights are random; load your own before training.")


@pytest.mark.parametrize(
    ("plan", "devices", "fits"),
    [("fsdp=3", 3, "fsdp=4"), ("dp=2,fsdp=4", 8, "fsdp=2"), ("tp=3", 3, "dp × tp that divides 4")],
)
def test_a_modules_plan_for_other_devices_names_the_option_that_was_given(
    plan: str, devices: int, fits: str
) -> None:
    machine = parse_machine("v6e:2x2")
    words = f"--plan {plan}: dp × fsdp × tp = {devices} devices, but v6e:2x2 has 4 devices"
    with pytest.raises(InputError, match=re.escape(f"{words}; expected {fits}")):
        torch_mesh(plan, machine)
    assert torch_mesh("tp=2", machine) == (("dp", 1), ("fsdp", 2), ("tp", 2))


def test_a_file_that_cannot_be_written_whole_is_not_written(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without room: one sentence, and what stood there before stands."""

    def full(*written: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asked = request_of(
        job_of([str(job_file)], "", "", []), Plan(fsdp=4, microbatch=4), parse_machine("v5e:2x2")
    )
    Path("step.py").write_text("mine")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"--write step.py: cannot be written \(No space left"):
        write_step("step.py", asked)
    with pytest.raises(InputError, match=r"--hlo out.txt: cannot be written \(No space left"):
        write_kept(replace(asked, keep="out.txt"), "HloModule")
    assert Path("step.py").read_text() == "mine"
    assert {file.name for file in Path().iterdir()} == {
        "users_code.py", "job.toml", "tiny.json", "step.py",
    }  # fmt: skip
