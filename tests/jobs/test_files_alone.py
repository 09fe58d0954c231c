"""What a blind round of public launch files showed; each file here is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.model import MoeMlp

from .test_further_publishers import several
from .test_spellings import job, plan_on


def matter(found: TrainJob) -> set[str]:
    return {one.key for one in found.ignored if one.matters}


GPT = "block_size = 512\nbatch_size = 4\ngradient_accumulation_steps = 16\nn_layer = 4\n"
GPT += "n_head = 4\nn_embd = 256\n"
ONE_TASK = """#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --gres=gpu:a100:4
python launch.py --nproc-per-node 4 --train-script train.py -- config/small.py
"""


def test_one_task_has_the_devices_of_its_node(tmp_path: Path) -> None:
    """The task starts a process a device itself: 4 GPUs, not one for the one task."""
    found = read_job(several(tmp_path, go__sh=ONE_TASK, small__py=GPT))
    assert found.machine is not None and found.machine.value == "a100*4"
    assert found.sequences_per_step.value == 4 * 16


def test_slurms_gpus_of_the_whole_job_are_a_variable(tmp_path: Path) -> None:
    script = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus h100:4
tune run --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=$SLURM_GPUS full_finetune_distributed \\
    --config full.yaml batch_size=2
"""
    config = """
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}
dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset, packed: true}
optimizer: {_component_: torch.optim.AdamW}
batch_size: 1
gradient_accumulation_steps: 1
dtype: bf16
enable_activation_checkpointing: true
"""
    found = read_job(several(tmp_path, go__slurm=script, full__yaml=config))
    assert found.devices is not None and found.devices.value == 4
    assert found.sequences_per_step.value == 2 * 4  # the command's batch on each of them


ALIGNER = """#!/bin/sh
#PBS -N sft
#PBS -l select=2:ncpus=96:ngpus=8
#PBS -l walltime=1:00:00
HOSTS=$PBS_NODEFILE
NODES=$(sort -u $HOSTS | wc -l)
mpirun -np $((NODES * 8)) --npernode 8 python examples/nlp/gpt/train_gpt_sft.py \\
  trainer.precision=bf16 trainer.devices=8 trainer.num_nodes=${NODES} \\
  model.megatron_amp_O2=True model.restore_from_path=/ckpt/llama-3.1-8b.nemo \\
  model.data.train_ds.max_seq_length=4096 model.data.train_ds.global_batch_size=64
"""


def test_pbs_gives_nodes_and_devices_and_its_n_is_a_name(tmp_path: Path) -> None:
    found = job(tmp_path, ALIGNER, "sft.sh")
    assert found.devices is not None and found.devices.value == 2 * 8
    assert found.sequences_per_step.value == 64
    assert not any("no whole number" in why for _, _, why in found.assumed)


def test_nemo_aligners_own_yaml_lies_under_a_command(tmp_path: Path) -> None:
    """gpt_sft.yaml: one sequence at a time, the optimizer's state shared among the replicas."""
    plan = plan_on(job(tmp_path, ALIGNER, "sft.sh"), "h200*16")
    assert (plan.dp, plan.microbatch, plan.optimizer_sharding) == (16, 1, "zero1")


PRETRAINING = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
srun python /opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py \\
  trainer.precision=bf16 trainer.devices=4 model.tensor_model_parallel_size=2 \\
  model.global_batch_size=64 model.micro_batch_size=1
"""


def test_nemos_pretraining_is_of_its_own_small_gpt(tmp_path: Path) -> None:
    """megatron_gpt_config.yaml: 12 layers of 768, sequences of 512."""
    found = job(tmp_path, PRETRAINING, "go.sh")
    assert (found.model.n_layers, found.model.d_model, found.seq_len.value) == (12, 768, 512)
    with pytest.raises(InputError, match="num_layers"):  # another YAML, which was not given
        job(tmp_path, PRETRAINING.replace(".py \\", ".py --config-name own.yaml \\"), "go.sh")


def test_a_command_that_generates_is_not_the_training(tmp_path: Path) -> None:
    script = """
python /opt/NeMo/megatron_gpt_finetuning.py trainer.devices=2 trainer.precision=bf16 \\
  model.restore_from_path=/m/mistral-7b.nemo model.tensor_model_parallel_size=2 \\
  model.data.train_ds.max_seq_length=2048 model.data.train_ds.micro_batch_size=1 \\
  model.data.train_ds.global_batch_size=32
python /opt/NeMo/megatron_gpt_generate.py trainer.devices=1 model.restore_from_path=/m/out.nemo \\
  model.data.test_ds.micro_batch_size=8 model.tensor_model_parallel_size=1
"""
    found = job(tmp_path, "#!/bin/bash\ntorchrun --nproc_per_node=2 x" + script, "go.sh")
    assert found.plan is not None
    assert (found.plan.value.tp, found.plan.value.microbatch) == (2, 1)
    assert found.sequences_per_step.value == 32


TITAN = """#!/usr/bin/bash
NGPU="${NGPU:-4}"
docker run --rm image bash -lc '
cat > /tmp/own.toml <<TOML
[model]
name = "qwen3"
flavor = "0.6B"
[training]
local_batch_size = 2
seq_len = 512
[parallelism]
data_parallel_shard_degree = 4
[activation_checkpoint]
mode = "full"
TOML
torchrun --nproc_per_node="${NGPU}" --rdzv_backend c10d -m torchtitan.train \\
  --job.config_file /tmp/own.toml --fault_tolerance.enable --fault_tolerance.group_size=2
'
"""


def test_a_job_file_that_the_script_writes_itself(tmp_path: Path) -> None:
    found = job(tmp_path, TITAN, "go.sh")
    assert (found.model.name, found.seq_len.value) == ("qwen3-0.6b", 512)
    assert found.plan is not None
    assert (found.plan.value.fsdp, found.plan.value.remat) == (4, "full")
    assert "fault_tolerance.group_size" in matter(found)  # two such groups, each with its command


def test_a_configuration_that_starts_from_another_file_says_which(tmp_path: Path) -> None:
    text = """from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_8b_short() -> Trainer.Config:
    config = llama3_8b()
    config.training.steps = 2
    return config
"""
    with pytest.raises(InputError, match=r"starts from llama3_8b of torchtitan\.models\.llama3"):
        job(tmp_path, text, "own.py")


NEMO2 = """import os
import nemo_run as run
from nemo.collections import llm

if __name__ == "__main__":
    devices = int(os.getenv("SLURM_GPUS_PER_NODE"))
    nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
    batch = int(os.environ.get("MICRO", "4"))
    recipe = llm.recipes.llama3_8b.finetune_recipe(num_nodes=nodes, num_gpus_per_node=devices)
    recipe.data.micro_batch_size = batch
    recipe.data.global_batch_size = devices * nodes * batch
    recipe.data.seq_length = 2048
    run.run(recipe)
"""


def test_a_variable_of_the_environment_is_asked_for_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="by --set SLURM_JOB_NUM_NODES="):
        job(tmp_path, NEMO2, "tune.py")


@pytest.mark.parametrize(("more", "micro"), [({}, 4), ({"MICRO": "2"}, 2)])
def test_set_gives_the_environment_of_a_python_file(
    tmp_path: Path, more: dict[str, str], micro: int
) -> None:
    given = {"SLURM_GPUS_PER_NODE": "8", "SLURM_JOB_NUM_NODES": "2", **more}
    (tmp_path / "tune.py").write_text(NEMO2)
    found = read_job([str(tmp_path / "tune.py")], overrides=given)
    assert found.devices is not None and found.devices.value == 16
    assert found.sequences_per_step.value == 16 * micro


BRIDGE = """from megatron.bridge import AutoBridge
from megatron.bridge.training.finetune import finetune


def qwen3_8b_own_config(cfg):
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").to_megatron_provider()
    cfg.model.seq_length = 4096
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 1
    {precision}
    cfg.ddp.grad_reduce_in_fp32 = False
    return cfg
"""


@pytest.mark.parametrize(
    ("precision", "reduced"),
    [
        ('cfg.mixed_precision = "bf16_mixed"', "fp32"),  # written over DDP's when training starts
        ("cfg.mixed_precision.grad_reduce_in_fp32 = False", "bf16"),
        ("cfg.model.bf16 = True", "bf16"),  # no mixed precision: DDP's own word holds
    ],
)
def test_a_mixed_precision_goes_over_what_ddp_says(
    tmp_path: Path, precision: str, reduced: str
) -> None:
    found = job(tmp_path, BRIDGE.format(precision=precision), "own.py")
    assert found.precision.value.reduce == reduced


def test_bridges_words_after_a_program_that_is_not_given(tmp_path: Path) -> None:
    script = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:4
srun bash -c "torchrun --nnodes=2 --nproc-per-node=4 own/pretrain_gpt_oss_20b.py \\
  +precision_config=bf16_mixed train.global_batch_size=16 train.micro_batch_size=1 \\
  model.expert_model_parallel_size=8 model.seq_length=2048 model.moe_own_experts=3"
"""
    found = job(tmp_path, script, "go.sh")
    assert any(isinstance(layer.mlp, MoeMlp) for layer, _ in found.model.layers)
    assert found.plan is not None and found.plan.value.ep == 8
    assert (found.sequences_per_step.value, found.seq_len.value) == (16, 2048)
    assert any("the program's name" in why for _, _, why in found.assumed)
    assert "model.moe_own_experts" in matter(found)


def test_nanogpts_words_without_the_config_that_they_lie_over(tmp_path: Path) -> None:
    """24 accumulated forwards of 5 sequences over all devices; the model by its folder's name."""
    script = """
OMP_NUM_THREADS=8 nohup /envs/x/bin/torchrun --standalone --nproc_per_node 8 train.py \\
  config/own.py --init_from='/models/Qwen2-0.5B' --batch_size=5 --use_deepspeed=True \\
  --gradient_accumulation_steps=24 --block_size=4096 > log 2>&1 &
"""
    found = job(tmp_path, script, "go.sh")
    assert (found.model.name, found.seq_len.value) == ("qwen2-0.5b", 4096)
    assert found.sequences_per_step.value == 5 * 24
    noted = {what: value for what, value, _ in found.assumed}
    assert noted["sharding"] == "zero1"  # DeepSpeed with no stage given


def test_weights_of_a_hub_are_not_nanogpts_own_shape(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="own-3b"):
        job(tmp_path, GPT + "init_from = '/models/own-3b'\n", "small.py")


LEVANTER = """
initialize_from_hf: meta-llama/Llama-2-7b-hf
model: {type: llama, seq_len: 1024}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 64, per_device_parallelism: 4}
"""


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("use_hf_model_config: true\n" + LEVANTER, 4096),  # the checkpoint's own positions
        ("use_hf_model_config: true\ntrain_seq_len: 2048\n" + LEVANTER, 2048),
        ("use_hf_model_config: false\n" + LEVANTER, 1024),
    ],
)
def test_levanters_length_is_of_the_configuration_that_it_takes(
    tmp_path: Path, text: str, length: int
) -> None:
    found = job(tmp_path, text)
    assert found.seq_len.value == length
    assert ("model.seq_len" in matter(found)) == (length != 1024)


def test_a_part_that_a_yaml_includes_is_taken_where_it_is_given(tmp_path: Path) -> None:
    main = "data: !include data/own.yaml\nmodel: {type: llama, seq_len: 1024, num_layers: 2}\n"
    main += "trainer: {train_batch_size: 64, per_device_parallelism: 4}\n"
    part = "tokenizer: meta-llama/Llama-3.1-8B\ncache_dir: gs://own/cache\n"
    found = read_job(several(tmp_path, main__yaml=main, own__yaml=part))
    assert found.model.vocab == 128256  # Llama 3's tokenizer, not Levanter's default of 32,000


NANOTRON = """
parallelism: {dp: 2, tp: 1, pp: 1}
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 1, sequence_length: 512}
optimizer: {zero_stage: 0}
model:
  model_config: {hidden_size: 256, num_hidden_layers: 2, num_attention_heads: 4,
    intermediate_size: 1024, vocab_size: 1000%s}
"""


def test_nanotron_takes_llama_where_llama_has_every_key(tmp_path: Path) -> None:
    assert job(tmp_path, NANOTRON % "").model.n_layers == 2
    with pytest.raises(InputError, match="scale_embedding, which its Llama has not"):
        job(tmp_path, NANOTRON % ", scale_embedding: true")


def test_a_lightning_script_that_builds_nanogpts_model(tmp_path: Path) -> None:
    text = """import pytorch_lightning as pl
from model import GPT, GPTConfig


def main():
    n_layer = 6
    batch_size = 32
    block_size = 256
    args = dict(n_layer=n_layer, n_head=4, n_embd=128, block_size=block_size, vocab_size=1600)
    model = GPT(GPTConfig(**args))
    trainer = pl.Trainer(devices=1, precision="bf16", accumulate_grad_batches=4)
    trainer.fit(model)
"""
    found = job(tmp_path, text, "own.py")
    assert (found.model.n_layers, found.model.vocab, found.seq_len.value) == (6, 1600, 256)


REGISTRY = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
srun torchrun --nnodes=2 --nproc_per_node=8 -m torchtitan.train --module {module} \\
  --config {config} --training.seq_len 4096 --activation_checkpoint.mode none
"""


def test_torchtitans_own_configuration_by_a_command(tmp_path: Path) -> None:
    """llama3_8b: one sequence a replica of its own, the length and recomputation the command's."""
    found = job(tmp_path, REGISTRY.format(module="llama3", config="llama3_8b"), "go.sh")
    assert (found.model.name, found.seq_len.value) == ("llama-3.1-8b", 4096)
    assert found.sequences_per_step.value == 16
    assert found.plan is not None and found.plan.value.remat == "none"


def test_a_configuration_of_a_file_given_beside(tmp_path: Path) -> None:
    own = """from torchtitan.config import TrainingConfig
from torchtitan.models.qwen3 import model_registry
from torchtitan.trainer import Trainer


def qwen3_0_6b_own() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("0.6B"),
        training=TrainingConfig(local_batch_size=4, seq_len=1024, steps=5),
    )
"""
    script = REGISTRY.format(module="own", config="qwen3_0_6b_own")
    found = read_job(several(tmp_path, go__sh=script, own__py=own))
    assert (found.model.name, found.seq_len.value) == ("qwen3-0.6b", 4096)
    assert found.sequences_per_step.value == 4 * 16


def test_a_configuration_that_is_nowhere_asks_for_its_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'own_470m_fp8' of 'own' is not a shipped model"):
        job(tmp_path, REGISTRY.format(module="own", config="own_470m_fp8"), "go.sh")


def test_a_command_s_variable_that_nothing_sets_is_named(tmp_path: Path) -> None:
    script = "#!/bin/bash\nsource ./setup.sh\n" + PRETRAINING.split("\n", 1)[1].replace(
        "trainer.devices=4", "trainer.devices=4 trainer.num_nodes=$HOSTS"
    )
    with pytest.raises(InputError, match=r"num_nodes is \$HOSTS.*by giving setup\.sh"):
        job(tmp_path, script, "go.sh")


def test_nemos_tokenizer_tells_the_vocabulary(tmp_path: Path) -> None:
    text = """from nemo import lightning as nl
from nemo.collections import llm
from nemo.collections.nlp.modules.common.tokenizer_utils import get_nmt_tokenizer

tokenizer = get_nmt_tokenizer("megatron", "GPT2BPETokenizer")
config = llm.GPTConfig(num_layers=4, hidden_size=256, ffn_hidden_size=1024,
                       num_attention_heads=4, seq_length=256)
model = llm.GPTModel(config, tokenizer=tokenizer)
data = llm.MockDataModule(seq_length=256, micro_batch_size=4, global_batch_size=64)
trainer = nl.Trainer(devices=4, strategy=nl.MegatronStrategy(tensor_model_parallel_size=1),
                     plugins=nl.MegatronMixedPrecision(precision="bf16-mixed"))
llm.train(model=model, data=data, trainer=trainer)
"""
    found = job(tmp_path, text, "own.py")
    assert found.model.vocab == 50304  # 50,257 rows made a multiple of 128
    assert found.sequences_per_step.value == 64


def test_arguments_by_that_name_have_their_defaults(tmp_path: Path) -> None:
    text = """from argparse import ArgumentParser

from lightning import Trainer
from own import Model


def run(model_name, size):
    model = Model(model_name=model_name)
    Trainer(devices=2, strategy="deepspeed_stage_2_offload", precision="bf16-mixed").fit(model)


parser = ArgumentParser()
parser.add_argument("--model", default="allenai/OLMo-2-1124-7B")
parser.add_argument("--size", type=int, default=1)
arguments = parser.parse_args()
run(model_name=arguments.model, size=arguments.size)
max_length = 512
batch_size = 1
"""
    found = job(tmp_path, text, "own.py")
    assert found.model.name == "olmo-2-7b"
    assert any(what == "offload" for what, _, _ in found.assumed)


def test_what_a_file_leaves_to_its_program_or_data_is_said(tmp_path: Path) -> None:
    """Levanter's adapters by the program that is started; nanoGPT's vocabulary by the data set."""
    text = "initialize_from_hf: meta-llama/Llama-2-7b-hf\ntrainer: {train_batch_size: 64}\n"
    found = job(tmp_path, text)
    assert any("lora_lm.py" in why for _, _, why in found.assumed)
    assert job(tmp_path, text + "lora: {r: 8}\n").task == "lora"
    small = job(tmp_path, GPT, "small.py")
    assert any(what == "vocab_size" and "meta.pkl" in why for what, _, why in small.assumed)


def test_a_trainers_devices_go_over_what_the_recipe_was_given(tmp_path: Path) -> None:
    text = """import nemo_run as run
from nemo.collections import llm

recipe = llm.llama3_8b.pretrain_recipe(num_nodes=1, num_gpus_per_node=8)
recipe.trainer.devices = 4
recipe.trainer.strategy.context_parallel_size = 1
run.run(recipe)
"""
    found = job(tmp_path, text, "own.py")
    assert found.devices is not None and found.devices.value == 4


def test_nemos_precision_is_asked_for_where_its_yaml_is_not_given(tmp_path: Path) -> None:
    """Megatron-LM's fp32 without a word is not NeMo's, whose every YAML says a precision."""
    script = PRETRAINING.replace("trainer.precision=bf16 ", "")
    with pytest.raises(InputError, match=r"gives no trainer\.precision"):
        job(tmp_path, script, "go.sh")


def test_slurm_gives_one_node_where_none_is_asked_for(tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH --gres=gpu:a100:2\npython train.py config/small.py\n"
    found = read_job(several(tmp_path, go__sh=script, small__py=GPT))
    assert found.machine is not None and found.machine.value == "a100*2"
    assert any(why == "Slurm's default of one node" for _, _, why in found.assumed)
