"""``chipshift read`` accounts for a file key by key, on the terminal and as JSON."""

import json
from pathlib import Path

import pytest

from chipshift.cli.app import run
from chipshift.jobs.read import read_job

EXAMPLES = sorted(str(path) for path in Path("examples").iterdir() if path.is_file())


@pytest.mark.parametrize("path", EXAMPLES)
def test_json_has_the_contracts_keys(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "chipshift/read/1"
    assert {"architecture", "params", "params_embedding", "params_active", "layers"} <= set(
        found["model"]
    )
    for entry in found["understood"]:
        assert set(entry) == {"key", "value", "file", "line", "as"}
    for entry in found["assumed"]:
        assert set(entry) == {"what", "value", "why"}
    for entry in found["ignored"]:
        assert set(entry) == {"key", "file", "line", "matters", "why"}


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_table_fits_100_columns_and_has_no_colour_in_a_pipe(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["read", path, "--all"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(len(line) for line in out.split("\n")) <= 100
    assert all(entry.key in out.replace("\n", "") for entry in read_job([path]).ignored)


def test_on_fills_the_open_axis(capsys: pytest.CaptureFixture[str]) -> None:
    path = "examples/llama3-8b-torchtitan.toml"
    assert run(["read", path, "--on", "h100*128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["job"]
    assert (found["plan"]["fsdp"], found["tokens_per_step"]) == (128, 2 * 128 * 8192)


def test_before_the_machine_is_known_the_open_figures_are_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["read", "examples/llama3-8b-torchtitan.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["job"]
    assert (found["plan"]["fsdp"], found["tokens_per_step"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere.toml"], "nowhere.toml does not exist"),
        (["examples"], "examples is a folder; expected the job file in it"),
        (["examples/llama3-8b.toml", "--set", "x"], "--set x: expected KEY=VALUE"),
        (["examples/llama3-8b.toml", "--set", "seqlen=4"], "did you mean 'seq_len'?"),
        (["examples/llama3-8b.toml", "--set", "seq_len=-4"], "expected a whole number"),
        (["examples/llama3-8b.toml", "--model", "lama-3.1-8b"], "did you mean 'llama-3.1-8b'?"),
        (["examples/llama3-8b.toml", "--on", "h100*64"], "fsdp=128 = 128 devices, but"),
        (["LICENSE"], "LICENSE is in no format known here"),
    ],
)
def test_a_mistake_is_exit_code_2_and_one_sentence(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["read", *args]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and error.startswith("chipshift: ")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\x01", b"\xff\xfe\xff", b"\x89PNG\r\n"])
def test_files_that_are_no_job_are_refused(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    assert run(["read", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_file_above_16_mb_is_refused_with_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    with file.open("wb") as handle:
        handle.truncate(200_000_000)
    assert run(["read", str(file)]) == 2
    assert "is 200.0 MB; expected a job file of at most 16 MB" in capsys.readouterr().err
