"""Every command and example of the documentation runs as it stands there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from chipshift.cli.app import app
from tests.cli.call import ROOT


def _blocks_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_blocks", ROOT / "docs" / "blocks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


docs = _blocks_module()
PAGES = docs.pages()
COMMANDS = [
    (page.name, command, "chipshift: " in block.text)
    for page in PAGES
    for block in docs.blocks(page)
    for command in docs.commands(block)
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands name, in which they may write."""
    place = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "examples", place / "examples")
    return place


def test_the_pages_hold_commands() -> None:
    assert {"README.md", "estimate.md", "planner.md"} <= {page for page, _, _ in COMMANDS}


@pytest.mark.parametrize(("page", "command", "refused"), COMMANDS, ids=lambda x: str(x)[:60])
def test_a_command_runs(copy: Path, page: str, command: str, refused: bool) -> None:
    found = docs.run(f"set -o pipefail; {command}", copy)
    assert found.returncode in ((2,) if refused else (0, 1)), found.stderr
    if not refused:
        assert found.stdout and found.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_examples_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for block in docs.blocks(page):
        if block.language == "pycon":
            now = docs.printed(block.text, names)
            assert len(now.splitlines()) == len(block.text.splitlines()), now


def _shown() -> list[tuple[str, str]]:
    """Commands of blocks without a language: shown with the reader's own files in mind."""
    out = []
    for page in PAGES:
        plain = re.findall(r"^```\n(.*?)^```$", page.read_text("utf8"), re.MULTILINE | re.DOTALL)
        for text in plain:
            joined = text.replace("\\\n", " ")
            out += [(page.name, line) for line in joined.splitlines() if line.startswith(docs.RUN)]
    return out


@pytest.mark.parametrize(("page", "line"), _shown(), ids=lambda x: str(x)[:60])
def test_a_command_that_is_only_shown_can_be_parsed(page: str, line: str) -> None:
    words = shlex.split(line.split("  # ")[0], comments=True)
    if words[0] != "chipshift" or {"|", ">"} & set(words):
        return
    group = typer.main.get_command(app)
    context = typer.Context(group)
    name, command, rest = group.resolve_command(context, words[1:])
    command.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
