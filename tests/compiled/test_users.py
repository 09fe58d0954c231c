"""A user's module by its name: what is wrong with it is one sentence with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.compiled.users import imported
from chipshift.errors import InputError
from chipshift.machines.names import parse_machine


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("users_syntax", "def make_step(mesh)\n    pass\n", "users_syntax.py, line 1: expected"),
        (
            "users_name", "x = 1\ny = missing\n",
            "users_name fails while it is imported, at users_name.py, line 2: NameError",
        ),
        ("users_lacks", "x = 1\n", "users_lacks has no 'make_step'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_users_module_is_a_sentence_with_its_line(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    aim = target(parse_machine("v6e:2x2"))
    asked = Request("entry", name, aim, entry=f"{name}:make_step", path=(str(tmp_path),))
    with pytest.raises(InputError) as caught:
        imported(asked)
    assert said in str(caught.value)
    sys.modules.pop(name, None)
