"""Scripts that start Megatron-Bridge's setup_experiment.py: a benchmark by model, task and GPU."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.flows.asked import present_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

HEAD = """#!/bin/bash
NGPU=${NGPU:-64}
python scripts/performance/setup_experiment.py --account a --partition p -m llama """


def job(folder: Path, words: str, **settings: str) -> TrainJob:
    (folder / "run.sh").write_text(HEAD + words + "\n")
    return read_job([str(folder / "run.sh")], overrides=settings)


BENCH = "-mr llama3_70b --gpu h100 --num_gpus $NGPU -c fp8_cs"


def test_the_options_name_a_benchmark_and_its_machine(tmp_path: Path) -> None:
    read = job(tmp_path, BENCH)
    assert read.name == "llama3_70b_pretrain_64gpu_h100_fp8cs_config"
    assert read.machine is not None and read.machine.value == "h100*64"
    assert read.plan is not None and read.precision.value.compute == "fp8"
    # perf_recipes/llama/h100/llama3.py: tp 4, pp 8, vpp 5, 256 sequences of 8192
    plan = read.plan.value
    assert (plan.tp, plan.pp, plan.vpp, plan.dp) == (4, 8, 5, 2)
    assert (read.sequences_per_step.value, read.seq_len.value) == (256, 8192)


@pytest.mark.parametrize(("words", "batch"), [("", 512), (" -gb 128", 128)])
def test_more_gpus_than_the_benchmark_s_scale_its_batch(
    tmp_path: Path, words: str, batch: int
) -> None:
    # 128 GPUs are 4 replicas of tp 4 × pp 8 in place of 2: 256 sequences become 512
    read = job(tmp_path, BENCH + words, NGPU="128")
    assert read.plan is not None and read.plan.value.dp == 4
    assert read.sequences_per_step.value == batch


def test_options_and_fields_lie_over_the_benchmark(tmp_path: Path) -> None:
    words = " -tp 8 -vp None --recompute_num_layers 80 model.context_parallel_size=1 -mb 2"
    read = job(tmp_path, BENCH + words)
    assert read.plan is not None
    plan = read.plan.value
    assert (plan.tp, plan.vpp, plan.microbatch, plan.remat) == (8, 1, 2, "full")


def test_where_several_fit_the_launcher_s_default_is_taken(tmp_path: Path) -> None:
    # no benchmark of 4 GPUs: of 8 and more the launcher lists 8 for Llama 3 8B in bf16
    read = job(tmp_path, "-mr llama3_8b -g h100 -ng 4 -c bf16")
    assert read.name == "llama3_8b_pretrain_8gpu_h100_bf16_config"


def test_recipes_of_the_other_package_by_use_recipes(tmp_path: Path) -> None:
    read = job(tmp_path, "-mr llama32_1b -g h100 -ng 8 --use_recipes --task sft")
    assert read.task == "sft" and read.machine is not None
    assert read.machine.value == "h100*8" and read.model.vocab == 128256


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("-mr llama3_70b -ng 64", r"run.sh:3: setup_experiment.py is given no --gpu"),
        ("-mr lama3_70b -g h100 -ng 64", r"no benchmark of lama3_70b .* did you mean 'llama3_70b"),
        ("-mr llama3_70b -g h100 -ng many", r"--num_gpus is many; expected a whole number"),
        ("-mr llama3_70b -g h100 -ng 65", r"no multiple of tp × pp × cp = 32"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: str, refusal: str) -> None:
    with pytest.raises(InputError, match=refusal):
        job(tmp_path, words)


def test_an_option_that_is_not_read_is_said(tmp_path: Path) -> None:
    read = job(tmp_path, BENCH + " --activation_offload_layers 4")
    assert "--activation_offload_layers" in {one.key for one in read.ignored if one.matters}


@pytest.mark.parametrize(
    "words",
    [
        # the launcher of benchmarks spells the experts' tensor parallelism -et, the runner -etp
        "setup_experiment.py -m qwen -mr qwen3_30b_a3b -g h100 -ng 16 -c bf16 -et 2",
        "run_recipe.py --recipe qwen3_30b_a3b_pretrain_config -etp 2",
    ],
)
def test_each_program_s_own_short_options(tmp_path: Path, words: str) -> None:
    (tmp_path / "run.sh").write_text(f"torchrun --nproc-per-node 8 --nnodes 2 {words} -tp 2 -ep 4")
    read = read_job([str(tmp_path / "run.sh")])
    shown = {one.key: one.value for one in read.understood}
    assert shown["expert-tensor-parallel-size"] == "2"
    assert read.plan is not None and (read.plan.value.tp, read.plan.value.ep) == (2, 4)


@pytest.mark.parametrize(("gpu", "each"), [("h100", "8"), ("gb300", "4"), ("vr200", "4")])
def test_devices_a_node_are_the_machine_s(tmp_path: Path, gpu: str, each: str) -> None:
    read = job(tmp_path, f"-mr llama3_8b -g {gpu} -ng 8 -c bf16")
    assert ("devices a node", each) in {(what, value) for what, value, _ in read.assumed}


def test_a_chip_without_figures_is_kept_by_name_and_refused_in_one_sentence(
    tmp_path: Path,
) -> None:
    read = job(tmp_path, "-mr llama3_8b -g vr200 -ng 8 -c bf16")
    assert read.machine is not None and read.machine.value == "vr200*8"
    with pytest.raises(InputError, match=r"VR200 \('vr200'\) has no figures .* gb300 and gb200"):
        present_machine(read)
    on, machine = present_machine(read, "gb300*8")
    assert machine.devices == 8 and on.plan is not None and on.plan.value.dp == 8
