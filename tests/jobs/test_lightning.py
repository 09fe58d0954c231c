"""Lightning as people have it: Fabric, LitGPT, LightningCLI, commands, Ray Train around them."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine


def read(folder: Path, **files: str) -> TrainJob:
    """The job of files by name, ``_`` before the ending standing for the dot."""
    paths = []
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        file = folder / f"{stem}.{ending}"
        file.write_text(text)
        paths.append(str(file))
    return read_job(paths)


def plan_on(job: TrainJob, machine: str) -> Plan:
    plan = resolve_machine(job, parse_machine(machine)).plan
    assert plan is not None
    return plan.value


def why(job: TrainJob, key: str) -> str:
    return next(entry.why for entry in job.ignored if entry.key == key and entry.matters)


FABRIC = """
import lightning as L
from lightning.fabric.strategies import FSDPStrategy, XLAStrategy
from lit_gpt.model import GPT, Block, Config

model_name = "tiny_LLaMA_1b"
num_of_devices = 8
global_batch_size = 512
micro_batch_size = 8
batch_size = global_batch_size // num_of_devices
gradient_accumulation_steps = batch_size // micro_batch_size

def setup(devices: int = 8, precision=None, tpu: bool = False):
    precision = precision or get_default_supported_precision(training=True)
    if devices > 1:
        if tpu:
            devices = "auto"
            strategy = XLAStrategy(sync_module_states=False)
        else:
            strategy = FSDPStrategy(auto_wrap_policy={Block}, activation_checkpointing_policy=None)
    else:
        strategy = "auto"
    fabric = L.Fabric(devices=devices, strategy=strategy, precision=precision)
    main(fabric)

def main(fabric):
    config = Config.from_name(model_name)
    loader = make_loader(batch_size=micro_batch_size, block_size=config.block_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
"""


def test_a_fabric_script_of_lit_gpt(tmp_path: Path) -> None:
    job = read(tmp_path, pretrain_py=FABRIC)
    # 512 / (8 micro × 8 devices) = 8 forwards; TinyLlama's positions reach 2048
    assert (job.model.name, job.sequences_per_step.value) == ("tinyllama-1.1b", 512)
    assert job.seq_len.value == 2048 and job.optimizer.value == "adamw"
    plan = plan_on(job, "a100*8")
    assert (plan.fsdp, plan.microbatch, plan.accumulation, plan.remat) == (8, 8, 8, "none")
    assert job.precision.value.compute == "bf16" and job.precision.value.weights == "fp32"


def test_the_branch_that_the_text_rules_out_is_not_read(tmp_path: Path) -> None:
    job = read(tmp_path, pretrain_py=FABRIC.replace("devices: int = 8", "devices: int = 1"))
    assert plan_on(job, "a100*1").fsdp == 1
    assert not any(entry.key == "strategy_class" for entry in job.understood)


LIT_YAML = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
out_dir: out/lora
precision: bf16-true
devices: 4
num_nodes: 2
lora_r: 16
lora_query: true
lora_key: false
lora_value: true
lora_mlp: true
data:
  class_path: litgpt.data.Alpaca2k
  init_args: {num_workers: 4}
train:
  global_batch_size: 64
  micro_batch_size: 2
  max_seq_length: 512
optimizer:
  class_path: torch.optim.SGD
  init_args: {lr: 0.1}
"""


def test_litgpt_trains_adapters_sharded_over_all_devices(tmp_path: Path) -> None:
    job = read(tmp_path, lora_yaml=LIT_YAML)
    assert (job.model.name, job.task, job.seq_len.value) == ("llama-3-8b", "lora", 512)
    plan = plan_on(job, "h100*8")
    # 64 / (2 × 4 × 2) = 4 forwards
    assert (plan.fsdp, plan.microbatch, plan.accumulation, plan.remat) == (8, 2, 4, "full")
    assert (job.precision.value.weights, job.optimizer.value) == ("bf16", "sgd")
    # rank 16 on q (4096 → 4096), v (4096 → 1024), gate, up (4096 → 14336), down (14336 → 4096),
    # in each of 32 layers: 16 × 32 × (8192 + 5120 + 3 × 18432)
    shown = f"{16 * 32 * (8192 + 5120 + 3 * 18432):,}"
    assert ("trained parameters", shown) in [(what, value) for what, value, _ in job.assumed]


def test_a_quantised_model_on_one_device(tmp_path: Path) -> None:
    text = LIT_YAML.replace("devices: 4", "devices: 1\nquantize: bnb.nf4").replace(
        "num_nodes: 2", "num_nodes: 1"
    )
    job = read(tmp_path, qlora_yaml=text)
    assert job.precision.value.weights == "int4" and plan_on(job, "h100*1").accumulation == 32
    assert "quantised_weights" in {flag.kind for flag in job.flags}


def test_litgpt_full_fine_tuning_recomputes_where_it_shards(tmp_path: Path) -> None:
    text = "".join(
        line for line in LIT_YAML.splitlines(keepends=True) if not line.startswith("lora_")
    )
    job = read(tmp_path, full_yaml=text)
    assert (job.task, plan_on(job, "h100*8").remat) == ("sft", "full")


def test_litgpt_pretraining_shards_in_a_node(tmp_path: Path) -> None:
    text = """
model_name: tiny
model_config:
  name: tiny
  block_size: 256
  vocab_size: 32000
  padded_vocab_size: 32000
  n_layer: 6
  n_head: 6
  n_embd: 288
  bias: false
  norm_class_name: RMSNorm
  mlp_class_name: LLaMAMLP
  intermediate_size: 768
precision: bf16-mixed
tokenizer_dir: checkpoints/x
initial_checkpoint_dir:
devices: 8
num_nodes: 2
train: {global_batch_size: 512, micro_batch_size: 16, tie_embeddings: true}
"""
    job = read(tmp_path, tiny_yaml=text)
    # embedding 32000 × 288, six layers of 4 × 288² + 3 × 288 × 768 + 2 × 288, a last norm of 288
    from chipshift.models.count import params

    layer = 4 * 288**2 + 3 * 288 * 768 + 2 * 288
    assert params(job.model) == 32000 * 288 + 6 * layer + 288
    plan = plan_on(job, "h100*16")
    assert (plan.dp, plan.fsdp, plan.accumulation) == (2, 8, 512 // 16 // 16)
    assert job.seq_len.value == 256
    assert not [entry for entry in job.ignored if entry.matters]


def test_a_litgpt_command_with_its_file_beside(tmp_path: Path) -> None:
    script = """#!/bin/bash
litgpt download meta-llama/Meta-Llama-3-8B
litgpt finetune_lora meta-llama/Meta-Llama-3.1-8B --config conf/lora.yaml \\
  --devices 2 --num_nodes=1 --train.micro_batch_size 4
"""
    job = read(tmp_path, run_sh=script, lora_yaml=LIT_YAML)
    assert job.model.name == "llama-3.1-8b"
    plan = plan_on(job, "h100*2")
    assert (plan.fsdp, plan.microbatch, plan.accumulation) == (2, 4, 8)


CLI = """
seed_everything: 42
trainer:
  accelerator: gpu
  devices: 8
  num_nodes: 2
  precision: bf16-true
  accumulate_grad_batches: 4
  strategy:
    class_path: lightning.pytorch.strategies.DeepSpeedStrategy
    init_args: {stage: 3, offload_optimizer: true}
model:
  class_path: my.LitCausal
  init_args: {model_name_or_path: Qwen/Qwen2.5-7B}
data:
  class_path: my.Data
  init_args: {batch_size: 2, max_length: 4096}
optimizer:
  class_path: torch.optim.AdamW
"""


def test_a_file_of_lightning_cli(tmp_path: Path) -> None:
    job = read(tmp_path, fit_yaml=CLI)
    assert (job.model.name, job.seq_len.value) == ("qwen2.5-7b", 4096)
    plan = plan_on(job, "h100*16")
    assert (plan.fsdp, plan.microbatch, plan.accumulation) == (16, 2, 4)
    assert {"deepspeed", "cpu_offload"} <= {flag.kind for flag in job.flags}
    assert job.stack.value == "deepspeed"


def test_set_reaches_a_key_that_the_cli_file_has_and_one_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "fit.yaml"
    file.write_text(CLI.replace("  num_nodes: 2\n", ""))
    settings = {"trainer.devices": "4", "trainer.num_nodes": "3"}
    job = read_job([str(file)], overrides=settings)
    assert job.devices is not None and job.devices.value == 12


def test_hydra_computes_the_accumulation(tmp_path: Path) -> None:
    text = """
trainer:
  _target_: lightning.Trainer
  devices: 8
  num_nodes: 1
  precision: bf16
  accumulate_grad_batches: ${div_up:${train.size}, ${eval:${trainer.devices} * ${data.batch_size}}}
strategy:
  _target_: lightning.pytorch.strategies.FSDPStrategy
  sharding_strategy: SHARD_GRAD_OP
train: {size: 250}
data: {batch_size: 16, max_length: 1024}
model: {model_name: gpt2}
"""
    job = read(tmp_path, base_yaml=text)
    plan = plan_on(job, "h100*8")
    # 250 / 128, rounded up
    assert (plan.accumulation, plan.microbatch, plan.optimizer_sharding) == (2, 16, "zero2")


COMMAND = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
ZERO=2
CONFIG="$PWD/ds.json"
cat <<EOT > $CONFIG
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": $ZERO},
  "fp16": {"enabled": true}
}
EOT
export PL_DEEPSPEED_CONFIG_PATH=$CONFIG
OPTIONS="--gpus 8 --num_nodes 2 --strategy deepspeed_stage_${ZERO} --train_batchsize 1 \\
  --accumulate_grad_batches 4 --max_seq_length 512 --model_path meta-llama/Llama-2-7b-hf \\
  --model_parallel_size 2"
srun python finetune.py $OPTIONS
"""


def test_a_command_with_the_trainers_arguments(tmp_path: Path) -> None:
    job = read(tmp_path, finetune_sh=COMMAND)
    plan = plan_on(job, "a100*16")
    assert (plan.dp, plan.optimizer_sharding, plan.accumulation) == (16, "zero2", 4)
    # the DeepSpeed file that the script writes says fp16, and Lightning keeps to it
    assert (job.precision.value.compute, job.precision.value.master) == ("fp16", "fp32")
    assert "--set tp=N" in why(job, "model_parallel_size")


SCRIPT = """
import lightning as L
from lightning.pytorch.strategies import ModelParallelStrategy
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")

class Lit(L.LightningModule):
    def __init__(self, name="gpt2"):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()

    def configure_optimizers(self):
        return bnb.optim.AdamW8bit(self.parameters())

def encode(row):
    return tokenizer(row["text"], truncation=True, max_length=2048)

SIZE = 2
module = Lit(name="Qwen/Qwen2.5-1.5B")
trainer = L.Trainer(devices=8, num_nodes=2, precision="bf16-true",
                    strategy=ModelParallelStrategy(tensor_parallel_size=1, data_parallel_size=16))
trainer.fit(module, DataLoader(data, batch_size=SIZE))
"""


def test_a_module_takes_the_model_that_it_is_called_with(tmp_path: Path) -> None:
    job = read(tmp_path, train_py=SCRIPT)
    assert (job.model.name, job.seq_len.value) == ("qwen2.5-1.5b", 2048)
    assert job.precision.value.moments == "int8"
    assert job.plan is not None and job.plan.value.remat == "full"


def test_model_parallel_alone_is_tensor_parallel_in_a_node(tmp_path: Path) -> None:
    text = SCRIPT.replace("Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.1-8B").replace(
        "tensor_parallel_size=1, data_parallel_size=16", ""
    )
    plan = plan_on(read(tmp_path, train_py=text), "h100*16")
    assert (plan.tp, plan.fsdp, plan.microbatch) == (8, 2, 2)


def test_a_model_built_from_its_configuration(tmp_path: Path) -> None:
    text = SCRIPT.replace(
        "AutoModelForCausalLM.from_pretrained(name)",
        "LlamaForCausalLM(LlamaConfig(hidden_size=512, num_hidden_layers=4, intermediate_size=1024,"
        " num_attention_heads=8, vocab_size=len(tokenizer)))",
    )
    job = read(tmp_path, train_py=text)
    assert (job.model.d_model, sum(count for _, count in job.model.layers)) == (512, 4)
    # four layers of 4 × 512² + 3 × 512 × 1024 + 2 × 512, untied 32000 × 512 twice, a norm
    from chipshift.models.count import params

    layer = 4 * 512**2 + 3 * 512 * 1024 + 2 * 512
    assert params(job.model) == 4 * layer + 2 * 32000 * 512 + 512
    assert "the family's own size was taken" in why(job, "vocab_size")
    unknown = text.replace("num_hidden_layers=4", "num_hidden_layers=cfg.layers")
    with pytest.raises(InputError, match=r"a Llama whose num_hidden_layers is cfg\.layers"):
        read(tmp_path, train_py=unknown)


RAY = """
from ray.train import ScalingConfig
from ray.train.lightning import RayFSDPStrategy
from ray.train.torch import TorchTrainer

TorchTrainer(train, scaling_config=ScalingConfig(
    num_workers=4, use_gpu=True, resources_per_worker={"CPU": 8, "GPU": 2}, accelerator_type="H100"
)).fit()
"""


def test_rays_workers_are_the_devices(tmp_path: Path) -> None:
    text = SCRIPT.replace(
        "ModelParallelStrategy(tensor_parallel_size=1, data_parallel_size=16)", "RayFSDPStrategy()"
    ).replace("devices=8, ", "")
    job = read(tmp_path, train_py=text + RAY)
    assert job.devices is not None and job.devices.value == 8  # 4 workers of 2 GPUs
    assert job.machine is not None and job.machine.value == "h100*8"
    assert job.plan is not None and job.plan.value.fsdp == 8


def test_rays_workers_around_training_arguments(tmp_path: Path) -> None:
    text = """
from transformers import AutoModelForCausalLM, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(output_dir="x", per_device_train_batch_size=4, bf16=True)
"""
    scaled = RAY.replace(', resources_per_worker={"CPU": 8, "GPU": 2}', "")
    (tmp_path / "a.py").write_text(text + scaled)
    job = read_job([str(tmp_path / "a.py")], overrides={"seq_len": "512"})
    assert job.devices is not None and job.devices.value == 4
    idle = scaled.replace("use_gpu=True", "use_gpu=False")
    (tmp_path / "a.py").write_text(text + idle)
    job = read_job([str(tmp_path / "a.py")], overrides={"seq_len": "512"})
    assert "no GPU" in why(job, "use_gpu")
    elastic = scaled.replace("num_workers=4", "num_workers=(2, 6)")
    (tmp_path / "a.py").write_text(text + elastic)
    job = read_job([str(tmp_path / "a.py")], overrides={"seq_len": "512"})
    assert job.devices is not None and job.devices.value == 6  # at most


def test_a_whole_number_that_no_float_holds_is_no_number(tmp_path: Path) -> None:
    huge = "9" * 400  # above 1.8e308
    text = f"import lightning as L\nbatch_size = {huge} // 8\nif batch_size > 4:\n    n = 2\n"
    file = tmp_path / "train.py"
    file.write_text(text + "trainer = L.Trainer(devices=8)\n")
    with pytest.raises(InputError, match="does not say which model"):
        read_job([str(file)])
