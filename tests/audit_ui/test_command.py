"""``chipshift audit`` from the outside: what it prints, where, and its exit codes."""

import json
import subprocess
from pathlib import Path

import pytest

from chipshift.audit.settings import Settings, read_settings
from chipshift.cli.app import run
from chipshift.errors import InputError

TRAIN = """\
import torch


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small training script with a blocker (line 6) and a stall (line 9)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(["audit", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def found(document: dict) -> set[tuple[str, int]]:
    return {(f["rule"], f["line"]) for f in document["findings"]}


def test_json_is_one_object_with_the_contracts_keys(code: Path, capsys) -> None:
    document = answer(capsys, "train.py")
    assert document["schema"] == "chipshift/audit/1"
    assert set(document) >= {
        "target", "files", "entry", "portable_fraction", "findings", "skipped", "unresolved",
        "seconds",
    }  # fmt: skip
    assert document["files"] == 1
    assert ("cuda-device-pin", 6) in found(document)
    assert ("host-sync-in-step", 9) in found(document)
    first = document["findings"][0]
    assert set(first) >= {
        "rule", "target", "topic", "severity", "file", "line", "end_line", "cell", "places",
        "message", "instead", "cost", "loop", "confidence",
    }  # fmt: skip
    assert set(first["cost"]) == {
        "seconds_per_step", "fraction_of_step", "bytes", "recompiles", "formula", "basis",
    }  # fmt: skip
    assert {f["file"] for f in document["findings"]} == {"train.py"}


def test_the_screen_fits_a_hundred_columns_and_has_no_colour_in_a_pipe(code: Path, capsys) -> None:
    assert run(["audit", "."]) == 0
    out, err = capsys.readouterr()
    assert "train.py:6" in out and "cuda-device-pin" in out and "What it comes to" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out and err == ""


@pytest.mark.parametrize(
    ("options", "code_"),
    [
        ([], 0),
        (["--fail-on", "blocker"], 1),
        (["--fail-on", "blocker", "--rule", "host-sync-in-step"], 0),
        (["--fail-on", "medium", "--rule", "host-sync-in-step"], 1),
    ],
)
def test_fail_on_decides_the_exit_code(code: Path, capsys, options: list[str], code_: int) -> None:
    assert run(["audit", "train.py", *options]) == code_


def test_fail_on_counts_what_remains_after_ignores_and_baseline(code: Path, capsys) -> None:
    baseline = ["--baseline", "base.json"]
    assert run(["audit", ".", *baseline, "--write-baseline"]) == 0
    assert "accepted in base.json" in capsys.readouterr().err
    assert run(["audit", ".", *baseline, "--fail-on", "low"]) == 0
    (code / "train.py").write_text(TRAIN + "        torch.cuda.synchronize()\n")
    capsys.readouterr()
    assert run(["audit", ".", *baseline, "--fail-on", "low"]) == 1
    out = capsys.readouterr().out
    assert "train.py:10" in out and "accepted by the baseline" in out
    ignored = "        torch.cuda.synchronize()  # chipshift: ignore[cuda-stream-event] later\n"
    (code / "train.py").write_text(TRAIN + ignored)
    assert run(["audit", ".", *baseline, "--fail-on", "low"]) == 0


def test_diff_reports_the_changed_lines_only(code: Path, capsys) -> None:
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", *identity, *command], check=True, cwd=code)
    (code / "train.py").write_text(TRAIN + "        torch.cuda.synchronize()\n")
    assert found(answer(capsys, ".", "--diff", "HEAD")) == {("cuda-stream-event", 10)}


def test_min_severity_and_max_per_rule_shorten_the_list(code: Path, capsys) -> None:
    document = answer(capsys, ".", "--min-severity", "blocker")
    assert {f["severity"] for f in document["findings"]} == {"blocker"}
    assert document["left_out"]["milder"] > 0
    (code / "train.py").write_text(TRAIN + "        print(loss.item() + 1)\n" * 5)
    document = answer(capsys, ".", "--rule", "host-sync-in-step", "--max-per-rule", "2")
    assert len(document["findings"]) == 2


def test_sarif_and_annotations_name_the_file_from_the_repositorys_root(code: Path, capsys) -> None:
    (code / ".git").mkdir()
    (code / "src").mkdir()
    (code / "train.py").rename(code / "src" / "train.py")
    assert run(["audit", "src", "--github", "--sarif", "out.sarif"]) == 0
    assert "::error file=src/train.py,line=6,endLine=6," in capsys.readouterr().out
    log = json.loads((code / "out.sarif").read_text())
    results = log["runs"][0]["results"]
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert uris == {"src/train.py"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.py"], "no such file or folder"),
        (["trian.py"], "did you mean 'train.py'"),
        (["https://example.org/a/b"], "clone it first"),
        (["train.py", "--target", "torchtpux"], "did you mean 'torchtpu'"),
        (["train.py", "--rule", "flash-atn-kernel"], "did you mean 'flash-attn-kernel'"),
        (["train.py", "--fail-on", "hihg"], "did you mean 'high'"),
        (["train.py", "--entry", "train.py:trian"], "did you mean 'train'"),
        (["train.py", "--json", "--github"], "choose one"),
        (["train.py", "--write-baseline"], "--baseline FILE"),
        (["train.py", "--to", "v6e"], "--job"),
        (["--explain", "no-such-rule"], "name of a rule"),
        ([], "PATH is missing"),
    ],
)
def test_unusable_input_is_one_sentence_and_exit_code_2(code, capsys, arguments, complaint) -> None:
    assert run(["audit", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and complaint in err and len(err.splitlines()) == 1


def test_rules_are_listed_and_explained(capsys) -> None:
    assert run(["audit", "--rules"]) == 0
    listed = capsys.readouterr().out
    assert "`bool-mask-select`" in listed and "Shapes" in listed
    assert run(["audit", "--explain", "bool-mask-select"]) == 0
    assert capsys.readouterr().out.startswith("# `bool-mask-select`")


def test_code_on_numpy_alone_reads_no_device_array(code: Path, capsys) -> None:
    step = "def training_step(x, mask):\n    return x[mask > 0].tolist()\n"
    (code / "train.py").write_text("import numpy as np\n" + step)
    assert found(answer(capsys, "train.py")) == set()
    (code / "train.py").write_text("import numpy as np\nimport torch\n" + step)
    assert "bool-mask-select" in {rule for rule, _ in found(answer(capsys, "train.py"))}


# --- settings ----------------------------------------------------------------------------------


def settings(folder: Path, table: str) -> Settings:
    (folder / "pyproject.toml").write_text("[tool.chipshift.audit]\n" + table)
    return read_settings(folder)


def test_settings_of_the_team_are_applied(code: Path, capsys) -> None:
    (code / "legacy").mkdir()
    (code / "legacy" / "old.py").write_text(TRAIN)
    (code / "pyproject.toml").write_text(
        '[tool.chipshift.audit]\nexclude = ["legacy/"]\n'
        'severity = {"cuda-device-pin" = "low", "host-sync-in-step" = "off"}\n'
    )
    document = answer(capsys, ".")
    assert {f["file"] for f in document["findings"]} == {"train.py"}
    severities = {f["rule"]: f["severity"] for f in document["findings"]}
    assert severities["cuda-device-pin"] == "low" and "host-sync-in-step" not in severities


def test_select_keeps_the_rules_named(tmp_path: Path, finding) -> None:
    chosen = settings(tmp_path, 'select = ["float64"]\n')
    assert chosen.applied((finding(rule="float64"), finding())) == [finding(rule="float64")]


def test_settings_above_the_audited_folder_count_and_their_patterns_are_rebased(tmp_path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    settings(tmp_path, 'exclude = ["src/pkg/old.py", "other/x.py", "*.gen.py", "**/tmp"]\n')
    assert read_settings(tmp_path / "src").exclude == ("/pkg/old.py", "*.gen.py", "**/tmp")


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("exclud = []", "did you mean 'exclude'"),
        ('exclude = "legacy"', "expected a list of strings"),
        ('select = ["float46"]', "did you mean 'float64'"),
        ('severity = {float64 = "hgih"}', "did you mean 'high'"),
        ("severity = 3", "expected a table"),
        ('target = "tpu"', "expected one of"),
        ("x = [", "not TOML"),
    ],
)
def test_a_setting_that_is_not_understood_is_one_sentence(tmp_path, table, complaint) -> None:
    with pytest.raises(InputError, match=complaint):
        settings(tmp_path, table)
