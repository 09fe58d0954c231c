"""Files that a script names and that were not given: said, and named where something is missing."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

SFT = (
    "sft.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 "
    "--max_length 4096 --bf16\n"
)
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 1 --global-batch-size 8 --vocab-size 50304 --bf16\n"
)


def read(folder: Path, text: str, **settings: str) -> TrainJob:
    file = folder / "run.sh"
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def not_given(job: TrainJob) -> list[tuple[str, int | None]]:
    return [(one.key, one.line) for one in job.ignored
            if one.matters and one.why.startswith("not given")]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "open_axis", "sharding"),
    [
        ("cfg/fsdp.yaml", "fsdp", "none"),  # as FSDP is told from the name
        ("deepspeed_zero3.yaml", "fsdp", "none"),
        ("zero2.yaml", "dp", "zero2"),
        ("default_config.yaml", "dp", "none"),  # says nothing: copies of the weights
    ],
)
def test_accelerate_s_file(tmp_path: Path, name: str, open_axis: str, sharding: str) -> None:
    job = read(tmp_path, f"#!/bin/bash\n\naccelerate launch --config_file {name} {SFT}")
    assert job.plan is not None and job.plan_open == open_axis
    assert job.plan.value.optimizer_sharding == sharding
    assert not_given(job) == [(name.rsplit("/", 1)[-1], 3)]


def test_a_way_given_on_the_command_line_needs_no_file(tmp_path: Path) -> None:
    job = read(tmp_path, f"accelerate launch --config_file c.yaml --use_fsdp {SFT}")
    assert job.plan_open == "fsdp"


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch -m axolotl.cli.train conf/job.yml",
        "llamafactory-cli train conf/job.yml",
        "tune run --nproc_per_node 8 full_finetune_distributed --config conf/job.yml",
        "srun torchrun --nproc_per_node 8 train.py --config conf/job.yml",
    ],
)
def test_the_file_with_the_settings_is_named(tmp_path: Path, command: str) -> None:
    with pytest.raises(InputError, match=r"or conf/job\.yml, which it names, beside it"):
        read(tmp_path, f"#!/bin/bash\n{command}\n")


def test_a_sourced_file_may_set_what_nothing_sets(tmp_path: Path) -> None:
    text = "#!/bin/bash\nsource venv/bin/activate\nsource ./conf.sh\n" + MEGATRON
    with pytest.raises(InputError, match=r"run\.sh:4: num-layers is \$LAYERS") as refused:
        read(tmp_path, text)
    settled = "such as by --set LAYERS=..., or by giving conf.sh, which line 3 sources"
    assert settled in str(refused.value)
    # with the layers told the file is still missing, but not the one that only finds programs
    assert not_given(read(tmp_path, text, LAYERS="4")) == [("conf.sh", 3)]


def test_a_key_twice_in_yaml_stands_where_the_later_one_does(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\nsequence_len: 512\n"
        "micro_batch_size: 8\n"
    )
    job = read_job([str(file)])
    entry = next(one for one in job.understood if one.key == "micro_batch_size")
    assert (entry.value, entry.line) == ("8", 4)


def test_tabs_for_indents(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "trainer:\n\tdevices: 8\n\tnum_nodes: 1\nmodel:\n\tmicro_batch_size: 1\n"
        "\tglobal_batch_size: 16\n\ttensor_model_parallel_size: 2\n\tencoder_seq_length: 512\n"
        "\tnum_layers: 2\n\thidden_size: 64\n\tnum_attention_heads: 4\n\tffn_hidden_size: 256\n"
        "\ttokenizer:\n\t\ttype: meta-llama/Llama-2-7b-hf\n"
    )
    job = read_job([str(file)])
    assert job.plan is not None and job.plan.value.tp == 2 and job.plan.value.dp == 4
