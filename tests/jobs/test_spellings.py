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
    # the mock data's GPT-2 tokenizer: 50257 rows, padded to a multiple of 128 × tp 2
    assert (found.model.vocab, found.seq_len.value) == (197 * 256, 8192)
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


FACTORY_1 = """
model: Qwen/Qwen3-4B
model_class: llm
peft_config: {name: lora, r: 16, target_modules: [q_proj, v_proj]}
dist_config: {name: fsdp2}
micro_batch_size: 2
global_batch_size: 64
cutoff_len: 4096
"""


def test_llama_factory_version_1(tmp_path: Path) -> None:
    found = job(tmp_path, FACTORY_1)
    assert (found.model.name, found.task, found.seq_len.value) == ("qwen3-4b", "lora", 4096)
    plan = plan_on(found, "h100*8")
    assert (plan.fsdp, plan.microbatch, plan.accumulation, plan.remat) == (8, 2, 4, "full")
    assert found.precision.value.compute == "bf16"  # on unless the file says otherwise
    # rank 16 on q (2560 → 32 × 128) and v (2560 → 8 × 128), 36 layers
    shown = f"{16 * 36 * ((2560 + 4096) + (2560 + 1024)):,}"
    assert ("trained parameters", shown) in [(what, value) for what, value, _ in found.assumed]
    whole = FACTORY_1.replace("peft_config: {name: lora, r: 16, target_modules: [q_proj, v_proj]}",
                              "bf16: false\ncp_size: 2\noptim_config: {name: muon}")  # fmt: skip
    found = job(tmp_path, whole)
    assert (found.task, found.optimizer.value) == ("sft", "muon")
    assert (plan_on(found, "h100*8").cp, found.precision.value.compute) == (2, "fp32")


def test_llama_factorys_ways_of_training_less_are_said(tmp_path: Path) -> None:
    text = (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\n"
        "use_badam: true\nuse_galore: false\ncutoff_len: 2048\nper_device_train_batch_size: 1\n"
    )
    found = job(tmp_path, text)
    assert [entry.key for entry in found.ignored if entry.matters] == ["use_badam"]


def test_axolotl_pretrains_on_a_pretraining_dataset(tmp_path: Path) -> None:
    text = (
        "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 1024\nmicro_batch_size: 2\n"
        "pretraining_dataset:\n  - path: x\n"
    )
    assert job(tmp_path, text).task == "pretrain"


FOUNDRY = """
max_seq_len: 2048
global_train_batch_size: 64
device_train_microbatch_size: 8
precision: amp_bf16
model: {name: hf_causal_lm, pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf,
        peft_config: {peft_type: LORA, r: 4, target_modules: [q_proj]}}
train_loader: {name: finetuning}
optimizer: {name: decoupled_adamw}
"""


def test_llm_foundrys_fine_tuning(tmp_path: Path) -> None:
    found = job(tmp_path, FOUNDRY)
    assert (found.model.name, found.task) == ("llama-2-7b", "lora")
    # rank 4 on q, 4096 → 4096, 32 layers
    shown = f"{4 * 32 * (4096 + 4096):,}"
    assert ("trained parameters", shown) in [(what, value) for what, value, _ in found.assumed]
    plain = FOUNDRY.replace("peft_config: {peft_type: LORA, r: 4, target_modules: [q_proj]}", "")
    assert job(tmp_path, plain).task == "sft"
    fused = FOUNDRY.replace("q_proj", "Wqkv").replace("meta-llama/Llama-2-7b-hf", "mosaicml/mpt-7b")
    # 32 layers of 4 × 4096² + 2 × 4 × 4096², and the head over 50,432; q, k and v are one map,
    # 4096 → 3 × 4096, with 4 × (4096 + 3 × 4096) beside it
    share = 32 * 4 * 4 * 4096 / (32 * 12 * 4096**2 + 50432 * 4096)
    assert job(tmp_path, fused).trainable_fraction == pytest.approx(share)


CHAT = """#!/bin/bash
STAGE=$1
if [ "$STAGE" == "" ]; then STAGE=3; fi
deepspeed main.py --model_name_or_path meta-llama/Llama-2-7b-hf --data_split 2,4,4 \\
  --per_device_train_batch_size 4 --max_seq_len 512 --zero_stage $STAGE --deepspeed \\
  --lora_dim 128 --lora_module_name layers. WAY
"""


def test_deepspeed_chat(tmp_path: Path) -> None:
    found = job(tmp_path, CHAT.replace("WAY", ""), "run.sh")
    assert (found.precision.value.compute, found.precision.value.master) == ("fp16", "fp32")
    assert plan_on(found, "a100*8").fsdp == 8
    assert any(entry.key == "lora_dim" and entry.matters for entry in found.ignored)
    few = job(
        tmp_path, CHAT.replace("WAY", "--only_optimize_lora --dtype bf16 --offload"), "run.sh"
    )
    assert (few.task, few.precision.value.compute) == ("lora", "bf16")
    assert "cpu_offload" in {flag.kind for flag in few.flags}


CHOICE = """#!/bin/bash
TEST=$1
if [ $TEST == "z0" ]; then
  python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --block_size 512
fi
"""


def test_the_argument_that_a_script_chooses_by_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(CHOICE)
    with pytest.raises(InputError, match=r"--set args='\.\.\.'.*\$1 is TEST"):
        read_job([str(file)])
    assert read_job([str(file)], overrides={"args": "z0"}).model.name == "gpt2"


def test_nanotrons_masked_documents_are_no_kernel(tmp_path: Path) -> None:
    text = """
parallelism: {dp: 2, tp: 1, pp: 1}
tokens: {sequence_length: 256, micro_batch_size: 2, batch_accumulation_per_replica: 1}
model:
  model_config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 256,
    intermediate_size: 128, num_key_value_heads: 4, is_llama_config: true,
    _attn_implementation: flash_attention_2, _use_doc_masking: true}
"""
    found = job(tmp_path, text)
    assert {"attention_kernel", "packed_documents"} <= {flag.kind for flag in found.flags}
    assert not [entry for entry in found.ignored if entry.matters]


@pytest.mark.parametrize(
    ("words", "remat"),
    [
        ("decoder_layer_input=offload", "custom:offload=block_input"),
        ("decoder_layer_input=device", "full"),  # where a layer's input is kept anyway
        ("qkv_proj=device out_proj=offload mlpwo=offload", "custom:saved=qkv,offload=out_proj"),
        ("context=remat", "full"),
    ],
)
def test_maxtexts_custom_policy_names_its_tensors(tmp_path: Path, words: str, remat: str) -> None:
    command = (
        "python3 -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-8b "
        f"per_device_batch_size=1 max_target_length=2048 remat_policy=custom {words}\n"
    )
    found = job(tmp_path, command, "run.sh")
    assert found.plan is not None and found.plan.value.remat == remat
