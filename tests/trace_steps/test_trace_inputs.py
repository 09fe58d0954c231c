"""Finding the step and its inputs; what is said when they cannot be found or fail."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from jsonschema import Draft202012Validator

from chipshift.cli.app import run
from chipshift.errors import InputError

from .conftest import line_of

pytest.importorskip("torch", reason="runs real PyTorch steps")

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "trace.json"
STEP = "import torch\ndef step(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("code", "options", "complaint"),
    [
        (STEP, {}, "the step takes x.*--inputs"),
        (STEP, {"step": "stp"}, "has no 'stp'.*did you mean 'step'"),
        (STEP, {"inputs": "step"}, "expected MODULE:FUNCTION"),
        (STEP, {"inputs": "nowhere:batches"}, "cannot be imported"),
        (STEP, {"framework": "tensorflow"}, "expected torch or jax"),
        (STEP, {"steps": 0}, "expected 1 or more"),
        ("import torch\nraise OSError('no data')\n", {}, "user_step.py:2: OSError: no data"),
        (STEP + "def trace_inputs():\n    return []\n", {}, "yielded nothing"),
        ("import sys\nimport torch\nsys.exit('no GPU')\n", {}, "py:3: SystemExit: no GPU"),
        ("import torch\ndef step():\n    raise SystemExit(3)\n", {}, "step 1 failed.*SystemExit"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(traced, code, options, complaint) -> None:
    with pytest.raises(InputError, match=complaint):
        traced(code, **options)


def test_a_module_that_could_be_either_frameworks_asks_which(traced, monkeypatch) -> None:
    for name in ("torch", "jax"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, ModuleType(name)))
    with pytest.raises(InputError, match=r"torch and jax: .*--framework"):
        traced("def step():\n    pass\n")


def test_an_error_in_the_step_names_the_users_line(traced) -> None:
    code = STEP + "def trace_inputs():\n    yield torch.ones(2), 3\n"
    code = code.replace("def step(x)", "def step(x, y)").replace("x + 1", "x @ torch.ones(y)")
    with pytest.raises(InputError, match=f"user_step.py:{line_of(code, 'x @')}: RuntimeError"):
        traced(code)


@pytest.mark.parametrize(
    "given",
    ["(torch.ones(2),)", "{'x': torch.ones(2)}", "torch.ones(2)"],
    ids=["tuple", "dict", "one"],
)
def test_an_input_is_a_tuple_a_dict_or_the_only_argument(traced, given: str) -> None:
    result = traced(STEP + f"def trace_inputs():\n    yield {given}\n")
    assert (result.steps, result.programs) == (1, 1)


def test_a_module_that_parses_its_command_line_finds_no_arguments(traced) -> None:
    code = "import argparse, torch\nargs = argparse.ArgumentParser().parse_args()\n"
    assert traced(code + "def step():\n    return torch.ones(2)\n", steps=2).steps == 2


def test_a_step_without_parameters_needs_no_inputs(traced) -> None:
    result = traced("import torch\ndef step():\n    return torch.ones(2) * 2\n", steps=5)
    assert (result.steps, result.programs) == (5, 1)


def test_the_command_prints_one_json_object_or_a_table(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import torch\ndef step():\n    return torch.ones(2).sum().item()\n"
    (tmp_path / "cli_step.py").write_text(code)
    assert run(["trace", "cli_step.py:step", "--steps", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)
    assert document["schema"] == "chipshift/trace/1"
    assert (document["steps"], document["programs"]) == (2, 1)
    assert document["host_syncs"] == [{"file": "cli_step.py", "line": 3, "count": 2}]
    assert set(document) >= {"recompiles", "fallbacks", "graph_breaks"}

    assert run(["trace", "cli_step.py:step", "--steps", "2"]) == 0
    text = capsys.readouterr().out
    assert "Host reads" in text and "cli_step.py:3" in text
    assert max(map(len, text.splitlines())) <= 100
