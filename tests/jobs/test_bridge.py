"""Megatron-Bridge recipes that stand in the library: what a script says by naming one."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.readers.bridge_library import library
from chipshift.machines.names import parse_machine

IMPORTED = """from megatron.bridge.recipes.llama import llama3_8b_pretrain_config as pretrain_config
from megatron.bridge.training.pretrain import pretrain


def main() -> None:
    cfg = pretrain_config()
    cfg.train.global_batch_size = 64
    cfg.model.tensor_model_parallel_size = 2
    pretrain(config=cfg)
"""
COMMAND = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=h100:8
TP=${TP:-2}
srun torchrun --nproc-per-node=8 --nnodes=4 scripts/training/run_recipe.py \\
  --recipe llama3_8b_pretrain_config -gb 256 \\
  model.tensor_model_parallel_size=$TP model.seq_length=4096 train.train_iters=1000
"""


def job(folder: Path, text: str, name: str, **settings: str) -> TrainJob:
    file = folder / name
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def test_the_script_s_own_settings_lie_over_the_library_s(tmp_path: Path) -> None:
    read = job(tmp_path, IMPORTED, "train.py")
    assert read.model.name == "llama-3-8b" and read.model.vocab == 128256  # Bridge does not pad
    assert read.sequences_per_step.value == 64  # the script's; the library's is 512
    on = resolve_machine(read, parse_machine("h100*16"))
    assert on.plan is not None
    plan = on.plan.value
    # tp is the script's, cp = 2 the library's; 16 / (2 · 2) replicas
    assert (plan.tp, plan.cp, plan.dp, plan.microbatch) == (2, 2, 4, 1)
    assert read.seq_len.value == 8192


def test_a_recipe_alone_says_its_devices_too(tmp_path: Path) -> None:
    text = IMPORTED.replace("    cfg.model.tensor_model_parallel_size = 2\n", "")
    read = job(tmp_path, text, "train.py")
    assert read.machine is not None and read.machine.value == "h100*2"  # ..._2gpu_h100_...


def test_the_runner_s_options_and_pairs(tmp_path: Path) -> None:
    read = job(tmp_path, COMMAND, "run.sh")
    assert read.plan is not None and read.machine is not None
    plan = read.plan.value
    assert (plan.tp, plan.cp, plan.dp) == (2, 2, 8) and read.machine.value == "h100*32"
    assert (read.sequences_per_step.value, read.seq_len.value) == (256, 4096)
    read = job(tmp_path, COMMAND, "run.sh", TP="4")
    assert read.plan is not None and read.plan.value.tp == 4


def test_fields_are_set_as_bridge_spells_them(tmp_path: Path) -> None:
    read = job(tmp_path, IMPORTED, "train.py", **{"train.global_batch_size": "128"})
    assert read.sequences_per_step.value == 128
    with pytest.raises(InputError, match=r"train.globl_batch_size: .* did you mean"):
        job(tmp_path, IMPORTED, "train.py", **{"train.globl_batch_size": "128"})


def test_an_unknown_recipe_names_the_nearest(tmp_path: Path) -> None:
    text = COMMAND.replace("llama3_8b_pretrain_config", "llama3_8b_pretrian_config")
    with pytest.raises(InputError, match=r"run.sh:6: --recipe .* did you mean 'llama3_8b_pretrain"):
        job(tmp_path, text, "run.sh")


def test_peft_recipes_train_adapters(tmp_path: Path) -> None:
    text = "from megatron.bridge.recipes.qwen import qwen3_8b_peft_config\n"
    read = job(tmp_path, text + "cfg = qwen3_8b_peft_config(peft_scheme='lora')\n", "train.py")
    # rank 32 on q, k, v, o, gate, up, down of 36 layers, D = H·h = 4096, K·h = 1024, F = 12288
    adapters = 36 * 32 * (8192 + 2 * 5120 + 8192 + 3 * 16384)
    assert read.task == "lora"
    assert ("trained parameters", f"{adapters:,}") in [row[:2] for row in read.assumed]


SHIPPED = sorted({recipe.name for recipe in library().values()})


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_is_read_or_its_model_asked_for(tmp_path: Path, name: str) -> None:
    text = f"from megatron.bridge.recipes import {name}\ncfg = {name}()\n"
    try:
        read = job(tmp_path, text, "train.py")
    except InputError as error:
        assert "which is not a shipped model; expected --model" in str(error)
        assert library()[name].model in str(error)
        read = read_job([str(tmp_path / "train.py")], model="deepseek-v3")
    assert read.sequences_per_step.value == int(library()[name].settings["global_batch_size"])
