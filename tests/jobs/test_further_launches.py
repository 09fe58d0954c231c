"""What a further round of unseen launch files showed; each file here is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params
from chipshift.models.model import DenseMlp

from .test_further_publishers import several
from .test_spellings import job, plan_on


def matter(found: TrainJob) -> dict[str, str]:
    return {one.key: one.why for one in found.ignored if one.matters}


def total(found: TrainJob) -> int:
    return round(params(found.model))


FACTORY = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 1024\ntemplate: llama3\n"
    "per_device_train_batch_size: 1\n"
)


@pytest.mark.parametrize(
    ("said", "held"),
    [("bf16: true", "bf16"), ("fp16: true", "fp16"), ("seed: 1", "bf16")],
)
def test_llama_factory_holds_frozen_weights_in_the_compute_dtype(
    tmp_path: Path, said: str, held: str
) -> None:
    """hparams/parser.py sets compute_dtype from bf16 or fp16, and the model is loaded in it."""
    text = f"{FACTORY}stage: sft\nfinetuning_type: lora\nlora_rank: 8\n{said}\n"
    precision = job(tmp_path, text).precision.value
    assert precision.weights == held
    assert precision.moments == "fp32"  # of the adapters


def test_llama_factorys_reference_is_in_the_compute_dtype(tmp_path: Path) -> None:
    """train/trainer_utils.py (create_ref_model) loads it anew, not trainable, so never in fp32."""
    text = f"{FACTORY}stage: dpo\nfinetuning_type: full\npref_loss: sigmoid\nbf16: true\n"
    assert job(tmp_path, text).reference == "bf16"


def test_llama_factory_adapts_where_nothing_is_said(tmp_path: Path) -> None:
    """finetuning_type is lora and lora_target all by default, cutoff_len 2048."""
    script = "llamafactory-cli train --stage sft --do_train --bf16 \\\n"
    script += "  --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2\n"
    found = job(tmp_path, script, "go.sh")
    assert (found.task, found.seq_len.value) == ("lora", 2048)
    # rank 8 on q, k, v, o (4 × 8192) and gate, up, down (3 × 15104) of 32 layers
    trained = 32 * 8 * (4 * 8192 + 3 * 15104)
    assert ("trained parameters", f"{trained:,}") in [note[:2] for note in found.assumed]


def test_arguments_behind_a_comment_are_of_no_command(tmp_path: Path) -> None:
    """A backslash before a comment line does not carry the command past the comment."""
    script = (
        "llamafactory-cli train --stage sft --finetuning_type lora --bf16 True \\\n"
        "  --model_name_or_path meta-llama/Llama-2-7b-hf \\\n"
        "  #--model_name_or_path meta-llama/Llama-2-13b-hf \\\n"
        "  --per_device_train_batch_size 4 --lora_rank 32 --cutoff_len 512\n"
    )
    found = job(tmp_path, script, "go.sh")
    assert found.model.name == "llama-2-7b"
    assert found.seq_len.value == 2048
    assert "no program stands before it" in matter(found)["--per_device_train_batch_size"]


ZERO = (
    '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, '
    '"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}'
)
AXOLOTL = (
    "base_model: mistralai/Mistral-7B-v0.1\nsequence_len: 2048\nmicro_batch_size: 1\n"
    "gradient_accumulation_steps: 4\noptimizer: adamw_bnb_8bit\nbf16: true\n"
    "datasets: [{path: own, type: alpaca}]\ndeepspeed: conf/z3.json\n"
)


def test_an_optimizer_of_deepspeeds_file_is_built_in_place_of_the_trainers(tmp_path: Path) -> None:
    """Transformers, integrations/deepspeed.py: a config with an optimizer gets a DummyOptim."""
    found = read_job(several(tmp_path, tune__yml=AXOLOTL, z3__json=ZERO))
    assert found.precision.value.moments == "fp32"
    assert "DeepSpeed" in matter(found)["optim"]
    without = ZERO.replace('"optimizer"', '"scheduler"').replace("AdamW", "WarmupLR")
    (tmp_path / "z3.json").write_text(without)
    found = read_job([str(tmp_path / "tune.yml"), str(tmp_path / "z3.json")])
    assert found.precision.value.moments == "int8"


LAUNCHED = """accelerate launch --config_file acc.yaml --num_processes 8 train.py \\
  --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 \\
  --max_seq_length 1024 --bf16 True
"""
ACCELERATE = """distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 2}
mixed_precision: bf16
num_machines: 1
num_processes: auto
"""
PROGRAM = """import transformers
from transformers import HfArgumentParser, Trainer


def main():
    parser = HfArgumentParser(Arguments)
    (args,) = parser.parse_args_into_dataclasses()
    Trainer(model, args=args, train_dataset=data).train()
"""


def test_processes_of_the_command_go_before_an_auto_of_the_file(tmp_path: Path) -> None:
    found = read_job(several(tmp_path, go__sh=LAUNCHED, acc__yaml=ACCELERATE))
    assert found.devices is not None and found.devices.value == 8
    assert found.plan is not None and found.plan.value.optimizer_sharding == "zero2"


def test_the_program_beside_its_command_is_said_and_not_asked_about(tmp_path: Path) -> None:
    files = several(tmp_path, go__sh=LAUNCHED, acc__yaml=ACCELERATE, train__py=PROGRAM)
    assert "program itself" in matter(read_job(files))["train.py"]
    with pytest.raises(InputError, match="takes its settings from its command line"):
        read_job([str(tmp_path / "train.py")])


def test_trls_bf16_goes_before_an_accelerate_file_that_names_none(tmp_path: Path) -> None:
    """Since TRL 0.19 bf16 is on unless fp16 is, and the Trainer tells Accelerate so."""
    yaml = "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
    yaml += "num_machines: 1\nnum_processes: 2\n"
    script = (
        "from trl import SFTConfig, SFTTrainer\n"
        'args = SFTConfig(output_dir="o", per_device_train_batch_size=1, max_length=512)\n'
        'trainer = SFTTrainer(model="meta-llama/Llama-2-7b-hf", args=args, train_dataset=d)\n'
    )
    precision = read_job(several(tmp_path, acc__yaml=yaml, t__py=script)).precision.value
    assert (precision.weights, precision.gather, precision.compute) == ("fp32", "bf16", "bf16")


def test_more_processes_than_the_job_has_gpus_are_said(tmp_path: Path) -> None:
    slurm = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:2\n"
    script = slurm + LAUNCHED.replace("--num_processes 8 ", "")
    yaml = ACCELERATE.replace("auto", "4")
    found = read_job(several(tmp_path, go__sh=script, acc__yaml=yaml))
    assert found.devices is not None and found.devices.value == 4
    assert "2 devices here, but 4 processes" in matter(found)["devices"]


OUTER = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
export COUNT_NODE=2
srun sh inner.sh --size 7b --len 1024
"""
INNER = """size=13b
while [[ $# -gt 0 ]]; do
  case $1 in
    --size) size=$2; shift ;;
    --len) len=$2; shift ;;
  esac
  shift
done
accelerate launch --num_processes $((4 * COUNT_NODE)) --num_machines $COUNT_NODE train.py \\
  --model_name_or_path meta-llama/Llama-2-${size}-hf --max_seq_length $len --bf16 True \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4
"""


def test_a_script_started_by_another_has_its_arguments_and_exports(tmp_path: Path) -> None:
    found = read_job(several(tmp_path, outer__sh=OUTER, inner__sh=INNER))
    assert (found.model.name, found.seq_len.value) == ("llama-2-7b", 1024)
    assert found.devices is not None and found.devices.value == 8
    assert found.sequences_per_step.value == 2 * 4 * 8


SWIFT_2 = """NPROC_PER_NODE=2 swift sft --model_type qwen2-1_5b-instruct --sft_type full \\
  --dtype AUTO --batch_size 4 --gradient_accumulation_steps 8 --deepspeed default-zero3 {more}
"""


@pytest.mark.parametrize(
    ("more", "length"),
    [("", 2048), ("--max_length 8192 --model_id_or_path /m/Qwen2-1___5B-Instruct", 8192)],
)
def test_ms_swift_2_names_its_model_by_its_type(tmp_path: Path, more: str, length: int) -> None:
    """ms-swift 2.6, "Command-line parameters": max_length is 2048 by default."""
    found = job(tmp_path, SWIFT_2.format(more=more), "go.sh")
    assert (found.model.name, found.seq_len.value) == ("qwen2-1.5b", length)
    plan = plan_on(found, "h100*2")
    assert (plan.fsdp, plan.microbatch, plan.accumulation) == (2, 4, 8)


def test_maxtext_of_one_number_of_heads_has_a_plain_feed_forward(tmp_path: Path) -> None:
    """Until 2023-12 base.yml had base_num_heads, mlp_activations relu, 32,768 rows, a tied head."""
    script = (
        "python3 MaxText/train.py MaxText/configs/base.yml base_emb_dim=4096 base_num_heads=16 "
        "base_mlp_dim=16384 head_dim=256 base_num_decoder_layers=32 ici_fsdp_parallelism=16\n"
    )
    found = job(tmp_path, script, "go.sh")
    # a layer: 4 × 4096² of attention, 2 × 4096 × 16384, two norms; one table, the last norm
    layer = 4 * 4096**2 + 2 * 4096 * 16384 + 2 * 4096
    assert total(found) == 32 * layer + 32768 * 4096 + 4096
    gated = script.replace("base_num_heads=16", "base_num_query_heads=16 base_num_kv_heads=16")
    assert {layer.mlp.matrices for layer, _ in job(tmp_path, gated, "go.sh").model.layers
            if isinstance(layer.mlp, DenseMlp)} == {3}  # fmt: skip


def test_maxtext_by_its_program_alone(tmp_path: Path) -> None:
    script = (
        "python3 xpk.py workload create --tpu-type=v5p-8 --num-slices=1 \\\n"
        '  --command "python3 MaxText/train.py MaxText/configs/base.yml steps=50"\n'
    )
    found = job(tmp_path, script, "go.sh")
    assert (found.format, found.seq_len.value) == ("maxtext", 2048)
    assert found.devices is not None and found.devices.value == 4


def test_xpk_counts_nodes_of_gpus(tmp_path: Path) -> None:
    """XPK, "workload create": h100-mega-80gb-8 is a node of 8, of which --num-nodes."""
    script = (
        "N=4\npython xpk.py workload create --device-type h100-mega-80gb-8 --num-nodes $N \\\n"
        '  --command "python3 MaxText/train.py c.yml model_name=llama2-7b per_device_batch_size=1 '
        'dcn_fsdp_parallelism=$N ici_fsdp_parallelism=8"\n'
    )
    found = job(tmp_path, script, "go.sh")
    assert found.machine is not None and found.machine.value == "h100:8x4"
    assert plan_on(found, "h100:8x4").fsdp == 32


def test_a_forks_llama_program_builds_llama(tmp_path: Path) -> None:
    """AscendSpeed's pretrain_llama.py: its layers are LLaMA's, whatever is left out."""
    script = (
        "deepspeed {program} --num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 "
        "--num-attention-heads 40 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 2 --global-batch-size 64 --fp16 --vocab-size 32000 "
        "--tensor-model-parallel-size 1\n"
    )
    # LLaMA 13B: 40 × (4 × 5120² + 3 × 5120 × 13824 + 2 × 5120) + 2 × 32000 × 5120 + 5120
    layer = 4 * 5120**2 + 3 * 5120 * 13824 + 2 * 5120
    llama = 40 * layer + 2 * 32000 * 5120 + 5120
    assert total(job(tmp_path, script.format(program="pretrain_llama.py"), "a.sh")) == llama
    own = job(tmp_path, script.format(program="pretrain_gpt.py"), "b.sh")
    assert total(own) < llama


def test_a_batch_under_xlas_spmd_is_said(tmp_path: Path) -> None:
    script = (
        "export XLA_USE_SPMD=1\npython3 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--per_device_train_batch_size 32 --block_size 2048 --optim adafactor\n"
    )
    assert "one device of all its chips" in matter(job(tmp_path, script, "go.sh"))["XLA_USE_SPMD"]


OWN = """from dataclasses import dataclass, field
from typing import List
import transformers
from peft import LoraConfig, get_peft_model
from transformers import Trainer


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="paged_adamw_32bit")
    model_max_length: int = field(default=4096)
    use_lora: bool = False


@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_target_modules: List[str] = field(default_factory=lambda: ["q_proj", "k_proj"])


def train():
    parser = transformers.HfArgumentParser((TrainingArguments, LoraArguments))
    args, lora = parser.parse_args_into_dataclasses()
    config = LoraConfig(r=lora.lora_r, target_modules=lora.lora_target_modules)
    Trainer(model=get_peft_model(model, config), args=args).train()
"""


def test_a_programs_own_defaults_stand_under_its_command(tmp_path: Path) -> None:
    command = (
        "torchrun --nproc_per_node 8 tune.py --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--per_device_train_batch_size 1 --bf16 True --use_lora {more}\n"
    )
    files = several(tmp_path, go__sh=command.format(more=""), tune__py=OWN)
    found = read_job(files)
    assert found.seq_len.value == 4096
    # q and k of 32 layers, rank 64
    assert ("trained parameters", f"{32 * 2 * 64 * 8192:,}") in [n[:2] for n in found.assumed]
    (tmp_path / "go.sh").write_text(command.format(more="--lora_r 16 --model_max_length 256"))
    found = read_job(files)
    assert found.seq_len.value == 256
    assert ("trained parameters", f"{32 * 2 * 16 * 8192:,}") in [n[:2] for n in found.assumed]


def test_a_program_that_a_wrapper_starts_with_its_yaml(tmp_path: Path) -> None:
    yaml = (
        "model_name_or_path: meta-llama/Llama-2-7b-hf\nmax_length: 1024\nbf16: true\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n"
    )
    script = "accelerate launch --num_processes 4 --multi_gpu tune.py --config tune.yaml\n"
    found = read_job(several(tmp_path, go__sh=script, tune__yaml=yaml, tune__py=OWN))
    assert found.devices is not None and found.devices.value == 4
    assert found.sequences_per_step.value == 2 * 2 * 4


def test_llama_factory_of_train_bash_cut_at_1024(tmp_path: Path) -> None:
    """hparams/data_args.py: cutoff_len 1024 in the versions that had src/train_bash.py."""
    script = (
        "deepspeed --num_gpus 8 src/train_bash.py --stage sft --finetuning_type lora --fp16 "
        "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 8\n"
    )
    assert job(tmp_path, script, "go.sh").seq_len.value == 1024


def test_a_file_whose_name_a_run_would_make_is_shown_as_one(tmp_path: Path) -> None:
    script = (
        "M=llama2-7b\npython3 MaxText/train.py MaxText/configs/gpu/$(ls | grep $M).yml "
        "model_name=$M per_device_batch_size=1 ici_fsdp_parallelism=8\n"
    )
    assert "....yml" in matter(job(tmp_path, script, "go.sh"))


def test_a_validation_set_of_ms_swifts_megatron_does_not_matter(tmp_path: Path) -> None:
    script = (
        "NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen2.5-7B-Instruct --max_length 2048 "
        "--tensor_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 4 "
        "--dataset a.jsonl --val_dataset b.jsonl --seed 42\n"
    )
    assert not {"val-dataset", "seed"} & matter(job(tmp_path, script, "go.sh")).keys()
