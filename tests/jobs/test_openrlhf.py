"""OpenRLHF's programs, in the spelling with sections and in the older one."""

from pathlib import Path

from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

from .test_formats import value_of

SCRIPT = """read -r -d '' training_commands <<EOF
openrlhf.cli.train_{kind} \\
   --data.max_len 2048 --train.batch_size 256 --train.micro_batch_size 2 \\
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \\
   --ds.zero_stage 3 --ds.param_dtype bf16 --ds.packing_samples \\
   --model.gradient_checkpointing_enable
EOF
deepspeed --module $training_commands
"""
OLD = """deepspeed --module openrlhf.cli.train_sft \\
   --pretrain meta-llama/Meta-Llama-3-8B --max_len 1024 --train_batch_size 64 \\
   --micro_train_batch_size 1 --bf16 --lora_rank 16
"""


def read(folder: Path, text: str) -> TrainJob:
    (folder / "train.sh").write_text(text)
    return read_job([str(folder / "train.sh")])


def of(job: TrainJob, *paths: str) -> tuple[object, ...]:
    return tuple(value_of(job, path) for path in paths)


def test_fine_tuning(tmp_path: Path) -> None:
    job = read(tmp_path, SCRIPT.format(kind="sft"))
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (2048, 256, 2)
    assert of(job, "plan.remat", "precision.compute", "stack") == ("full", "bf16", "deepspeed")
    assert job.plan_open == "fsdp"
    placed = resolve_machine(job, parse_machine("h100*16"))
    # 256 / (2 × 16) forwards
    assert of(placed, "plan.fsdp", "plan.accumulation") == (16, 8)


def test_preferences(tmp_path: Path) -> None:
    job = read(tmp_path, SCRIPT.format(kind="dpo"))
    assert (job.loss, job.reference, job.sequences_per_step.value) == ("dpo", "bf16", 512)
    assert read(tmp_path, SCRIPT.format(kind="rm")).loss == "reward"


def test_the_older_spelling_and_what_it_leaves_out(tmp_path: Path) -> None:
    job = read(tmp_path, OLD)
    assert (job.task, value_of(job, "sequences_per_step")) == ("lora", 64)
    # stage 2 by default; nothing is recomputed
    assert of(job, "plan.optimizer_sharding", "plan.remat") == ("zero2", "none")
    assert any(what == "zero_stage" for what, _, _ in job.assumed)
