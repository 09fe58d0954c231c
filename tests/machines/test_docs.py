"""docs/machines.md: its names, figures and commands are the program's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from chipshift.cli.app import run
from chipshift.machines import all_chips, parse_machine, readings

PAGE = (Path(__file__).parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")


def test_every_figure_is_explained_and_none_besides() -> None:
    used = {name for chip in all_chips() for name in chip.figures}
    table = PAGE.partition("## Figures")[2].partition("## Slices")[0]
    explained = {name for name in re.findall(r"`([a-z0-9_]+)`", table) if "_" in name}
    assert explained == used


def test_names_are_read_as_the_page_says() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\d.*) \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) >= 12
    for written, reading in rows:
        assert readings(parse_machine(written)) == reading


def test_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^chipshift (.*)$", PAGE, flags=re.MULTILINE)
    assert commands
    for command in commands:
        assert run(shlex.split(command)) == 0
    assert capsys.readouterr().err == ""
