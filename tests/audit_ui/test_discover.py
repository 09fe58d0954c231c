"""Which files an audit reads: the user's own, not the vendored, ignored, linked or generated."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.audit.discover import MAX_BYTES, discover, kind_of
from chipshift.audit.gitignore import read_ignore
from chipshift.errors import InputError


def write(root: Path, *names: str, text: str = "x = 1\n") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def audited(root: Path, exclude: tuple[str, ...] = ()) -> list[str]:
    return [source.name for source in discover(root, exclude) if source.skip is None]


def skipped(root: Path) -> dict[str, str]:
    return {source.name: source.skip for source in discover(root) if source.skip is not None}


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def test_python_notebooks_and_configuration_are_read_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "nb.ipynb", "requirements.txt", "README.md", "data.csv", "run.sh")
    assert audited(tmp_path) == ["nb.ipynb", "requirements.txt", "run.sh", "train.py"]


def test_a_file_named_by_the_user_is_read_even_among_the_tests(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_train.py")
    (source,) = discover(tmp_path / "tests" / "test_train.py")
    assert (source.name, source.skip) == ("test_train.py", None)


def test_tests_and_vendored_code_found_by_walking_are_left_out_and_listed(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "tests/test_a.py", "tests/deep/test_b.py", "third_party/x/y.py")
    assert audited(tmp_path) == ["a.py"]
    assert skipped(tmp_path) == {"tests/": "tests", "third_party/": "vendored code"}


def test_virtual_environments_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "a.py", ".venv/lib/x.py", "venv/pyvenv.cfg", "venv/lib/y.py", "env/keep.py")
    assert audited(tmp_path) == ["a.py", "env/keep.py"]


@pytest.mark.parametrize("checkout", [True, False], ids=["git", "plain folder"])
def test_gitignore_is_respected(tmp_path: Path, checkout: bool) -> None:
    write(tmp_path, ".gitignore", text="out/\n*.gen.py\n!keep.gen.py\n/top.py\n")
    write(tmp_path, "a.py", "out/b.py", "c.gen.py", "keep.gen.py", "top.py", "deep/top.py")
    if checkout:
        git(tmp_path, "init", "-q")
    assert audited(tmp_path) == ["a.py", "deep/top.py", "keep.gen.py"]


def test_exclude_takes_further_patterns(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "legacy/b.py", "c_old.py")
    assert audited(tmp_path, ("legacy/", "*_old.py")) == ["a.py"]


def test_nothing_of_an_audited_repository_is_executed(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    git(tmp_path, "init", "-q")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    trap.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(trap))
    assert "a.py" in audited(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_links_do_not_lead_out_of_the_tree_or_in_circles(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    write(inside, "a.py")
    write(outside, "b.py")
    os.symlink(outside / "b.py", inside / "b.py")
    os.symlink(inside, inside / "circle")
    os.symlink("loop.py", inside / "loop.py")
    os.symlink("gone.py", inside / "dangling.py")
    assert audited(inside) == ["a.py"]
    assert skipped(inside)["b.py"] == "a link that leaves the tree"
    assert set(skipped(inside)) == {"b.py", "loop.py", "dangling.py"}


def test_a_submodule_is_listed(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    write(inner, "a.py")
    write(outer, "b.py")
    for root in (inner, outer):
        git(root, "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "one")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "engine")
    assert audited(outer) == ["b.py"]
    assert skipped(outer) == {"engine/": "a git submodule"}


def test_a_generated_giant_is_listed_not_read(tmp_path: Path) -> None:
    write(tmp_path, "big.py", text="#" * (MAX_BYTES["python"] + 1))
    assert skipped(tmp_path) == {"big.py": "4.0 MB, above the limit of 4 MB"}


def test_a_missing_path_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        list(discover(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/train.py", "python"),
        ("a/demo.ipynb", "notebook"),
        ("requirements-gpu.txt", "config"),
        ("requirements/base.txt", "config"),
        ("docker/Dockerfile.cuda", "config"),
        ("train.sbatch", "config"),
        ("ds_zero3.json", "config"),
        ("notes.txt", None),
        ("weights.bin", None),
    ],
)
def test_the_kind_of_a_file_follows_from_its_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_patterns_follow_the_manual_of_gitignore() -> None:
    ignore = read_ignore(["# comment", "", "a/**/b.py", "doc/*.py", "**/gen", "x[0-9].py", "\\#f"])
    assert ignore.matches("a/b.py") and ignore.matches("a/p/q/b.py")
    assert ignore.matches("doc/m.py") and not ignore.matches("src/doc/m.py")
    assert ignore.matches("p/gen/f.py") and ignore.matches("x7.py") and ignore.matches("#f")
    assert not ignore.matches("xa.py") and not ignore.matches("comment")


@given(st.lists(st.text(alphabet="ab*?[]!/\\#. -", max_size=12), max_size=5))
def test_no_pattern_however_odd_stops_the_walk(lines: list[str]) -> None:
    read_ignore(lines).matches("a/b.py")


def test_a_set_of_characters_may_be_negated_and_hold_odd_ones() -> None:
    ignore = read_ignore(["x[!ab].py", "y[[-].py"])
    assert ignore.matches("xc.py") and not ignore.matches("xa.py")
    assert ignore.matches("y[.py") and ignore.matches("y-.py")
