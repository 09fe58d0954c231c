"""Files of other frameworks that share words with the formats read here."""

from pathlib import Path

import pytest

from chipshift.errors import InputError

from .test_spellings import job

VERL_SFT = """
data: {train_batch_size: 256, micro_batch_size_per_gpu: 4, max_length: 1024}
trainer: {total_epochs: 4, nnodes: 1, n_gpus_per_node: 8}
"""
VERL_GRPO = """
data: {train_batch_size: 4}
actor_rollout_ref: {actor: {ppo_mini_batch_size: 16}}
trainer: {devices: 8}
"""
EVO2 = """
vocab_size: 512
hidden_size: 1920
num_layers: 25
num_attention_heads: 15
hyena_filter_groups: 1
"""
NXDT = """
trainer: {devices: 32, num_nodes: 16}
distributed_strategy: {tensor_model_parallel_size: 32}
data: {micro_batch_size: 1, global_batch_size: 1024}
model: {num_layers: 80}
"""


@pytest.mark.parametrize(
    "text, name",
    [(VERL_SFT, "verl"), (VERL_GRPO, "verl"), (EVO2, "StripedHyena"), (NXDT, "NxD Training")],
)
def test_a_configuration_of_another_framework_is_named(
    tmp_path: Path, text: str, name: str
) -> None:
    with pytest.raises(InputError, match=rf"job\.yaml is a configuration of {name}"):
        job(tmp_path, text)


FLAGPERF = """
vendor: str = None
train_batch_size = 256
gradient_accumulation_steps = 1
"""


def test_a_benchmark_of_flagperf_is_no_nanogpt(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"_base\.py is in no format known here"):
        job(tmp_path, FLAGPERF, "_base.py")


def test_a_script_of_the_trainer_with_nanogpts_words_is_read_as_the_trainers(
    tmp_path: Path,
) -> None:
    text = "from transformers import TrainingArguments\n\n"
    text += "gradient_accumulation_steps = 4\nblock_size = 512\n"
    text += 'name = "meta-llama/Llama-3.1-8B"\n'
    text += "args = TrainingArguments(per_device_train_batch_size=2, max_length=block_size,\n"
    text += "    gradient_accumulation_steps=gradient_accumulation_steps)\n"
    text += "model = AutoModelForCausalLM.from_pretrained(name)\n"
    found = job(tmp_path, text, "train.py")
    assert found.format == "transformers"
    assert found.seq_len.value == 512


def test_json_that_holds_a_command_is_no_script(tmp_path: Path) -> None:
    text = '{"jobSpec": {"containerSpec": {"command": ["bash", "-c", "python train.py base.yml '
    text += 'per_device_batch_size=4 ici_fsdp_parallelism=8"]}}}'
    with pytest.raises(InputError, match=r"job\.json is in no format known here"):
        job(tmp_path, text, "job.json")


def test_python_is_no_yaml(tmp_path: Path) -> None:
    text = "import os\n\n\nclass Job:\n    base_model: str = 'x'\n    adapter: str\n"
    with pytest.raises(InputError, match="in no format known here"):
        job(tmp_path, text, "job.py")


NESTED = """
arch: {n_layer: 9, n_embd: 512}
train:
  gradient_accumulation_steps: 8
  learning_rate: 1.0e-4
"""


def test_the_trainers_words_inside_a_table_of_another_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"job\.yaml is in no format known here"):
        job(tmp_path, NESTED)
    nested = '{\n  "name": "x",\n  "train": {\n    "a": 1,\n'
    nested += '      "gradient_accumulation_steps": 8,\n      "learning_rate": 1.0}}\n'
    with pytest.raises(InputError, match=r"job\.json is in no format known here"):
        job(tmp_path, nested, "job.json")
    flat = '{\n    "gradient_accumulation_steps": 8,\n    "learning_rate": 1.0\n}\n'
    with pytest.raises(InputError, match="does not say which model it trains"):
        job(tmp_path, flat, "job.json")


def test_a_shell_script_with_python_in_it_is_no_python(tmp_path: Path) -> None:
    text = "#!/usr/bin/env bash\nset -e\npython - <<'PY'\nfrom trl import PPOConfig\n"
    text += "config = PPOConfig(batch_size=2)\nPY\n"
    with pytest.raises(InputError, match="does not say which model it trains"):
        job(tmp_path, text, "a.sh")
