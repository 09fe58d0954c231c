"""Whatever is typed or stands in a file: an answer or one sentence, never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.call import NATIVE, TORCHTITAN, Called, call

OFTEN = settings(max_examples=150)

COMMANDS = st.sampled_from(["assess", "estimate", "plan", "chips", "fabric", "read", "roofline"])
WORDS = st.one_of(
    st.sampled_from(
        ["--on", "--to", "--json", "--plan", "--fix", "--price", "--measured", "--explain", "--set",
         "--stack", "--model", "--mesh", "--bytes", "--compare", "--commit", "--tokens", "h100*8",
         "v6e", "v6e:4x4", "tp=8", "fsdp=8", "a=16", "h100=2", "step_time_s=1", TORCHTITAN, "",
         "-", "--", "-1", "0", "NaN", "1e999", "=", "=,=", ":", "*", "v6e=maxtext", "/",
         "seq_len=0"]
    ),
    st.text(max_size=12),
)  # fmt: skip


def answered(found: Called) -> None:
    """An exit code of the contract, and exactly one sentence where input was refused."""
    assert found.code in (0, 1, 2)
    if found.code == 2:
        assert found.out == ""
        assert found.err.startswith("chipshift: ") and found.err.count("\n") == 1
    else:
        assert found.err == ""


@OFTEN
@given(COMMANDS, st.lists(WORDS, max_size=6))
def test_random_arguments(command: str, rest: list[str]) -> None:
    answered(call(command, *rest))


@OFTEN
@given(st.text(max_size=20))
def test_random_machines(name: str) -> None:
    answered(call("fabric", "--mesh", "a=2", "--", name))


@OFTEN
@given(
    st.text(max_size=20), st.sampled_from(["--plan", "--explain", "--stack", "--price", "--set"])
)
def test_random_values_of_options(text: str, option: str) -> None:
    answered(call("estimate", TORCHTITAN, "--on", "h100*128", f"{option}={text}"))


KEYS = st.sampled_from(
    ["chipshift", "name", "model", "job", "plan", "precision", "machine", "preset", "seq_len",
     "sequences_per_step", "optimizer", "stack", "fsdp", "tp", "pp", "cp", "ep", "microbatch",
     "accumulation", "remat", "compute", "weights", "training", "parallelism", "local_batch_size",
     "flavor", "tensor_parallel_degree", "activation_checkpoint", "mode", "steps"]
)  # fmt: skip
SCALARS = st.one_of(
    st.integers(-3, 300), st.integers(), st.floats(), st.booleans(), st.text(max_size=8),
    st.sampled_from(["llama-3.1-8b", "bf16", "fp8", "none", "full", "h100*8", "adamw", "llama3"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=6,
)


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(c if c.isalnum() or c in "-.*: " else f"\\U{ord(c):08x}"
                             for c in value if not 0xD800 <= ord(c) < 0xE000) + '"'  # fmt: skip
    return str(value)


def read_and_estimated(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.toml"
        file.write_text(text, "utf8")
        answered(call("read", str(file), "--json"))
        answered(call("estimate", str(file), "--on", "h100*8", "--json"))


@OFTEN
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_random_toml_files(tree: dict[str, object]) -> None:
    read_and_estimated("".join(f"{key} = {toml(value)}\n" for key, value in tree.items()))


@OFTEN
@given(st.sampled_from([NATIVE, TORCHTITAN]), st.data())
def test_a_real_job_with_one_value_changed(path: str, data: st.DataObject) -> None:
    lines = Path(path).read_text("utf8").splitlines()
    places = [i for i, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    at = data.draw(st.sampled_from(places))
    key = lines[at].split("=")[0]
    lines[at] = f"{key}= {toml(data.draw(VALUES))}"
    read_and_estimated("\n".join(lines) + "\n")


@OFTEN
@given(st.binary(max_size=200))
def test_random_bytes_as_a_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("job.toml", "job.sh", "job.yaml", "config.json", "job.py"):
            file = Path(folder) / name
            file.write_bytes(content)
            answered(call("read", str(file)))
