"""Small files in the shape of each framework's own, and what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """Files by name, given in this order, and the values that reading them must give.

    Attributes:
        on: machine that the job is then resolved on, or "".
        expect: ``plan.X``, ``precision.X`` or a field of the job, and its value.
        flags: kinds of flags that must be among the job's.
    """

    name: str
    files: dict[str, str]
    expect: dict[str, Any]
    on: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


TRL_SFT = """
model_name_or_path: meta-llama/Llama-3.1-8B
torch_dtype: bfloat16
attn_implementation: flash_attention_2
bf16: true
gradient_accumulation_steps: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
max_seq_length: 2048
per_device_train_batch_size: 8
learning_rate: 2.0e-05
optim: adamw_torch_fused
packing: true
"""

ACCELERATE_FSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""

DEEPSPEED = """{
  // stage and precision
  "bf16": {"enabled": "auto"},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "stage3_max_live_parameters": 1e9,
  },
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
"""

HF_CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
"""

TRAINER_COMMAND = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:a100:8
export NCCL_DEBUG=INFO
GPUS=8
deepspeed --num_nodes $SLURM_NNODES --num_gpus $GPUS run_clm.py \\
    --model_name_or_path mistralai/Mistral-7B-v0.1 \\
    --per_device_train_batch_size 4 \\
    --gradient_accumulation_steps=8 \\
    --block_size 4096 \\
    --bf16 True --gradient_checkpointing \\
    --deepspeed configs/ds.json
"""

TRAINER_SCRIPT = """
from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
from peft import LoraConfig
import torch, os

BATCH = 2
os.system("touch /tmp/never")
model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
peft = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"])
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=BATCH,
    gradient_accumulation_steps=4 * BATCH,
    bf16=True,
    fsdp="full_shard auto_wrap",
    optim="adafactor",
)
"""

AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
"""

LLAMA_FACTORY = """
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
### dataset
cutoff_len: 2048
template: llama3
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
bf16: true
"""

TORCHTUNE = """
output_dir: /tmp/torchtune/llama3_1_8B/full
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/Meta-Llama-3.1-8B-Instruct/original/tokenizer.model
  max_seq_len: 8192
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: true
batch_size: 2
gradient_accumulation_steps: 1
optimizer:
  _component_: torch.optim.AdamW
  fused: true
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
compile: true
enable_activation_checkpointing: true
dtype: bf16
tensor_parallel_dim: 2
"""

CASES = (
    Case(
        "TRL YAML alone is DDP",
        {"sft.yaml": TRL_SFT},
        {
            "model.name": "llama-3.1-8b",
            "seq_len": 2048,
            "plan_open": "dp",
            "plan.microbatch": 8,
            "plan.remat": "full",
            "plan.accumulation": 2,
            "precision.compute": "bf16",
            "precision.weights": "bf16",
            "precision.moments": "bf16",
            "optimizer": "adamw",
        },
        flags=frozenset({"attention_kernel", "fused_optimizer", "packed_documents"}),
    ),
    Case(
        # 16 processes shard everything; 8 × 2 × 16 sequences; weights are kept in fp32
        "TRL YAML launched by Accelerate with FSDP",
        {"sft.yaml": TRL_SFT, "fsdp.yaml": ACCELERATE_FSDP},
        {
            "plan.fsdp": 16,
            "plan.dp": 1,
            "sequences_per_step": 256,
            "devices": 16,
            "precision.weights": "fp32",
            "precision.gather": "bf16",
            "precision.reduce": "bf16",
            "precision.master": "none",
        },
    ),
    Case(
        # SHARD_GRAD_OP: gathered bf16 weights stay, their fp32 shards are the master copy
        "TRL YAML launched by Accelerate with FSDP that shards gradients only",
        {"sft.yaml": TRL_SFT, "fsdp.yaml": ACCELERATE_FSDP.replace("FULL_SHARD", "SHARD_GRAD_OP")},
        {
            "plan.dp": 16,
            "plan.optimizer_sharding": "zero2",
            "precision.weights": "bf16",
            "precision.master": "fp32",
            "precision.moments": "fp32",
        },
    ),
    Case(
        # HYBRID_SHARD within the node of 8: two replicas
        "TRL YAML launched by Accelerate with hybrid sharding",
        {"sft.yaml": TRL_SFT, "fsdp.yaml": ACCELERATE_FSDP.replace("FULL_SHARD", "HYBRID_SHARD")},
        {"plan.dp": 2, "plan.fsdp": 8, "sequences_per_step": 256, "precision.gather": "bf16"},
    ),
    Case(
        # 4 nodes × 8; 4 × 8 × 32 = 1024; DeepSpeed holds bf16 weights and an fp32 master copy
        "a Trainer command with its DeepSpeed file",
        {"run.sh": TRAINER_COMMAND, "ds.json": DEEPSPEED},
        {
            "model.name": "mistral-7b-v0.1",
            "stack": "deepspeed",
            "machine": "a100*32",
            "plan.fsdp": 32,
            "sequences_per_step": 1024,
            "seq_len": 4096,
            "precision.weights": "bf16",
            "precision.gradients": "bf16",
            "precision.master": "fp32",
            "precision.moments": "fp32",
        },
        flags=frozenset({"deepspeed", "nccl"}),
    ),
    Case(
        "a DeepSpeed file, a config.json and --set",
        {
            "ds.json": '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,'
            ' "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1},'
            ' "fp16": {"enabled": true}}',
            "config.json": HF_CONFIG,
        },
        # 64 / (2 × 4) = 8 replicas
        {
            "seq_len": 32,
            "plan.dp": 8,
            "plan.optimizer_sharding": "zero1",
            "plan_open": "",
            "precision.compute": "fp16",
        },
        settings={"seq_len": "32"},
        flags=frozenset({"loss_scaler"}),
    ),
    Case(
        # LoRA on q and v of 32 layers: 16·((4096 + 4096) + (4096 + 1024)); all: maps and head
        "a script that calls TrainingArguments",
        {"train.py": TRAINER_SCRIPT},
        {
            "model.name": "llama-3.1-8b",
            "task": "lora",
            "plan.microbatch": 2,
            "plan.accumulation": 8,
            "plan_open": "fsdp",
            "optimizer": "adafactor",
            "trainable_fraction": 32
            * 16
            * (8192 + 5120)
            / (32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096),
        },
        settings={"seq_len": "1024"},
    ),
    Case(
        "axolotl holds a fully tuned model in bf16 without DeepSpeed or FSDP",
        {
            "fft.yml": "base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 2048\n"
            "bf16: auto\n"
            "micro_batch_size: 1\n"
        },
        {"precision.weights": "bf16", "precision.moments": "bf16", "precision.master": "none"},
    ),
    Case(
        "LLaMA-Factory holds the frozen weights of LoRA in bf16",
        {
            "lora.yaml": LLAMA_FACTORY.replace(
                "finetuning_type: full", "finetuning_type: lora\nlora_rank: 8"
            ).replace("deepspeed: examples/deepspeed/ds_z3_config.json", "")
        },
        {"precision.weights": "bf16", "task": "lora", "plan_open": "dp"},
    ),
    Case(
        "axolotl QLoRA",
        {"qlora.yml": AXOLOTL},
        {
            "model.name": "llama-3.1-8b",
            "task": "lora",
            "seq_len": 4096,
            "plan.microbatch": 2,
            "precision.weights": "int4",
            "precision.compute": "bf16",
            "precision.moments": "int8",
        },
        flags=frozenset({"quantised_weights", "quantised_optimizer", "attention_kernel"}),
    ),
    Case(
        "LLaMA-Factory names its DeepSpeed stage in a file name",
        {"full.yaml": LLAMA_FACTORY},
        {
            "plan.fsdp": 8,
            "plan.remat": "full",
            "stack": "deepspeed",
            "sequences_per_step": 16,  # 1 × 2 × 8
            "precision.master": "fp32",
        },
        on="h100*8",
    ),
    Case(
        # 16 devices / tp 2 = 8 shards; 2 × 8 sequences
        "torchtune full fine-tuning, bf16 throughout",
        {"8B_full.yaml": TORCHTUNE},
        {
            "model.name": "llama-3.1-8b",
            "plan.fsdp": 8,
            "plan.tp": 2,
            "plan.remat": "full",
            "sequences_per_step": 16,
            "precision.weights": "bf16",
            "precision.moments": "bf16",
            "precision.master": "none",
            "loss_chunks": 8,
        },
        on="h100*16",
        flags=frozenset({"compile", "fused_optimizer"}),
    ),
)
