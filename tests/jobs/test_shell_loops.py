"""Loops, a script's own arguments and bash's own commands, as bash would have them."""

import contextlib
import time
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from chipshift.jobs.shell.resolve import resolve
from chipshift.jobs.shell.values import Field

from .test_formats import value_of
from .test_megatron import SCRIPT as MEGATRON


def last(script: str, arguments: str = "", **preset: str) -> list[str]:
    fixed = {"args": arguments} if arguments else {}
    given = {name: Field(text, 1) for name, text in preset.items()}
    return [word.shown for word in resolve(script, "job.sh", fixed, given).commands[-1].words]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("for ((i=0;i<3;i++)); do A+=(--x $i); done; run ${A[@]}", "--x 0 --x 1 --x 2"),
        ("for ((i=0,j=5;i<j;i++,j--)); do :; done; run $i $j", "3 2"),
        ("for x in 1 2 3; do [ $x = 2 ] && continue; [ $x = 3 ] && break; Z+=$x; done; run $Z",
         "1"),
        ("for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; S+=$i$j; done; done; run $S",
         "1a2a"),
        ("for i in 1 2; do for j in a b; do S+=$j; break 2; done; done; run $S", "a"),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && continue; S+=$i; done; run $S",
         "13"),
        ("i=0; while (( i < 5 )); do ((i+=2)); done; run $i", "6"),
        ("until false; do X=1; break; done; run $X", "1"),
        ("for i in {0..2}; do X+=,$i; done; run $X x{a,b} '{1..2}'", ",0,1,2 xa xb {1..2}"),
        ("for i in $(seq 2 2 6); do X+=,$i; done; run $X $(seq 2)", ",2,4,6 1 2"),
        ("printf -v X '%s-%d' a 3; run $X", "a-3"),
        ("printf -v X '%03d|%5s|%-4s|' 7 ab cd; run \"$X\"", "007|   ab|cd  |"),
        ("printf -v L '%s,' a b c; run ${L%,}", "a,b,c"),
        ("run $(printf '%02d' 3)", "03"),
        ("arr=(a b); run \"${arr[@]/#/--}\" \"${arr[@]/%/=1}\"", "--a --b a=1 b=1"),
        ("arr=(aXb cXd); run ${arr[@]//X/-} ${arr[@]%d} ${arr[1]#c}", "a-b c-d aXb cX Xd"),
        ("arr=(a b c d); run ${arr[@]:1:2} ${arr[@]: -1} ${#arr[@]}", "b c d 4"),
        ("A=(1 2); A[1]=9; A[5]=7; run ${A[@]} ${!A[@]}", "1 9 7 0 1 2"),
        ("A=(); B=(q); run ${A[@]:-none} ${B[@]:-none} ${B[@]+set}", "none q set"),
        ("declare -A M=([a]=1 [b]=2); M[c]=3; k=b; run ${M[a]} ${M[c]} ${M[$k]} ${#M[@]}",
         "1 3 2 3"),
        ("X=$((1+2)); let Y=X*2; ((Z=Y+1)); ((Z++)); ((--Y)); run $X $Y $Z $((Z*=2)) $Z",
         "3 5 8 16 16"),
        ("for i in 1 2; do X=$i; break 9; done; run $X", "1"),
        ("for i in 1 2; do for j in a b; do S+=$j; exit 1; done; done; run $S", "a"),
        ("f(){ break; }; for i in 1 2; do X=$i; f; done; run $X", "1"),
        ("f(){ for i in 1 2; do X=$i; return; done; X=9; }; f; run $X", "1"),
        ("f(){ X=$1; shift; Y=$2; return 0; X=9; }; f 5 6 7; run $X $Y", "5 7"),
        ("f(){ local n=$1; for ((k=0;k<n;k++)); do O+=$k; done; }; f 3; run $O", "012"),
        ("set -- a b c; shift; run $2 $#", "c 2"),
        ("X=abc; run ${X^} ${X/#a/Z} ${X/%c/Y}", "Abc Zbc abY"),
        ("P=/a/b/c.yaml; run $(basename $P .yaml) $(dirname $P)", "c /a/b"),
        ("D=0,1,2; run $(echo $D | tr ',' '\\n' | wc -l) $(echo $D | awk -F, '{print NF}')", "3 3"),
        ("args=(--a 1); [[ -n \"${B:-}\" ]] && args+=(--b); args+=(--c); run \"${args[@]}\"",
         "--a 1 --c"),
        ("x=5; if (( x > 3 )) && [[ $x != 9 ]]; then Y=big; elif [ $x = 9 ]; then Y=9; fi; run $Y",
         "big"),
    ],
)  # fmt: skip
def test_as_bash_has_it(script: str, expected: str) -> None:
    assert " ".join(last(script)[1:]) == expected


BY_CASE = (
    "N=1\nwhile [[ $# -gt 0 ]]; do\n  case $1 in\n    --nodes) N=$2; shift 2;;\n"
    "    --fast) F=1; shift;;\n    --x=*) X=\"${1#*=}\"; shift;;\n    *) R+=($1); shift;;\n"
    "  esac\ndone\nrun --nodes $N ${F:+--fast} ${X:-none} ${R[@]}"
)  # fmt: skip
BY_GETOPTS = (
    "N=1\nwhile getopts 'n:fg:' o; do\n"
    "case $o in n) N=$OPTARG;; f) F=1;; g) G=$OPTARG;; esac\ndone\n"
    "shift $((OPTIND-1))\nrun $N ${F:-0} ${G:-0} $1"
)


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        (BY_CASE, "--nodes 4 --fast --x=9 z", "--nodes 4 --fast 9 z"),
        (BY_CASE, "", "--nodes 1 none"),
        (BY_GETOPTS, "-n 4 -fg5 rest", "4 1 5 rest"),
        ("parse(){ " + BY_CASE.rpartition("\n")[0] + "\n}\nparse \"$@\"\nrun $N ${R[@]}",
         "--nodes 8 a b", "8 a b"),
        ("for arg in \"$@\"; do case $arg in --n=*) N=${arg#*=};; esac; done; run $N",
         "--n=3", "3"),
        ("for a; do X+=\"<$a>\"; done; run $X", "p q", "<p><q>"),
        ("while [ -n \"$1\" ]; do case $1 in -n) shift; N=$1;; esac; shift; done; run $N",
         "-n 7", "7"),
    ],
)  # fmt: skip
def test_arguments_are_parsed_as_the_script_does(
    script: str, arguments: str, expected: str
) -> None:
    assert " ".join(last(script, arguments)[1:]) == expected


def test_without_arguments_the_defaults_stand_and_that_is_said(tmp_path: Path) -> None:
    loop = "TP=2\nwhile [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done\n"
    text = MEGATRON.replace("#!/bin/bash\n", "#!/bin/bash\n" + loop)
    text = text.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP")
    path = tmp_path / "run.sh"
    path.write_text(text)
    job = read_job([str(path)])
    said = [why for what, _, why in job.assumed if what.startswith("arguments")]
    assert value_of(job, "plan.tp") == 2 and "--set args='...'" in said[0]
    told = read_job([str(path)], overrides={"args": "--tp 4"})
    assert value_of(told, "plan.tp") == 4
    assert not [what for what, _, _ in told.assumed if what.startswith("arguments")]


def test_a_loop_of_unknown_turns_is_left_out_and_one_without_end_followed_once() -> None:
    found = resolve("N=0; while read -r l; do N=$((N+1)); done < hosts; run $N", "job.sh")
    assert found.skipped == [(1, "a loop whose turns only a run could tell")]
    found = resolve("while true; do run a; sleep 5; done; run b", "job.sh")
    assert [c.words[0].plain for c in found.commands].count("run") == 2
    waiting = resolve("while ! nc -z host 22; do sleep 1; done; run a", "job.sh")
    assert waiting.skipped == []


def test_the_schedulers_hosts_are_as_many_as_its_nodes() -> None:
    script = "H=($(scontrol show hostnames $SLURM_JOB_NODELIST)); run ${#H[@]} ${H[0]}"
    assert last(script, SLURM_NNODES="4")[1] == "4"
    assert last(script)[1].startswith("$#H:") or "scontrol" in last(script)[2]
    counted = "N=$(scontrol show hostnames $L | wc -l); run $N"
    assert last(counted, SLURM_NNODES="4")[1] == "4"


def test_devices_that_only_a_run_could_count_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    counting = "N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node $N"
    path.write_text(MEGATRON.replace("torchrun --nproc_per_node 8", counting))
    job = read_job([str(path)])
    said = [(value, why) for what, value, why in job.assumed if what == "devices per node"]
    assert said and "nvidia-smi" in said[0][0] and "--set devices_per_node=N" in said[0][1]


@pytest.mark.parametrize(
    "script",
    [
        "for ((;;)); do run; done",
        "for ((i=0;i<1000000000;i++)); do :; done; run",
        "while [ 1 = 1 ]; do X+=a; done; run",
        "while :; do while :; do while :; do run; done; done; done",
        "".join(f"for ((a{i}=0;a{i}<900;a{i}++)); do " for i in range(6)) + "done; " * 6 + "run",
        "until false; do until false; do run; done; done",
        "while [[ $# -gt 0 ]]; do :; done; run",
        "f() { while [ 1 = 1 ]; do f; done; }; f; run",
        "while getopts 'a:' o; do OPTIND=1; done; run",
        "run {1..999999}{1..999999}",
    ],
)
def test_no_loop_hangs(script: str) -> None:
    began = time.process_time()
    with contextlib.suppress(InputError):
        assert len(resolve(script, "job.sh", {"args": "-a 1 -a 2"}).commands) < 60_000
    assert time.process_time() - began < 10  # each takes well below a second


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("read -r -d '' CMD <<EOF\ntrain --n 3\nEOF\nrun $CMD", "train --n 3"),
        ("N=4\nread -r -d '' CMD <<EOF\ntrain --n $N\nEOF\nrun $CMD", "train --n 4"),
        ('read -r A B <<< "1 2 3"; run $B $A', "2 3 1"),
        ("X='a b'; read -ra P <<< \"$X\"; run ${P[1]} ${#P[@]}", "b 2"),
    ],
)
def test_what_a_script_reads_of_its_own_text(script: str, expected: str) -> None:
    assert " ".join(last(script)[1:]) == expected
