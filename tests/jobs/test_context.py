"""Context parallelism as each framework words it: a ring, gathers, heads dealt out, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.jobs.write import to_toml
from chipshift.machines.names import parse_machine
from tests.jobs.test_megatron import SCRIPT

TP2 = "    --tensor-model-parallel-size 2\n"
PP2 = "    --pipeline-model-parallel-size 2\n"
MEGATRON = SCRIPT.replace(
    "    --pipeline-model-parallel-size 2\n", "    --context-parallel-size 4\n"
)
DEEPSPEED = SCRIPT.replace(
    TP2 + PP2 + "    --sequence-parallel\n",
    "    --deepspeed --zero-stage 3 --no-pipeline-parallel --ds-sequence-parallel-size 4\n",
)
TRAINER = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\nbf16: true\n"
    "max_seq_length: 8192\n"
)
BRIDGE = """
name: run
trainer: {devices: 8, num_nodes: 4, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 128
  encoder_seq_length: 8192
  max_position_embeddings: 8192
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  tensor_model_parallel_size: 2
  context_parallel_size: 4
  activation: fast-swiglu
  tokenizer: {type: x}
  override_vocab_size: 128256
"""


def job(tmp_path: Path, **files: str) -> TrainJob:
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text)
        paths.append(str(path))
    return read_job(paths)


def plan_of(read: TrainJob) -> Plan:
    assert read.plan is not None
    return read.plan.value


def exchange(read: TrainJob) -> tuple[int, str, int]:
    plan = plan_of(read)
    return plan.cp, plan.cp_kind, plan.ulysses_degree


@pytest.mark.parametrize(
    ("said", "kind", "degree"),
    [
        ("", "ring", 0),
        ("--cp-comm-type p2p", "ring", 0),
        ("--cp-comm-type all_gather", "allgather", 0),
        ("--cp-comm-type a2a", "all_to_all", 0),
        ("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", "all_to_all", 2),
        ("--context-parallel-algo ulysses_cp_algo", "all_to_all", 0),
        ("--context-parallel-algo hybrid_cp_algo --ulysses-degree-in-cp 2", "all_to_all", 2),
    ],
)
def test_megatron(tmp_path: Path, said: str, kind: str, degree: int) -> None:
    text = MEGATRON.replace("    --bf16\n", f"    --bf16 {said}\n")
    assert exchange(job(tmp_path, run__sh=text)) == (4, kind, degree)


def test_exchanges_that_differ_by_layer_are_said(tmp_path: Path) -> None:
    read = job(tmp_path, run__sh=MEGATRON.replace("--bf16", "--bf16 --cp-comm-type a2a p2p"))
    assert exchange(read) == (4, "all_to_all", 0)
    assert any("layers differ" in why for _, _, why in read.assumed)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("--cp-comm-type a2a+p2p", ["hierarchical-context-parallel-sizes", "cp=4"]),
        ("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4", ["multiply to cp=4"]),
        ("--cp-comm-type a2b", ["a2b", "expected one of p2p"]),
    ],
)
def test_an_exchange_that_megatron_refuses(tmp_path: Path, said: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        job(tmp_path, run__sh=MEGATRON.replace("--bf16", f"--bf16 {said}"))
    assert all(word in str(caught.value) for word in words)


def test_transformer_engine_deals_key_value_heads_that_there_are(tmp_path: Path) -> None:
    """8 key/value heads over tp=2 leave 4; 8 devices want 8 of them."""
    text = MEGATRON.replace("--context-parallel-size 4", "--context-parallel-size 8")
    with pytest.raises(InputError) as caught:
        job(tmp_path, run__sh=text.replace("--bf16", "--bf16 --cp-comm-type a2a"))
    assert "8 key/value heads over tp=2 leave 4" in str(caught.value)
    assert "4 being the nearest" in str(caught.value)


def test_query_heads_that_cannot_be_dealt_out(tmp_path: Path) -> None:
    """32 heads over tp=2 leave 16; over 32 devices not one each: 16 is the nearest."""
    text = MEGATRON.replace("--context-parallel-size 4", "--context-parallel-size 32")
    text = text.replace("NNODES=4", "NNODES=8")
    with pytest.raises(InputError) as caught:
        job(tmp_path, run__sh=text.replace("--bf16", "--bf16 --cp-comm-type a2a"))
    assert "32 attention heads over tp=2 leave 16" in str(caught.value)
    assert "16 being the nearest" in str(caught.value)


def test_deepspeed_ulysses_in_megatrons_fork(tmp_path: Path) -> None:
    read = job(tmp_path, run__sh=DEEPSPEED)
    assert exchange(read) == (4, "all_to_all", 0)
    assert plan_of(read).fsdp == 8  # 32 devices over 4
    assert any("repeats them" in why for _, _, why in read.assumed)
    assert not any("sequence-parallel" in entry.key for entry in read.ignored)


def test_nemo(tmp_path: Path) -> None:
    assert exchange(job(tmp_path, job__yaml=BRIDGE + "  cp_comm_type: a2a\n"))[1:] == (
        "all_to_all", 0,
    )  # fmt: skip
    both = "  cp_comm_type: a2a+p2p\n  hierarchical_context_parallel_sizes: [2, 2]\n"
    assert exchange(job(tmp_path, job__yaml=BRIDGE + both)) == (4, "all_to_all", 2)


@pytest.mark.parametrize(
    ("said", "cp", "kind", "degree"),
    [
        ("ici_context_parallelism: 4", 4, "allgather", 0),
        ("ici_context_parallelism: 4\ncontext_parallel_strategy: ring", 4, "ring", 0),
        ("ici_context_parallelism: 4\ncontext_parallel_strategy: ulysses", 4, "all_to_all", 0),
        (
            "ici_context_parallelism: 2\nici_context_usp_ulysses_parallelism: 4\n"
            "context_parallel_strategy: usp", 8, "all_to_all", 4,
        ),
        ("ici_context_parallelism: 2\ncontext_parallel_strategy: usp", 2, "ring", 0),
    ],
)  # fmt: skip
def test_maxtext(tmp_path: Path, said: str, cp: int, kind: str, degree: int) -> None:
    text = f"model_name: llama3.1-8b\nper_device_batch_size: 1\nmax_target_length: 8192\n{said}\n"
    assert exchange(job(tmp_path, job__yaml=text)) == (cp, kind, degree)


def test_deepspeeds_own_file(tmp_path: Path) -> None:
    file = '{"zero_optimization": {"stage": 3}, "sequence_parallel_size": 4}'
    read = job(tmp_path, args__yaml=TRAINER + "deepspeed: ds.json\n", ds__json=file)
    assert exchange(read) == (4, "all_to_all", 0)


@pytest.mark.parametrize(("devices", "fsdp", "over_cp"), [(4, 1, True), (8, 2, False)])
def test_zero_3_shards_over_cp_where_that_takes_all_devices(
    tmp_path: Path, devices: int, fsdp: int, over_cp: bool
) -> None:
    """DeepSpeed-Ulysses: ZeRO's group is the replicas × the devices of a sequence."""
    file = '{"zero_optimization": {"stage": 3}, "sequence_parallel_size": 4}'
    read = job(tmp_path, args__yaml=TRAINER + "deepspeed: ds.json\n", ds__json=file)
    placed = resolve_machine(read, parse_machine(f"h100*{devices}"))
    assert placed.plan is not None
    plan = placed.plan.value
    assert (plan.cp, plan.fsdp, plan.cp_shards) == (4, fsdp, over_cp)
    again = job(tmp_path, again__toml=to_toml(placed))
    assert again.plan is not None and again.plan.value == plan


def test_trainers_script(tmp_path: Path) -> None:
    script = """
from accelerate.utils import ParallelismConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
cut = ParallelismConfig(sp_backend="deepspeed", sp_size=4, dp_shard_size=2)
args = SFTConfig(per_device_train_batch_size=1, max_length=8192, bf16=True, parallelism_config=cut)
"""
    read = job(tmp_path, train__py=script)
    assert exchange(read) == (4, "all_to_all", 0)
    assert plan_of(read).fsdp == 2


@pytest.mark.parametrize(
    ("model", "size", "kind", "degree"),
    [
        ("meta-llama/Llama-3.1-8B", 4, "all_to_all", 0),  # 8 key/value heads over 4
        ("meta-llama/Llama-3.1-8B", 16, "all_to_all", 8),  # rings of two round them
        ("Qwen/Qwen2.5-0.5B", 4, "all_to_all", 2),  # 2 key/value heads
        ("Qwen/Qwen2.5-0.5B", 3, "ring", 0),  # 3 divides neither 2 nor 14
    ],
)
def test_ms_swift_deals_what_it_can_and_goes_round_the_rest(
    tmp_path: Path, model: str, size: int, kind: str, degree: int
) -> None:
    text = TRAINER.replace("meta-llama/Llama-3.1-8B", model)
    text = text.replace("max_seq_length: 8192", "max_length: 9216")
    read = job(tmp_path, args__yaml=text + f"sequence_parallel_size: {size}\n")
    assert exchange(read) == (size, kind, degree)


@pytest.mark.parametrize(("said", "kind"), [("", "ring"), ("ulysses", "all_to_all")])
def test_llama_factorys_fork(tmp_path: Path, said: str, kind: str) -> None:
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\n"
        "cutoff_len: 8192\ntemplate: llama3\nsequence_parallel_size: 4\n"
        "per_device_train_batch_size: 1\nbf16: true\n"
    )
    text += f"sequence_parallel_mode: {said}\n" if said else ""
    assert exchange(job(tmp_path, job__yaml=text)) == (4, kind, 0)


NATIVE = """chipshift = 1
[model]
preset = "llama-3.1-8b"
[job]
seq_len = 8192
sequences_per_step = 64
stack = "{stack}"
[plan]
fsdp = 4
cp = {cp}
microbatch = 1.0
cp_kind = "{kind}"
ulysses_degree = {degree}
"""


def test_the_native_format_holds_both_levels(tmp_path: Path) -> None:
    text = NATIVE.format(stack="deepspeed", cp=16, kind="all_to_all", degree=8)
    read = job(tmp_path, job__toml=text)
    assert exchange(read) == (16, "all_to_all", 8)
    assert exchange(job(tmp_path, again__toml=to_toml(read))) == (16, "all_to_all", 8)


@pytest.mark.parametrize(
    ("cp", "kind", "degree", "words"),
    [
        (8, "all_to_all", 3, ["ulysses_degree=3", "cp=8", "2 being the nearest"]),
        (8, "ring", 4, ["ulysses_degree=4", "cp_kind = 'all_to_all'"]),
        (64, "all_to_all", 0, ["32 attention heads", "32 being the nearest"]),
    ],
)
def test_degrees_that_contradict_each_other(
    tmp_path: Path, cp: int, kind: str, degree: int, words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        text = NATIVE.format(stack="deepspeed", cp=cp, kind=kind, degree=degree)
        job(tmp_path, job__toml=text)
    assert all(word in str(caught.value) for word in words)


def test_key_value_heads_that_cannot_be_repeated_evenly(tmp_path: Path) -> None:
    """8 key/value heads: 16 devices get a copy each; of Phi-4's 10, 4 devices would not."""
    text = NATIVE.format(stack="deepspeed", cp=16, kind="all_to_all", degree=0)
    assert exchange(job(tmp_path, job__toml=text)) == (16, "all_to_all", 0)
    text = NATIVE.format(stack="deepspeed", cp=4, kind="all_to_all", degree=0)
    with pytest.raises(InputError, match="10 key/value heads"):
        job(tmp_path, job__toml=text.replace("llama-3.1-8b", "phi-4"))


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 262144
[parallelism]
data_parallel_shard_degree = {shard}
context_parallel_degree = 8
"""


@pytest.mark.parametrize(("shard", "over_cp"), [(1, True), (2, False)])
def test_torchtitan_shards_over_cp_where_the_shard_degree_is_one(
    tmp_path: Path, shard: int, over_cp: bool
) -> None:
    """torchtitan/distributed/fsdp.py: the group is dp_shard × cp; above 1 both share anyway."""
    read = job(tmp_path, job__toml=TITAN.format(shard=shard))
    assert read.plan is not None
    assert (read.plan.value.fsdp, read.plan.value.cp_shards) == (shard, over_cp)


def test_accelerate_shards_over_cp_where_the_shard_size_is_one(tmp_path: Path) -> None:
    """Accelerate's ParallelismConfig: FSDP's mesh is the joint one, dp_shard_cp."""
    axes = "fsdp: full_shard\nparallelism_config:\n  dp_shard_size: 1\n  cp_size: 8\n"
    read = job(tmp_path, args__yaml=TRAINER + axes)
    assert read.plan is not None and read.plan.value.cp_shards
