"""Accelerate's YAML and ``accelerate launch`` are read the way Accelerate documents them."""

from pathlib import Path

import pytest

from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job

ARGUMENTS = (
    "train.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2"
    " --gradient_accumulation_steps 4 --max_seq_length 4096"
)
TRAINING = """{"model_name_or_path": "meta-llama/Llama-3.1-8B", "per_device_train_batch_size": 2,
"max_seq_length": 4096%s}"""


def job(tmp_path: Path, **files: str) -> TrainJob:
    """The job of files given by name, a dot as ``__``."""
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text)
        paths.append(str(path))
    return read_job(paths)


def plan_of(read: TrainJob) -> Plan:
    assert read.plan is not None
    return read.plan.value


def launch(options: str, arguments: str = ARGUMENTS) -> str:
    return f"#!/bin/bash\naccelerate launch {options} \\\n  {arguments}\n"


def test_the_launch_commands_own_fsdp_is_read(tmp_path: Path) -> None:
    options = (
        "--num_processes 16 --num_machines 2 --mixed_precision bf16 --use_fsdp"
        " --fsdp_sharding_strategy FULL_SHARD --fsdp_activation_checkpointing true"
    )
    read = job(tmp_path, run__sh=launch(options))
    plan, precision = plan_of(read), read.precision.value
    assert (plan.fsdp, plan.microbatch, plan.accumulation, plan.remat) == (16, 2, 4, "full")
    assert read.sequences_per_step.value == 16 * 2 * 4
    assert (precision.compute, precision.weights, precision.gather) == ("bf16", "fp32", "bf16")


def test_the_launch_commands_own_deepspeed_is_read_hyphens_too(tmp_path: Path) -> None:
    options = "--num-processes 8 --use-deepspeed --zero-stage 2 --mixed-precision fp16"
    read = job(tmp_path, run__sh=launch(options))
    plan, precision = plan_of(read), read.precision.value
    assert (plan.dp, plan.fsdp, plan.optimizer_sharding) == (8, 1, "zero2")
    assert read.stack.value == "deepspeed"
    assert (precision.compute, precision.master) == ("fp16", "fp32")


def test_the_command_goes_before_the_file_that_it_names(tmp_path: Path) -> None:
    """A job of three nodes, one of which serves: sixteen processes on two machines."""
    file = "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
    script = (
        "#!/bin/bash\n#SBATCH --nodes=3\nN=$((SLURM_NNODES - 1))\n"
        'LAUNCHER="accelerate launch --config_file fsdp.yaml --num_processes $((N * 8))'
        ' --num_machines $N"\nsrun --nodes=$N bash -c "$LAUNCHER sft.py"\n'
    )
    training = TRAINING % ""
    read = job(tmp_path, run__sh=script, fsdp__yaml=file, args__json=training)
    assert plan_of(read).fsdp == 16
    assert read.sequences_per_step.value == 32


def test_accelerates_module_is_its_command(tmp_path: Path) -> None:
    script = f"python -u -m accelerate.commands.launch --num_processes 4 --use_fsdp {ARGUMENTS}\n"
    assert plan_of(job(tmp_path, run__sh=script)).fsdp == 4


@pytest.mark.parametrize(
    ("stated", "kind"), [("", "allgather"), ("cp_comm_strategy: alltoall", "ring")]
)
def test_axes_of_fsdp_2_keep_its_dtypes_and_exchange(
    tmp_path: Path, stated: str, kind: str
) -> None:
    axes = {"dp_replicate_size": 2, "dp_shard_size": 2, "tp_size": 1, "cp_size": 2}
    file = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nparallelism_config:\n"
    file += "".join(f"  parallelism_config_{axis}: {size}\n" for axis, size in axes.items())
    file += f"  parallelism_config_{stated}\n" if stated else ""
    read = job(tmp_path, acc__yaml=file, args__json=TRAINING % "")
    plan, precision = plan_of(read), read.precision.value
    assert (plan.dp, plan.fsdp, plan.cp, plan.cp_kind) == (2, 2, 2, kind)
    assert (precision.weights, precision.gather, precision.reduce) == ("fp32", "bf16", "bf16")
    assert not any("neither FSDP" in why for _, _, why in read.assumed)


@pytest.mark.parametrize(("half", "sums"), [("bf16", "fp32"), ("fp16", "fp16")])
def test_megatron_keeps_its_own_copies(tmp_path: Path, half: str, sums: str) -> None:
    file = (
        f"distributed_type: MEGATRON_LM\nmixed_precision: {half}\nnum_processes: 8\n"
        "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n"
        "  megatron_lm_num_micro_batches: 4\n  megatron_lm_use_distributed_optimizer: true\n"
    )
    read = job(tmp_path, acc__yaml=file, args__json=TRAINING % "")
    plan, precision = plan_of(read), read.precision.value
    assert (plan.tp, plan.pp, plan.dp, plan.accumulation) == (2, 2, 2, 4)
    assert (precision.weights, precision.gradients, precision.master) == (half, sums, "fp32")


def test_the_trainers_bf16_goes_before_the_files_no(tmp_path: Path) -> None:
    file = "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 2\n"
    read = job(tmp_path, acc__yaml=file, args__json=TRAINING % ', "bf16": true')
    assert read.precision.value.compute == "bf16"
    assert not any(entry.key == "mixed" for entry in read.ignored)
    read = job(tmp_path, acc__yaml=file, args__json=TRAINING % "")
    assert read.precision.value.compute == "fp32"


def test_processes_on_cpus_are_said(tmp_path: Path) -> None:
    file = "distributed_type: MULTI_CPU\nmixed_precision: 'no'\nnum_processes: 4\n"
    read = job(tmp_path, acc__yaml=file, args__json=TRAINING % "")
    assert ("processes", "CPUs") in [(what, value) for what, value, _ in read.assumed]


@pytest.mark.parametrize("base", ["--config_name gpt2", "--model_type gpt2"])
def test_a_model_from_scratch_by_its_config_and_what_overrides_it(
    tmp_path: Path, base: str
) -> None:
    arguments = (
        f"run_clm.py {base} --config_overrides n_embd=1024,n_head=16,n_layer=24,n_positions=2048"
        " --block_size 1024 --per_device_train_batch_size 4"
    )
    model = job(tmp_path, run__sh=launch("--num_processes 4", arguments)).model
    assert (model.n_layers, model.d_model, model.vocab) == (24, 1024, 50257)
