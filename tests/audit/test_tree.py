"""Whole trees: names followed across files, places, targets, files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chipshift.audit.finding import AuditResult, Finding
from chipshift.audit.run import audit
from chipshift.errors import InputError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def of(result: AuditResult, rule: str) -> list[Finding]:
    return [one for one in result.findings if one.rule == rule]


WRAPPED = {
    "pkg/__init__.py": "from .ops import attend\n",
    "pkg/ops.py": "import torch\nfrom flash_attn import flash_attn_func\n"
    "def attend(q, k, v):\n    return flash_attn_func(q, k, v)\n",
    "train.py": "import torch\nfrom pkg import attend as at\n"
    "def step(q, k, v):\n    return at(q, k, v)\n",
}


def test_a_kernel_behind_a_wrapper_and_a_re_export_is_found_at_import_and_call(
    tmp_path: Path,
) -> None:
    result = audit(write(tmp_path, WRAPPED), jobs=1)
    at = {
        (one.file, line)
        for one in of(result, "flash-attn-kernel")
        for line in (one.line, *(place.line for place in one.places))
    }
    assert {("pkg/ops.py", 2), ("pkg/ops.py", 4), ("train.py", 2), ("train.py", 4)} <= at


def test_a_file_alone_is_read_with_the_files_it_imports(tmp_path: Path) -> None:
    write(tmp_path, WRAPPED)
    result = audit(tmp_path / "train.py", jobs=1)
    assert {one.file for one in result.findings} == {"train.py"}
    assert of(result, "flash-attn-kernel")


STEP = """
import torch
from helper import log_loss
for x in loader:
    loss = model(x)
    loss.backward()
    optimizer.step()
    log_loss(loss)
"""


def test_a_helper_called_from_the_step_runs_in_the_step(tmp_path: Path) -> None:
    helper = "import torch\ndef log_loss(loss):\n    print(loss.item())\n"
    result = audit(write(tmp_path, {"train.py": STEP, "helper.py": helper}), jobs=1)
    (found,) = of(result, "host-sync-in-step")
    assert (found.file, found.line, found.loop) == ("helper.py", 3, "step")


def test_the_same_helper_called_at_start_up_costs_nothing(tmp_path: Path) -> None:
    helper = "import torch\ndef log_loss(loss):\n    print(loss.item())\n"
    main = "import torch\nfrom helper import log_loss\n" + "\n" * 60 + "log_loss(first)\n"
    result = audit(write(tmp_path, {"main.py": main, "helper.py": helper}), jobs=1)
    assert not of(result, "host-sync-in-step")


def test_a_plugin_reached_only_behind_a_device_test_is_no_finding(tmp_path: Path) -> None:
    code = """
import torch
def _load():
    return custom_ops.get_plugin("bias_act", ["bias_act.cu"])
def bias_act(x, impl="cuda"):
    if impl == "cuda" and x.device.type == "cuda":
        return _load().run(x)
    return torch.relu(x)
"""
    assert not of(audit(write(tmp_path, {"ops.py": code}), jobs=1), "cuda-extension")


def test_each_file_has_the_target_of_its_imports_and_neither_takes_its_importers(
    tmp_path: Path,
) -> None:
    files = {
        "a.py": "import jax\nimport sizes\nstep = jax.jit(train_step)\n",
        "b.py": "import torch\nx = y.cuda()\n",
        "sizes.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n",
    }
    result = audit(write(tmp_path, files), jobs=1)
    assert {one.file: one.target for one in result.findings} == {
        "a.py": "jax",
        "b.py": "torchtpu",
        "sizes.py": "jax",
    }


def test_a_finding_that_does_not_hold_for_the_target_is_not_printed(tmp_path: Path) -> None:
    code = "import torch\nmodel = torch.compile(model)\nmodel.to('cuda')\n"
    write(tmp_path, {"a.py": code})
    xla = {one.rule for one in audit(tmp_path, target="torch_xla", jobs=1).findings}
    tpu = {one.rule for one in audit(tmp_path, target="torchtpu", jobs=1).findings}
    assert xla == {"torch-compile-inductor", "cuda-device-pin"}
    assert tpu == {"cuda-device-pin"}


def test_all_targets_print_a_finding_once_with_those_it_holds_for(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import torch\nmodel = torch.compile(model)\n"})
    (found,) = audit(tmp_path, target="all", jobs=1).findings
    assert found.targets == ("torch_xla",)


SCALER = """
import torch
scaler = torch.cuda.amp.GradScaler()
for x in loader:
    scaler.scale(model(x)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
"""


def test_the_scaler_s_lines_are_one_finding(tmp_path: Path) -> None:
    (found,) = of(audit(write(tmp_path, {"a.py": SCALER}), jobs=1), "fp16-gradscaler")
    assert found.line == 3
    assert [place.line for place in found.places] == [5, 6, 7, 8]


def test_a_notebook_s_findings_name_cell_and_line(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# model.cuda()"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n"]},
        {"cell_type": "code", "source": "def broken(:\n"},
        {"cell_type": "code", "source": ["x = 1\n", "model = model.cuda()\n"]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (found,) = of(audit(tmp_path, jobs=1), "cuda-device-pin")
    assert (found.cell, found.line) == (3, 2)


def test_the_portable_share_counts_the_lines_of_the_step(tmp_path: Path) -> None:
    # Loop of four lines; one (.item()) has a medium finding: 3/4 carry over.
    code = (
        "import torch\nfor x in loader:\n    loss = model(x); loss.backward()\n"
        "    opt.step()\n    seen += loss.item()\n"
    )
    result = audit(write(tmp_path, {"train.py": code}), jobs=1)
    assert result.portable_fraction == pytest.approx(3 / 4)
    assert result.entry is not None and result.entry.file == "train.py"


def test_without_a_step_there_is_no_share(tmp_path: Path) -> None:
    result = audit(write(tmp_path, {"a.py": "import torch\nx = torch.zeros(3)\n"}), jobs=1)
    assert result.portable_fraction is None and result.entry is None


def test_files_that_cannot_be_read_are_listed_with_the_reason(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "two.py": "import torch\nprint 'loss'\n",
            "template.py": "import torch\nx = {{ cookiecutter.name }}\n{% if a %}\n",
            "deep.py": "import torch\nx = " + "(" * 5000 + ")" * 5000 + "\n",
            "sum.py": "import torch\nx = " + "+".join(["1"] * 20000) + "\n",
            "good.py": "import torch\nx.cuda()\n",
            "note.ipynb": "{",
        },
    )
    (tmp_path / "nul.py").write_bytes(b"import torch\0\n")
    (tmp_path / "latin.py").write_bytes(
        "# -*- coding: latin-1 -*-\nimport torch # é\n".encode("latin-1")
    )
    (tmp_path / "broken.py").write_bytes(b"import torch # \xe9\xff\n")
    (tmp_path / "big.py").write_bytes(b"x = 1\n" * 800_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    result = audit(tmp_path, jobs=1)
    why = {one.file: one.why for one in result.skipped}
    assert why["two.py"] == "is Python 2"
    assert why["template.py"].startswith("is a template")
    assert "deep" in why["deep.py"] and "deep" in why["sum.py"]
    assert "NUL" in why["nul.py"]
    assert "UTF-8" in why["broken.py"]
    assert "MB" in why["big.py"]
    assert "notebook" in why["note.ipynb"]
    assert "latin.py" not in why
    assert of(result, "cuda-device-pin")


def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    files = {f"m{i}.py": f"import torch\nx{i}.cuda()\n" for i in range(30)}
    write(tmp_path, files)
    assert audit(tmp_path, jobs=1).findings == audit(tmp_path, jobs=2).findings


def test_inputs_that_cannot_be_used_name_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": STEP})
    with pytest.raises(InputError, match=r"did you mean 'train\.py'"):
        audit(tmp_path / "trian.py")
    with pytest.raises(InputError, match="did you mean 'torchtpu'"):
        audit(tmp_path, target="torchtup")
    with pytest.raises(InputError, match="no function 'stpe'"):
        audit(tmp_path, entry="train.py:stpe", jobs=1)
