"""Input that cannot be used: exit code 2, one sentence on standard error, nothing else."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.call import NATIVE, ROOT, TORCHTITAN, call

ASSESS = ("assess", TORCHTITAN, "--on", "h100*128")
TO_V6E = (*ASSESS, "--to", "v6e")
ESTIMATE = ("estimate", TORCHTITAN, "--on", "h100*128")
PLAN = ("plan", TORCHTITAN, "--on", "h100*128", "--to", "v6e:8x16")
FABRIC = ("fabric", "v6e:16x16", "--mesh")
JOB = Path(NATIVE).read_text("utf8")


def refused(*args: str) -> str:
    """The sentence with which a call is refused."""
    found = call(*args)
    assert found.code == 2, (args, found)
    assert found.out == "", args
    assert found.err.startswith("chipshift: ") and found.err.endswith("\n"), args
    assert found.err.count("\n") == 1, args
    assert found.err[:-1].isprintable(), args
    assert len(found.err) < 1500, args
    return found.err


# Each case: the command line, and words that its sentence must hold.
MACHINES = [
    ("v9z", ["v9z", "v6e"]),
    ("", ["no chip"]),
    ("::::", ["v6e:16x16"]),
    ("v6e*", ["CHIP*COUNT"]),
    ("v6e*²", ["CHIP*COUNT"]),
    ("v6e*0", ["at least 1"]),
    ("v6e:-4x4", ["v6e:16x16"]),
    ("v6e:3x5", ["3x5", "4x4"]),
    ("v6e:999999x999999", ["16x16"]),
    ("v6e:16x16*0", ["at least 1"]),
    ("v6e:16x16*999999", ["1,000,000"]),
    ("v6e-257", ["v6e-256"]),
    ("v7x:4x4x4x4", ["4x4x4"]),
    ("h1000", ["did you mean 'h100'"]),
    ("h100*100000000000000", ["h100*512"]),
    ("\x00", ["no chip"]),
]


@pytest.mark.parametrize(("machine", "words"), MACHINES)
def test_a_machine_that_does_not_exist(machine: str, words: list[str]) -> None:
    said = refused(*ASSESS, "--to", machine)
    assert all(word in said for word in words), said


OPTIONS = [
    ((*ASSESS,), ["--to"]),
    (("assess", TORCHTITAN, "--on", "h1000*8", "--to", "v6e"), ["h1000", "h100"]),
    (("assess", TORCHTITAN, "--to", "v6e"), ["--on"]),
    ((*TO_V6E, "--price", "nonsense"), ["--price", "h100=2.20"]),
    ((*TO_V6E, "--price", "h100=-2"), ["--price", "-2"]),
    ((*TO_V6E, "--price", "h100=nan"), ["nan"]),
    ((*TO_V6E, "--price", "h100="), ["--price"]),
    ((*TO_V6E, "--price", "=2"), ["--price"]),
    ((*TO_V6E, "--price", "hal9000=2"), ["hal9000"]),
    # of a chip that is in none of the machines asked about: it would change nothing
    ((*TO_V6E, "--price", "v7x=1"), ["--price v7x=1", "h100 or v6e"]),
    ((*TO_V6E, "--price", "h200=1"), ["--price h200=1", "did you mean 'h100'"]),
    ((*TO_V6E, "--stack", "v7x=maxtext"), ["--stack v7x=maxtext", "h100 or v6e"]),
    ((*TO_V6E, "--measured", "nonsense"), ["--measured", "step_time_s"]),
    ((*TO_V6E, "--measured", "step_time=4"), ["did you mean 'step_time_s'"]),
    ((*TO_V6E, "--measured", "step_time_s=-4"), ["-4"]),
    ((*TO_V6E, "--measured", "memory_gib=inf"), ["inf"]),
    ((*TO_V6E, "--stack", "v6e=megatron"), ["megatron", "v6e", "maxtext"]),
    ((*TO_V6E, "--stack", "v6e=maxtxt"), ["maxtxt", "did you mean 'maxtext'"]),
    ((*TO_V6E, "--stack", "maxtext"), ["v6e=maxtext"]),
    ((*TO_V6E, "--stack", "hal=maxtext"), ["hal"]),
    ((*TO_V6E, "--fix", "tp=7"), ["tp=7", "32 attention heads", "1, 2, 4, 8, 16, 32"]),
    ((*TO_V6E, "--fix", "tp=0"), ["tp", "positive whole number"]),
    ((*TO_V6E, "--fix", "tp=-4"), ["tp"]),
    ((*TO_V6E, "--fix", "tp=1.5"), ["tp"]),
    ((*TO_V6E, "--fix", "tp=1e400"), ["tp"]),
    ((*TO_V6E, "--fix", "tp=many"), ["many"]),
    ((*TO_V6E, "--fix", "tp"), ["tp", "key=value"]),
    ((*TO_V6E, "--fix", "tp=4,tp=8"), ["tp is given twice"]),
    ((*TO_V6E, "--fix", "zp=4"), ["zp", "tp"]),
    ((*TO_V6E, "--fix", "remat=sometimes"), ["sometimes", "full"]),
    ((*TO_V6E, "--fix", "schedule=fast"), ["fast", "1f1b"]),
    ((*TO_V6E, "--fix", "optimizer_sharding=zero9"), ["zero9", "zero2"]),
    ((*TO_V6E, "--fix", "microbatch=nan"), ["nan"]),
    ((*TO_V6E, "--fix", "microbatch=3"), ["256 sequences"]),
    ((*TO_V6E, "--fix", "pp=33"), ["32 layers"]),
    ((*TO_V6E, "--fix", "ep=2"), ["no experts"]),
    ((*TO_V6E, "--fix", "cp=3"), ["8192"]),
    ((*PLAN, "--fix", "fsdp=256,tp=8"), ["v6e:8x16", "128 devices"]),
    ((*TO_V6E, "--commit", "5y"), ["5y", "spot"]),
    ((*TO_V6E, "--objective", "fun"), ["fun", "time"]),
    ((*TO_V6E, "--goodput", "2"), ["--goodput"]),
    ((*TO_V6E, "--goodput", "nan"), ["--goodput"]),
    ((*TO_V6E, "--goodput", "high"), ["--goodput"]),
    ((*TO_V6E, "--tokens", "many"), ["--tokens"]),
    ((*TO_V6E, "--tokens", "-1"), ["--tokens"]),
    ((*TO_V6E, "--deadline", "30d"), ["--tokens"]),
    ((*TO_V6E, "--deadline", "soon", "--tokens", "1e12"), ["soon"]),
    ((*TO_V6E, "--set", "x"), ["KEY=VALUE"]),
    ((*TO_V6E, "--set", "nope=1"), ["nope"]),
    ((*TO_V6E, "--set", "seq_len=abc"), ["seq_len", "abc"]),
    ((*TO_V6E, "--set", "tp=7"), ["tp=7", "32"]),
    ((*TO_V6E, "--model", "llama-9"), ["llama-9"]),
    ((*ESTIMATE, "--plan", "fsdp=3"), ["= 3 devices", "128", "expected fsdp=128"]),
    ((*ESTIMATE, "--plan", "tp=3"), ["= 3 devices", "degrees that multiply to 128"]),
    ((*ESTIMATE, "--plan", "fsdp=128,microbatch=3"), ["microbatch of 3", "the nearest is 2"]),
    ((*ESTIMATE, "--plan", "fsdp=64"), ["64 devices", "128"]),
    ((*ESTIMATE, "--plan", "tp=64,fsdp=2"), ["tp=64", "32 attention heads"]),
    ((*ESTIMATE, "--plan", "pp=64,fsdp=2"), ["pp=64", "32"]),
    ((*ESTIMATE, "--plan", "ep=2"), ["ep=2", "no experts"]),
    ((*ESTIMATE, "--plan", "vpp=2"), ["pp"]),
    ((*ESTIMATE, "--plan", "microbatch=0"), ["microbatch"]),
    ((*ESTIMATE, "--plan", "accumulation=1.5"), ["accumulation"]),
    ((*ESTIMATE, "--plan", "tp=many"), ["many"]),
    ((*ESTIMATE, "--plan", "remat=sometimes"), ["sometimes"]),
    ((*ESTIMATE, "--plan", "schedule=fast"), ["fast"]),
    ((*ESTIMATE, "--plan", "fsdp"), ["plan 'fsdp': 'fsdp' has no value"]),
    ((*ESTIMATE, "--price", "v6e=1"), ["--price v6e=1", "expected h100"]),
    ((*ESTIMATE, "--stack", "torchax"), ["torchax", "h100"]),
    ((*ESTIMATE, "--stack", "wat"), ["wat", "megatron"]),
    ((*ESTIMATE, "--explain", "step_tim_s"), ["did you mean 'step_time_s'"]),
    ((*ESTIMATE, "--explain", "memory_bytes"), ["group", "weights"]),
    ((*ESTIMATE, "--explain", "assumptions.99"), ["99"]),
    ((*ESTIMATE, "--explain", "assumptions.²"), ["²"]),
    ((*ESTIMATE, "--explain", "stack"), ["no figure"]),
    ((*ESTIMATE, "--explain", "...."), ["step_time_s"]),
    ((*FABRIC, "x"), ["AXIS=SIZE"]),
    ((*FABRIC, ""), ["AXIS=SIZE"]),
    ((*FABRIC, "a=-256"), ["a=-256"]),
    ((*FABRIC, "a=3,b=5"), ["15", "256"]),
    ((*FABRIC, "a=256", "--bytes", "nan"), ["nan"]),
    ((*FABRIC, "a=256", "--bytes", "-1"), ["-1"]),
    ((*FABRIC, "a=256", "--explain", "x"), ["collectives.N.time_s"]),
    (("fabric", "v6e", "--mesh", "a=256"), ["v6e:16x16"]),
    (("chips", "v9"), ["v9"]),
    (("chips", "--compare", "v6e,wat"), ["wat"]),
    (("chips", "--compare", ","), ["--compare"]),
    (("read",), ["Missing argument"]),
    (("trace", "nope"), ["MODULE:FUNCTION"]),
    (("trace", "no_such_module_here:x"), ["no_such_module_here"]),
    (("trace", "no_such_file_here.py:x"), ["no_such_file_here.py"]),
    (("trace", "os:path"), ["path", "function"]),
    (("roofline", TORCHTITAN), ["--on"]),
    (("roofline", TORCHTITAN, "--on", "wat"), ["wat"]),
    (("roofline", TORCHTITAN, "--on", "v6e", "--stack", "wat"), ["v6e=maxtext"]),
    (("roofline", TORCHTITAN, "--on", "v6e", "--stack", "v6e=megatron"), ["megatron", "maxtext"]),
    # 32 heads: the divisors next to 3 are 2 and 4
    (("roofline", TORCHTITAN, "--on", "v6e", "--tp", "3"), ["--tp 3", "divisor of 32", "being 2"]),
    (("fabric", "v6e:16x16", "--mesh", "fsdp=32,tp=4"), ["multiply to 256, such as fsdp=64"]),
    (("roofline", TORCHTITAN, "--on", "v6e", "--stack", "v5e=maxtext"), ["--stack v5e=maxtext"]),
    (("plan", NATIVE, "--to", "v6e", "--price", "v7x=1"), ["--price v7x=1", "v6e or h100"]),
    (("compile", TORCHTITAN, "--on", "h100*128"), ["--to"]),
    (("compile", TORCHTITAN, "--on", "h100*128", "--to", "v6e:3x5"), ["3x5", "4x4"]),
    (("compile", NATIVE, "--to", "v6e:4x4", "--timeout", "-1"), ["--timeout -1"]),
    (("compile", NATIVE, "--to", "v6e:4x4", "--timeout", "nan"), ["--timeout nan"]),
    # 16 devices, 256 sequences a step: 16 a replica
    (("compile", NATIVE, "--to", "v6e:4x4", "--plan", "fsdp=8"), ["= 8 devices", "fsdp=16"]),
    (("compile", NATIVE, "--to", "v6e:4x4", "--plan", "microbatch=3"), ["nearest is 2"]),
    (("compile", "--entry", "a:b", "--to", "v6e:4x4", "--set", "nodes=2"), ["--set nodes=2"]),
    (("compile", "--entry", "a:b", "--to", "v6e:4x4", "--on", "h100*8"), ["--on h100*8"]),
    (("compile", NATIVE, "--to", "v6e:4x4", "--against", "/nope"), ["--against /nope"]),
    (("read", ""), ["name is empty"]),
    ((*ESTIMATE, "--plan", "accumulation=3"), ["2 sequences", "3 forwards"]),
    (("validate", str(ROOT)), ["folder"]),
    (("validate", "nope.jsonl"), ["nope.jsonl"]),
    (("validate", TORCHTITAN), ["CSV"]),
    (("validate", "--fail-over", "-1"), ["--fail-over", "-1"]),
    (("validate", "--html", str(ROOT)), ["--html", "folder"]),
    (("audit", "no/such/folder"), ["no such file"]),
    (("audit", "a" * 5000), ["no such file"]),
    (("audit", str(ROOT / "examples"), "--target", "wat"), ["wat", "jax"]),
    (("audit", str(ROOT / "examples"), "--job", "nope.toml"), ["nope.toml"]),
    (("audit", str(ROOT / "examples"), "--sarif", "/proc/x/y"), ["/proc/x/y"]),
    (("assses",), ["did you mean 'assess'"]),
    (("assess", "--frobnicate"), ["--frobnicate"]),
    (("assess",), ["Missing", "(see chipshift assess --help)"]),
]


@pytest.mark.parametrize(("args", "words"), OPTIONS, ids=lambda x: " ".join(x)[-50:])
def test_an_option_that_cannot_be_used(args: tuple[str, ...], words: list[str]) -> None:
    said = refused(*args)
    assert all(word in said for word in words), said


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]\n", bytes(range(256)), b"a,b\n1,2\n"])
def test_measured_runs_that_cannot_be_used(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(content)
    assert "runs.jsonl" in refused("validate", str(file))


CONFIG = (
    '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
    ' "vocab_size": 100, "intermediate_size": 64}'
)
FILES = [
    ("job.toml", b"", ["empty"]),
    ("job.sh", b"", ["empty"]),
    ("job.toml", b"hello = 1\n", ["format"]),
    ("job.toml", b"this is [ no toml =\n", ["job.toml"]),
    ("job.txt", b"Dear sir, this is prose.\n", ["format"]),
    ("job.toml", bytes(range(256)) * 8, ["binary"]),
    ("job.toml", b"\x80\x81\xff" * 8, ["UTF-8"]),
    ("job.toml", JOB.replace("seq_len = 8192", "seq_len = -1").encode(), ["seq_len", "-1"]),
    ("job.toml", JOB.replace("seq_len = 8192", "seq_len = nan").encode(), ["seq_len", "nan"]),
    ("job.toml", JOB.replace("seq_len = 8192", "seq_len = inf").encode(), ["seq_len"]),
    ("job.toml", JOB.replace("seq_len = 8192", "seq_len = 1" + "0" * 30).encode(), ["seq_len"]),
    ("job.toml", JOB.replace("seq_len = 8192", "seq_len = true").encode(), ["seq_len", "rue"]),
    ("job.toml", JOB.replace("seq_len = 8192", 'seq_len = "many"').encode(), ["seq_len", "many"]),
    ("job.toml", JOB.replace("seq_len", "seqlen").encode(), ["seqlen", "seq_len"]),
    ("job.toml", JOB.replace("fsdp = 128", "fsdp = 0").encode(), ["fsdp", "0"]),
    ("job.toml", JOB.replace("fsdp = 128", "fsdp = 100").encode(), ["100"]),
    ("job.toml", JOB.replace("fsdp = 128", "fsdp = 64").encode(), ["64"]),
    ("job.toml", JOB.replace("fsdp = 128", "fsdp = 2\ntp = 64").encode(), ["64", "32"]),
    ("job.toml", JOB.replace('compute = "bf16"', 'compute = "bf17"').encode(), ["bf17", "bf16"]),
    ("job.toml", JOB.replace("selective_op", "sometimes").encode(), ["sometimes"]),
    ("job.toml", JOB.replace("llama-3.1-8b", "llama-9").encode(), ["llama-9"]),
    ("job.toml", ("x = [" * 5000).encode(), ["job.toml"]),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES)
def test_a_job_file_that_cannot_be_used(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    said = refused("estimate", str(file), "--on", "h100*128")
    assert all(word in said for word in [*words, name]), said


CONFIGS = [
    ("", ["config.json"]),
    ("{}", ["model_type"]),
    ("[1", ["JSON"]),
    ("[]", ["config.json"]),
    (CONFIG.replace("64", "NaN", 1), ["hidden_size", "NaN"]),
    (CONFIG.replace("64", "1e999", 1), ["hidden_size"]),
    (CONFIG.replace("64", "-64", 1), ["hidden_size", "-64"]),
    (CONFIG.replace("64", '"a"', 1), ["hidden_size", "'a'"]),
    (CONFIG.replace("64", "1e300", 1), ["hidden_size"]),
    (CONFIG.replace('layers": 2', 'layers": 100000000'), ["num_hidden_layers"]),
    (CONFIG.replace("llama", "llamma"), ["llamma", "llama"]),
]


@pytest.mark.parametrize(("text", "words"), CONFIGS)
def test_a_model_config_that_cannot_be_used(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    said = refused(*ESTIMATE, "--model", str(file))
    assert all(word in said for word in words), said


@pytest.mark.parametrize("command", ["assess", "estimate", "read", "plan"])
def test_a_path_that_is_no_file(tmp_path: Path, command: str) -> None:
    on = {"assess": ["--to", "v6e", "--on", "h100*8"], "estimate": ["--on", "h100*8"],
          "plan": ["--to", "v6e:4x4"], "read": []}[command]  # fmt: skip
    assert "does not exist" in refused(command, "no/such/job.toml", *on)
    assert "folder" in refused(command, str(tmp_path), *on)
    assert "b.toml" in refused(command, "a\x00b.toml", *on)
    assert "too long" in refused(command, "a" * 5000, *on)
    assert "does not exist" in refused(command, "\udcff.toml", *on)


@pytest.mark.parametrize("place", ["", "no-folder-but-a-file/r.html", "r" * 300 + ".html"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "no-folder-but-a-file").write_text("")
    started = time.monotonic()
    assert "--html" in refused(*TO_V6E, "--html", str(tmp_path / place))
    assert time.monotonic() - started < 1.0


LARGE = """
import sys
from chipshift.cli.app import run
code = run(["estimate", sys.argv[1], "--on", "h100*128"])
# The peak of this process alone: ru_maxrss would begin with that of the process it was forked from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
sys.exit(code)
"""


def test_a_file_of_200_mb_is_refused_quickly_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    with file.open("wb") as out:
        out.write(JOB.encode())
        out.truncate(200_000_000)  # the rest reads as zero bytes and takes no room on the disk
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run([sys.executable, "-c", LARGE, str(file)], capture_output=True,
                           text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                           check=False)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.returncode == 2
    assert "200.0 MB" in found.stderr and "16 MB" in found.stderr
    assert found.stderr.count("\n") == 1
    assert int(found.stdout) < 150e6  # bytes; an interpreter with NumPy alone takes about 60 MB
    assert after.ru_utime - before.ru_utime < 2.0
