"""Scripts with their files as people have them: several jobs, parts, and words behind a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job

from .test_further_publishers import several
from .test_spellings import job, plan_on

FACTORY = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\nbf16: true\n"
    "per_device_train_batch_size: 2\n"
)


def test_of_several_jobs_of_a_script_the_last_is_read(tmp_path: Path) -> None:
    script = "llamafactory-cli train first.yaml\nllamafactory-cli train second.yaml\n"
    first = FACTORY.replace("sft", "pt") + "cutoff_len: 4096\ngradient_accumulation_steps: 8\n"
    second = FACTORY + "cutoff_len: 8192\n"
    found = read_job(several(tmp_path, go__sh=script, first__yaml=first, second__yaml=second))
    assert (found.seq_len.value, found.task) == (8192, "sft")
    assert plan_on(found, "h100*8").accumulation == 1
    assert [one.key for one in found.ignored if one.matters] == ["first.yaml"]


@pytest.mark.parametrize(
    "command",
    [
        "CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train job.yaml",
        "export CUDA_VISIBLE_DEVICES=4,5,6,7\nllamafactory-cli train job.yaml",
        "NNODES=2 NPROC_PER_NODE=2 llamafactory-cli train job.yaml",
    ],
)
def test_gpus_that_a_launcher_sees(command: str, tmp_path: Path) -> None:
    text = FACTORY + "cutoff_len: 1024\n"
    found = read_job(several(tmp_path, go__sh=command + "\n", job__yaml=text))
    assert found.devices is not None and found.devices.value == 4


def test_a_script_that_a_script_writes_and_submits(tmp_path: Path) -> None:
    text = (
        "name=run_it\ncat > $name <<EOD\n#!/bin/bash\n"
        "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
        "srun litgpt finetune_lora meta-llama/Llama-3.2-1B --train.max_seq_length 512 \\\n"
        "  --train.global_batch_size 64 --train.micro_batch_size 4 --precision bf16-true\nEOD\n"
        "sbatch $name\n"
    )
    found = job(tmp_path, text, "go.sh")
    assert (found.model.name, found.seq_len.value) == ("llama-3.2-1b", 512)
    assert found.devices is not None and found.devices.value == 8


def test_words_behind_llama_factorys_command_without_its_file(tmp_path: Path) -> None:
    text = (
        "llamafactory-cli train x.yaml model_name_or_path=Qwen/Qwen2.5-7B cutoff_len=4096 "
        "finetuning_type=full per_device_train_batch_size=4 bf16=true\n"
    )
    found = job(tmp_path, text, "go.sh")
    assert (found.model.name, found.seq_len.value, found.task) == ("qwen2.5-7b", 4096, "sft")
    assert [one.key for one in found.ignored if one.matters] == ["x.yaml"]
    with pytest.raises(InputError, match=r"the model of x\.yaml: give that file too"):
        job(tmp_path, text.replace("model_name_or_path=Qwen/Qwen2.5-7B ", ""), "go.sh")


AXOLOTL = (
    "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: []\n"
)


def test_words_behind_axolotls_command_go_before_its_file(tmp_path: Path) -> None:
    script = (
        "axolotl train cfg.yml --micro-batch-size 4 --sequence_len=8192 --deepspeed ds/zero3.json "
        "--launcher torchrun -- --nproc_per_node=2\n"
    )
    found = read_job(several(tmp_path, go__sh=script, cfg__yml=AXOLOTL))
    plan = plan_on(found, "h100*2")
    # neither accumulation nor deepspeed stands in the file: the command adds the second
    assert (found.seq_len.value, plan.microbatch, plan.fsdp) == (8192, 4, 2)
    assert found.devices is not None and found.devices.value == 2


def test_hydras_parts_are_laid_over_one_another(tmp_path: Path) -> None:
    for folder in ("trainer", "model", "experiment"):
        (tmp_path / folder).mkdir()
    files = {
        "train.yaml": "defaults:\n  - _self_\n  - trainer: fsdp\n  - model: big.yaml\n"
        "  - experiment: long\nseed: 1\n",
        "trainer/fsdp.yaml": "_target_: lightning.pytorch.Trainer\naccelerator: gpu\ndevices: 4\n"
        "strategy: fsdp\nprecision: bf16-true\naccumulate_grad_batches: 2\n",
        "model/big.yaml": "_target_: own.Module\npretrained_name: meta-llama/Llama-3.1-8B\n"
        "optimizer: {_target_: torch.optim.AdamW, _partial_: true}\n",
        "experiment/long.yaml": "# @package _global_\ndefaults:\n  - override /trainer: fsdp\n"
        "trainer: {accumulate_grad_batches: 8}\ndata: {batch_size: 2, max_length: 8192}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = read_job([str(tmp_path / name) for name in files])
    plan = plan_on(found, "h100*4")
    assert (found.model.name, found.seq_len.value) == ("llama-3.1-8b", 8192)
    assert (plan.fsdp, plan.microbatch, plan.accumulation) == (4, 2, 8)


def test_a_trainer_and_a_batch_elsewhere_are_not_levanters(tmp_path: Path) -> None:
    text = (
        "trainer: {devices: 2, strategy: ddp, precision: bf16-mixed}\n"
        "data: {train_batch_size: 4, max_length: 512}\nmodel_name_or_path: gpt2\n"
    )
    found = job(tmp_path, text)
    assert found.format == "lightning" and plan_on(found, "a100*2").microbatch == 4


SCRIPT = """
import lightning as L
import torch
from own.models import LlamaConfig, Model
config = LlamaConfig(vocab_size=50258, seq_len=512, d_model=768, num_layers=8, num_heads=8)
settings = {"batch_size": 32, "gradient_acc_steps": 4, "precision": "16-mixed", "devices": 1}
fabric = L.Fabric(devices=settings["devices"], precision=settings["precision"])
optimizer = torch.optim.AdamW(Model(config).parameters())
"""


def test_a_scripts_own_table_and_a_configuration_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a LlamaConfig of own\.models"):
        job(tmp_path, SCRIPT, "train.py")  # not Transformers' class of that name
    found = job(tmp_path, SCRIPT, "train.py", model="gpt2")
    plan = plan_on(found, "a100*1")
    assert (found.seq_len.value, plan.microbatch, plan.accumulation) == (512, 32, 4)


TUNE = (
    "model: {_component_: torchtune.models.NAME}\ntokenizer: {max_seq_len: 4096}\nbatch_size: 2\n"
    "dtype: bf16\n"
)


@pytest.mark.parametrize(
    ("builder", "model"),
    [
        ("qwen3.qwen3_moe_235b_a22b", "qwen3-235b-a22b"),
        ("phi4.phi4_14b", "phi-4"),
        ("llama3_2_vision.llama3_2_vision_11b", "llama-3.2-11b-vision"),
        ("smol.smollm2_1_7b", "smollm2-1.7b"),
        ("llama4.llama4_scout_17b_16e", "llama-4-scout"),
        ("qwen2_5.qwen2_5_14b_instruct", "qwen2.5-14b"),
    ],
)
def test_torchtunes_builders(builder: str, model: str, tmp_path: Path) -> None:
    assert job(tmp_path, TUNE.replace("NAME", builder)).model.name == model


def test_a_builder_that_takes_the_shape(tmp_path: Path) -> None:
    shape = (
        "llama2.llama2, vocab_size: 32000, num_layers: 22, num_heads: 32, num_kv_heads: 4, "
        "embed_dim: 2048"
    )
    found = job(tmp_path, TUNE.replace("NAME", shape)).model
    # without intermediate_dim: 4 · ⌊2 · 2048 / 3⌋ = 5,460, up to 256s: 5,632 - TinyLlama's
    assert found.name == "tinyllama-1.1b"


def test_torchtunes_recipe_is_told_by_its_command(tmp_path: Path) -> None:
    text = TUNE.replace("NAME", "llama3_1.lora_llama3_1_8b") + (
        "ac_mode: selective\nac_option: 2\n"
        "loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}\n"
    )
    script = "tune run lora_finetune_single_device --config my.yaml batch_size=8\n"
    found = read_job(several(tmp_path, go__sh=script, my__yaml=text))
    plan = plan_on(found, "a100*1")
    assert (plan.dp, plan.microbatch, plan.remat) == (1, 8, "full:1/2")
    assert found.loss_chunks == 8 and found.devices is not None and found.devices.value == 1


FOUNDRY = (
    "model: {name: mpt_causal_lm, d_model: 1024, n_heads: 8, n_layers: 4}\nmax_seq_len: 2048\n"
    "global_train_batch_size: 64\ndevice_train_microbatch_size: 2\n"
)


@pytest.mark.parametrize(
    ("table", "reduce", "gather"),
    [
        ("{sharding_strategy: FULL_SHARD, mixed_precision: PURE}", "bf16", "bf16"),
        ("{activation_checkpointing: true}", "fp32", "bf16"),  # FULL_SHARD and DEFAULT
        ("{mixed_precision: FULL}", "fp32", "fp32"),
    ],
)
def test_composers_defaults_of_fsdp(table: str, reduce: str, gather: str, tmp_path: Path) -> None:
    found = job(tmp_path, f"{FOUNDRY}fsdp_config: {table}\n")
    precision = found.precision.value  # amp_bf16 where the file says nothing
    assert (precision.compute, precision.reduce, precision.gather) == ("bf16", reduce, gather)
    assert plan_on(found, "h100*8").fsdp == 8


def test_litgpts_adapters_under_a_mixed_precision_gather_whole_weights(tmp_path: Path) -> None:
    text = (
        "checkpoint_dir: meta-llama/Llama-3.1-8B\nlora_r: 8\ndevices: 4\nprecision: bf16-mixed\n"
        "train: {global_batch_size: 16, micro_batch_size: 1, max_seq_length: 512}\n"
    )
    found = job(tmp_path, text)
    assert found.precision.value.gather == "fp32" and plan_on(found, "h100*4").remat == "full"
    said = job(tmp_path, text + "quantize: bnb.nf4\n")
    assert [one.key for one in said.ignored if one.matters] == ["quantize"]
