"""A user's module by its name: what is wrong with it is one sentence with its line."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.compiled.users import folder_of, imported, module_name, users_files, watch_reads
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
        (
            "users_slip", "def make_stop(mesh): ...\n",
            "users_slip has no 'make_step'; did you mean 'make_stop'?",
        ),
        ("users_value", "make_step = 5\n", "'users_value:make_step': is a int; expected a funct"),
        (
            "users_import", "import os\nimport no_such_thing\n",
            "users_import fails while it is imported, at users_import.py, line 2: ModuleNotFound",
        ),
        (
            "users_leaves", "import sys\nsys.exit('no data')\n",
            "users_leaves fails while it is imported, at users_leaves.py, line 2: SystemExit: no d",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_users_module_is_a_sentence_with_its_line(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    assert said in refusal(f"{name}:make_step", tmp_path, monkeypatch)
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("users_there", "not of the form package.module:function"),
        (":make_step", "not of the form package.module:function"),
        ("users_there:", "not of the form package.module:function"),
        ("users/there:make_step", "not of the form package.module:function"),
        ("users_nowhere.py:make_step", "users_nowhere.py: no such file"),
        ("users_ther:make_step", "no module 'users_ther' in "),
        ("users_ther:make_step", "did you mean 'users_there'?"),
        ("users_there.more:make_step", "no module 'users_there.more' in "),
    ],
)
def test_what_is_wrong_with_a_functions_name_is_a_sentence(
    entry: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_there.py").write_text("def make_step(mesh): ...\n")
    assert said in refusal(entry, tmp_path, monkeypatch)


def test_a_function_is_found_by_its_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the working folder by its module's name, elsewhere in its own folder."""
    (tmp_path / "users_pkg").mkdir()
    (tmp_path / "users_pkg" / "step.py").write_text("def make_step(mesh): ...\n")
    file = tmp_path / "users-own" / "alone.py"
    file.parent.mkdir()
    file.write_text("def make_step(mesh): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert folder_of("users_pkg/step.py") == ()
    assert folder_of(str(file)) == (str(file.parent),)
    for where, folder in (("users_pkg/step.py", tmp_path), (str(file), file.parent)):
        found = imported(request(f"{where}:make_step", folder))
        assert found.__module__ == module_name(where)
    assert [module_name(where) for where in ("users_pkg/step.py", str(file))] == [
        "users_pkg.step", "alone",
    ]  # fmt: skip


def test_what_a_users_code_reads_belongs_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settings file beside the module, and the module; nothing written, of the system, ours."""
    (tmp_path / "users_reading.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "def make_step(mesh):\n"
        "    Path('written.txt').write_text('x')\n"
        "    open('/etc/hostname').close() if os.path.exists('/etc/hostname') else None\n"
        "    return Path('settings.json').read_text()\n"
    )
    (tmp_path / "settings.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "passing"))
    read = watch_reads()
    assert imported(request("users_reading:make_step", tmp_path))(None) == "{}"
    below = [Path(file).name for file in users_files(read) if str(tmp_path) in file]
    assert below == ["settings.json", "users_reading.py"]
    assert not [file for file in users_files(read) if "/etc/" in file or "chipshift/cli" in file]


def request(entry: str, folder: Path) -> Request:
    aim = target(parse_machine("v6e:2x2"))
    return Request("entry", entry, aim, entry=entry, path=(str(folder),))


def refusal(entry: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(InputError) as caught:
        imported(request(entry, folder))
    return str(caught.value)
