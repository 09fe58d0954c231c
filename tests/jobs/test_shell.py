"""A launch script is resolved as bash would resolve it, without running anything."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.jobs.shell.arith import Unsure, evaluate
from chipshift.jobs.shell.resolve import resolve
from chipshift.jobs.shell.values import Field


def words(script: str, **fixed: str) -> list[str]:
    """Words of the last command."""
    return [word.shown for word in resolve(script, "job.sh", fixed).commands[-1].words]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("X=8\nrun $X ${X} '$X' \"$X\"", ["run", "8", "8", "$X", "8"]),
        ("run ${X:-1} ${X-2} ${X:+3}", ["run", "1", "2"]),
        ("X=\nrun ${X:-1} \"${X-2}\"", ["run", "1", ""]),
        (': ${X:=2}\n: "${Y:=3}" ${X:=9}\nrun $X $Y', ["run", "2", "3"]),
        ("Z=5\n: ${Z:=2} ${V=4}\nrun $Z $V", ["run", "5", "4"]),
        ("N=010\nrun $((010)) $((N + 1)) $((0x1f))", ["run", "8", "9", "31"]),
        ("T=true\nif $T; then run yes; else run no; fi", ["run", "yes"]),
        ("T=false\n$T && run yes || run no", ["run", "no"]),
        ("Z=1\n( Z=2 )\nrun $Z", ["run", "1"]),
        ("( Z=2; run $Z )", ["run", "2"]),
        ("IFS=, read -r A B <<< 1,2,3\nrun $A $B", ["run", "1", "2,3"]),
        ("IFS=, read -ra A <<< '1,2'\nrun ${A[1]} ${#A[@]}", ["run", "2", "2"]),
        ("run {01..03} {a..c}", ["run", "01", "02", "03", "a", "b", "c"]),
        ("run {0..10..5} {3..1}", ["run", "0", "5", "10", "3", "2", "1"]),
        ("run $(seq -s, 0 3) $(seq -s : 2)", ["run", "0,1,2,3", "1:2"]),
        ("N=4\nX=$(cat <<EOF\n--a $N\nEOF\n)\nrun $X", ["run", "--a", "4"]),
        ("X=$(cat <<'EOF'\n{\"a\": $N}\nEOF\n)\nrun \"$X\"", ["run", '{"a": $N}']),
        ("A=8; B=4\nrun $((A * B / 2 + 1)) $(($A*$B))", ["run", "17", "32"]),
        ("A=(--a 1 --b '2 3')\nrun ${A[@]}", ["run", "--a", "1", "--b", "2", "3"]),
        ("A=(--a 1 --b '2 3')\nrun \"${A[@]}\"", ["run", "--a", "1", "--b", "2 3"]),
        ("A=(x)\nA+=(y z)\nrun ${#A[@]} ${A[1]} ${A[@]}", ["run", "3", "y", "x", "y", "z"]),
        ("A=\"--a 1 \\\n  --b 2\"\nrun $A", ["run", "--a", "1", "--b", "2"]),
        ("run a \\\n  b \\\n  c", ["run", "a", "b", "c"]),
        ("run a # not this\n# nor --this", ["run", "a"]),
        ("X=a.b.c\nrun ${X%.*} ${X%%.*} ${X#*.}", ["run", "a.b", "a", "b.c"]),
        ("X=a.b.c\nrun ${X/./-} ${X^^} ${#X}", ["run", "a-b.c", "A.B.C", "5"]),
        ("f() { run $1 $2; }\nf x y", ["run", "x", "y"]),
        ("f() { run ${00:-none} ${01}; }\nf x", ["run", "none", "x"]),
        ("export N=4\nM=$N\nrun $M", ["run", "4"]),
        ("if [ $X -gt 3 ]; then run big; else run small; fi", ["run", "small"]),
        ("X=5\nif [[ $X -gt 3 && $X != 9 ]]; then run big; else run small; fi", ["run", "big"]),
        ("X=7B\ncase $X in 7B|8B) run 32 ;; 70B) run 80 ;; esac", ["run", "32"]),
        ("for i in 1 2 3; do run $i; done", ["run", "3"]),
        ("[ -z \"$X\" ] && Y=unset\nrun $Y", ["run", "unset"]),
        ("X=2\n[ -z \"$X\" ] || Y=set\nrun $Y", ["run", "set"]),
        ("X=$(echo 8)\nrun $X `echo 9`", ["run", "8", "9"]),
        ("bash -c \"run --n $((2*4))\"", ["bash", "-c", "run --n 8"]),
        ("CMD=\"run a\"\neval $CMD b", ["run", "a", "b"]),
        ("run a 2>&1 | tee log", ["tee", "log"]),
        ("X=1\tY=2\nrun $X $Y", ["run", "1", "2"]),
    ],
)  # fmt: skip
def test_as_bash_has_it(script: str, expected: list[str]) -> None:
    found = resolve(script, "job.sh").commands
    assert [word.shown for word in found[-1].words] == expected


def test_what_nothing_sets_stays_named() -> None:
    assert words("run --n $N --w $((N*8)) --h $(hostname)") == [
        *("run", "--n", "$N", "--w", "$N", "--h", "$(hostname)"),
    ]


def test_set_wins_over_the_scripts_own_assignment() -> None:
    assert words("N=1\nrun $N", N="64") == ["run", "64"]


def test_a_default_of_the_environment_is_soft_and_what_is_made_of_it_too() -> None:
    found = resolve("N=${NNODES:-2}\nW=$((N * 8))\nrun $W 8", "job.sh").commands[-1]
    assert [(word.plain, word.soft) for word in found.words] == [
        *(("run", False), ("16", True), ("8", False)),
    ]


def test_every_word_keeps_its_own_line() -> None:
    script = 'A=(\n  --a 1\n  --b 2\n)\nB="--c 3 \\\n   --d 4"\nrun ${A[@]} $B \\\n  --e 5\n'
    found = resolve(script, "job.sh").commands[-1]
    lines = {word.plain: word.line for word in found.words}
    first = {"run": 7, "--a": 2, "1": 2, "--b": 3, "2": 3}
    assert lines == first | {"--c": 5, "3": 5, "--d": 6, "4": 6, "--e": 8, "5": 8}


def test_here_documents_of_the_scheduler_are_scripts_and_of_cat_are_files() -> None:
    found = resolve(
        "N=4\nsbatch <<EOF\nrun --nodes $N --id \\$ID\nEOF\n"
        "cat <<'EOF' > /tmp/ds_config.json\n{\"stage\": $N}\nEOF\n",
        "job.sh",
    )
    assert ["run", "--nodes", "4", "--id", "$ID"] in [
        [word.shown for word in command.words] for command in found.commands
    ]
    assert found.environment.files == {"ds_config.json": '{"stage": $N}'}


def test_what_a_command_prints_is_one_word_when_the_line_is_read_again() -> None:
    script = 'D=out_$(date "+%Y (%d)")\nO="--dir $D --tp 2"\nCMD="run $O"\neval $CMD\n'
    words = resolve(script, "job.sh").commands[-1].words
    assert [word.plain for word in words][-2:] == ["--tp", "2"] and len(words) == 5


def test_the_scripts_own_arguments() -> None:
    script = 'N=$1\nshift\nif [ $1 = big ]; then L=80; else L=8; fi\nrun $N $L "${@}"\n'
    found = resolve(script, "job.sh", fixed={"args": "4 big 'a b'"})
    assert [word.plain for word in found.commands[-1].words] == ["run", "4", "80", "big", "a b"]
    own = resolve("args='-x'\nrun $args $1\n", "job.sh", fixed={"args": "-y"})
    assert [word.shown for word in own.commands[-1].words] == ["run", "-y", "$1"]
    with pytest.raises(InputError, match=r"--set args is 'a; expected words"):
        resolve(script, "job.sh", fixed={"args": "'a"})


def test_quotes_in_a_here_document_stand_as_written() -> None:
    script = 'S=3\ncat <<EOT > ds.json\n{"stage": $S, "a": \'b\', "c": "\\$S \\n"}\nEOT\n'
    found = resolve(script, "job.sh")
    assert found.environment.files == {"ds.json": '{"stage": 3, "a": \'b\', "c": "$S \\n"}'}


def test_sourced_files_are_read_only_when_given_beside() -> None:
    script = "source conf/model.sh\nrun $LAYERS"
    given = resolve(script, "job.sh", beside={"model.sh": "LAYERS=32"})
    assert given.commands[-1].words[1].plain == "32"
    missing = resolve(script, "job.sh")
    assert missing.environment.unsourced == {"model.sh": 1} and not missing.skipped


def test_scheduler_variables_are_preset() -> None:
    found = resolve("run $SLURM_NNODES", "job.sh", preset={"SLURM_NNODES": Field("16", 2)})
    assert found.commands[-1].words[1] == Field("16", 2)


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    resolve(f"touch {target}\nX=$(touch {target})\n`touch {target}`\ntouch {target} &\n", "job.sh")
    assert not target.exists()


@pytest.mark.parametrize(
    "script",
    [
        "f() { f; }\nf",
        "while true; do run; done",
        "for i in " + "x " * 5000 + "; do for j in " + "y " * 5000 + "; do run; done; done",
        "X=aaaaaaaaaaaaaaaa\n" + "X=$X$X\n" * 60,
        "(" * 5000,
        "$(" * 5000,
        "${X:-" * 5000,
        "if " * 5000,
        "eval eval eval eval eval eval eval eval eval eval eval eval run",
        "run $((" + "(" * 5000 + "))",
        "run $((9**9**9**9**9))",
        "cat <<EOF\n" * 1000,
    ],
)
def test_a_script_that_would_not_end_ends_in_time(script: str) -> None:
    try:
        resolve(script, "job.sh")
    except InputError as error:
        assert "job.sh" in str(error) and "\n" not in str(error)


PIECES = st.sampled_from(
    [
        *("X=1", "$X", "${X", "${X:-", "}", "$((", "))", "$(", ")", "(", "'", '"', "`", "\\", "\n"),
        *(
            "if",
            "then",
            "fi",
            "case",
            "esac",
            "in",
            ";;",
            ";",
            "&&",
            "||",
            "|",
            "&",
            "<<EOF",
            "EOF",
        ),
        *(
            "for",
            "do",
            "done",
            "while",
            "[",
            "]",
            "[[",
            "]]",
            "A=(",
            "+=",
            "{",
            " ",
            "\t",
            "#",
            "a",
        ),
        *("function f", "f()", "--tp", "8", "*", "export", "eval", "source x", "<(", ">", "2>&1"),
    ]
)


@settings(max_examples=300, deadline=2000)
@given(st.lists(PIECES, max_size=60).map(" ".join) | st.lists(PIECES, max_size=60).map("".join))
def test_any_text_resolves_or_is_refused_in_one_sentence(script: str) -> None:
    try:
        resolve(script, "job.sh")
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789+-*/%()<>=!&|^~?: xX", max_size=40))
def test_arithmetic_is_a_64_bit_number_or_unsure(text: str) -> None:
    def unknown(name: str) -> int:
        raise Unsure(name)

    with contextlib.suppress(Unsure):
        assert abs(evaluate(text, unknown)) < 2**63


@pytest.mark.parametrize(
    ("text", "value"),
    # C's rules: division toward zero, the remainder takes the dividend's sign
    [
        *(("-7 / 2", -3), ("-7 % 2", -1), ("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("1 << 4", 16)),
        *(("2 ** 10", 1024), ("5 > 3 ? 8 : 4", 8), ("0x10", 16), ("!0", 1), ("3 == 3 && 0", 0)),
    ],
)
def test_arithmetic(text: str, value: int) -> None:
    assert evaluate(text, lambda name: 0) == value
