"""From all findings to those that are the reader's concern: ignores, baseline, changed lines."""

import json
import subprocess
from pathlib import Path

import pytest

from chipshift.audit.baseline import read_baseline, without_accepted, write_baseline
from chipshift.audit.diff import changes_since, only_changed
from chipshift.audit.finding import Place
from chipshift.audit.ignores import ignore_on, without_ignored
from chipshift.audit.lines import SourceLines
from chipshift.audit.review import blockers_by_topic, review, worklist
from chipshift.audit.settings import Settings
from chipshift.errors import InputError


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def committed(root: Path) -> None:
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")


# --- ignore comments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rules", "reason"),
    [
        (
            "x.item()  # chipshift: ignore[host-sync-in-step] log only",
            {"host-sync-in-step"},
            "log only",
        ),
        ("x.item()  # chipshift: ignore[a, b]", {"a", "b"}, ""),
        ("x.item()  #chipshift:ignore", set(), ""),
    ],
)
def test_an_ignore_comment_names_rules_and_a_reason(line: str, rules: set, reason: str) -> None:
    comment = ignore_on(line)
    assert comment is not None
    assert (set(comment.rules), comment.reason) == (rules, reason)


def test_other_comments_ignore_nothing() -> None:
    assert ignore_on("x.item()  # noqa") is None
    assert ignore_on("chipshift ignores this") is None


def test_a_comment_on_the_line_or_alone_above_it_silences_its_rule_only(tree, finding) -> None:
    lines = tree(
        train__py="a.item()  # chipshift: ignore[host-sync-in-step]\n"  # 1
        "# chipshift: ignore[host-sync-in-step] known\n"  # 2
        "b.item()\n"  # 3
        "c.item()  # chipshift: ignore[other-rule]\n"  # 4
        "d.item()  # chipshift: ignore\n"  # 5
        "e.item()\n"  # 6: the comment on line 5 stands behind code, so it is not about line 6
    )
    kept, ignored = without_ignored([finding(line=n) for n in (1, 3, 4, 5, 6)], lines)
    assert [f.line for f in kept] == [4, 6]
    assert [f.line for f in ignored] == [1, 3, 5]


def test_a_comment_inside_the_expression_counts(tree, finding) -> None:
    lines = tree(train__py="y = f(\n    a.item(),  # chipshift: ignore\n)\n")
    kept, ignored = without_ignored([finding(line=1, end_line=3)], lines)
    assert (len(kept), len(ignored)) == (0, 1)


def test_a_comment_at_a_further_place_takes_out_that_place(tree, finding) -> None:
    lines = tree(train__py="s = Scaler()\ns.step()  # chipshift: ignore\ns.update()\n")
    places = (Place("train.py", 2), Place("train.py", 3))
    (kept,), _ = without_ignored([finding(line=1, places=places)], lines)
    assert kept.places == (Place("train.py", 3),)


# --- baseline ----------------------------------------------------------------------------------


def test_a_baseline_outlives_moved_lines_and_counts_repeats(tree, finding, tmp_path: Path) -> None:
    lines = tree(train__py="a.item()\nb.item()\na.item()\n")
    path = tmp_path / "base.json"
    assert write_baseline(path, [finding(line=1), finding(line=2)], lines) == 2

    # Two lines in front, one more `a.item()`: the accepted ones are found again, indented or not.
    (tmp_path / "train.py").write_text("import x\n\n    a.item()\nb.item()\na.item()\n")
    moved = SourceLines(tmp_path)
    new, accepted = without_accepted([finding(line=n) for n in (3, 4, 5)], path, moved)
    assert [f.line for f in accepted] == [3, 4]
    assert [f.line for f in new] == [5]


def test_a_baseline_serves_whichever_folder_is_audited(tmp_path: Path, finding) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("a.item()\n")
    path = tmp_path / "base.json"
    write_baseline(path, [finding(file="src/train.py")], SourceLines(tmp_path))
    new, _ = without_accepted([finding(file="train.py")], path, SourceLines(tmp_path / "src"))
    assert new == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "expected"),
        ('{"schema": "other/1", "findings": []}', "found 'other/1'"),
        ('{"schema": "chipshift/audit-baseline/1", "findings": [{}]}', "expected"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_sentence(tmp_path, text: str, complaint: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_baseline(path)


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--write-baseline"):
        read_baseline(tmp_path / "none.json")


# --- changed lines -----------------------------------------------------------------------------


def test_only_findings_on_changed_lines_remain(tmp_path: Path, finding) -> None:
    (tmp_path / "train.py").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "same.py").write_text("same\n")
    committed(tmp_path)
    (tmp_path / "train.py").write_text("one\nTWO\nthree\nfour\nfive\n")
    (tmp_path / "new.py").write_text("new\n")
    changes = changes_since("main", tmp_path)
    assert changes.files["train.py"] == (range(2, 3), range(5, 6))
    assert changes.files["new.py"] is None
    assert "same.py" not in changes.files

    found = [finding(line=n) for n in range(1, 6)]
    found += [finding(file="new.py"), finding(file="same.py")]
    kept, others = only_changed(found, changes, SourceLines(tmp_path))
    assert [(f.file, f.line) for f in kept] == [("train.py", 2), ("train.py", 5), ("new.py", 1)]
    assert others == 4


def test_a_finding_with_a_changed_further_place_remains(tmp_path: Path, finding) -> None:
    (tmp_path / "train.py").write_text("one\ntwo\n")
    committed(tmp_path)
    (tmp_path / "train.py").write_text("one\nTWO\n")
    kept, _ = only_changed(
        [finding(line=1, places=(Place("train.py", 2),))],
        changes_since("main", tmp_path),
        SourceLines(tmp_path),
    )
    assert len(kept) == 1


def test_the_comparison_is_with_the_last_common_commit(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")
    committed(tmp_path)
    git(tmp_path, "checkout", "-qb", "feature")
    (tmp_path / "b.py").write_text("b\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "two")
    git(tmp_path, "checkout", "-q", "main")
    (tmp_path / "a.py").write_text("changed on main since\n")
    git(tmp_path, "commit", "-qam", "three")
    git(tmp_path, "checkout", "-q", "feature")
    assert changes_since("main", tmp_path).files == {"b.py": (range(1, 2),)}


def test_names_are_relative_to_the_audited_folder(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a b.py").write_text("a\n")
    (tmp_path / "top.py").write_text("a\n")
    committed(tmp_path)
    for name in ("src/a b.py", "top.py"):
        (tmp_path / name).write_text("changed\n")
    assert set(changes_since("main", tmp_path / "src").files) == {"a b.py"}


def test_a_notebooks_cell_is_changed_when_its_source_is(tmp_path: Path, finding) -> None:
    def notebook(*sources: str, output: str) -> str:
        cells = [{"cell_type": "code", "source": [s], "outputs": [output]} for s in sources]
        return json.dumps({"cells": cells}, indent=1)

    path = tmp_path / "nb.ipynb"
    path.write_text(notebook("a.item()", "b.item()", output="old"))
    committed(tmp_path)
    path.write_text(notebook("new cell", "a.item()", "B.item()", output="new"))
    found = [finding(file="nb.ipynb", cell=cell) for cell in (1, 2)]
    kept, others = only_changed(found, changes_since("main", tmp_path), SourceLines(tmp_path))
    assert ([f.cell for f in kept], others) == ([2], 1)


@pytest.mark.parametrize("base", ["no-such-branch", "--output=x"])
def test_an_unknown_base_is_one_sentence(tmp_path: Path, base: str) -> None:
    (tmp_path / "a.py").write_text("a\n")
    committed(tmp_path)
    with pytest.raises(InputError, match=f"found '{base}'"):
        changes_since(base, tmp_path)


def test_outside_a_checkout_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not in a git checkout"):
        changes_since("main", tmp_path)


# --- together ----------------------------------------------------------------------------------


def test_every_finding_is_counted_in_one_place(tree, finding, result, tmp_path: Path) -> None:
    lines = tree(train__py="a.item()  # chipshift: ignore\nb.item()\nc.item()\nd.item()\n")
    path = tmp_path / "base.json"
    write_baseline(path, [finding(line=2)], lines)
    low = finding(line=4, severity="low")
    found = result(finding(line=1), finding(line=2), finding(line=3, severity="high"), low)
    seen = review(found, lines, Settings(), min_severity="medium", baseline=path)
    assert [f.line for f in seen.result.findings] == [3]
    assert (seen.ignored, seen.baselined, seen.unchanged, seen.milder) == (1, 1, 0, 1)
    # What decides the exit code does not depend on what is shown.
    assert low in seen.counted
    assert seen.worst_at_least("high") and not seen.worst_at_least("blocker")


def test_the_worklist_puts_what_stops_the_run_first_then_the_step(finding) -> None:
    found = (
        finding(rule="b", severity="medium", loop="step"),
        finding(rule="b", severity="low", loop="eval", file="eval.py"),
        finding(rule="c", severity="medium", loop="startup"),
        finding(rule="a", severity="blocker", topic="kernels", loop="startup"),
    )
    assert [(t.rule, t.severity, t.findings, t.files) for t in worklist(found)] == [
        ("a", "blocker", 1, 1),
        ("b", "medium", 2, 2),
        ("c", "medium", 1, 1),
    ]
    assert blockers_by_topic(found) == {"kernels": 1, "shapes": 0, "topology": 0, "other": 0}
