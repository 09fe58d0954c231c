"""chipshift's own job file: what it says is what is read, and what is written reads back."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.write import to_toml
from chipshift.models.hf import read_config
from tests.models.diffusion_configs import COUNTED
from tests.models.reference_configs import (
    DECODERS,
    DIFFUSION,
    GEMMA_3N,
    HEARING,
    HYBRIDS,
    MULTIMODAL,
    OTHERS,
)

EXAMPLE = "examples/llama3-8b.toml"


def read(tmp_path: Path, text: str) -> TrainJob:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return read_job([str(file)])


def stated(value: object) -> object:
    """What a file said; what was assumed of the machine is not written down."""
    return value.value if isinstance(value, Given) else None


def assert_same(a: TrainJob, b: TrainJob) -> None:
    """Equal in everything that an estimate uses."""
    assert replace(a.model, defaults=()) == replace(b.model, defaults=())
    assert a.sequences_per_step.value == b.sequences_per_step.value
    assert a.seq_len.value == b.seq_len.value
    assert a.precision.value == b.precision.value
    assert (a.optimizer.value, a.stack.value) == (b.optimizer.value, b.stack.value)
    assert (a.plan and a.plan.value) == (b.plan and b.plan.value)
    assert (a.plan_open, a.batch_open) == (b.plan_open, b.batch_open)
    assert (a.machine and a.machine.value) == (b.machine and b.machine.value)
    assert stated(a.devices) == stated(b.devices)
    assert (a.uneven_pp, a.kv_replicated) == (b.uneven_pp, b.kv_replicated)
    assert (a.task, a.trainable_fraction, a.loss_chunks) == (
        b.task,
        b.trainable_fraction,
        b.loss_chunks,
    )
    assert a.flags == b.flags


def test_the_example_says_what_the_torchtitan_example_says() -> None:
    ours, theirs = read_job([EXAMPLE]), read_job(["examples/llama3-8b-torchtitan.toml"])
    assert ours.model == theirs.model
    assert ours.precision.value == theirs.precision.value
    assert ours.plan is not None and ours.plan.value.devices == 128
    assert ours.machine == Given("h100*128", EXAMPLE, 30)


@pytest.mark.parametrize("path", sorted(str(p) for p in Path("examples").iterdir() if p.is_file()))
def test_every_example_survives_being_written_and_read(tmp_path: Path, path: str) -> None:
    job = read_job([path])
    assert_same(read(tmp_path, to_toml(job)), job)


def test_a_model_without_a_preset_is_written_out_whole(tmp_path: Path) -> None:
    config = {
        "model_type": "mixtral",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 100,
    }
    model = read_config(config, name="tiny")
    keys = "\n".join(
        f"{key} = {value!r}".replace("'", '"') for key, value in sorted(config.items())
    )
    job = read(
        tmp_path,
        f"[model.hf]\n_name_or_path = 'tiny'\n{keys}\n" + JOB,
    )
    assert job.model.layers == model.layers
    again = read(tmp_path, to_toml(job))
    assert "[model.exact]" in to_toml(job)
    assert again.model.layers == model.layers
    assert again.model.layer_order == model.layer_order
    with pytest.raises(InputError, match=r"model.exact: .*heds: unexpected"):
        read(tmp_path, to_toml(job).replace("heads = 4", "heds = 4\nheads = 4"))


def test_a_config_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,'
        ' "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}'
    )
    job = read(
        tmp_path,
        "[model]\nconfig = 'config.json'\n[job]\nseq_len = 16\ntokens_per_step = 64\n",
    )
    assert job.model.n_layers == 2
    assert job.sequences_per_step.value == 4  # 64 tokens / 16


@pytest.mark.parametrize("path", ["../config.json", "/etc/passwd", "a/../../config.json"])
def test_no_path_leads_out_of_the_job_files_folder(tmp_path: Path, path: str) -> None:
    text = f"[model]\nconfig = '{path}'\n[job]\nseq_len = 16\nsequences_per_step = 4\n"
    with pytest.raises(InputError, match=r"job.toml:2: .*outside the job file's folder"):
        read(tmp_path, text)


def test_no_link_leads_out_of_the_job_files_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "config.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(InputError, match=r"outside the job file's folder"):
        read(folder, "[model]\nconfig = 'config.json'\n" + JOB)


def test_what_is_not_stated_is_assumed(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        "[model]\npreset = 'llama-3.1-8b'\n[job]\nseq_len = 16\nsequences_per_step = 4\n",
    )
    assert isinstance(job.precision, Assumed) and isinstance(job.optimizer, Assumed)
    assert job.plan is None
    assert {what for what, _, _ in job.assumed} >= {"dtypes", "optimizer", "framework"}


def test_a_microbatch_that_no_key_gives_is_listed_among_what_is_assumed(tmp_path: Path) -> None:
    """16 sequences over dp=2: 8 a replica, in one pass."""
    text = "[model]\npreset = 'llama-3.1-8b'\n[job]\nseq_len = 16\nsequences_per_step = 16\n"
    job = read(tmp_path, text + "[plan]\ndp = 2\n")
    assert job.plan is not None and job.plan.value.microbatch == 8
    why = "the global batch over the replicas, undivided"
    assert ("microbatch", "8", why) in job.assumed
    # without a plan there is none to say it of; where it is given there is nothing to assume
    for rest in ("", "[plan]\ndp = 2\nmicrobatch = 4\n"):
        assert "microbatch" not in {what for what, _, _ in read(tmp_path, text + rest).assumed}


HEAD = "[model]\npreset = 'llama-3.1-8b'\n"
JOB = "[job]\nseq_len = 16\nsequences_per_step = 4\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + JOB + "tokens = 4\n", r"job.toml:6: unknown key job.tokens"),
        (
            HEAD + JOB + "[plan]\nfsd = 4\n",
            r"job.toml:7: unknown key plan.fsd; did you mean 'fsdp'",
        ),
        (HEAD + JOB + "[plan]\ntp = 0\n", r"job.toml:7: plan.tp is 0; expected greater than"),
        (HEAD + JOB + "[plan]\ntp = 3\n", r"32 attention heads cannot be cut over tp=3"),
        (HEAD + JOB + "[plan]\ntp = true\n", r"job.toml:7: plan.tp is True; expected a valid int"),
        (HEAD + "[job]\nsequences_per_step = 4\n", r"job.toml:3: job.seq_len is missing"),
        (HEAD + "[job]\nseq_len = 16\n", r"gives no batch"),
        ("[model]\npreset = 'lama-3.1-8b'\n" + JOB, r"did you mean 'llama-3.1-8b'"),
        ("[model]\npreset = 'x'\nconfig = 'y'\n" + JOB, r"holds config and preset; expected one"),
        (JOB, r"does not say which model it trains; expected --model"),
        (HEAD + JOB + "[precision]\ncompute = 'bf17'\n", r"precision.compute is bf17; expected"),
        ("[model.exact]\nlayers = 3\n" + JOB, r"model.exact: expected layers with a count"),
    ],
)
def test_each_mistake_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_the_published_schema_is_the_readers_own() -> None:
    from chipshift.jobs.readers.native_schema import json_schema

    assert json.loads(Path("docs/job.schema.json").read_text()) == json_schema()


def test_the_example_validates_against_the_published_schema() -> None:
    import jsonschema

    schema = json.loads(Path("docs/job.schema.json").read_text())
    jsonschema.validate(tomllib.loads(Path(EXAMPLE).read_text()), schema)


EVERY = [
    *DECODERS,
    *HYBRIDS,
    *MULTIMODAL,
    *HEARING,
    *OTHERS,
    *DIFFUSION,
    *COUNTED,
    ("gemma3n", GEMMA_3N),
]


@pytest.mark.parametrize("config", [row[1] for row in EVERY], ids=[row[0] for row in EVERY])
def test_every_kind_of_model_survives_being_written_whole(
    tmp_path: Path, config: dict[str, object]
) -> None:
    model = read_config(config, name="whole")
    job = read(tmp_path, HEAD + JOB)
    again = read(tmp_path, to_toml(replace(job, model=model)))
    assert replace(again.model, defaults=()) == replace(model, defaults=())


@pytest.mark.parametrize("key", ["compute", "weights", "gradients", "reduce", "moments", "gather"])
def test_only_the_master_copy_may_be_none(tmp_path: Path, key: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'chipshift = 1\n[model]\npreset = "llama-3.1-8b"\n[job]\nseq_len = 8\n'
        f'sequences_per_step = 8\n[precision]\nmaster = "none"\n{key} = "none"\n'
    )
    with pytest.raises(
        InputError, match=rf"job\.toml:9: precision\.{key} is none; expected 'fp32'"
    ):
        read_job([str(file)])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (("compute", "fp9"), "--set compute is 'fp9'; expected one of fp32, .*did you mean 'fp8'"),
        (("weights", "none"), "--set weights is 'none'; expected one of fp32"),
        (("task", "sfft"), "--set task is 'sfft'; expected one of pretrain, sft, lora"),
        (("reference", "mine"), "--set reference is 'mine'; expected one of base, host, none"),
        (("gradients", "bf17"), "did you mean 'bf16'"),
    ],
)
def test_a_word_set_over_a_file_is_one_of_the_format_s(
    tmp_path: Path, setting: tuple[str, str], said: str
) -> None:
    file = tmp_path / "job.yml"
    file.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\nsequence_len: 512\nbf16: true\n"
    )
    with pytest.raises(InputError, match=said):
        read_job([str(file)], overrides=dict([setting]))
    assert (
        read_job(
            [str(file)], overrides={"compute": "bfloat16", "master": "none"}
        ).precision.value.compute
        == "bf16"
    )


def test_a_teacher_is_written_and_reads_back(tmp_path: Path) -> None:
    text = (
        'chipshift = 1\n[model]\npreset = "llama-3.2-1b"\n[teacher]\npreset = "llama-3.1-8b"\n'
        "[job]\nseq_len = 4096\nsequences_per_step = 8\n"
    )
    job = read(tmp_path, text)
    assert job.teacher is not None and job.teacher.name == "llama-3.1-8b"
    cut = replace(job, teacher=replace(job.teacher, vocab=32000))  # no preset's own any more
    again = read(tmp_path, to_toml(cut))
    assert again.teacher is not None
    assert replace(again.teacher, name="llama-3.1-8b", defaults=()) == cut.teacher
    with pytest.raises(InputError, match=r"job.toml:5: teacher.preset: 'llama-3.1-9b' is not"):
        read(tmp_path, text.replace("llama-3.1-8b", "llama-3.1-9b"))
