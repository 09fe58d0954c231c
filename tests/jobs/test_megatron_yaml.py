"""Megatron-LM's arguments in YAML, in each of the layouts that are in use."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params

from .test_formats import value_of

ZOO = """
ENV_VARS:
  NCCL_NVLS_ENABLE: 0
  WORKERS: 3
TEST_TYPE: release
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --overlap-grad-reduce: false
  --disable-bias-linear: true
  --swiglu: true
  --normalization: RMSNorm
  --micro-batch-size: 2
  --global-batch-size: 64
  --seq-length: 4096
  --num-layers: 8
  --hidden-size: 1024
  --ffn-hidden-size: 4096
  --num-attention-heads: 16
  --group-query-attention: true
  --num-query-groups: 4
  --untie-embeddings-and-output-weights: true
  --position-embedding-type: rope
  --vocab-size: 32000
  --recompute-granularity: full
  --recompute-method: uniform
  --recompute-num-layers: 1
  --bf16: true
  --save: ${OUT}/checkpoints
"""

CORE = """
language_model:
  num_layers: 4
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: 8
  ffn_hidden_size: 2816
  add_bias_linear: False
  activation_func: swiglu
  normalization: RMSNorm
  num_moe_experts: null
  moe_router_topk: 2
  recompute_granularity: null
  fp8: hybrid
model_parallel:
  tensor_model_parallel_size: 2
  sequence_parallel: True
  bf16: True
  fp16: False
micro_batch_size: 1
global_batch_size: 32
seq_length: 2048
vocab_size: 32000
use_distributed_optimizer: False
untie_embeddings_and_output_weights: True
position_embedding_type: rope
optimizer: adam
"""


def read(folder: Path, files: dict[str, str], **settings: str) -> TrainJob:
    paths = []
    for name, text in files.items():
        (folder / name).write_text(text)
        paths.append(str(folder / name))
    return read_job(paths, overrides=settings)


def of(job: TrainJob, *paths: str) -> tuple[object, ...]:
    return tuple(value_of(job, path) for path in paths)


def test_a_key_is_an_argument_and_one_that_is_false_is_left_out(tmp_path: Path) -> None:
    job = read(tmp_path, {"model_config.yaml": ZOO}, TP="4")
    assert of(job, "plan.tp", "plan.pp", "plan.remat") == (4, 2, "full")
    assert of(job, "plan.optimizer_sharding", "precision.compute") == ("zero1", "bf16")
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (4096, 64, 2)
    # a layer: attention 1024·1024·2 + 2·1024·256, feed-forward 3·1024·4096, two norms of 1024;
    # besides 8 of them the embedding and the head of 32,000 rows and one norm; the vocabulary is
    # padded to a multiple of 128 × tp 4 = 512: 32,256 rows
    layer = 2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 4096 + 2 * 1024
    assert params(value_of(job, "model")) == 8 * layer + 2 * 32256 * 1024 + 1024
    flags = {(flag.kind, flag.key) for flag in job.flags}
    assert ("nccl", "NCCL_NVLS_ENABLE") in flags
    assert not any(kind == "dp_overlap" for kind, _ in flags)
    off = next(one for one in job.ignored if one.key.endswith("overlap-grad-reduce"))
    assert (off.matters, off.why) == (False, "off or not set")


def test_the_last_of_a_schedule_of_batches_is_the_full_one(tmp_path: Path) -> None:
    steps = '--step-batch-size-schedule: "0:64 200B:128 400B:192"'
    text = ZOO.replace("--global-batch-size: 64", steps)
    assert value_of(read(tmp_path, {"a.yaml": text}, TP="1"), "sequences_per_step") == 192


def test_a_loss_is_scaled_under_fp16_alone(tmp_path: Path) -> None:
    scaled = "initial_loss_scale: 65536\n"
    kinds = {flag.kind for flag in read(tmp_path, {"a.yaml": CORE + scaled}).flags}
    assert "loss_scaler" not in kinds
    half = CORE.replace("bf16: True", "bf16: False").replace("fp16: False", "fp16: True")
    kinds = {flag.kind for flag in read(tmp_path, {"b.yaml": half + scaled}).flags}
    assert "loss_scaler" in kinds


def test_a_variable_that_nothing_sets_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model_config.yaml:7: .*\$\{TP\}.*--set TP="):
        read(tmp_path, {"model_config.yaml": ZOO})


def test_yaml_cfg_takes_the_fields_of_megatron_core(tmp_path: Path) -> None:
    job = read(tmp_path, {"gpt_config.yaml": CORE})
    assert of(job, "plan.tp", "plan.remat", "plan.optimizer_sharding") == (2, "none", "none")
    assert value_of(job, "precision.compute") == "fp8"
    # grouped heads without the switch: 8 of 16 halve k and v; swiglu by its activation; no biases;
    # 32,000 rows are a multiple of 128 × tp 2
    layer = 2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 2816 + 2 * 1024
    assert params(value_of(job, "model")) == 4 * layer + 2 * 32000 * 1024 + 1024


def test_the_same_fields_at_the_top_alone(tmp_path: Path) -> None:
    text = "num_layers: 2\nhidden_size: 512\nnum_attention_heads: 8\nbf16: True\n"
    with pytest.raises(InputError, match="gives no --micro-batch-size"):
        read(tmp_path, {"gpt.yaml": text + "vocab_size: 1024\nseq_length: 128\n"})


def test_flagscale_has_the_arguments_in_sections(tmp_path: Path) -> None:
    text = (
        "system:\n  tensor_model_parallel_size: 2\n  disable_bias_linear: true\n"
        "  use_distributed_optimizer: true\n  precision:\n    bf16: true\n"
        "model:\n  num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 8\n"
        "  seq_length: 1024\n  swiglu: true\n  multiple_of: 256\n  normalization: RMSNorm\n"
        "  use_rotary_position_embeddings: true\n  no_position_embedding: true\n"
        "  untie_embeddings_and_output_weights: true\n  micro_batch_size: 2\n"
        "  global_batch_size: 32\ndata:\n  tokenizer:\n    vocab_size: 1024\n"
    )
    job = read(tmp_path, {"7b.yaml": text})
    assert of(job, "plan.tp", "plan.optimizer_sharding", "precision.compute") == (
        2,
        "zero1",
        "bf16",
    )
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (1024, 32, 2)
    # 4·512·2/3 = 1365, up to a multiple of 256: 1536
    layer = 4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512
    assert params(value_of(job, "model")) == 4 * layer + 2 * 1024 * 512 + 512


def test_flagscales_experiment_counts_the_devices_of_its_job(tmp_path: Path) -> None:
    run = (
        "defaults:\n  - train: 1b\n  - _self_\nexperiment:\n  exp_name: x\n  task:\n"
        "    type: train\n    backend: megatron\n    entrypoint: train_gpt.py\n  runner:\n"
        "    backend: torchrun\n    nnodes: 2\n    nproc_per_node: 8\n"
        "  envs:\n    NCCL_DEBUG: INFO\n"
    )
    shape = (
        "system:\n  tensor_model_parallel_size: 2\n  precision:\n    bf16: true\n"
        "model:\n  num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 8\n"
        "  seq_length: 1024\n  micro_batch_size: 2\n  global_batch_size: 32\n"
        "data:\n  tokenizer:\n    vocab_size: 1024\n"
    )
    job = read(tmp_path, {"train.yaml": run, "1b.yaml": shape})
    assert of(job, "plan.tp", "plan.dp", "plan.accumulation") == (2, 8, 2)
    assert ("nccl", "NCCL_DEBUG") in {(flag.kind, flag.key) for flag in job.flags}
    with pytest.raises(InputError, match=r"expected 1b.yaml of its conf/train beside it"):
        read_job([str(tmp_path / "train.yaml")])
