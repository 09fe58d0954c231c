"""What a script's commands print and read, where its names hold and where it ends, as bash has it.

Every expected value is what bash 5.2 gives its last command (a stub that prints its arguments).
"""

import pytest

from chipshift.jobs.shell.resolve import DOUBTFUL, resolve


def last(script: str) -> list[str]:
    return [word.shown for word in resolve(script, "job.sh").commands[-1].words]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("gpus() { if [ $1 = 70b ]; then echo 64; else echo 8; fi; }\nrun $(gpus 70b)", "64"),
        ("half() { printf '%d' $(($1 / 2)); }\nrun $(half 64) \"$(half 32)\"", "32 16"),
        ("a() { echo \"x $1\"; }\nb() { local r; r=$(a $1); echo $r y; }\nrun $(b 3)", "x 3 y"),
        ("S=13b\nrun $(case $S in 7b) echo 4;; 13b) echo 2;; esac)", "2"),
        ("N=2\nrun $(if [ $N -gt 1 ]; then echo many; else echo one; fi)", "many"),
        ("F=true\nrun $([ $F = true ] && echo fp8 || echo bf16)", "fp8"),
        ("A=(1 2 3)\nrun $(IFS=,; echo \"${A[*]}\")", "1,2,3"),
        ("run $(false || echo 5)", "5"),
        ("G=0,1,2,3\nrun $(echo $G | tr ',' '\\n' | wc -l)", "4"),
        ("G=0,1,2,3\nrun $(awk -F, '{print NF}' <<< \"$G\")", "4"),
        ("G=0,1,2,3\nC=${G//[^,]/}\nrun $((${#C} + 1))", "4"),
        ("S=70b-8k-fp8\nrun $(echo $S | cut -d- -f2) $(echo $S | awk -F- '{print $3}')", "8k fp8"),
        ("S=llama-7b\nrun $(echo $S | sed 's/-7b//') $(echo $S | tr -d b)", "llama llama-7"),
        ("S=tp8pp4\nrun $(echo $S | grep -oP 'tp\\K[0-9]+')", "8"),
        ("L=$(echo a; echo b)\nrun $(echo \"$L\" | head -n1) $(echo \"$L\" | sed -n 2p)", "a b"),
        ("run $(echo '4*8' | bc) $(bc <<< '3+4')", "32 7"),
        ("run $(awk 'BEGIN{print 2*3}')", "6"),
        ("run a `# a comment` b", "a b"),
    ],
)  # fmt: skip
def test_what_a_substitution_prints(script: str, expected: str) -> None:
    assert last(script) == ["run", *expected.split()]


def test_what_only_a_run_could_print_stays_a_mark() -> None:
    assert last("run $(nvidia-smi -L | wc -l)") == ["run", "$(nvidia-smi·-L·wc·-l)"]
    assert last("f() { pip show x; }\nrun $(f)") == ["run", "$(f)"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("while IFS=: read -r k v; do run --$k $v; done <<< 'tp:8\npp:4'", "--pp 4"),
        ("echo '7b 32' | while read n l; do run $n $l; done", "7b 32"),
        ("while read -r a b; do run $a $b; done < <(printf '%s\\n' 'x 1' 'y 2')", "y 2"),
        ("n=0\nwhile read -r l; do n=$((n+1)); done <<E\na\nb\nE\nrun $n", "2"),
        ("n=0\necho a | while read -r l; do n=1; done\nrun $n", "0"),
        ("mapfile -t A < <(printf '%s\\n' a b c)\nrun \"${A[@]}\" ${#A[@]}", "a b c 3"),
        ("readarray -t A <<E\n--a 1\nE\nrun ${A[@]}", "--a 1"),
        ("if echo h100 | grep -q h100; then run yes; else run no; fi", "yes"),
        ("IFS=,\nL=1,2,3\nfor x in $L; do run $x; done", "3"),
        ("X=8,4\nOLD=$IFS; IFS=,; set -- $X; IFS=$OLD\nrun $1 $2", "8 4"),
    ],
)
def test_what_is_read(script: str, expected: str) -> None:
    assert last(script) == ["run", *expected.split()]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("N=8\nf() { local N=1; }\nf\nrun $N", "8"),
        ("N=8\nf() { declare N=1; declare -g M=2; }\nf\nrun $N $M", "8 2"),
        ("f() { local -n ref=$1; ref=7; }\nf Q\nrun $Q", "7"),
        ("f() ( N=5 )\nN=1; f; run $N", "1"),
        ('for kv in TP=2 PP=4; do export "$kv"; done\nrun $TP $PP', "2 4"),
        ('K=TP\ndeclare "$K=4"\nrun $TP', "4"),
        ("declare -i N\nN=2+3\nrun $N", "5"),
    ],
)
def test_where_a_name_holds(script: str, expected: str) -> None:
    assert last(script) == ["run", *expected.split()]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run a\nexit 0\nrun b", "a"),
        ("M=a\nif [ $M = a ]; then run a; exit; fi\nrun b", "a"),
        ("f() { run a; exit 3; }\nf\nrun b", "a"),
        ("exec run a\nrun b", "exec run a"),
        ("( run a; exit )\nrun b", "run b"),
        ("run a\nif [ $# -lt 1 ]; then exit 1; fi\nrun b", "b"),
        ("run a\nif [ -f done ]; then exit; fi\nrun b", "b"),
        ('run a\n[ "${M:-eval}" = eval ] && exit\nrun b', "b"),
        ("echo usage\nexit 1\nrun b", "b"),
    ],
)
def test_where_a_script_ends(script: str, expected: str) -> None:
    """An exit that rests on what only the launch or a run could tell is not followed."""
    assert last(script) == [*([] if " " in expected else ["run"]), *expected.split()]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("X=a\ncase $X in a) A=1 ;& b) B=2 ;; esac\nrun $A $B", "1 2"),
        ("X=ab\ncase $X in a*) A=1 ;;& *b) B=2 ;; esac\nrun $A $B", "1 2"),
        ("X=l3-70b\n[[ $X =~ ^l([0-9])-([0-9]+)b$ ]] && run ${BASH_REMATCH[@]:1}", "3 70"),
        ("S=8x7B\nif [[ $S =~ [0-9]+x[0-9]+[bB] ]]; then run moe; else run dense; fi", "moe"),
        ('X=l3-70b\nif [[ $X == "*70b*" ]]; then run quoted; else run plain; fi', "plain"),
        ("X=a/b/c\nrun ${X//\\//_} ${X//[ab]/-}", "a_b_c -/-/c"),
        ("X=08\nA=(2 4)\nrun $((10#$X + 1)) $((A[1] * 2)) $[X2 = 3]", "9 8 3"),
        ("A=(a b c)\nunset 'A[1]'\nrun ${A[@]} ${#A[@]}", "a c 2"),
        ("declare -A L=([a]=1)\nif [[ -v L[a] ]]; then run ${L[b]:-none}; fi", "none"),
        ("false\nif [ $? -ne 0 ]; then run failed; fi", "failed"),
        ("bash -s -- 4 5 <<'E'\nrun $1 $2\nE\n", "4 5"),
        ("cat > x.sh <<'E'\nrun --n $1\nE\nbash x.sh 6", "--n 6"),
        ("cat > e.sh <<'E'\nTP=3\nE\nsource e.sh\nrun $TP", "3"),
        ('sbatch --wrap="run a"', "a"),
        ('for h in a b; do ssh $h "cd x; run --rank 1"; done', "--rank 1"),
    ],
)
def test_patterns_and_scripts_inside_scripts(script: str, expected: str) -> None:
    commands = resolve(script, "job.sh").commands
    found = [one for one in commands if one.words[0].plain == "run"][-1]
    assert [word.shown for word in found.words] == ["run", *expected.split()]


def test_a_condition_that_only_a_run_could_tell_is_listed() -> None:
    script = "B=8\nif nvidia-smi | grep -q A100; then B=4; fi\nrun $B"
    assert resolve(script, "job.sh").skipped == [(2, DOUBTFUL)]


def test_a_pattern_that_might_run_away_does_not_fit() -> None:
    script = "X=" + "a" * 40 + "\nif [[ $X =~ ^(a+)+$ ]]; then run yes; else run no; fi"
    assert last(script) == ["run", "no"]


def test_a_broken_pattern_warns_of_nothing() -> None:
    """Every warning is an error here: a set inside a set would be one of a later Python's."""
    assert last("X=a\nif [[ $X =~ [[a] ]]; then run yes; else run no; fi") == ["run", "yes"]
    assert last("X=a\nrun $(echo $X | sed 's/[a||b]/c/')") == ["run", "c"]
