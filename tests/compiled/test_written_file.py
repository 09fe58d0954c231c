"""``--write``: the file runs by itself, says where it departs from the job, and is whole."""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chipshift.cli.compile import job_of, write_step
from chipshift.compiled.reading import write_kept
from chipshift.errors import InputError
from chipshift.flows.compilation import request_of
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


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
    for part in ("theta=500000.0", "factor=8.0", "length=8192", "eps=1e-05"):
        assert part in text
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert said.endswith("The weights are random; load your own before training.")


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
