"""Adapters beside a job: what is trained is counted as PEFT counts it, wherever it is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

SFT = """model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
max_length: 2048
bf16: true
output_dir: out
"""
# Llama 3.1 8B: D 4096, 8 key/value heads of 128 (1024), F 14336, V 128256, 32 layers
MAPS = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
HEAD = 128256 * 4096
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
Q, V = 4096 + 4096, 4096 + 1024
"""Inputs + outputs of a map: what its adapter has for each rank."""


def read(folder: Path, extra: str = "", adapter: dict[str, Any] | None = None) -> TrainJob:
    (folder / "sft.yaml").write_text(SFT + extra)
    files = [str(folder / "sft.yaml")]
    if adapter is not None:
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **adapter}))
        files.append(str(folder / "adapter_config.json"))
    return read_job(files)


def trained(job: TrainJob) -> str:
    """The parameters trained, as the reading's assumptions show them."""
    return next(value for what, value, _ in job.assumed if what == "trained parameters")


def test_only_the_layers_named_get_an_adapter(tmp_path: Path) -> None:
    config = {"r": 16, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0, 1, 5]}
    job = read(tmp_path, adapter=config)
    assert job.task == "lora"
    assert job.trainable_fraction == pytest.approx(3 * 16 * (Q + V) / (MAPS + HEAD), rel=1e-12)
    assert trained(job) == f"{3 * 16 * (Q + V):,}"


def test_a_rank_pattern_overrides_the_rank(tmp_path: Path) -> None:
    config = {"r": 16, "target_modules": ["q_proj", "v_proj"], "rank_pattern": {"v_proj": 64}}
    share = 32 * (16 * Q + 64 * V) / (MAPS + HEAD)
    assert read(tmp_path, adapter=config).trainable_fraction == pytest.approx(share, rel=1e-12)


def test_a_head_saved_in_full_is_trained_and_an_embedding_multiplies_nothing(
    tmp_path: Path,
) -> None:
    saved = ["lm_head", "embed_tokens"]
    config = {"r": 16, "target_modules": ["q_proj", "v_proj"], "modules_to_save": saved}
    job = read(tmp_path, adapter=config)
    adapters = 32 * 16 * (Q + V)
    assert job.trainable_fraction == pytest.approx((adapters + HEAD) / (MAPS + HEAD), rel=1e-12)
    assert trained(job) == f"{adapters + 2 * HEAD:,}"  # the embedding is as large as the head


def test_a_regular_expression_selects_paths(tmp_path: Path) -> None:
    config = {"r": 4, "target_modules": r".*layers\.(0|31)\.self_attn\.q_proj"}
    share = 2 * 4 * Q / (MAPS + HEAD)
    assert read(tmp_path, adapter=config).trainable_fraction == pytest.approx(share, rel=1e-12)


def test_trl_keys_say_the_same(tmp_path: Path) -> None:
    extra = (
        "use_peft: true\nlora_r: 16\nlora_target_modules: [q_proj, v_proj]\n"
        "lora_modules_to_save: [lm_head]\n"
    )
    share = (32 * 16 * (Q + V) + HEAD) / (MAPS + HEAD)
    assert read(tmp_path, extra).trainable_fraction == pytest.approx(share, rel=1e-12)


def test_llama_factory_targets_stand_with_commas(tmp_path: Path) -> None:
    extra = "finetuning_type: lora\nlora_rank: 8\nlora_target: q_proj,v_proj\nstage: sft\n"
    share = 32 * 8 * (Q + V) / (MAPS + HEAD)
    assert read(tmp_path, extra).trainable_fraction == pytest.approx(share, rel=1e-12)


def test_a_script_gives_every_argument_of_its_lora_config(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from peft import LoraConfig\n"
        "from trl import SFTConfig\n"
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\n"
        "names = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']\n"
        "peft = LoraConfig(r=16, target_modules=names, layers_to_transform=[3],\n"
        "                  rank_pattern={'q_proj': 32})\n"
        "args = SFTConfig(output_dir='o', per_device_train_batch_size=1, max_length=1024)\n"
    )
    ff = 3 * (4096 + 14336)
    adapters = 32 * Q + 16 * (2 * V + Q + ff)  # q at 32; k and v alike, o as q
    found = read_job([str(script)]).trainable_fraction
    assert found == pytest.approx(adapters / (MAPS + HEAD), rel=1e-12)


def test_torchtune_names_are_translated(tmp_path: Path) -> None:
    recipe = tmp_path / "lora.yaml"
    recipe.write_text(
        "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n"
        "  lora_attn_modules: ['q_proj', 'output_proj']\n  apply_lora_to_mlp: true\n"
        "  lora_rank: 8\ntokenizer:\n  max_seq_len: 2048\nbatch_size: 2\n"
        "gradient_accumulation_steps: 8\ndtype: bf16\n"
    )
    share = 32 * 8 * (2 * Q + 3 * (4096 + 14336)) / (MAPS + HEAD)
    assert read_job([str(recipe)]).trainable_fraction == pytest.approx(share, rel=1e-12)


def test_a_target_that_no_module_has_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapter_config.json: .*qproj.*q_proj"):
        read(tmp_path, adapter={"r": 8, "target_modules": ["qproj"]})


def test_another_adapter_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="IA3"):
        read(tmp_path, adapter={"peft_type": "IA3", "target_modules": ["k_proj"]})


def test_magnitudes_are_read_written_and_read_again(tmp_path: Path) -> None:
    from chipshift.jobs.write import to_toml

    file = tmp_path / "dora.yaml"
    file.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 512\nmicro_batch_size: 1\n"
        "adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, o_proj]\npeft_use_dora: true\n"
    )
    job = read_job([str(file)])
    # rank 8 on q and o (4,096 → 4,096) of 32 layers, and a magnitude for each output
    trained = 32 * 2 * (8 * (4096 + 4096) + 4096)
    assert f"{trained:,}" in [value for what, value, _ in job.assumed if "trained" in what]
    assert job.adapters is not None and job.adapters.dora
    native = tmp_path / "native.toml"
    native.write_text(to_toml(job))
    assert read_job([str(native)]).adapters == job.adapters


@pytest.mark.parametrize(("scheme", "dora"), [("dora", True), ("lora", False)])
def test_a_recipes_scheme_says_whether_magnitudes_are_trained(
    tmp_path: Path, scheme: str, dora: bool
) -> None:
    file = tmp_path / "recipe.py"
    file.write_text(
        "import nemo_run as run\nfrom nemo.collections import llm\n"
        f"recipe = llm.llama3_8b.finetune_recipe(dir='c', name='n', peft_scheme='{scheme}')\n"
    )
    job = read_job([str(file)])
    assert job.adapters is not None and job.adapters.dora == dora


@pytest.mark.parametrize("weights", ["bfloat16", "float16", "float32"])
def test_adapters_on_half_precision_weights_are_fp32(tmp_path: Path, weights: str) -> None:
    """PEFT's autocast_adapter_dtype: gradients and moments are the adapters' own, of 4 bytes."""
    extra = f"use_peft: true\nlora_r: 8\ntorch_dtype: {weights}\nbf16: true\n"
    precision = read(tmp_path, extra).precision.value
    assert (precision.gradients, precision.moments) == ("fp32", "fp32")
    assert (precision.weights, precision.master) == (DTYPES[weights], "none")


def test_a_model_trained_whole_in_bf16_keeps_its_gradients_so(tmp_path: Path) -> None:
    precision = read(tmp_path, "torch_dtype: bfloat16\nbf16: true\n").precision.value
    assert (precision.weights, precision.gradients, precision.moments) == ("bf16",) * 3


def test_another_task_than_the_adapters_is_refused_with_their_line(tmp_path: Path) -> None:
    """Adapters make the task lora whatever is said; a wish for another is not passed over."""
    (tmp_path / "sft.yaml").write_text(SFT + "use_peft: true\nlora_r: 8\n")
    files = [str(tmp_path / "sft.yaml")]
    assert read_job(files).task == "lora"
    assert read_job(files, overrides={"task": "lora"}).task == "lora"
    with pytest.raises(InputError, match=r"--set task=sft: .*sft.yaml:\d+ adds adapters"):
        read_job(files, overrides={"task": "sft"})
    assert read_job(files, overrides={"task": "sft", "use_peft": "false"}).task == "sft"
