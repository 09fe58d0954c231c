"""Files that cannot be read are listed with the reason and never stop the run."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chipshift.cli.app import run

GOOD = "import torch\nx = torch.zeros(1).cuda()\n"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(["audit", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_tree_of_odd_files_is_audited_to_its_end(tmp_path: Path, capsys) -> None:
    odd = {
        "python2.py": b"import torch\nprint 'loss', loss.cuda()\n",
        "template.py": b"import torch\nx = {{ cookiecutter.value }}.cuda()\n",
        "encoding.py": b"import torch\n# \xff\xfe\x80\nx.cuda()\n",
        "latin.py": "# -*- coding: latin-1 -*-\nimport torch\nx = 'é'\n".encode("latin-1"),
        "nul.py": b"import torch\x00\n",
        "deep.py": b"import torch\nx = " + b"(" * 5000 + b"1" + b")" * 5000 + b"\n",
        "long.py": b"import torch\nx = " + b"1 + " * 20000 + b"1\n",
        "empty.py": b"",
        "broken.ipynb": b"{",
        "nbformat3.ipynb": json.dumps({"worksheets": []}).encode(),
        "odd.ipynb": json.dumps({"cells": [{"cell_type": "code"}, 3, None]}).encode(),
        "ds.json": b'{"zero_optimization": ' + b"[" * 3000,
    }
    for name, content in odd.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.py").write_text(GOOD)
    found = document(capsys, str(tmp_path))
    assert ("cuda-device-pin", "good.py") in {(f["rule"], f["file"]) for f in found["findings"]}
    skipped = {one["file"]: one["why"] for one in found["skipped"]}
    assert {"python2.py", "encoding.py", "nul.py", "broken.ipynb"} <= set(skipped)
    assert all(why for why in skipped.values())
    assert run(["audit", str(tmp_path)]) == 0  # and on the screen


def test_names_on_disk_may_be_any_bytes(tmp_path: Path, capsys) -> None:
    for name in (b"\xff\xfe.py", b"na\nme.py", b"sp ace,:.py", "ü.py".encode()):
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
            file.write(GOOD)
    found = document(capsys, str(tmp_path))
    assert {f["file"] for f in found["findings"]} == {"na\nme.py", "sp ace,:.py", "ü.py"}
    assert found["skipped"] == [{"file": "\ufffd\ufffd.py", "why": "a name that is not UTF-8"}]
    for form in ([], ["--github"], ["--sarif", str(tmp_path / "out.sarif")]):
        assert run(["audit", str(tmp_path), *form]) == 0
        capsys.readouterr().out.encode("utf-8")


def test_a_notebook_is_audited_by_cell(tmp_path: Path, capsys) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# x.cuda()"]},
        {"cell_type": "code", "source": ["%pip install torch\n", "import torch\n"]},
        {"cell_type": "code", "source": ["\n", "x = torch.zeros(1).cuda()\n"], "outputs": []},
    ]
    (tmp_path / "nb.ipynb").write_text(json.dumps({"cells": cells}, indent=1))
    found = document(capsys, str(tmp_path / "nb.ipynb"))
    (pinned,) = [f for f in found["findings"] if f["rule"] == "cuda-device-pin"]
    assert (pinned["cell"], pinned["line"], pinned["file"]) == (2, 2, "nb.ipynb")
    assert run(["audit", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "nb.ipynb[cell 2]:2" in out and "x = torch.zeros(1).cuda()" in out


def test_an_empty_folder_has_no_findings(tmp_path: Path, capsys) -> None:
    found = document(capsys, str(tmp_path))
    assert (found["files"], found["findings"], found["portable_fraction"]) == (0, [], None)
    assert run(["audit", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(": no Python code, notebook or launch script to read\n")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200),
    name=st.sampled_from(["a.py", "a.ipynb", "requirements.txt", "a.json", "run.sh"]),
)
def test_any_bytes_are_audited_without_a_traceback(
    tmp_path: Path, capsys, content: bytes, name: str
) -> None:
    (tmp_path / name).write_bytes(b"import torch\n" + content)
    assert run(["audit", str(tmp_path / name)]) == 0
    (tmp_path / name).unlink()
    capsys.readouterr()
