"""Programs over a file of settings of their own, and what they pass whole; each file is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_further_publishers import several
from .test_started_programs import flagged, noted


def matters(found: TrainJob) -> str:
    return " ".join(f"{one.key}: {one.why}" for one in found.ignored if one.matters)


DICT = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from own.words import Pairs

DEFAULTS = {"per_device_train_batch_size": 2, "fp16": True}


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--max-seq-length", type=int, default=1024)
    parser.add_argument("--training-args", nargs="*", action=Pairs, default={})
    args = parser.parse_args()
    args.training_args = {**DEFAULTS, **args.training_args}
    return args


args = get_args()
model = AutoModelForCausalLM.from_pretrained(args.model)
told = TrainingArguments(output_dir="o", **args.training_args)
rows = tokenize(data, max_length=args.max_seq_length)
Trainer(model=model, args=told, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("words", "micro"), [("num_train_epochs=1", 2), ("per_device_train_batch_size=4", 4)]
)
def test_a_table_that_is_passed_whole(tmp_path: Path, words: str, micro: int) -> None:
    """The program's own table, with the command's pairs over it."""
    command = f"torchrun --nproc_per_node=8 own.py --model gpt2 --training-args {words} lr=1e-4\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=DICT))
    assert found.plan is not None and found.plan.value.microbatch == micro
    assert (found.precision.value.compute, found.seq_len.value) == ("fp16", 1024)


def test_a_table_that_only_a_run_could_tell_is_said(tmp_path: Path) -> None:
    program = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
told = TrainingArguments(output_dir="o", max_steps=10, **fetched())
Trainer(model=model, args=told, train_dataset=data).train()
"""
    found = read_job(several(tmp_path, own__py=program), overrides={"seq_len": "512"})
    assert "**fetched(): TrainingArguments" in matters(found)


PEFT = (
    """{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}"""
)
ADAPTED = """import json
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

with open("adapters.json") as file:
    adapters = LoraConfig(**json.load(file))
model = get_peft_model(AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf"), adapters)
told = TrainingArguments(output_dir="o", bf16=True)
Trainer(model=model, args=told, train_dataset=tokenize(data, max_length=512)).train()
"""


def test_adapters_out_of_pefts_own_file(tmp_path: Path) -> None:
    """Rank 16 on four maps of 4096 x 4096 in 32 layers; PEFT's defaults would be 8 on two."""
    found = read_job(
        several(tmp_path, own__py=ADAPTED, adapters__json=PEFT), overrides={"seq_len": "512"}
    )
    assert noted(found)["trained parameters"] == f"{32 * 4 * 16 * (4096 + 4096):,}"
    assert "LoraConfig" not in matters(found)


JSON = """{"model_name": "bigscience/bloom-7b1", "micro_batch_size": 8, "batch_size": 1024,
 "cutoff_len": 256, "lora_r": 4}"""
OWN = """import json
import transformers
from functools import lru_cache
from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training


@lru_cache
def get_config(file="train.json"):
    with open(file) as opened:
        data = json.load(opened)
    data["steps"] = data["batch_size"] // data["micro_batch_size"]
    return data


def train():
    data = get_config()
    rank = data["lora_r"]
    model = transformers.BloomForCausalLM.from_pretrained(data["model_name"])
    model = prepare_model_for_int8_training(model)
    model = get_peft_model(model, LoraConfig(r=rank, target_modules=None))
    told = transformers.TrainingArguments(
        per_device_train_batch_size=data["micro_batch_size"],
        gradient_accumulation_steps=data["steps"],
        fp16=True,
    )
    transformers.Trainer(model=model, args=told, train_dataset=rows).train()


train()
"""


def test_a_json_of_the_programs_own_without_a_command(tmp_path: Path) -> None:
    """1024 / 8 = 128 forwards; rank 4 on 30 layers of 4096 to 3 x 4096; PEFT's preparation
    recomputes."""
    found = read_job(several(tmp_path, own__py=OWN, train__json=JSON))
    assert found.plan is not None
    plan = found.plan.value
    assert (plan.microbatch, plan.accumulation, plan.remat) == (8, 128, "full")
    assert (found.model.name, found.precision.value.compute) == ("bloom-7b1", "fp16")
    assert noted(found)["trained parameters"] == f"{30 * 4 * (4096 + 3 * 4096):,}"


SLOTH = """import argparse
from unsloth import FastLanguageModel, is_bfloat16_supported
from transformers import TrainingArguments
from trl import SFTTrainer
from own import load_config

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
args = parser.parse_args()
config = load_config(args.config)
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name=config.model.name, max_seq_length=config.model.max_seq_length
)
model = FastLanguageModel.get_peft_model(
    model, r=config.lora.r, use_gradient_checkpointing="unsloth"
)
told = TrainingArguments(
    per_device_train_batch_size=config.training.batch,
    bf16=is_bfloat16_supported(),
    fp16=not is_bfloat16_supported(),
)
SFTTrainer(model=model, args=told, train_dataset=rows).train()
"""
SETTINGS = """model:
  name: unsloth/Qwen2.5-3B-Instruct-bnb-4bit
  max_seq_length: 2048
lora:
  r: 64
training:
  batch: 3
"""


def test_unsloth_over_a_yaml_that_the_command_names(tmp_path: Path) -> None:
    """4 bits, every linear map and recomputation are Unsloth's defaults; no launcher starts it.

    36 layers, rank 64: q and o 2048 to 2048, k and v 2048 to 256, three maps of 2048 and 11008.
    """
    command = "python train/own.py --config configs/own.yaml\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=SLOTH, own__yaml=SETTINGS))
    assert found.plan is not None
    assert (found.plan.value.microbatch, found.plan.value.remat) == (3, "full")
    assert (found.model.name, found.seq_len.value) == ("qwen2.5-3b", 2048)
    assert (found.precision.value.weights, found.precision.value.compute) == ("int4", "bf16")
    each = 2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 11008)
    assert noted(found)["trained parameters"] == f"{36 * 64 * each:,}"
    off = SLOTH.replace("max_seq_length=config", "load_in_8bit=False, max_seq_length=config")
    again = read_job(several(tmp_path, go__sh=command, own__py=off, own__yaml=SETTINGS))
    assert again.precision.value.weights == "int4"  # a switch that is off turns nothing off


LIGHT = """import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy
from own import Module, Rows, load_config

config = load_config("settings.yaml")
model = Module.from_pretrained("meta-llama/Llama-2-7b-hf", max_length=config["cut"])
engine = config["deepspeed"]
engine["train_micro_batch_size_per_gpu"] = config["each"]
trainer = L.Trainer(
    devices=8,
    precision="bf16-mixed",
    strategy=DeepSpeedStrategy(config=engine),
    accumulate_grad_batches=config["every"],
)
trainer.fit(model, DataLoader(Rows(), batch_size=config["each"]))
"""
LIT = """cut: 1024
each: 2
every: 4
deepspeed:
  optimizer:
    type: Lion
  zero_optimization:
    stage: STAGE
"""


@pytest.mark.parametrize(("stage", "open_axis", "cut"), [(1, "dp", "zero1"), (3, "fsdp", "none")])
def test_a_lightning_script_over_a_yaml_of_its_own(
    tmp_path: Path, stage: int, open_axis: str, cut: str
) -> None:
    """2 sequences a device and 4 forwards; DeepSpeed's table is a part of the file."""
    files = {"own__py": LIGHT, "settings__yaml": LIT.replace("STAGE", str(stage))}
    found = read_job(several(tmp_path, **files), overrides={"seq_len": "1024"})
    assert found.plan is not None
    plan = found.plan.value
    assert (plan.microbatch, plan.accumulation) == (2, 4)
    assert (found.plan_open, plan.optimizer_sharding) == (open_axis, cut)
    assert found.optimizer.value == "lion"


def test_a_file_goes_over_the_defaults_of_the_class_that_it_fills_in(tmp_path: Path) -> None:
    """micro_batch_size is 30 by default and 10 in the file: 480 / 10 = 48 forwards on a device."""
    program = """from dataclasses import dataclass
import lightning as L
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM


@dataclass
class Config:
    batch_size: int = 480
    micro_batch_size: int = 30


config = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path))
steps = config.batch_size // config.micro_batch_size
model = AutoModelForCausalLM.from_pretrained("gpt2")
loader = make_loader(config.micro_batch_size, tokenize(rows, max_length=512))
L.Trainer(devices=1, accumulate_grad_batches=steps).fit(model, loader)
"""
    files = {"own__py": program, "own__yml": "batch_size: 480\nmicro_batch_size: 10\n"}
    found = read_job(several(tmp_path, **files), overrides={"seq_len": "512"})
    assert found.plan is not None
    assert (found.plan.value.microbatch, found.plan.value.accumulation) == (10, 48)


def test_names_that_a_program_imports_over_several_lines(tmp_path: Path) -> None:
    loop = """import torch
from accelerate import Accelerator
from configs.sizes import (  # (both)
    EACH,  # sequences
    EVERY,
)
from transformers import AutoModelForCausalLM

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=EVERY)
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(tokenize(rows, max_length=256), batch_size=EACH)
accelerator.backward(model(batch).loss)
"""
    sizes = "EACH = 6\nEVERY = 5\n"
    command = "accelerate launch --num_processes 2 loop.py\n"
    found = read_job(several(tmp_path, go__sh=command, loop__py=loop, sizes__py=sizes))
    assert found.sequences_per_step.value == 6 * 5 * 2


def test_a_plain_command_of_a_program_that_is_given(tmp_path: Path) -> None:
    """No launcher, no file of settings: the program beside it tells what is started."""
    program = """import fire
import transformers


def train(base: str = "", each: int = 4, whole: int = 64, cut: int = 256):
    steps = whole // each
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    told = transformers.TrainingArguments(
        per_device_train_batch_size=each, gradient_accumulation_steps=steps, fp16=True
    )
    rows = tokenize(data, max_length=cut)
    transformers.Trainer(model=model, args=told, train_dataset=rows).train()


fire.Fire(train)
"""
    command = "python ./train/own.py --base gpt2 --each 8 --cut 512\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.plan is not None  # 64 / 8 = 8 forwards
    assert (found.plan.value.microbatch, found.plan.value.accumulation) == (8, 8)
    assert (found.model.name, found.seq_len.value) == ("gpt2", 512)


def test_tokens_of_a_devices_packed_row_are_the_length(tmp_path: Path) -> None:
    program = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer
from own import Words

(args,) = HfArgumentParser((Words,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
Trainer(model=model, args=args, train_dataset=pack(rows, args.per_device_max_tokens)).train()
"""
    command = "torchrun --nproc_per_node 8 own.py --model_name_or_path gpt2 \\\n"
    command += "  --per_device_train_batch_size 1 --per_device_max_tokens 65536\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.seq_len.value == 65536


def test_adapters_of_a_class_of_the_programs_own_are_said(tmp_path: Path) -> None:
    program = """from own.peft import MixedLoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

args, told = HfArgumentParser((Words, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
model = get_peft_model(model, MixedLoraConfig(r=args.lora_rank))
Trainer(model=model, args=told, train_dataset=tokenize(rows, max_length=512)).train()
"""
    command = "nohup deepspeed --num_gpus 4 own.py --model_name_or_path gpt2 \\\n"
    command += "  --per_device_train_batch_size 2 --lora_rank 16\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.devices is not None and found.devices.value == 4
    assert "lora_rank: adapters of the program's own" in matters(found)


def test_deepspeed_without_hosts_starts_on_the_local_machine(tmp_path: Path) -> None:
    words = "train.py --model-name-or-path gpt2 --per-device-train-batch-size 2 --max-length 512\n"
    alone = read_job(several(tmp_path, go__sh=f"deepspeed --num_gpus=4 {words}"))
    assert alone.devices is not None and alone.devices.value == 4
    listed = read_job(several(tmp_path, go__sh=f"deepspeed --hostfile h --num_gpus=4 {words}"))
    assert listed.devices is None


def test_adapters_in_a_table_that_is_switched_off(tmp_path: Path) -> None:
    text = """model_name_or_path: gpt2
per_device_train_batch_size: 4
max_length: 512
lora:
  enabled: ON
  r: 8
  target_modules: all-linear
"""
    off = read_job(several(tmp_path, own__yaml=text.replace("ON", "false")))
    on = read_job(several(tmp_path, own__yaml=text.replace("ON", "true")))
    assert (off.task, on.task) == ("sft", "lora")


def test_a_switch_that_a_command_may_give_and_its_default(tmp_path: Path) -> None:
    """``store_true`` with ``default=True`` is on without the word."""
    program = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model_path", default="gpt2")
parser.add_argument("--seq_length", type=int, default=512)
parser.add_argument("--batch_size", type=int, default=1)
parser.add_argument("--bf16", action="store_true", default=True)
parser.add_argument("--no_gradient_checkpointing", action="store_false", default=False)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model_path)
told = TrainingArguments(
    per_device_train_batch_size=args.batch_size,
    gradient_checkpointing=not args.no_gradient_checkpointing,
    bf16=args.bf16,
)
Trainer(model=model, args=told, train_dataset=rows).train()
"""
    command = "torchrun --nproc_per_node 8 own.py --batch_size 2 --seq_length 2048\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.plan is not None
    assert (found.plan.value.microbatch, found.plan.value.remat) == (2, "full")
    assert (found.precision.value.compute, found.seq_len.value) == ("bf16", 2048)


def test_a_reference_of_another_dtype_is_not_the_policys(tmp_path: Path) -> None:
    """The policy is loaded first, in fp32; the model that is loaded after it stays frozen."""
    program = """import torch
import transformers
from accelerate import Accelerator

policy = transformers.AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float32)
reference = transformers.AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16)
accelerator = Accelerator()
torch.optim.RMSprop(policy.parameters(), lr=1e-6)
loader = DataLoader(tokenize(rows, max_length=512), batch_size=4)
accelerator.backward(loss(policy, reference))
"""
    command = "accelerate launch --num_processes 2 own.py\n"
    found = read_job(several(tmp_path, go__sh=command, own__py=program))
    assert found.precision.value.weights == "fp32" and found.optimizer.value == "rmsprop"


def test_an_orphaned_line_is_said_and_the_program_fills_in_what_it_lost(tmp_path: Path) -> None:
    """A space behind the backslash ends the command: the words after it start nothing."""
    program = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model_name_or_path")
parser.add_argument("--tag")
parser.add_argument("--gradient_accumulation_steps", type=int, default=16)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
told = TrainingArguments(
    per_device_train_batch_size=1, gradient_accumulation_steps=args.gradient_accumulation_steps
)
Trainer(model=model, args=told, train_dataset=tokenize(rows, max_length=512)).train()
"""
    command = "torchrun --nproc_per_node 4 own.py --model_name_or_path gpt2 --tag x \\ \n"
    command += "  --gradient_accumulation_steps 2\n"
    found = read_job(
        several(tmp_path, go__sh=command, own__py=program), overrides={"seq_len": "512"}
    )
    assert found.plan is not None and found.plan.value.accumulation == 16
    assert "no program stands before it" in matters(found)


def test_what_a_program_asks_of_the_chip_is_answered_as_by_an_h100(tmp_path: Path) -> None:
    program = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
half = torch.cuda.get_device_capability()[0] >= 8
told = TrainingArguments(per_device_train_batch_size=2, bf16=half, fp16=not half)
Trainer(model=model, args=told, train_dataset=rows).train()
"""
    found = read_job(several(tmp_path, own__py=program), overrides={"seq_len": "512"})
    assert found.precision.value.compute == "bf16" and "loss_scaler" not in flagged(found)


def test_another_frameworks_file_beside_a_program_that_loads_data(tmp_path: Path) -> None:
    """A program's ``json.load`` is of its rows; what the two files say differently is told."""
    program = """import json
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
rows = json.load(open("rows.json"))
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
told = TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True)
Trainer(model=model, args=told, train_dataset=rows).train()
"""
    other = """base_model: Qwen/Qwen2.5-0.5B
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 4
datasets: [{path: x, type: alpaca}]
"""
    found = read_job(several(tmp_path, train__py=program, ax__yaml=other))
    assert {"model", "microbatch"} <= {one.key for one in found.ignored if one.matters}
    assert not any("all weights were taken as trained" in one.why for one in found.ignored)
