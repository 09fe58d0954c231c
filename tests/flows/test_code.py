"""The user's code in part two of the answer: a rule a row, costs from the target's plan."""

import json
from pathlib import Path

import pytest

from chipshift.cli.app import run

JOB = str(Path(__file__).parents[2] / "examples" / "llama3-8b.toml")
CODE = """\
import torch
import torch.distributed as dist


def train(model, loader, optimizer):
    dist.init_process_group("nccl")
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
        log(loss.item())
"""


def relearned(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict]:
    assert run(["assess", JOB, "--on", "h100*128", "--to", "v6e:8x8", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["relearn"]


def test_findings_in_the_code_stand_beside_those_of_the_job(tmp_path: Path, capsys) -> None:
    (tmp_path / "train.py").write_text(CODE)
    before = relearned(capsys)
    after = relearned(capsys, "--code", str(tmp_path))
    added = [row for row in after if row not in before]
    assert [row for row in before if row not in after] == []
    by_rule = {row["rule"]: row for row in added}
    assert by_rule["nccl-backend"]["where"] == {"file": "train.py", "line": 6}
    assert by_rule["nccl-backend"]["severity"] == "blocker"
    assert by_rule["cuda-device-pin"]["where"] == {"file": "train.py", "line": 8}
    reads = by_rule["host-sync-in-step"]  # two places, one row
    assert reads["where"] == {"file": "train.py", "line": 11} and "1 more in" in reads["what"]
    assert reads["topic"] == "other" and "read in the code" in reads["evidence"]


def test_code_that_is_not_there_is_one_sentence(capsys) -> None:
    arguments = ["assess", JOB, "--on", "h100*128", "--to", "v6e:8x8", "--code", "nowhere"]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "nowhere: no such file or folder" in err
