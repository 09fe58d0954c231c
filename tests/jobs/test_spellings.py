"""Spellings that real files have and that were once read wrongly, format by format."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine


def job(folder: Path, text: str, name: str = "job.yaml", model: str | None = None) -> TrainJob:
    file = folder / name
    file.write_text(text)
    return read_job([str(file)], model=model)


def plan_on(found: TrainJob, machine: str) -> Plan:
    plan = resolve_machine(found, parse_machine(machine)).plan
    assert plan is not None
    return plan.value


NEMO_PEFT = """
name: tuning
run: {model_train_name: llama2_7b}
trainer: {devices: 8, num_nodes: 1, precision: bf16}
model:
  global_batch_size: 128
  micro_batch_size: 4
  tensor_model_parallel_size: 2
  restore_from_path: /nemo/llama2_7b.nemo
  peft:
    peft_scheme: lora
    lora_tuning: {adapter_dim: 16, target_modules: [attention_qkv, mlp_fc2]}
  data:
    train_ds: {max_seq_length: 2048, micro_batch_size: 4}
    validation_ds: {max_seq_length: 512, micro_batch_size: 1, global_batch_size: 8}
"""


def test_nemo_1_fine_tuning(tmp_path: Path) -> None:
    found = job(tmp_path, NEMO_PEFT)
    assert (found.model.name, found.task, found.seq_len.value) == ("llama-2-7b", "lora", 2048)
    plan = plan_on(found, "h100*8")
    # the batches of validation are not those of training: 128 / (4 × 8 / 2) = 8 forwards
    assert (plan.tp, plan.dp, plan.microbatch, plan.accumulation) == (2, 4, 4, 8)
    # rank 16 on q, k, v (4096 → 4096 each) and down (11008 → 4096), 32 layers
    shown = f"{16 * 32 * (3 * 8192 + 11008 + 4096):,}"
    assert ("trained parameters", shown) in [(what, value) for what, value, _ in found.assumed]


def test_nemo_1_adapters_of_another_kind_are_said(tmp_path: Path) -> None:
    found = job(tmp_path, NEMO_PEFT.replace("peft_scheme: lora", "peft_scheme: ptuning"))
    assert found.task == "sft"
    assert any(entry.key == "model.peft.peft_scheme" and entry.matters for entry in found.ignored)


NEMO_LLM = """#!/bin/bash
export NVTE_FUSED_ATTN=0
nemo llm pretrain --factory "llama3_8b(num_nodes=2)" \\
  trainer.strategy.tensor_model_parallel_size=2 data.global_batch_size=64
"""


def test_nemo_2_recipes_on_a_command_line(tmp_path: Path) -> None:
    found = job(tmp_path, NEMO_LLM, "run.sh")
    assert (found.model.name, found.seq_len.value) == ("llama-3-8b", 8192)
    assert found.devices is not None and found.devices.value == 16
    plan = plan_on(found, "h100*16")
    # the recipe's own cp 2 stays: 16 / (2 × 2) = 4 replicas
    assert (plan.tp, plan.cp, plan.dp, plan.accumulation) == (2, 2, 4, 16)
    lines = {entry.line for entry in found.understood if entry.line is not None}
    assert lines == {3}
    with pytest.raises(InputError, match="without a recipe"):
        job(tmp_path, NEMO_LLM.replace('"llama3_8b(num_nodes=2)"', "$RECIPE"), "run.sh")


LEVANTER = """
data: {id: x}
tokenizer: meta-llama/Llama-3.1-8B-Instruct
model: {type: llama, hidden_dim: 4096, intermediate_dim: 14336, num_heads: 32, num_kv_heads: 8,
        num_layers: 32, seq_len: 4096}
initialize_from_hf: true
model_name_or_path: meta-llama/Llama-3.1-8B
trainer:
  mp: p=f32,c=bfloat16
  train_batch_size:
    - {start: 0, value: 64}
    - {start: 1000, value: 256}
    - {start: 500, value: 128}
"""


def test_levanters_batch_schedule_and_tokenizer(tmp_path: Path) -> None:
    found = job(tmp_path, LEVANTER)
    assert (found.model.vocab, found.task) == (128256, "sft")  # Llama 3's, not the default's
    assert found.sequences_per_step.value == 256  # from step 1000 on
    assert any("64 from step 0" in why for _, _, why in found.assumed)


def test_levanters_adapters_on_a_hub_model(tmp_path: Path) -> None:
    text = """
data: {id: x, tokenizer: NousResearch/Llama-2-7b-hf}
initialize_from_hf: NousResearch/Llama-2-7b-hf
peft_save_path: out
max_train_length: 2048
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: -1, per_device_parallelism: 4}
"""
    found = job(tmp_path, text)
    assert (found.model.name, found.task, found.seq_len.value) == ("llama-2-7b", "lora", 2048)
    on = resolve_machine(found, parse_machine("h100*8"))
    assert on.sequences_per_step.value == 4 * 8  # as many as the devices take at once


def test_accelerates_sequence_parallel_size(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.1-8B\nmax_length: 4096\nbf16: true\n"
        "per_device_train_batch_size: 1\n"
    )
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n"
        "parallelism_config:\n  parallelism_config_dp_shard_size: 2\n"
        "  parallelism_config_sp_size: 2\n  parallelism_config_sp_backend: deepspeed\n"
    )
    found = read_job([str(tmp_path / "sft.yaml"), str(tmp_path / "acc.yaml")])
    assert (plan_on(found, "h100*4").fsdp, plan_on(found, "h100*4").cp) == (2, 2)


TRL = '''"""Run it by
accelerate launch rloo.py --model_name_or_path x --per_device_train_batch_size 2 ((((((((((((((((
"""
from datasets import load_dataset
from trl import RLOOConfig, RLOOTrainer

args = RLOOConfig(output_dir="x", per_device_train_batch_size=2, max_length=512, bf16=True)
trainer = RLOOTrainer(model="Qwen/Qwen2.5-0.5B", args=args)
'''


def test_a_python_script_is_not_read_as_the_shell_in_its_documentation(tmp_path: Path) -> None:
    found = job(tmp_path, TRL, "rloo.py")
    assert (found.model.name, found.seq_len.value) == ("qwen2.5-0.5b", 512)
    parsed = TRL.replace("RLOOConfig(output", "TrlParser((RLOOConfig,)); _ = dict(output")
    with pytest.raises(InputError, match="takes its settings from its command line"):
        job(tmp_path, parsed.replace('RLOOTrainer(model="Qwen/Qwen2.5-0.5B", args=args)', "0"), "a")
