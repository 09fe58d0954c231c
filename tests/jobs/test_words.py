"""Words of a job: each is one of its field's choices, or a sentence, in every command."""

import shlex
from pathlib import Path

import pytest

from chipshift.estimate.stack import stack
from chipshift.jobs.optimizers import OPTIMIZERS, low_rank, moments_named, optimizer_named
from chipshift.jobs.read import read_job
from chipshift.jobs.remats import REMATS
from chipshift.jobs.stacks import STACKS
from chipshift.jobs.words import checked_word
from chipshift.parallel.remat import POLICIES
from tests.cli.call import NATIVE, ROOT, call

from . import cases, more_cases

WRONG = (
    ("optimizer", "sgdd", "sgd"),
    ("stack", "maxtextt", "maxtext"),
    ("remat", "ful", "full"),
    ("remat", "custom:saved=qkw", "qkv"),
    ("machine", "h100x*8", "h100"),
    ("task", "sftt", "sft"),
    ("loss", "dpoo", "dpo"),
    ("reference", "bsae", "base"),
    ("schedule", "1f1bb", "1f1b"),
    ("optimizer_sharding", "zero3", "zero2"),
    ("cp_kind", "ringg", "ring"),
    ("compute", "bf61", "bf16"),
    ("weights", "fp23", "fp32"),
    ("master", "nonee", "none"),
    ("gather", "bf1", "bf16"),
)
"""(field, a word that it has not, the nearest that it has)."""

PLACES = {
    "optimizer": "job", "stack": "job", "task": "job", "loss": "job", "reference": "job",
    "remat": "plan", "schedule": "plan", "optimizer_sharding": "plan", "cp_kind": "plan",
    "compute": "precision", "weights": "precision", "master": "precision", "gather": "precision",
    "machine": "machine",
}  # fmt: skip
"""Table of the native format that holds a field."""


@pytest.mark.parametrize(("field", "word", "meant"), WRONG)
@pytest.mark.parametrize("command", [("read",), ("assess", "--to", "v6e")], ids=["read", "assess"])
def test_a_wrong_word_of_set_names_the_flag_and_the_nearest(
    command: tuple[str, ...], field: str, word: str, meant: str
) -> None:
    found = call(*command, NATIVE, "--set", f"{field}={word}")
    assert found.code == 2 and found.out == "", found
    assert f"--set {field}" in found.err and word in found.err, found.err
    assert "expected " in found.err and f"did you mean '{meant}'" in found.err, found.err


@pytest.mark.parametrize(("field", "word", "meant"), WRONG)
def test_a_wrong_word_of_a_native_file_names_its_line(
    tmp_path: Path, field: str, word: str, meant: str
) -> None:
    key = "name" if field == "machine" else field
    tables = {
        "job": ["seq_len = 64", "sequences_per_step = 8"],
        "plan": [],
        "precision": [],
        "machine": [],
    }
    tables[PLACES[field]].append(f'{key} = "{word}"')
    rows = ["chipshift = 1", 'model = {preset = "llama-3.1-8b"}']
    for table, keys in tables.items():
        rows += [f"[{table}]", *keys]
    file = tmp_path / "job.toml"
    file.write_text("\n".join(rows))
    found = call("read", str(file))
    line = rows.index(f'{key} = "{word}"') + 1
    assert found.code == 2 and found.out == "", found
    assert f"job.toml:{line}: {PLACES[field]}.{key}" in found.err and word in found.err, found.err
    assert "expected " in found.err and f"did you mean '{meant}'" in found.err, found.err


@pytest.mark.parametrize("field", sorted(PLACES))
def test_an_empty_word_is_none(field: str) -> None:
    if field in ("gather", "reference"):
        return  # "" is gather's default, and no reference's is None
    found = call("read", NATIVE, "--set", f"{field}=")
    assert found.code == 2 and f"--set {field}" in found.err, found


@pytest.mark.parametrize(
    ("field", "written", "word"),
    [
        ("optimizer", "SGD", "sgd"),
        ("optimizer", "AdamW", "adamw"),
        ("stack", "MaxText@26.08", "maxtext@26.08"),
        ("compute", "torch.bfloat16", "bf16"),
        ("remat", "full:12/32", "full:12/32"),
        ("machine", "16*p5.48xlarge", "16*p5.48xlarge"),
    ],
)
def test_a_word_in_another_spelling_is_the_same(field: str, written: str, word: str) -> None:
    assert checked_word(field, written) == word


@pytest.mark.parametrize("release", ["", "abc", "26.", "-1", "26.04.x"])
def test_a_stacks_release_is_a_number(release: str) -> None:
    found = call("read", NATIVE, "--set", f"stack=megatron@{release}")
    assert found.code == 2 and "megatron@26.04" in found.err, found


def test_lists_of_words_are_those_that_the_estimate_knows() -> None:
    assert set(REMATS) == set(POLICIES)
    for name in STACKS:
        assert stack(name, "h100").name == name


OF_FRAMEWORKS = {
    # Transformers' OptimizerNames, axolotl's and bitsandbytes' additions
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_torch_npu_fused": "adamw",
    "adamw_torch_xla": "adamw", "adamw_apex_fused": "adamw", "adamw_anyprecision": "adamw",
    "adamw_torch_4bit": "adamw", "adamw_bnb_8bit": "adamw", "paged_adamw_32bit": "adamw",
    "schedule_free_adamw": "adamw", "schedule_free_sgd": "sgdm", "stable_adamw": "adamw",
    "ademamix_8bit": "ademamix", "paged_ademamix_32bit": "ademamix", "lion_32bit": "lion",
    "paged_lion_8bit": "lion", "rmsprop_bnb_32bit": "rmsprop", "adagrad": "adagrad",
    "grokadamw": "grokadamw", "lomo": "lomo", "adalomo": "adalomo", "adafactor": "adafactor",
    "optimi_adamw": "adamw", "ao_adamw_fp8": "adamw", "came_pytorch": "came", "muon": "muon",
    # DeepSpeed, Megatron-LM, NeMo, llm-foundry, MaxText, Levanter, nanotron, by class path
    "OneBitAdam": "adamw", "ZeroOneAdam": "adamw", "OneBitLamb": "lamb", "FusedAdam": "adamw",
    "deepspeed.ops.adam.DeepSpeedCPUAdam": "adamw", "dist_muon": "muon", "adaptive_muon": "muon",
    "megatron_fused_adam": "adamw", "distributed_fused_adam": "adamw", "decoupled_lionw": "lion",
    "decoupled_adamw": "adamw", "clip_lion": "lion", "adam_pax": "adamw", "sophia-h": "sophia",
    "adamW": "adamw", "bitsandbytes.optim.PagedAdamW8bit": "adamw", "torch.optim.SGD": "sgd",
    "torch.optim.NAdam": "nadam",
}  # fmt: skip


@pytest.mark.parametrize(("name", "ours"), OF_FRAMEWORKS.items())
def test_an_optimizer_by_each_frameworks_name(name: str, ours: str) -> None:
    assert optimizer_named(name) == ours
    assert ours in OPTIMIZERS


@pytest.mark.parametrize("name", ["", "sgdd", "adamwx", "mars", "dion", "w8bit", "optimizer", "."])
def test_other_names_are_no_optimizers(name: str) -> None:
    assert optimizer_named(name) is None


def test_what_a_name_says_of_the_moments() -> None:
    assert moments_named("paged_adamw_8bit") == "int8"
    assert moments_named("adamw_torch_4bit") == "int4"
    assert moments_named("rmsprop_bnb_32bit") is None
    assert low_rank("galore_adamw_8bit_layerwise") == "adamw"
    assert low_rank("galore") is None and low_rank("adamw") is None


@pytest.mark.parametrize("written", ["job", "set"])
def test_eight_bit_moments_go_with_the_optimizers_name(tmp_path: Path, written: str) -> None:
    name = "adamw_8bit" if written == "job" else "adamw"
    text = (
        'chipshift = 1\nmodel = {preset = "llama-3.1-8b"}\n'
        f'[job]\nseq_len = 64\nsequences_per_step = 8\noptimizer = "{name}"\n'
    )
    (tmp_path / "job.toml").write_text(text)
    laid = {"optimizer": "adamw8bit"} if written == "set" else {}
    job = read_job([str(tmp_path / "job.toml")], overrides=laid)
    assert (job.optimizer.value, job.precision.value.moments) == ("adamw", "int8")


FOREIGN = {
    "transformers": (cases.TRL_SFT, "adamw_torch_fused"),
    "nanotron": (more_cases.NANOTRON, "adamW"),
    "torchtitan": (more_cases.TITAN + '\n[optimizer]\nname = "AdamW"\n', "AdamW"),
    "torchtune": (cases.TORCHTUNE, "torch.optim.AdamW"),
    "maxtext": (more_cases.MAXTEXT_YAML + "\nopt_type: adamw\n", "adamw"),
    "deepspeed": (cases.DEEPSPEED.replace("{", '{"optimizer": {"type": "AdamW"},', 1), "AdamW"),
}  # fmt: skip


@pytest.mark.parametrize("form", sorted(FOREIGN))
@pytest.mark.parametrize(
    ("name", "said"),
    [("sgdd", "did you mean 'sgd'"), ("Shampooish", "two moments"), ("galore_adamw", "low rank")],
)
def test_an_unknown_optimizer_of_a_framework_is_said(
    tmp_path: Path, form: str, name: str, said: str
) -> None:
    text, known = FOREIGN[form]
    assert text.count(known) >= 1
    file = tmp_path / "job"
    file.write_text(text.replace(known, name))
    beside = {"model": "llama-3.1-8b", "overrides": {"seq_len": "64", "sequences_per_step": "512",
                                                     "devices": "8"}}  # fmt: skip
    if form != "deepspeed":
        beside = {}
    job = read_job([str(file)], **beside)  # type: ignore[arg-type]
    assert job.optimizer.value == "adamw"
    assumed = [why for what, _, why in job.assumed if what == "optimizer"]
    left = [entry for entry in job.ignored if entry.matters and name in entry.why]
    assert len(assumed) == 1 and name in assumed[0] and said in assumed[0]
    assert len(left) == 1 and said in left[0].why and left[0].line is not None


MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --bf16 "
    "--num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --vocab-size 1000 "
    "--max-position-embeddings 64 "
)
NEARLY = (
    (MEGATRON, "--main-grads-dtype bf61", "bf16"),
    (MEGATRON, "--data-parallel-sharding-strategy optim_gradss", "optim_grads"),
    (MEGATRON, "--fp8-format hybridd", "hybrid"),
    (MEGATRON, "--fp8-format hybrid --fp8-recipe mxfp88", "mxfp8"),
    (MEGATRON, "--position-embedding-type ropee", "rope"),
    (MEGATRON, "--transformer-impl transformer_enginee", "transformer_engine"),
    (cases.TRL_SFT, "torch_dtype: bfloat61", "bfloat16"),
    (cases.TRL_SFT, "loss_type: sigmod", "sigmoid"),
    (cases.TRL_SFT, "gradient_checkpointing: ofload", "offload"),
    (cases.AXOLOTL, "ring_attn_func: varlen_lama3", "varlen_llama3"),
    (cases.LLAMA_FACTORY, "pref_loss: sigmiod", "sigmoid"),
    (more_cases.MAXTEXT_YAML, "weight_dtype: flaot32", "float32"),
    (more_cases.MAXTEXT_YAML, "quantization: fp88", "fp8"),
    (cases.DEEPSPEED.replace("{", '{"communication_data_type": "fp61",', 1), "", "fp16"),
)
"""(a file, what is added to it, the word that it nearly is)."""


@pytest.mark.parametrize(("text", "added", "meant"), NEARLY, ids=[m for _, _, m in NEARLY])
def test_a_frameworks_word_but_for_a_slip_is_refused(
    tmp_path: Path, text: str, added: str, meant: str
) -> None:
    key = added.partition(":")[0]
    rows = [row for row in text.splitlines() if not key or not row.startswith(f"{key}:")]
    joined = text + added if text is MEGATRON else "\n".join([*rows, added]) + "\n"
    (tmp_path / "job").write_text(joined)
    model = () if added else ("--model", "llama-3.1-8b")  # a DeepSpeed file names none
    found = call("read", str(tmp_path / "job"), *model, "--set", "seq_len=64")
    assert found.code == 2 and found.out == "", found
    assert "job:" in found.err and f"; did you mean '{meant}'?" in found.err, found.err


def test_a_rematerialisation_that_is_none_is_refused_at_its_line(tmp_path: Path) -> None:
    text = f"{more_cases.MAXTEXT_YAML.rstrip()}\nremat_policy: keep_what_pays\n"
    (tmp_path / "job.yml").write_text(text)
    found = call("read", str(tmp_path / "job.yml"))
    at = f"job.yml:{text.count(chr(10))}: "
    assert found.code == 2 and f"{at}rematerialisation: remat 'keep_what_pays'" in found.err


def test_a_quantisation_that_is_not_known_is_said(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(more_cases.MAXTEXT_YAML + "\nquantization: nf3\n")
    job = read_job([str(tmp_path / "job.yml")])
    assert [entry.matters for entry in job.ignored if entry.key == "quantization"] == [True]


@pytest.mark.parametrize(
    "number", ["8k", "4M", "nan", "inf", "-1", "0", "1.5", "", "true", "[8]", "0x10", "1e400",
               "9" * 400, "None", "8,192"]
)  # fmt: skip
@pytest.mark.parametrize("field", ["seq_len", "tp", "devices", "document_len", "ulysses_degree"])
def test_a_count_of_set_is_a_whole_number(field: str, number: str) -> None:
    found = call("read", NATIVE, "--set", f"{field}={number}")
    assert found.code == 2 and len(found.err) < 300, found
    assert f"--set {field} is '{number[:40]}" in found.err
    assert "expected a whole number from 1 to 1,000,000,000,000" in found.err


@pytest.mark.parametrize(("given", "other"), [("nodes", "devices_per_node"),
                                              ("devices_per_node", "nodes")])  # fmt: skip
def test_a_setting_that_tells_nothing_by_itself_is_refused(given: str, other: str) -> None:
    found = call("read", NATIVE, "--set", f"{given}=16")
    assert found.code == 2 and f"expected --set {other}=N beside it" in found.err, found
    both = call("read", NATIVE, "--set", f"{given}=16", "--set", f"{other}=8", "--json")
    assert both.object()["job"]["devices"] == 128


def test_nodes_of_set_go_before_the_files_devices(tmp_path: Path) -> None:
    # Accelerate's 16 processes on 2 machines; the same devices a node on 4 of them are 32
    (tmp_path / "fsdp.yaml").write_text(cases.ACCELERATE_FSDP)
    (tmp_path / "sft.yaml").write_text(cases.TRL_SFT)
    files = [str(tmp_path / "fsdp.yaml"), str(tmp_path / "sft.yaml")]
    job = read_job(files, overrides={"nodes": "4", "devices_per_node": "8"})
    assert job.devices is not None and job.devices.value == 32


@pytest.mark.parametrize("command", [("read",), ("assess", "--to", "v6e")], ids=["read", "assess"])
def test_a_key_of_set_has_one_value(command: tuple[str, ...]) -> None:
    found = call(*command, NATIVE, "--set", "seq_len=4096", "--set", "seq_len=2048")
    assert found.code == 2 and "seq_len is given twice, as '4096' and as '2048'" in found.err
    same = call("read", NATIVE, "--set", "seq_len=4096", "--set", "seq_len=4096")
    assert same.code == 0


def test_counts_of_a_launcher_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        "#SBATCH --nodes=4-8\n"
        "torchrun --nproc_per_node=gpu pretrain_gpt.py --num-layers 4 --hidden-size 64 "
        "--num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --vocab-size 1000 "
        "--max-position-embeddings 64\n"
    )
    job = read_job([str(tmp_path / "job.sh")])
    noted = {what: (value, why) for what, value, why in job.assumed}
    assert noted["nodes"][0] == "4-8" and "--set nodes=N" in noted["nodes"][1]
    assert noted["devices per node"][0] == "gpu"
    assert "as many as there are" in noted["devices per node"][1]


@pytest.mark.parametrize("command", ["read", "assess", "plan", "estimate", "roofline"])
def test_every_example_of_the_help_runs(command: str, tmp_path: Path) -> None:
    told = call(command, "--help").out.replace("\\\n", " ")
    examples = [line.strip() for line in told.splitlines() if line.strip().startswith("chipshift ")]
    assert len(examples) >= 3
    for example in examples:
        words = shlex.split(example.partition(" > ")[0].replace("out/", f"{tmp_path}/"))
        found = call(*(str(ROOT / w) if w.startswith("examples/") else w for w in words[1:]))
        assert found.code == 0 and found.out, (example, found.err)
