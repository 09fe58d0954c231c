"""What no real file holds: keys twice, numbers beyond any, texts that multiply, odd paths."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job

SFT = "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\n"
RUN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
    "--num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --vocab-size 1000 "
    "--max-position-embeddings 64 "
)
LONG = "X=xxxxxxxx\n" + "X=$X$X\n" * 16  # half a million characters
NATIVE = """chipshift = 1
model = {preset = "llama-3.1-8b"}
[job]
seq_len = 64
sequences_per_step = 8
"""


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def refusal(folder: Path, name: str, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_job([written(folder, name, text)])
    return str(caught.value)


def test_a_key_twice_in_yaml_is_the_later_one_and_said(tmp_path: Path) -> None:
    file = written(
        tmp_path, "sft.yaml", SFT + "max_length: 64\nseed: 1\nmax_length: 128\nseed: 1\n"
    )
    job = read_job([file])
    assert job.seq_len.value == 128
    (entry,) = [left for left in job.ignored if "written twice" in left.why]
    assert (entry.key, entry.line, entry.matters) == ("max_length", 5, True)


def test_a_table_twice_in_yaml_is_said_too(tmp_path: Path) -> None:
    text = SFT + "max_length: 64\nfsdp_config:\n  min_num_params: 1\nfsdp_config:\n  version: 2\n"
    job = read_job([written(tmp_path, "sft.yaml", text + "run_name: a\nrun_name: b\n")])
    twice = {left.key: left.matters for left in job.ignored if "written twice" in left.why}
    assert set(twice) == {"fsdp_config", "run_name"}
    assert twice["run_name"] is False  # it bears on nothing


def test_a_key_twice_in_json_stands_at_its_later_line(tmp_path: Path) -> None:
    text = '{"model_name_or_path": "meta-llama/Llama-3.1-8B",\n"max_length": 64,\n'
    text += '"per_device_train_batch_size": 1,\n"max_length": 128}'
    job = read_job([written(tmp_path, "args.json", text)])
    assert job.seq_len.value == 128
    assert [u.line for u in job.understood if u.key == "max_length"] == [4]
    assert any("written twice" in left.why for left in job.ignored)


def test_deepspeed_refuses_a_key_twice_and_so_does_its_reader(tmp_path: Path) -> None:
    text = '{"train_batch_size": 2,\n"train_batch_size": 4, "zero_optimization": {"stage": 3}}'
    said = refusal(tmp_path, "ds.json", text)
    assert "ds.json:2: train_batch_size is written twice, which DeepSpeed refuses" in said


@pytest.mark.parametrize("number", ["9" * 401, "1" + "0" * 5000, "1e999"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sft.yaml", SFT + "max_length: NUMBER\n"),
        ("args.json", '{"model_name_or_path": "x", "max_length": NUMBER,\n"bf16": true}'),
        (
            "config.json",
            '{"model_type": "llama", "num_attention_heads": NUMBER, "hidden_size": 64}',
        ),
    ],
)
def test_a_number_beyond_any_is_shown_as_it_is_written(
    tmp_path: Path, name: str, text: str, number: str
) -> None:
    said = refusal(tmp_path, name, text.replace("NUMBER", number))
    assert number[:40] in said and "expected a whole number" in said and len(said) < 400, said


@pytest.mark.parametrize(
    "script",
    [
        "X=$(printf 'a%.0s' {1..1000})\nX=${X//a/$X}\nX=${X//a/$X}\n",
        "X=xxxxxxxx\n" + "X=$X$X\n" * 40,
        LONG + "Y+=$X\n" * 40,
        LONG + "".join(f"Y{i}=$X$i\n" for i in range(40)),
        LONG + "Y+=($X.)\n" * 40,
        "A=(a b c d)\n" + "A=(${A[@]} ${A[@]})\n" * 40,
    ],
    ids=["replaced", "doubled", "appended", "copied", "listed", "words"],
)
def test_texts_of_a_script_that_multiply_are_refused(tmp_path: Path, script: str) -> None:
    assert "grows past 1000000 characters" in refusal(tmp_path, "run.sh", script + RUN + "\n")


def test_a_path_with_a_null_is_no_path(tmp_path: Path) -> None:
    text = NATIVE.replace('{preset = "llama-3.1-8b"}', '{config = "a\\u0000b"}')
    assert "lies outside the job file's folder" in refusal(tmp_path, "job.toml", text)


@pytest.mark.parametrize("number", ["-3.0", "0.0", "nan", "inf", "1e13"])
def test_adapters_are_a_positive_number_an_op(tmp_path: Path, number: str) -> None:
    said = refusal(tmp_path, "job.toml", NATIVE + f"adapters = {{qkv_proj = {number}}}\n")
    assert "job.adapters.qkv_proj is" in said and "expected" in said


def test_a_list_where_a_word_belongs_is_shown_as_a_list(tmp_path: Path) -> None:
    said = refusal(tmp_path, "sft.yaml", SFT + "max_length: 64\noptim: [adamw_torch, sgd]\n")
    assert "sft.yaml:4: optim is [adamw_torch, sgd]; expected a string" in said
