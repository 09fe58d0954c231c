"""No file, however broken, gets more than one sentence: no traceback, no hang, no execution."""

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.jobs.read import read_job

from .cases import CASES
from .more_cases import MORE_CASES
from .test_foundry_mpt import HEAD as FOUNDRY_HEAD
from .test_foundry_mpt import MODEL as FOUNDRY_MODEL
from .test_openrlhf import SCRIPT as OPENRLHF
from .test_primus import MAXTEXT, MEGATRON, TITAN
from .test_shell_loops import BY_CASE, BY_GETOPTS
from .test_swift import FULL as SWIFT
from .test_swift import MEGATRON as SWIFT_MEGATRON

FORMATS = {
    "primus-megatron": MEGATRON,
    "primus-torchtitan": TITAN,
    "primus-maxtext": MAXTEXT,
    "swift": SWIFT,
    "swift-megatron": SWIFT_MEGATRON,
    "openrlhf": OPENRLHF.replace("{kind}", "dpo"),
    "foundry-mpt": FOUNDRY_HEAD + FOUNDRY_MODEL + "  ffn_config:\n    ffn_type: mb_dmoe\n",
    "arguments": "#!/bin/bash\n" + BY_CASE,
    "options": "#!/bin/bash\n" + BY_GETOPTS,
}
FILES = {
    **FORMATS,
    **{f"{case.name}/{name}": text for case in CASES + MORE_CASES
       for name, text in case.files.items()},
    **{path.name: path.read_text() for path in Path("examples").iterdir() if path.is_file()},
}  # fmt: skip

ODD = st.sampled_from(
    [
        *("nan", "NaN", ".nan", "inf", "-1", "0", "1e400", "1" * 400, "null", "~", "", "{}", "[]"),
        *("true", "'", '"', "${x}", "${a.b}", "$((1/0))", "é漢字", "\x00", "\t", "[1, 2", "{a: 1"),
        *("!!python/object:os.system ls", "*anchor", "&a [*a]", "0x10", "auto", "$(rm -rf /)"),
        *("999999999999999999999", "3.7", "-0", "[[[[]]]]", "None", "__import__('os')", "1_000"),
    ]
)


def is_one_sentence(paths: list[str]) -> None:
    start = time.process_time()
    try:
        read_job(paths)
    except InputError as error:
        assert str(error) and "\n" not in str(error)
        assert len(str(error)) < 2000
    assert time.process_time() - start < 10


def values(line: str) -> list[tuple[int, int]]:
    """Where a line's value stands: after ``=``, ``:`` or a flag's space."""
    found = []
    for mark in ("=", ":", " "):
        at = line.rfind(mark)
        if 0 < at < len(line) - 1:
            found.append((at + 1, len(line)))
    return found


@st.composite
def broken(draw: st.DrawFn) -> str:
    """A real-shaped file with a few lines dropped, doubled, cut, or given an odd value."""
    lines = FILES[draw(st.sampled_from(sorted(FILES)))].split("\n")
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        what = draw(
            st.sampled_from(["drop", "double", "cut", "odd", "odd", "odd", "indent", "join"])
        )
        if what == "drop":
            lines[at] = ""
        elif what == "double":
            lines.insert(at, lines[at])
        elif what == "cut":
            lines[at] = lines[at][: draw(st.integers(0, 40))]
        elif what == "indent":
            lines[at] = " " * draw(st.integers(0, 8)) + lines[at].strip()
        elif what == "join" and at + 1 < len(lines):
            lines[at] += lines.pop(at + 1)
        elif places := values(lines[at]):
            start, end = draw(st.sampled_from(places))
            lines[at] = lines[at][:start] + " " + draw(ODD) + lines[at][end:]
    return "\n".join(lines)


@settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=broken())
def test_a_broken_file_is_refused_or_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job"
    file.write_text(text)
    is_one_sentence([str(file)])


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.binary(max_size=400), start=st.sampled_from([b"", b"{", b"[job]\n", b"#!/bin/bash\n"])
)
def test_any_bytes_are_refused_or_read(tmp_path: Path, data: bytes, start: bytes) -> None:
    file = tmp_path / "job"
    file.write_bytes(start + data)
    is_one_sentence([str(file)])


@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(names=st.lists(st.sampled_from(sorted(FILES)), min_size=2, max_size=4, unique=True))
def test_any_files_together_are_refused_or_read(tmp_path: Path, names: list[str]) -> None:
    paths = []
    for name in names:
        file = tmp_path / name.replace("/", "_")
        file.write_text(FILES[name])
        paths.append(str(file))
    is_one_sentence(paths)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
DEEP = 200_000


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "per_device_train_batch_size: *j\n",
        "per_device_train_batch_size: " + "[" * DEEP,
        "per_device_train_batch_size:\n" + "- " * DEEP,
        "per_device_train_batch_size: " + "{a: " * DEEP,
        '{"zero_optimization": ' + '{"a": ' * DEEP,
        '{"zero_optimization": ' + "[" * DEEP,
        "[training]\nlocal_batch_size = " + "[" * DEEP,
        "[training]\n" + "a." * DEEP + "b = 1\n",
        "[job]\nseq_len = " + "9" * DEEP,
        "chipshift = 1\n" + "[[flag]]\n" * DEEP,
        "import lightning\nTrainer(" + "(" * DEEP,
        "import lightning\nTrainer(devices=" + "-" * DEEP + "1)",
        "import lightning\nTrainer(devices=" + "+".join(["1"] * 20_000) + ")",
        "import lightning\nTrainer(devices=9**9**9**9)",
        "block_size = 'a' * 10**12\nbatch_size = 4\n",
        "torchrun x.py --num-layers " + "9" * DEEP,
        "torchrun x.py --num-layers $((" + "9**" * 1000 + "9))",
        "torchrun x.py --num-layers 2 --hidden-size 8 --moe-layer-freq " + "[0]*99999+" * 999,
        "global_train_batch_size: ${a}\na: ${b}\nb: ${a}${a}${a}\n",
        "x: &x\n  <<: *x\nper_device_train_batch_size: 1\n",
    ],
    ids=lambda text: text[:40],
)
def test_bombs_are_defused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job"
    file.write_text(text)
    tracemalloc.start()
    is_one_sentence([str(file)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6


def test_files_just_below_the_limit_do_not_hang(tmp_path: Path) -> None:
    file = tmp_path / "job"
    for line in ("# comment comment comment comment\n", "key = 1\n", "- item\n", '{"a": 1},\n'):
        file.write_text((line * (15_900_000 // len(line)))[:15_900_000])
        start = time.process_time()
        with pytest.raises(InputError):
            read_job([str(file)])
        assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "text",
    [
        "[model]\nname = 'llama3'\nflavor = '8B'\n"
        "[training]\nlocal_batch_size = 1\nseq_len = 8\n[z]\n",
        "block_size = 64\nbatch_size = 2\n",
        "import lightning as L\nmodel = 'gpt2'\nblock_size = 8\n"
        "batch_size = 1\nL.Trainer(devices=1)\n",
    ],
    ids=("torchtitan", "nanogpt", "lightning"),
)
def test_very_many_keys_are_not_compared_with_each_other(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job"
    file.write_text(text + "".join(f"aux_{n} = {n}\n" for n in range(30_000)))
    start = time.process_time()
    read_job([str(file)])
    assert time.process_time() - start < 10


def test_a_file_of_200_megabytes_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    with file.open("wb") as made:
        made.truncate(200_000_000)  # sparse: it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(InputError, match=r"200\.0 MB; expected a job file of at most 16 MB"):
        read_job([str(file)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e6
