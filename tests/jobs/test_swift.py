"""ms-swift's commands and YAML: its own defaults under what a file says."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

from .test_formats import value_of

LORA = """NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 \\
swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --dataset 'some/data#500' \\
    --max_length 2048 \\
    --learning_rate 1e-4{more}
"""
FULL = LORA.replace("{more}", " --tuner_type full{more}")
MEGATRON = """NPROC_PER_NODE=8 megatron sft \\
    --model Qwen/Qwen3-32B --tensor_model_parallel_size 8 --sequence_parallel true \\
    --packing true --max_length 8192{more}
"""


def read(folder: Path, text: str, more: str = "", **settings: str) -> TrainJob:
    (folder / "train.sh").write_text(text.replace("{more}", more))
    return read_job([str(folder / "train.sh")], overrides=settings)


def placed(job: TrainJob) -> TrainJob:
    """On the four devices that the commands count."""
    assert job.devices is not None and job.devices.value == 4
    return resolve_machine(job, parse_machine("h100*4"))


def of(job: TrainJob, *paths: str) -> tuple[object, ...]:
    return tuple(value_of(job, path) for path in paths)


def test_what_a_command_leaves_out(tmp_path: Path) -> None:
    job = read(tmp_path, LORA)
    assert (job.task, value_of(job, "model.name")) == ("lora", "qwen2.5-7b")
    # one sequence a device; 16 / 1 / 4 devices = 4 forwards; layers recomputed; bf16 as loaded
    assert of(job, "plan.microbatch", "plan.accumulation", "plan.remat") == (1, 4, "full")
    assert of(placed(job), "sequences_per_step", "plan.dp") == (16, 4)
    assert of(job, "precision.compute", "precision.weights") == ("bf16", "bf16")
    assert {what for what, _, _ in job.assumed} >= {
        *("tuner_type", "gradient_checkpointing", "torch_dtype", "bf16", "lora_rank"),
        "target_modules",
    }


def test_adapters_sit_on_every_map(tmp_path: Path) -> None:
    adapters = read(tmp_path, LORA).adapters
    assert adapters is not None
    # queries, keys and values; their output; gate and up; down
    assert dict(adapters.maps) == {"qkv_proj": 3, "out_proj": 1, "mlp_up": 2, "mlp_down": 1}
    some = read(tmp_path, LORA, " --target_modules q_proj v_proj").adapters
    assert some is not None and dict(some.maps) == {"qkv_proj": 2}


def test_recomputation_and_accumulation_as_stated(tmp_path: Path) -> None:
    more = " --gradient_checkpointing false --gradient_accumulation_steps 3"
    assert of(read(tmp_path, FULL, more), "plan.remat", "plan.accumulation") == ("none", 3)


def test_mixed_precision_follows_the_weights(tmp_path: Path) -> None:
    job = read(tmp_path, FULL, " --torch_dtype float32")
    assert of(job, "precision.compute", "precision.weights") == ("fp16", "fp32")
    stated = read(tmp_path, FULL, " --torch_dtype float32 --bf16 true --fp16 false")
    assert value_of(stated, "precision.compute") == "bf16"


def test_the_config_beside_tells_the_checkpoints_dtype(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "gpt2", "torch_dtype": "float32", "n_embd": 64, "n_head": 4, "n_layer": 2, '
        '"vocab_size": 512, "n_positions": 64}'
    )
    script = tmp_path / "train.sh"
    script.write_text(FULL.replace("{more}", ""))
    job = read_job([str(script), str(config)])
    assert value_of(job, "precision.weights") == "fp32"


@pytest.mark.parametrize(
    ("name", "axis", "sharding"),
    [
        ("zero1", "dp", "zero1"),
        ("zero2", "dp", "zero2"),
        ("zero3", "fsdp", "none"),
        ("zero2_offload", "dp", "zero2"),
        ("zero0", "dp", "none"),
    ],
)
def test_deepspeed_by_its_short_names(tmp_path: Path, name: str, axis: str, sharding: str) -> None:
    job = placed(read(tmp_path, FULL, f" --deepspeed {name}"))
    assert of(job, f"plan.{axis}", "plan.optimizer_sharding", "stack") == (4, sharding, "deepspeed")
    assert ("cpu_offload" in {f.kind for f in job.flags}) is name.endswith("offload")


def test_one_process_where_no_count_is_set(tmp_path: Path) -> None:
    alone = FULL.replace("NPROC_PER_NODE=4 ", "")
    job = read(tmp_path, alone)
    assert value_of(job, "sequences_per_step") == 16
    assert any("4 GPUs hold one process's layers" in why for _, _, why in job.assumed)


def test_several_nodes(tmp_path: Path) -> None:
    text = "NNODES=2 " + FULL.replace("--max_length", "--deepspeed zero3 --max_length")
    # 16 sequences over 8 devices: two forwards
    assert of(read(tmp_path, text), "plan.fsdp", "plan.accumulation") == (8, 2)


def test_preferences(tmp_path: Path) -> None:
    job = read(tmp_path, LORA.replace("swift sft", "swift rlhf"), " --rlhf_type orpo")
    assert (job.loss, job.reference) == ("orpo", "none")
    job = read(tmp_path, FULL.replace("swift sft", "swift rlhf"))
    assert (job.loss, job.reference) == ("dpo", "bf16")
    assert any(what == "rlhf_type" for what, _, _ in job.assumed)


def test_pretraining_and_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, FULL.replace("swift sft", "swift pt")).task == "pretrain"
    text = (
        "model: Qwen/Qwen2.5-7B\ntuner_type: full\ntorch_dtype: bfloat16\nmax_length: 1024\n"
        "per_device_train_batch_size: 2\ndeepspeed: zero3\nuse_ray: true\n"
        "device_groups:\n  nproc_per_node: 4\n"
    )
    (tmp_path / "sft.yaml").write_text(text)
    job = placed(read_job([str(tmp_path / "sft.yaml")]))
    assert of(job, "plan.fsdp", "plan.microbatch", "plan.accumulation") == (4, 2, 2)


def test_a_length_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="samples are as long as the data are; expected --set seq"):
        read(tmp_path, FULL.replace("--max_length 2048", ""))
    assert value_of(read(tmp_path, FULL.replace("--max_length 2048", ""), seq_len="512"),
                    "seq_len") == 512  # fmt: skip


def test_megatron_with_swifts_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, MEGATRON)
    assert of(job, "model.name", "seq_len", "sequences_per_step") == ("qwen3-32b", 8192, 16)
    assert of(job, "plan.tp", "plan.remat", "plan.optimizer_sharding") == (8, "selective", "zero1")
    assert (job.task, job.stack.value) == ("sft", "megatron")
    assert "packed_documents" in {flag.kind for flag in job.flags}
    assert not [one.key for one in job.ignored if one.matters]
    off = read(tmp_path, MEGATRON, " --recompute_granularity none --tuner_type lora")
    assert (off.task, value_of(off, "plan.remat")) == ("lora", "none")
    pairs = read(tmp_path, MEGATRON.replace("megatron sft", "megatron rlhf"))
    assert (pairs.loss, pairs.sequences_per_step.value) == ("dpo", 32)
