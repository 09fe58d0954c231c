"""``chipshift compile``: its JSON, its cache, the plan that fits, and input that cannot be used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chipshift.cli.app import run
from chipshift.cli.compile import job_of, torch_mesh
from chipshift.compiled import cache
from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.machines.names import parse_machine
from tests.cli.test_outputs import complaints

HERE = Path(__file__).parent
ENTRY = ["--entry", "users_code:make_step", "--mesh", "data=2,model=2"]


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--to: name the machine"),
        (["--to", "v6e:4x4"], "compile one thing"),
        (["--to", "v6e:4x4", "--model", "llama-3.1-8b"], "a model alone has no batch"),
        (["--to", "v6e:4x4", "--model", "llama-3.1-8b", *ENTRY], "is a program already"),
        (["--to", "v6e:4x4", *ENTRY, "--hlo", "nowhere/out.txt"], "in a folder that is there"),
        (["--to", "v6e:4x4", "job.toml", "--write", "nowhere/step.py"], "a folder that is there"),
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


def test_the_model_is_the_files_own_where_no_other_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'chipshift = 1\nname = "long"\n[model]\npreset = "llama-3.1-405b"\n'
        "[job]\nseq_len = 8192\nsequences_per_step = 512\n"
    )
    file = str(tmp_path / "job.toml")
    assert job_of([file], "", "", []).model.n_layers == 126  # the 405B's depth
    assert job_of([file], "", "llama-3.1-8b", []).model.n_layers == 32


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
