"""What launch and training scripts of further publishers say in ways of their own."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_spellings import job, plan_on

COMMAND = """#!/bin/bash
LAUNCHER train.py \\
  --model_name_or_path meta-llama/Llama-2-7b-hf \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\
  --max_seq_length 1024 --bf16 \\
"""


def command(folder: Path, launcher: str, more: str = "") -> TrainJob:
    return job(folder, COMMAND.replace("LAUNCHER", launcher) + f"  {more}\n", "a.sh")


@pytest.mark.parametrize(
    "include, devices",
    [
        ("localhost:0,1,2,3", 4),
        ("worker-0:0,1@worker-1:0,1", 4),
        ('"worker-0:0,1,2,3,4,5,6,7@worker-1:0,1,2,3,4,5,6,7"', 16),
    ],
)
def test_deepspeeds_include_counts_hosts_and_devices(
    tmp_path: Path, include: str, devices: int
) -> None:
    found = command(tmp_path, f"deepspeed --include {include}")
    assert found.devices is not None and found.devices.value == devices


def test_a_host_without_slots_gives_all_it_has(tmp_path: Path) -> None:
    assert command(tmp_path, "deepspeed --include localhost:").devices is None


@pytest.mark.parametrize("switch", ["--use_lora", "--use_peft_lora True --lora_r 8"])
def test_switches_of_adapters_and_pefts_default_rank(tmp_path: Path, switch: str) -> None:
    found = command(tmp_path, "python", switch)
    # q and v of 32 layers, rank 8: 32 × 2 × 8 × (4096 + 4096)
    assert found.task == "lora"
    assert ("trained parameters", f"{32 * 2 * 8 * 8192:,}") in [n[:2] for n in found.assumed]
    told = any(what == "adapters" and "rank 8" in value for what, value, _ in found.assumed)
    assert told is ("lora_r" not in switch)


def test_trls_switch_has_trls_rank(tmp_path: Path) -> None:
    """``use_peft`` is of TRL's ModelConfig, whose ``lora_r`` is 16 (PEFT's own ``r`` is 8)."""
    found = command(tmp_path, "python", "--use_peft")
    # q and v of 32 layers, rank 16: 32 × 2 × 16 × (4096 + 4096)
    assert ("trained parameters", f"{32 * 2 * 16 * 8192:,}") in [n[:2] for n in found.assumed]


def test_pefts_own_example_names_four_bits(tmp_path: Path) -> None:
    found = command(tmp_path, "python", "--use_peft_lora True --use_4bit_quantization True")
    assert found.precision.value.weights == "int4"


def test_trainable_names_modules_but_may_be_a_switch(tmp_path: Path) -> None:
    named = command(tmp_path, "python", "--lora_rank 4 --trainable q_proj,k_proj,v_proj,o_proj")
    assert ("trained parameters", f"{32 * 4 * 4 * 8192:,}") in [n[:2] for n in named.assumed]
    switched = command(tmp_path, "python", "--lora_rank 4 --trainable true")
    assert ("trained parameters", f"{32 * 2 * 4 * 8192:,}") in [n[:2] for n in switched.assumed]


ADAPTER = '{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "v_proj"]}'


def test_adapters_in_a_file_of_their_own(tmp_path: Path) -> None:
    alone = command(tmp_path, "python", "--use_peft True --peft_config_path ./lora")
    assert any("give its adapter_config.json" in why for _, _, why in alone.assumed)
    (tmp_path / "adapter_config.json").write_text(ADAPTER)
    files = [str(tmp_path / "a.sh"), str(tmp_path / "adapter_config.json")]
    both = read_job(files)
    assert ("trained parameters", f"{32 * 2 * 16 * 8192:,}") in [n[:2] for n in both.assumed]


def test_the_checkpoints_own_dtype(tmp_path: Path) -> None:
    assert command(tmp_path, "python").precision.value.weights == "fp32"
    assert command(tmp_path, "python", "--torch_dtype auto").precision.value.weights == "bf16"


LENGTHS = "--max_source_length 1024 --max_target_length 512"


@pytest.mark.parametrize(
    "model, length", [("meta-llama/Llama-2-7b-hf", 1536), ("google/flan-t5-xl", 1024)]
)
def test_a_decoder_sees_prompt_and_answer_in_one_sequence(
    tmp_path: Path, model: str, length: int
) -> None:
    text = COMMAND.replace("LAUNCHER", "python").replace("--max_seq_length 1024", LENGTHS)
    (tmp_path / "a.sh").write_text(text.replace("meta-llama/Llama-2-7b-hf", model) + "  --x 1\n")
    found = read_job([str(tmp_path / "a.sh")], model="llama-2-7b")
    assert found.seq_len.value == length


ARGUMENTS = """#!/bin/bash
MICRO=${4}
MICRO=${MICRO:-"2"}
GPUS=$(python -c "import torch; print(torch.cuda.device_count())")
ACCUMULATION=$((64 / GPUS / MICRO))
torchrun --nproc_per_node $GPUS train.py --model_name_or_path meta-llama/Llama-2-7b-hf \\
  --per_device_train_batch_size $MICRO --gradient_accumulation_steps $ACCUMULATION \\
  --max_seq_length 1024 --bf16
"""


def test_an_argument_not_given_takes_the_default_that_follows(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(ARGUMENTS)
    file = str(tmp_path / "a.sh")
    plan = plan_on(read_job([file], overrides={"GPUS": "8"}), "h100*8")
    assert (plan.microbatch, plan.accumulation) == (2, 4)  # 64 = 2 × 4 × 8
    given = read_job([file], overrides={"GPUS": "8", "args": "a b c 4"})
    assert plan_on(given, "h100*8").accumulation == 2


def test_what_a_program_prints_is_settled_by_the_variable_that_takes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"such as by --set GPUS=\.\.\."):
        job(tmp_path, ARGUMENTS, "a.sh")


def test_no_devices_listed_are_none(tmp_path: Path) -> None:
    text = "#!/bin/bash\nDEVICES=\"\"\nN=$(echo $DEVICES | awk -F',' '{print NF}')\n"
    text += (
        COMMAND.split("\n", 1)[1]
        .replace("LAUNCHER", "python")
        .replace("steps 4", "steps $((8 / N))")
    )
    with pytest.raises(InputError, match=r"only a run could tell.*--set gradient_accumulation_st"):
        job(tmp_path, text, "a.sh")
    assert job(tmp_path, text.replace('""', '"0,1"'), "a.sh").seq_len.value == 1024


def test_modelscopes_folders_write_points_as_underscores(tmp_path: Path) -> None:
    text = COMMAND.replace("LAUNCHER", "python")
    text = text.replace("meta-llama/Llama-2-7b-hf", "/models/Qwen/Qwen2___5-1___5B-Instruct")
    assert job(tmp_path, text + "  --x 1\n", "a.sh").model.name == "qwen2.5-1.5b"


def test_spectrum_trains_a_part_and_is_said_to_matter(tmp_path: Path) -> None:
    found = command(tmp_path, "python", "--spectrum_config_path configs/snr.yaml")
    assert [i.key for i in found.ignored if i.matters] == ["spectrum_config_path"]


SCRIPT = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ScriptArguments:
    deepspeed: Optional[str] = field(default=None)
    per_device_train_batch_size: Optional[int] = field(default=4)
    gradient_accumulation_steps: Optional[int] = field(default=32)
    model_name: Optional[str] = field(default="meta-llama/Llama-2-7b-hf")
    bf16: Optional[bool] = field(default=True)
    gradient_checkpointing: bool = True
    max_length: Optional[int] = field(default=4096)


class Other:
    per_device_train_batch_size: int = 64


parser = HfArgumentParser(ScriptArguments)
script_args = parser.parse_args_into_dataclasses()[0]
training_args = TrainingArguments(
    per_device_train_batch_size=script_args.per_device_train_batch_size,
    gradient_accumulation_steps=script_args.gradient_accumulation_steps,
    gradient_checkpointing=script_args.gradient_checkpointing,
    deepspeed=script_args.deepspeed,
    bf16=script_args.bf16,
)
model = AutoModelFor.from_pretrained(script_args.model_name)
trainer = TRAINER(model=model, args=training_args)
"""


def test_defaults_of_the_data_class_that_a_script_parses_into(tmp_path: Path) -> None:
    text = SCRIPT.replace("AutoModelFor", "AutoModelForCausalLM").replace("TRAINER", "Trainer")
    found = job(tmp_path, text, "train.py")
    plan = plan_on(found, "h100*8")
    assert (found.model.name, found.seq_len.value) == ("llama-2-7b", 4096)
    assert (plan.microbatch, plan.accumulation, plan.dp, plan.remat) == (4, 32, 8, "full")
    assert found.stack.value != "deepspeed"


def test_a_reward_model_of_a_scripts_own_trainer(tmp_path: Path) -> None:
    text = SCRIPT.replace("AutoModelFor", "AutoModelForSequenceClassification")
    reward = job(tmp_path, text.replace("TRAINER", "RewardTrainer"), "train.py")
    assert reward.loss == "reward"
    assert plan_on(reward, "h100*8").microbatch == 8  # pairs of two sequences
    other = job(tmp_path, text.replace("TRAINER", "Trainer"), "train.py")
    assert any("classification head" in i.why for i in other.ignored if i.matters)


def test_lengths_that_trls_trainers_took_themselves(tmp_path: Path) -> None:
    text = "from trl import SFTTrainer\n\nargs = TrainingArguments(per_device_train_batch_size=1)\n"
    text += 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")\n'
    text += "trainer = SFTTrainer(model=model, args=args, max_seq_length=768, packing=True)\n"
    found = job(tmp_path, text, "train.py")
    assert found.seq_len.value == 768
    assert "packed_documents" in [flag.kind for flag in found.flags]


AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
sequence_len: 8192
micro_batch_size: 1
context_parallel_size: 4
sample_packing: PACKED
"""


@pytest.mark.parametrize(
    "packed, more, kind",
    [
        ("true", "", "allgather"),
        ("false", "", "ring"),
        ("false", "ring_attn_func: varlen_llama3\n", "allgather"),
        ("true", "ring_attn_func: batch_ring\n", "ring"),
    ],
)
def test_axolotls_exchange_of_context_parallelism(
    tmp_path: Path, packed: str, more: str, kind: str
) -> None:
    found = job(tmp_path, AXOLOTL.replace("PACKED", packed) + more)
    assert plan_on(found, "h100*8").cp_kind == kind


NANOGPT = """
block_size = 512
batch_size = 64
n_layer = 8
n_head = 8
n_embd = 512
use_rope = False
use_moe = True
optimizer = raw_model.configure_optimizers(weight_decay)
t1 = time.time()
"""


def test_a_forks_switch_that_is_off_changes_no_model(tmp_path: Path) -> None:
    found = job(tmp_path, NANOGPT, "config.py")
    assert [i.key for i in found.ignored if i.matters] == ["use_moe"]
    assert found.optimizer.value == "adamw"


MAXTEXT = """#!/bin/bash
MODEL=""
python MaxText/train.py MaxText/configs/NAME per_device_batch_size=4 max_target_length=2048 \\
  ici_fsdp_parallelism=8 run_name=x
"""


def test_maxtexts_own_yaml_that_is_not_beside_is_asked_for(tmp_path: Path) -> None:
    text = MAXTEXT.replace("NAME", "models/gpu/own.yml")
    with pytest.raises(InputError, match=r"models/gpu/own\.yml, a file not given here"):
        job(tmp_path, text, "a.sh")
    named = job(tmp_path, text.replace("run_name=x", "model_name=llama2-7b"), "a.sh")
    assert [i.key for i in named.ignored if i.matters] == ["own.yml"]
    (tmp_path / "own.yml").write_text("base_config: base.yml\nmodel_name: llama2-7b\n")
    (tmp_path / "a.sh").write_text(text)
    both = read_job([str(tmp_path / "a.sh"), str(tmp_path / "own.yml")])
    assert both.model.name == "llama-2-7b"
    assert not [i.key for i in both.ignored if i.matters]


def test_a_model_that_a_maxtext_script_takes_from_its_arguments(tmp_path: Path) -> None:
    text = MAXTEXT.replace("NAME", "base.yml").replace("run_name=x", "model_name=${MODEL}")
    with pytest.raises(InputError, match=r"a\.sh:4: model_name is .*; expected a model's name"):
        job(tmp_path, text, "a.sh")


def test_a_model_under_a_longer_key(tmp_path: Path) -> None:
    text = '{"llm_model_name_or_path": "meta-llama/Llama-3.2-1B-Instruct", "bf16": true, '
    text += '"per_device_train_batch_size": 8, "model_max_length": 2048}'
    assert job(tmp_path, text, "config.json").model.name == "llama-3.2-1b"


def test_an_encoder_beside_a_maxtext_model_is_said(tmp_path: Path) -> None:
    text = MAXTEXT.replace("NAME", "base.yml").replace("run_name=x", "model_name=llama2-7b ")
    told = job(tmp_path, text.replace("llama2-7b ", "llama2-7b use_audio=true"), "a.sh")
    assert [i.key for i in told.ignored if i.matters] == ["use_audio"]
    plain = job(tmp_path, text.replace("llama2-7b ", "llama2-7b use_audio=false"), "a.sh")
    assert not [i.key for i in plain.ignored if i.matters]


def test_a_forks_layers_by_an_expression_still_matter(tmp_path: Path) -> None:
    found = job(tmp_path, NANOGPT + "moe_layer_freq = [0] + [1] * 7\n", "config.py")
    assert [i.key for i in found.ignored if i.matters] == ["use_moe", "moe_layer_freq"]
