"""What a shell offers after --on, --to and --model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chipshift.cli.completion import chips, machines, models


def test_chips_then_the_shapes_that_can_be_rented() -> None:
    assert machines("V6") == ["v6e"]
    assert machines("h1") == ["h100"]
    assert machines("v6e:4") == ["v6e:4x4", "v6e:4x8"]
    assert machines("h100:") == []  # its domains combine freely
    assert machines("nothing:") == []


def test_a_list_of_chips_is_completed_at_its_end() -> None:
    assert chips("h100,v6") == ["h100,v6e"]


def test_shipped_models_then_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert models("Qwen3-30b") == ["qwen3-30b-a3b"]
    assert models("minitron") == ["minitron-8b", "minitron-4b"]
    assert models("./mi") == ["./mine/"]
    assert models("./mine/c") == ["./mine/config.json"]
    assert models("no/such/folder") == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("chipshift assess --to v6", "v6e"),
        ("chipshift estimate --model moonl", "moonlight-16b-a3b"),
        ("chipshift read --model moonl", "moonlight-16b-a3b"),
        ("chipshift fabric v6e:16", "16x16"),
    ],
)
def test_the_commands_ask_for_it(typed: str, offered: str) -> None:
    asked = {"_CHIPSHIFT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed}
    found = subprocess.run(
        [sys.executable, "-m", "chipshift"], env=os.environ | asked, capture_output=True, text=True
    )
    assert offered in found.stdout
