"""A program given beside the command that starts it; each file here is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_further_publishers import several


def noted(found: TrainJob) -> dict[str, str]:
    return {what: value for what, value, _ in found.assumed}


def flagged(found: TrainJob) -> set[str]:
    return {flag.kind for flag in found.flags}


TUNE = """import transformers
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model
from transformers import Trainer


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="gpt2")


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    model_max_length: int = field(default=512)
    low_rank: bool = field(default=True)


def train():
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    if training_args.low_rank:
        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    model.gradient_checkpointing_enable()
    Trainer(model=model, args=training_args, train_dataset=data).train()


train()
"""
TUNED = (
    "torchrun --nproc_per_node=8 tune.py --model_name_or_path meta-llama/Llama-2-7b-hf \\\n"
    "  --per_device_train_batch_size 1 --model_max_length 8192 --bf16 True"
)


@pytest.mark.parametrize(("word", "task"), [(" --low_rank False", "sft"), ("", "lora")])
def test_a_branch_that_the_command_turns_off_says_nothing(
    tmp_path: Path, word: str, task: str
) -> None:
    found = read_job(several(tmp_path, go__sh=TUNED + word + "\n", tune__py=TUNE))
    assert found.task == task
    assert found.plan is not None and found.plan.value.remat == "full"  # the call in the program
    assert found.model.name == "llama-2-7b"


FIXED = """import argparse
from trl import SFTConfig, SFTTrainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="Qwen/Qwen2.5-0.5B")
    parser.add_argument("--cut", type=int, default=1024)
    parser.add_argument("--each", type=int, default=4)
    args = parser.parse_args()
    config = SFTConfig(
        output_dir="o",
        max_length=args.cut,
        per_device_train_batch_size=args.each,
        packing=True,
        bf16=True,
    )
    SFTTrainer(model=args.base, args=config, train_dataset=data).train()


main()
"""


def test_the_commands_words_reach_the_calls_that_they_are_passed_to(tmp_path: Path) -> None:
    """Of argparse's own names none is the Trainer's: the calls say what each is."""
    command = "accelerate launch --num_processes 2 fixed.py --base Qwen/Qwen2.5-7B --cut 4096\n"
    found = read_job(several(tmp_path, go__sh=command, fixed__py=FIXED))
    assert (found.model.name, found.seq_len.value) == ("qwen2.5-7b", 4096)
    assert found.sequences_per_step.value == 8  # 4 by default, on 2 devices
    assert "packed_documents" in flagged(found)


LOOP = """import torch
from accelerate import Accelerator
from own_args import get_args
from own_model import build


def main():
    args = get_args()
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.every)
    model, config = build(args.config_path)
    loader = make_loader(max_length=config.max_position_embeddings)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in loader:
        accelerator.backward(model(batch).loss)
        optimizer.step()


main()
"""
ARGS = """import argparse


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config_path")
    parser.add_argument("--per_device_batch_size", type=int, default=4)
    parser.add_argument("--every", type=int, default=2)
    return parser.parse_args()
"""
BUILD = """from transformers import AutoConfig, AutoModelForCausalLM


def build(path):
    config = AutoConfig.from_pretrained(path)
    return AutoModelForCausalLM.from_config(config), config


def unused():
    return AutoModelForCausalLM.from_pretrained("gpt2-xl")
"""


def test_a_loop_of_its_own_is_read_over_all_its_files(tmp_path: Path) -> None:
    """own_args.py declares the arguments, own_model.py loads what its caller passes."""
    command = "accelerate launch --num_processes 2 --multi_gpu loop.py --config_path "
    command += "TinyLlama/TinyLlama-1.1B-Chat-v1.0\n"
    files = {"loop__py": LOOP, "own_args__py": ARGS, "own_model__py": BUILD}
    found = read_job(several(tmp_path, go__sh=command, **files))
    assert found.model.name == "tinyllama-1.1b"
    assert found.seq_len.value == 2048  # the model's own positions
    assert found.sequences_per_step.value == 16  # 4 × 2 forwards × 2 devices
    assert found.optimizer.value == "sgd"
    precision = found.precision.value
    assert (precision.compute, precision.weights) == ("bf16", "fp32")


def test_a_python_file_that_nothing_imports_is_said(tmp_path: Path) -> None:
    other = "import torch\n\n\ndef helper(x):\n    return x\n"
    command = TUNED + "\n"
    found = read_job(several(tmp_path, go__sh=command, tune__py=TUNE, helper__py=other))
    assert "a part of one" in {one.key: one.why for one in found.ignored}["helper.py"]


def test_settings_of_the_programs_own_json_stand_under_its_calls(tmp_path: Path) -> None:
    """The class's default mode adapts 4-bit weights, which the JSON does not name."""
    program = """import argparse
from dataclasses import dataclass, field
from peft import LoraConfig
from transformers import (
    AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, Trainer, TrainingArguments,
)


@dataclass
class Own:
    model_name_or_path: str = field()
    max_seq_length: int = field()
    train_mode: str = field(default="qlora")
    lora_rank: int = field(default=64)


def setup():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_args_file", type=str, default="a.json")
    parser = HfArgumentParser((Own, TrainingArguments))
    args, training_args = parser.parse_json_file(json_file=parser.parse_args().train_args_file)
    return args, training_args


args, training_args = setup()
quantised = None
if args.train_mode == "qlora":
    quantised = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
if args.train_mode != "full":
    config = LoraConfig(r=args.lora_rank, target_modules=find_all_linear_names(model))
Trainer(model=model, args=training_args, train_dataset=data).train()
"""
    json = '{"model_name_or_path": "meta-llama/Llama-2-7b-hf", "max_seq_length": 1024,\n'
    json += ' "per_device_train_batch_size": 1, "gradient_accumulation_steps": 16, "fp16": true%s}'
    command = "torchrun --nproc_per_node=2 tune.py --train_args_file conf/own.json\n"
    files = several(tmp_path, go__sh=command, tune__py=program, own__json=json % "")
    found = read_job(files)
    assert (found.task, found.precision.value.weights) == ("lora", "int4")
    # rank 64 on q, k, v, o (4 × 8192) and gate, up, down (3 × 15104) of 32 layers
    assert noted(found)["trained parameters"] == f"{32 * 64 * (4 * 8192 + 3 * 15104):,}"
    (tmp_path / "own.json").write_text(json % ', "train_mode": "full"')
    whole = read_job(files)
    assert (whole.task, whole.precision.value.weights) == ("sft", "fp32")


def test_keys_that_a_program_takes_out_of_a_yaml(tmp_path: Path) -> None:
    program = """import sys
import yaml
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer


def main(path):
    cfg = yaml.safe_load(open(path))
    model = AutoModelForCausalLM.from_pretrained(cfg["model"]["base"])
    config = SFTConfig(
        output_dir=cfg["out"],
        max_length=cfg["cut"],
        per_device_train_batch_size=cfg.get("each", 2),
        gradient_accumulation_steps=cfg.get("steps", 8),
        bf16=cfg["half"],
    )
    SFTTrainer(model=model, args=config, train_dataset=data).train()


main(sys.argv[1])
"""
    yaml = "model:\n  base: Qwen/Qwen3-4B\nout: o\ncut: 2048\nsteps: 4\nhalf: true\n"
    command = "torchrun --nnodes 1 --nproc_per_node 4 own.py conf/own.yaml\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program, own__yaml=yaml))
    assert (found.model.name, found.seq_len.value) == ("qwen3-4b", 2048)
    assert found.sequences_per_step.value == 32  # 2 × 4 forwards × 4 devices


def test_a_hydra_programs_groups_are_composed(tmp_path: Path) -> None:
    """The command chooses the group's file and overrides a key of it."""
    program = """import hydra
import torch
from transformers import AutoModelForCausalLM


@hydra.main(version_base=None, config_path="config", config_name="main")
def main(config):
    model = AutoModelForCausalLM.from_pretrained(config.model.name_or_path)
    loader = DataLoader(data, batch_size=config.train.each)
    pack(dataset, max_length=config.model.max_length)
    torch.optim.AdamW(model.parameters(), lr=config.lr)
    for batch in loader:
        model(batch).loss.backward()


main()
"""
    files = {
        "main__yaml": "defaults:\n  - _self_\n  - model: ???\nlr: 1.0e-5\ntrain:\n  each: 4\n",
        "small__yaml": "defaults:\n  - base\nname_or_path: gpt2\n",
        "base__yaml": "name_or_path: ???\nmax_length: 768\n",
    }
    command = (
        "torchrun --nnodes 1 --nproc_per_node 2 own.py model=small ++model.name_or_path=gpt2-xl\n"
    )
    found = read_job(several(tmp_path, go__sh=command, own__py=program, **files))
    assert (found.model.name, found.seq_len.value) == ("gpt2-xl", 768)
    assert found.sequences_per_step.value == 8


GPT = """from dataclasses import dataclass


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


class GPT:
    def __init__(self, config):
        self.wte, self.wpe = table(config.vocab_size), table(config.block_size)
        self.c_attn, self.c_fc, self.act = linear(), linear(), gelu()
"""
GPT_LOOP = """import torch
from gpt import GPT, GPTConfig

total_batch_size = 524288
B = 16
T = 1024
steps = total_batch_size // (B * T * world_size)
model = GPT(GPTConfig(vocab_size=50304))
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    loss = model(x)
loss.backward()
"""


def test_a_gpt_2_of_the_programs_own(tmp_path: Path) -> None:
    command = "torchrun --standalone --nproc_per_node=8 own.py\n"
    files = several(tmp_path, go__sh=command, own__py=GPT_LOOP, gpt__py=GPT)
    found = read_job(files)
    assert found.seq_len.value == 1024
    assert found.sequences_per_step.value == 512  # 524,288 tokens
    assert found.plan is not None and found.plan.value.microbatch == 16
    assert found.model.vocab == 50304
    assert found.precision.value.weights == "fp32"
    (tmp_path / "gpt.py").write_text(GPT.replace("gelu()", "rotary()"))
    with pytest.raises(InputError, match="does not say which model"):
        read_job(files)


OWN_FSDP = """import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from transformers import AutoModelForCausalLM

model_name = "mistralai/Mistral-7B-v0.1"
max_length = 2048
train_batch_size = 2
model = AutoModelForCausalLM.from_pretrained(model_name%s)
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(model, mixed_precision=half)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
model(batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("loaded", "held"), [(", torch_dtype=torch.bfloat16", "bf16"), ("", "fp32")]
)
def test_pytorchs_own_fsdp_shards_weights_as_loaded(tmp_path: Path, loaded: str, held: str) -> None:
    """Accelerate makes its shards fp32; FullyShardedDataParallel leaves them as they are."""
    command = "torchrun --nnodes=1 --nproc-per-node=8 own.py\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=OWN_FSDP % loaded))
    precision = found.precision.value
    assert (precision.weights, precision.moments, precision.gather) == (held, held, "bf16")
    assert found.sequences_per_step.value == 16
    assert found.plan is not None and found.plan.value.fsdp == 8


ENGINE = """import argparse
import deepspeed
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--name", default="facebook/opt-1.3b")
parser.add_argument("--max_seq_len", type=int, default=512)
parser.add_argument("--model_parallel_size", type=int, default=1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.name)
engine, *_ = deepspeed.initialize(args=args, model=model)
engine.backward(engine(batch))
"""


def test_deepspeeds_own_arguments_name_its_file(tmp_path: Path) -> None:
    """A switch --deepspeed, and --deepspeed_config: the file's whole batch, 32 of 1 a device over
    4 devices in pairs: 32 / 2 = 16 forwards."""
    json = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 1,\n'
    json += ' "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}'
    command = "deepspeed --num_nodes 1 --num_gpus 4 own.py --deepspeed \\\n"
    command += "  --deepspeed_config conf/ds.json \\\n"
    command += "  --model_parallel_size 2\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=ENGINE, ds__json=json))
    assert found.plan is not None
    plan = found.plan.value
    assert (plan.tp, plan.dp, plan.accumulation) == (2, 2, 16)
    assert plan.optimizer_sharding == "zero1"
    assert noted(found)["tp"] == "2"


def test_a_whole_batch_beside_a_devices(tmp_path: Path) -> None:
    """512 sequences of 8 devices' 32: two forwards."""
    program = """import argparse
import torch
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--model_config")
parser.add_argument("--batch_size", type=int, required=True)
parser.add_argument("--total_batch_size", type=int, default=None)
parser.add_argument("--max_length", type=int, default=256)
args = parser.parse_args()
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.model_config))
model = model.to(dtype=torch.bfloat16)
torch.optim.Adam(model.parameters(), lr=1e-3)
model(batch).loss.backward()
"""
    command = "torchrun --nnodes 1 --nproc_per_node 8 own.py --model_config gpt2 \\\n"
    command += "  --batch_size 32 --total_batch_size 512\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.plan is not None
    assert (found.plan.value.microbatch, found.plan.value.accumulation) == (32, 2)
    assert found.seq_len.value == 256
    assert found.precision.value.moments == "bf16"


def test_a_ray_program_is_read_by_its_own_defaults(tmp_path: Path) -> None:
    program = """import argparse
import torch
from accelerate import Accelerator
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import AutoModelForCausalLM


def work(config):
    args = argparse.Namespace(**config["args"])
    accelerator = Accelerator(mixed_precision="bf16")
    model = AutoModelForCausalLM.from_pretrained(args.model_name)
    torch.optim.AdamW(model.parameters(), lr=1e-4)
    accelerator.backward(model(batch).loss)


parser = argparse.ArgumentParser()
parser.add_argument("--model_name", default="facebook/opt-1.3b")
parser.add_argument("--batch-size-per-device", type=int, default=16)
parser.add_argument("--num-devices", type=int, default=4)
parser.add_argument("--ctx-len", type=int, default=512)
args = parser.parse_args()
scaling = ScalingConfig(num_workers=args.num_devices, use_gpu=True)
TorchTrainer(work, train_loop_config={"args": vars(args)}, scaling_config=scaling).fit()
"""
    found = read_job(several(tmp_path, own__py=program))
    assert found.devices is not None and found.devices.value == 4
    assert (found.sequences_per_step.value, found.seq_len.value) == (64, 512)
    assert "arguments" in noted(found)


def test_peft_passes_over_a_target_that_is_no_module(tmp_path: Path) -> None:
    """Llama's maps are q_proj to down_proj; PEFT asks only that one of the names is there."""
    program = TUNE.replace('["q_proj", "v_proj"]', '["q_proj", "gate_up_proj"]')
    found = read_job(several(tmp_path, go__sh=TUNED + "\n", tune__py=program))
    # rank 8 on q_proj (4096 + 4096) of 32 layers
    assert noted(found)["trained parameters"] == f"{32 * 8 * 8192:,}"
    assert noted(found)["adapters' target"] == "gate_up_proj"
