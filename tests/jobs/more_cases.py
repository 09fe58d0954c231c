"""More small files in the shape of each framework's own: pretraining stacks and recipes."""

from __future__ import annotations

from .cases import TRL_SFT, Case

MAXTEXT_XPK = """#!/bin/bash
export LIBTPU_INIT_ARGS="--xla_tpu_enable_async_collective_fusion=true"
DEVICE=v6e-256
xpk workload create --tpu-type=$DEVICE --num-slices=2 --command="python3 -m MaxText.train \\
    MaxText/configs/base.yml model_name=llama3.1-70b per_device_batch_size=2 \\
    ici_fsdp_parallelism=64 ici_tensor_parallelism=4 dcn_data_parallelism=2 \\
    max_target_length=8192 remat_policy=save_qkv_proj attention=flash"
"""

MAXTEXT_YAML = """
base_config: "base.yml"
hardware: "gpu"
model_name: "llama2-7b"
attention: "cudnn_flash_te"
remat_policy: "minimal_with_context"
per_device_batch_size: 4
max_target_length: 4096
ici_tensor_parallelism: 2
weight_dtype: bfloat16
"""

NANOTRON = """
general: {project: debug, run: tiny, seed: 42}
model:
  dtype: bfloat16
  model_config:
    hidden_size: 64
    intermediate_size: 128
    is_llama_config: true
    num_attention_heads: 4
    num_hidden_layers: 4
    num_key_value_heads: 2
    tie_word_embeddings: true
    vocab_size: 256
optimizer:
  accumulate_grad_in_fp32: true
  optimizer_factory: {name: adamW, torch_adam_is_fused: true}
  zero_stage: 1
parallelism:
  dp: 4
  pp: 2
  pp_engine: afab
  tp: 2
  tp_mode: REDUCE_SCATTER
tokens:
  batch_accumulation_per_replica: 8
  micro_batch_size: 2
  sequence_length: 128
"""

FOUNDRY = """
variables:
  max_seq_len: 4096
  model_name: meta-llama/Llama-3.1-8B
max_seq_len: ${variables.max_seq_len}
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: ${variables.model_name}
optimizer:
  name: decoupled_adamw
  lr: 1.2e-4
global_train_batch_size: 512
device_train_microbatch_size: auto
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""

LEVANTER = """
data:
  tokenizer: "NousResearch/Llama-2-7b-hf"
model:
  type: llama
  hidden_dim: 4096
  intermediate_dim: 11008
  num_heads: 32
  num_kv_heads: 32
  num_layers: 32
  seq_len: 4096
trainer:
  mp: p=f32,c=bfloat16
  model_axis_size: 2
  per_device_parallelism: 2
  train_batch_size: 1024
optimizer:
  learning_rate: 6E-4
"""

NANOGPT = """
# 12 sequences × 1024 tokens × 5 forwards × 8 GPUs
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8
n_layer = 24
n_head = 16
n_embd = 1024
dtype = 'float16'
wandb_log = True
"""

LIGHTNING = """
import lightning as L
from lightning.pytorch.strategies import FSDPStrategy
from transformers import AutoModelForCausalLM

max_length = 2048
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
loader = DataLoader(data, batch_size=4, num_workers=8)
trainer = L.Trainer(
    devices=8, num_nodes=2, precision="bf16-mixed", accumulate_grad_batches=2,
    strategy=FSDPStrategy(activation_checkpointing_policy={Block}),
)
trainer.fit(model, loader)
"""

NEMO_1 = """
name: megatron_gpt
trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  normalization: rmsnorm
  activation: fast-swiglu
  bias: false
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  tokenizer:
    library: huggingface
    type: meta-llama/Llama-2-7b-hf
  optim:
    name: distributed_fused_adam
"""

BRIDGE = '''
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common
import torch


def llama3_8b_pretrain_16gpu_h100_fp8_config():
    """A recipe."""
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.mixed_precision = _perf_precision("fp8_cs")
    cfg.dataset.seq_length = 8192
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.context_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 8 * 16
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_distributed_optimizer = True
    cfg.optimizer.exp_avg_dtype = torch.bfloat16
    cfg.optimizer.exp_avg_sq_dtype = torch.bfloat16
    return cfg
'''

MORE_CASES = (
    Case(
        # 256 chips a slice = fsdp 64 × tp 4; two slices = dp 2; 2 × 512 devices = 1024 sequences;
        # a replica of 4 devices takes 2 × 4 sequences a forward
        "MaxText launched by XPK",
        {"run.sh": MAXTEXT_XPK},
        {
            "model.name": "llama-3.1-70b",
            "stack": "maxtext",
            "machine": "v6e:16x16*2",
            "plan.dp": 2,
            "plan.fsdp": 64,
            "plan.tp": 4,
            "plan.microbatch": 8,
            "sequences_per_step": 1024,
            "seq_len": 8192,
            "plan.remat": "save_qkv_proj",
            "precision.weights": "fp32",
            "precision.gather": "bf16",
        },
        flags=frozenset({"xla_flags", "attention_kernel"}),
    ),
    Case(
        # two nodes are two slices, over which dcn_data_parallelism -1 replicates; of the 8 devices
        # in each fsdp 4 × tp 2; 4 × 16 = 64 sequences
        "MaxText YAML over base.yml's defaults",
        {"llama2.yml": MAXTEXT_YAML},
        {
            "model.name": "llama-2-7b",
            "plan.dp": 2,
            "plan.fsdp": 4,
            "plan.tp": 2,
            "sequences_per_step": 64,
            "precision.moments": "bf16",
        },
        on="h100*16",
    ),
    Case(
        # 2 × 8 × 4 replicas
        "nanotron",
        {"tiny.yaml": NANOTRON},
        {
            "stack": "nanotron",
            "model.n_layers": 4,
            "plan.dp": 4,
            "plan.pp": 2,
            "plan.schedule": "gpipe",
            "plan.sequence_parallel": True,
            "plan.optimizer_sharding": "zero1",
            "sequences_per_step": 64,
            "precision.weights": "bf16",
            "precision.gradients": "fp32",
            "precision.master": "fp32",
        },
        on="h100*16",
    ),
    Case(
        # 512 / 64 devices = 8 forwards of one
        "llm-foundry with interpolation and an automatic microbatch",
        {"llama.yaml": FOUNDRY},
        {
            "stack": "llm-foundry",
            "model.name": "llama-3.1-8b",
            "seq_len": 4096,
            "plan.fsdp": 64,
            "plan.accumulation": 8,
            "plan.remat": "full",
            "precision.weights": "fp32",
            "precision.gather": "bf16",
            "precision.reduce": "bf16",
        },
        on="h100*64",
    ),
    Case(
        # tp 2: 32 shards; 2 × 2 sequences a replica; 1024 / (4 × 32) = 8
        "Levanter",
        {"llama.yaml": LEVANTER},
        {
            "stack": "levanter",
            "model.name": "llama-2-7b",
            "plan.fsdp": 32,
            "plan.tp": 2,
            "plan.microbatch": 4,
            "plan.accumulation": 8,
            "plan.remat": "full",
            "precision.weights": "fp32",
            "precision.compute": "bf16",
        },
        on="h100*64",
    ),
    Case(
        # the accumulation is that of all devices: 12 × 40 = 480 sequences whatever they are
        "nanoGPT",
        {"train_gpt2_medium.py": NANOGPT},
        {
            "model.n_layers": 24,
            "model.d_model": 1024,
            "sequences_per_step": 480,
            "plan.dp": 8,
            "plan.accumulation": 5,
            "precision.compute": "fp16",
            "precision.weights": "fp32",
        },
        on="a100*8",
        flags=frozenset({"compile", "loss_scaler"}),
    ),
    Case(
        # 2 nodes × 8; 4 × 2 × 16
        "Lightning with FSDP",
        {"train.py": LIGHTNING},
        {
            "model.name": "mistral-7b-v0.1",
            "seq_len": 2048,
            "plan.fsdp": 16,
            "plan.remat": "full",
            "sequences_per_step": 128,
            "precision.gather": "bf16",
        },
    ),
    Case(
        # 4 × 8 devices / (4 × 2) = 4 replicas; 128 / 4 = 32 forwards
        "NeMo 1",
        {"gpt.yaml": NEMO_1},
        {
            "model.name": "llama-2-7b",
            "stack": "megatron",
            "devices": 32,
            "plan.dp": 4,
            "plan.tp": 4,
            "plan.pp": 2,
            "plan.accumulation": 32,
            "plan.remat": "selective",
            "plan.optimizer_sharding": "zero1",
            "seq_len": 4096,
        },
    ),
    Case(
        # 16 devices / (2 × 2) = 4 replicas; 128 / 4 = 32 forwards
        "a Megatron-Bridge recipe",
        {"llama3.py": BRIDGE},
        {
            "model.name": "llama-3-8b",
            "plan.tp": 2,
            "plan.cp": 2,
            "plan.dp": 4,
            "plan.accumulation": 32,
            "precision.compute": "fp8",
            "precision.weights": "bf16",
            "precision.moments": "bf16",
        },
        on="h100*16",
        flags=frozenset({"fp8_recipe", "transformer_engine"}),
    ),
)

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
"""

TITAN_RUN = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
CONFIG_FILE=${CONFIG_FILE:-"./train_configs/llama3_8b.toml"}
srun torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train \\
    --job.config_file ${CONFIG_FILE} --training.local_batch_size 2 \\
    --parallelism.tensor_parallel_degree=2 --compile.enable
"""

SLURM_AXOLOTL = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:8
export NCCL_DEBUG=WARN
srun accelerate launch -m axolotl.cli.train configs/qlora.yml
"""

TUNE = """tune run --nnodes 1 --nproc_per_node 8 full_finetune_distributed \\
    --config 8B.yaml batch_size=4
"""

ACCELERATE_LAUNCH = """#!/bin/bash
accelerate launch --config_file configs/fsdp.yaml --num_processes 16 sft.py \\
    --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 \\
    --max_length 4096 --bf16
"""

ACCELERATE_YAML = """
distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: true
num_processes: 8
"""

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: llama}
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      nodeSelector:
        cloud.google.com/gke-accelerator: nvidia-h100-80gb
      containers:
      - name: train
        image: megatron
        env:
        - name: NCCL_DEBUG
          value: INFO
        - name: TP
          value: "4"
        command: ["bash", "-c"]
        args:
        - |
          torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \\
            --tensor-model-parallel-size $TP --num-layers 32 --hidden-size 4096 \\
            --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --disable-bias-linear \\
            --normalization RMSNorm --position-embedding-type rope \\
            --untie-embeddings-and-output-weights --vocab-size 32000 \\
            --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16
        resources:
          limits:
            nvidia.com/gpu: 8
"""

MEGATRON_YAML = """
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  ffn_hidden_size: null
  vocab_size: 50304
model_parallel:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  bf16: true
micro_batch_size: 2
global_batch_size: 32
seq_length: 1024
"""

TITAN_PYTHON = """
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer
from . import model_registry


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=model_registry("8B"),
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 8192,
            max_context_length=8192,
        ),
        activation_checkpoint=SelectiveAC.Config(),
    )


def llama3_8b_float8_tp() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism.tensor_parallel_degree = 4
    config.compile = CompileConfig(enable=True)
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    return config
"""

ADAPTER = """{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "mistralai/Mistral-7B-v0.1",
"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "lora_alpha": 16}
"""

CONF = 'NUM_LAYERS=32\nMODEL_ARGS="--num-layers $NUM_LAYERS --hidden-size 4096"\n'

SOURCED = """#!/bin/bash
source $(dirname $0)/conf/model.sh
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py $MODEL_ARGS --num-attention-heads 32 \\
    --seq-length 2048 --micro-batch-size 1 --vocab-size 50304 --bf16
"""

WRAPPED_CASES = (
    Case(
        # 32 devices / tp 4 = 8 shards; 2 × 8
        "torchtitan's Python configuration built on another",
        {"config_registry.py": TITAN_PYTHON},
        {
            "model.name": "llama-3.1-8b",
            "seq_len": 8192,
            "plan.tp": 4,
            "plan.fsdp": 8,
            "sequences_per_step": 16,
            "plan.remat": "selective_op",
            "precision.compute": "fp8",
            "loss_chunks": 8,
        },
        on="h100*32",
        settings={"recipe": "llama3_8b_float8_tp"},
        flags=frozenset({"compile", "fp8_recipe"}),
    ),
    Case(
        "a PEFT adapter beside a training file",
        {
            "sft.yaml": TRL_SFT.replace("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1"),
            "adapter_config.json": ADAPTER,
        },
        # rank 8 on q, k, v, o of 32 layers over their matrices and the head
        {
            "task": "lora",
            "model.name": "mistral-7b-v0.1",
            "trainable_fraction": 32
            * 8
            * (2 * (4096 + 4096) + 2 * (4096 + 1024))
            / (32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 32000 * 4096),
        },
    ),
    Case(
        "a script that sources another of the files given",
        {"run.sh": SOURCED, "model.sh": CONF},
        {"model.n_layers": 32, "plan.dp": 8, "devices": 8},
    ),
    Case(
        # 32 devices / tp 2 = 16 shards; 2 × 16; the command line wins over the file
        "torchtitan's run script with overrides",
        {"run.sh": TITAN_RUN, "llama3_8b.toml": TITAN},
        {
            "model.name": "llama-3.1-8b",
            "devices": 32,
            "plan.fsdp": 16,
            "plan.tp": 2,
            "sequences_per_step": 32,
        },
        flags=frozenset({"compile"}),
    ),
    Case(
        "a Slurm script around axolotl",
        {
            "job.sh": SLURM_AXOLOTL,
            "qlora.yml": "base_model: NousResearch/Meta-Llama-3.1-8B\n"
            "sequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n",
        },
        # DDP over 16: 2 × 4 × 16
        {
            "machine": "h100*16",
            "plan.dp": 16,
            "sequences_per_step": 128,
            "precision.compute": "bf16",
        },
        flags=frozenset({"nccl"}),
    ),
    Case(
        "tune run with an override",
        {
            "launch.sh": TUNE,
            "8B.yaml": "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n"
            "tokenizer: {max_seq_len: 4096}\nbatch_size: 2\ndtype: bf16\n",
        },
        {"plan.microbatch": 4, "plan.fsdp": 8, "sequences_per_step": 32},
    ),
    Case(
        # the command line's 16 processes win over the file's 8
        "accelerate launch with its config file",
        {"run.sh": ACCELERATE_LAUNCH, "fsdp.yaml": ACCELERATE_YAML},
        {
            "devices": 16,
            "plan.fsdp": 16,
            "sequences_per_step": 32,
            "plan.remat": "full",
            "precision.gather": "bf16",
        },
    ),
    Case(
        # 4 pods × 8 = 32 devices / tp 4 = 8 replicas; 64 / 8
        "a Kubernetes job around Megatron-LM",
        {"job.yaml": MANIFEST},
        {
            "machine": "h100*32",
            "model.name": "llama-2-7b",
            "plan.tp": 4,
            "plan.dp": 8,
            "plan.accumulation": 8,
        },
        flags=frozenset({"nccl"}),
    ),
    Case(
        # 16 devices / tp 2 = 8 replicas; 32 / (2 × 8)
        "Megatron-LM's YAML",
        {"gpt_config.yaml": MEGATRON_YAML},
        {
            "model.n_layers": 24,
            "plan.tp": 2,
            "plan.accumulation": 2,
            "precision.compute": "bf16",
            "precision.master": "fp32",
        },
        on="h100*16",
    ),
)
MORE_CASES += WRAPPED_CASES
