"""One mistake in a file of each format: exit code 2 and a sentence with file, line and key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from tests.cli.call import NATIVE, call

from . import cases, more_cases

KUBERNETES = more_cases.MANIFEST
TRAINER_JSON = """{
  "model_name_or_path": "meta-llama/Llama-3.1-8B",
  "max_length": 2048,
  "per_device_train_batch_size": 4
}
"""
ADAPTER = more_cases.ADAPTER.replace('"lora_alpha": 16', '\n"layers_to_transform": [3]')
CONFIG_LINES = cases.HF_CONFIG.replace(", ", ",\n")
BRIDGE_RUN = """#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 2 run_recipe.py --recipe llama3_8b_pretrain_config \\
    train.global_batch_size=128 \\
    train.micro_batch_size=1
"""
TITAN_RECIPE = more_cases.TITAN_PYTHON.split("def llama3_8b_float8_tp")[0].replace(
    "optimizer=default_adamw(lr=3e-4)", "parallelism=ParallelismConfig(tensor_parallel_degree=4)"
)
MAXTEXT_RUN = """#!/bin/bash
python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-70b \\
    per_device_batch_size=2 ici_fsdp_parallelism=64 \\
    ici_tensor_parallelism=4 max_target_length=8192
"""


@dataclass(frozen=True)
class Place:
    """A key of a format's file and how it is written there.

    Attributes:
        text: the file's; ``key`` and ``value`` as they stand in it.
        written: what stands between and around them, so that the one place is found.
        quote: marks around a string in place of the number.
        beside: other files given with it.
    """

    reader: str
    text: str
    key: str
    value: str
    written: str = "{key}: {value}"
    quote: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    name: str = "job"

    def put(self, key: str, value: str) -> tuple[str, int]:
        """The text with another key or value, and the line (from 1) on which it stands."""
        old = self.written.format(key=self.key, value=self.value)
        assert self.text.count(old) == 1, self.reader
        new = self.written.format(key=key, value=value)
        return self.text.replace(old, new), self.text[: self.text.index(old)].count("\n") + 1


FLAG = "--{key} {value}"
EQUAL = "{key} = {value}"
WORD = " {key}={value}"
PLACES = (
    Place("native", Path(NATIVE).read_text("utf8"), "seq_len", "8192", EQUAL, '"'),
    Place("torchtitan", more_cases.TITAN, "local_batch_size", "1", EQUAL, '"'),
    Place("torchtitan_run", more_cases.TITAN_RUN, "parallelism.tensor_parallel_degree", "2",
          "--{key}={value}", beside=(("llama3_8b.toml", more_cases.TITAN),)),
    Place("torchtitan_recipe", TITAN_RECIPE, "tensor_parallel_degree", "4", "{key}={value}", "'"),
    Place("megatron", more_cases.SOURCED.replace("$MODEL_ARGS", "--num-layers 4 --hidden-size 64"),
          "micro-batch-size", "1", FLAG),
    Place("megatron_yaml", more_cases.MEGATRON_YAML, "seq_length", "1024"),
    Place("bridge", more_cases.BRIDGE, "micro_batch_size", "1", "{key} = {value}", "'"),
    Place("bridge_command", BRIDGE_RUN, "train.micro_batch_size", "1", WORD),
    Place("nemo", more_cases.NEMO_1, "micro_batch_size", "1"),
    Place("deepspeed", cases.DEEPSPEED, "stage", "3", '"{key}": {value}', '"'),
    Place("transformers_yaml", cases.TRL_SFT, "per_device_train_batch_size", "8"),
    Place("transformers_json", TRAINER_JSON, "per_device_train_batch_size", "4",
          '"{key}": {value}', '"'),
    Place("transformers_command", cases.TRAINER_COMMAND, "per_device_train_batch_size", "4", FLAG),
    Place("transformers_script", cases.TRAINER_SCRIPT, "gradient_accumulation_steps", "4 * BATCH",
          "{key}={value}", "'"),
    Place("accelerate", cases.ACCELERATE_FSDP, "num_processes", "16",
          beside=(("sft.yaml", cases.TRL_SFT),)),
    Place("torchtune", cases.TORCHTUNE, "gradient_accumulation_steps", "1"),
    Place("axolotl", cases.AXOLOTL, "micro_batch_size", "2"),
    Place("llamafactory", cases.LLAMA_FACTORY, "cutoff_len", "2048"),
    Place("foundry", more_cases.FOUNDRY, "global_train_batch_size", "512"),
    Place("lightning", more_cases.LIGHTNING, "accumulate_grad_batches", "2", "{key}={value}", "'"),
    Place("maxtext", more_cases.MAXTEXT_YAML, "per_device_batch_size", "4"),
    Place("maxtext_command", MAXTEXT_RUN, "ici_tensor_parallelism", "4", WORD),
    Place("nanogpt", more_cases.NANOGPT, "block_size", "1024", EQUAL, "'"),
    Place("levanter", more_cases.LEVANTER, "train_batch_size", "1024"),
    Place("nanotron", more_cases.NANOTRON, "micro_batch_size", "2"),
    Place("kubernetes", KUBERNETES, "micro-batch-size", "1", FLAG),
    Place("wrapper", more_cases.TUNE, "batch_size", "4", WORD, beside=(("8B.yaml",
          "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n"
          "tokenizer: {max_seq_len: 4096}\nbatch_size: 2\ndtype: bf16\n"),)),
    Place("peft", ADAPTER, "layers_to_transform", "[3]",
          '"{key}": {value}', '"', beside=(("sft.yaml", cases.TRL_SFT),)),
    Place("hf_config", CONFIG_LINES, "intermediate_size", "128", '"{key}": {value}', '"',
          beside=(("sft.yaml", cases.TRL_SFT),)),
)  # fmt: skip
NAMES = [place.reader for place in PLACES]


def refused(folder: Path, place: Place, text: str) -> str:
    """The sentence with which the file is refused."""
    paths = []
    for name, content in ((place.name, text), *place.beside):
        (folder / name).write_text(content, encoding="utf8")
        paths.append(str(folder / name))
    found = call("read", *paths)
    assert found.code == 2, (place.reader, found.out[-3000:])
    assert found.out == "" and found.err.count("\n") == 1, found
    return found.err


def named(place: Place, said: str) -> bool:
    """The key is in the sentence; Megatron's fields by the argument that they equal."""
    return place.key.rsplit(".", 1)[-1].replace("_", "-") in said.replace("_", "-")


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_a_misspelt_key_names_the_nearest(tmp_path: Path, place: Place) -> None:
    at = len(place.key) - 3
    misspelt = place.key[:at] + place.key[at + 1 :]  # its third last letter is lost
    text, line = place.put(misspelt, place.value)
    said = refused(tmp_path, place, text)
    assert f"job:{line}: " in said, said
    assert misspelt.rsplit(".", 1)[-1] in said and f"{place.key.rsplit('.', 1)[-1]}'?" in said, said


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_a_word_where_a_number_belongs(tmp_path: Path, place: Place) -> None:
    text, line = place.put(place.key, f"{place.quote}many{place.quote}")
    said = refused(tmp_path, place, text)
    assert f"job:{line}: " in said and named(place, said) and "many" in said, said
    assert "; expected " in said, said


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_a_number_out_of_range(tmp_path: Path, place: Place) -> None:
    text, line = place.put(place.key, "-7")
    said = refused(tmp_path, place, text)
    assert f"job:{line}: " in said and named(place, said) and "-7" in said, said
    assert "; expected " in said, said


SEVERAL_WORDS = [place for place in PLACES if set("_-") & set(place.key)]


@pytest.mark.parametrize("place", SEVERAL_WORDS, ids=[place.reader for place in SEVERAL_WORDS])
def test_words_of_a_key_run_together_name_the_nearest(tmp_path: Path, place: Place) -> None:
    at = max(place.key.rfind(mark) for mark in "_-")
    run_together = place.key[:at] + place.key[at + 1 :]  # micro_batchsize
    text, line = place.put(run_together, place.value)
    said = refused(tmp_path, place, text)
    assert f"job:{line}: " in said, said
    assert run_together.rsplit(".", 1)[-1] in said, said
    meant = f"{place.key.rsplit('.', 1)[-1]}'?"
    assert meant.replace("_", "-") in said.replace("_", "-"), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # another framework's name for the length, which this one does not read
        (
            cases.AXOLOTL.replace("sequence_len:", "sequence_length:"),
            "job:8: sequence_length is not read (did you mean 'sequence_len'?)",
        ),
        # a model that is no model, one letter from one that is shipped
        (
            cases.TORCHTUNE.replace("llama3_1.llama3_1_8b", "llama3_1.llama3_1_9b"),
            "the nearest shipped one is 'llama-3.1-8b'",
        ),
        # 1.28 · 10^11 tokens a sequence; the native format goes to 10^9
        (
            more_cases.NANOTRON.replace("sequence_length: 128", "sequence_length: 128e9"),
            "job:27: the sequence length is 128000000000; expected at most 1,000,000,000 tokens",
        ),
        (
            more_cases.BRIDGE.replace("exp_avg_dtype = torch.bfloat16", "exp_avg_dtype = -8"),
            "exp-avg-dtype is -8; expected fp32, bf16, fp16, fp8 or int8",
        ),
        # 10^12 sequences a step on one replica is the most; 4 · 10^12 are asked for
        (
            cases.AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 1000000000000"),
            "job:11: the batch comes to 4000000000000 sequences; expected at most",
        ),
        ('chipshift = 1\n[model]\npreset = "llama-3.1-8b"\n[job]\nseq_len = "8"\n',
         "job:5: job.seq_len is '8'; expected a valid integer"),
    ],
)  # fmt: skip
def test_what_was_likely_meant_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job"
    file.write_text(text, "utf8")
    found = call("read", str(file))
    assert found.code == 2 and said in found.err, found


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"a.yml": cases.AXOLOTL.replace("adapter: qlora", "adapter: qlra")},
            "a.yml:4: adapter is qlra; expected a name that is known; did you mean 'qlora'?",
        ),
        (
            {"a.yaml": cases.LLAMA_FACTORY.replace("type: full", "type: fulll")},
            "a.yaml:7: finetuning_type is fulll; expected a name that is known; did you mean",
        ),
        (
            {"f.yaml": cases.ACCELERATE_FSDP.replace("type: FSDP", "type: FSPD")},
            "f.yaml:3: distributed_type is FSPD; expected one of NO, FSDP, DEEPSPEED",
        ),
        (
            {"f.yaml": cases.ACCELERATE_FSDP.replace("FULL_SHARD", "HYBRID_SHRD")},
            "f.yaml:7: FSDP's sharding is HYBRID_SHRD; expected a name that is known; did you mean "
            "'hybrid_shard'?",
        ),
        (
            {"t.py": more_cases.LIGHTNING.replace(
                "FSDPStrategy(act", 'FSDPStrategy(sharding_strategy="SHARD_GRAD_OPP", act')},
            "strategy.sharding_strategy is SHARD_GRAD_OPP; expected a name that is known; did you",
        ),
        (
            {"m.yml": more_cases.MAXTEXT_YAML + "remat_policy: save_qkv_prj\n"},
            "remat_policy is save_qkv_prj; expected a name that is known; did you mean "
            "'save_qkv_proj'?",
        ),
        (
            {"n.py": "from nemo.collections import llm\nrecipe = llm.lama3_8b.pretrain_recipe("
                     "num_nodes=2)\n"},
            "n.py:2: lama3_8b is no recipe of NeMo's; did you mean 'llama3_8b'?",
        ),
        (
            {"k.yaml": KUBERNETES.replace("nvidia.com/gpu:", "nvidia.com/gpus:")},
            "nvidia.com/gpus is 8, but no such key is read; did you mean 'nvidia.com/gpu'?",
        ),
        (
            {"k.yaml": KUBERNETES.replace("  parallelism: 4", "  paralelism: 4")},
            "k.yaml:6: paralelism is 4, but no such key is read; did you mean 'parallelism'?",
        ),
    ],
)  # fmt: skip
def test_a_name_one_slip_away_is_not_passed_over(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    paths = []
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf8")
        paths.append(str(tmp_path / name))
    found = call("read", *paths)
    assert found.code == 2 and said in found.err, found


def test_a_key_that_is_more_than_a_slip_away_is_said(tmp_path: Path) -> None:
    text = more_cases.LIGHTNING.replace("accumulate_grad_batches", "accumulate_grad_batch")
    (tmp_path / "t.py").write_text(text)
    found = call("read", str(tmp_path / "t.py"))
    assert found.code == 0, found.err
    assert "did you mean" in found.out and "'accumulate_grad_batches'?" in found.out, found.out


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("job.json", '{"a": 1', r"job\.json:1 is not valid JSON"),
        ("job.yaml", "a: [1\n", r"job\.yaml.* is not valid YAML"),
        ("job.toml", "[model\npreset=", r"job\.toml is not valid TOML"),
    ],
)
def test_a_broken_file_of_no_known_keys_is_said_to_be_broken(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=place):
        read_job([str(file)])
