"""Activations on the host and axolotl's selective checkpointing, as their frameworks run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_formats import value_of

AXOLOTL = """
base_model: Qwen/Qwen2.5-7B-Instruct
sequence_len: 1024
micro_batch_size: 4
sample_packing: true
"""
LORA = "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
EVERYTHING = {"block_input", "attention_norm", "qkv", "attention", "out_proj", "mlp_norm", "up",
              "activation"}  # fmt: skip
TRL = "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 1\nmax_length: 1024\n"


def read(folder: Path, text: str) -> TrainJob:
    (folder / "job.yaml").write_text(text)
    return read_job([str(folder / "job.yaml")])


def remat(folder: Path, text: str) -> str:
    return str(value_of(read(folder, text), "plan").remat)


def moved(name: str) -> set[str]:
    return set(name.removeprefix("custom:offload=").split("+"))


@pytest.mark.parametrize("mode", ["true", "legacy", "disk", "hidden_states"])
def test_axolotl_moves_the_layers_inputs_of_a_fully_tuned_model(tmp_path: Path, mode: str) -> None:
    text = f"{AXOLOTL}gradient_checkpointing: true\nactivation_offloading: {mode}\n"
    assert remat(tmp_path, text) == "offload:block_input"


@pytest.mark.parametrize(
    "switch",
    [
        "gradient_checkpointing: true\nactivation_offloading: true\n",
        "gradient_checkpointing: true\nactivation_offloading: legacy\n",
        "gradient_checkpointing: offload\n",
        "gradient_checkpointing: offload_disk\nactivation_offloading: false\n",
    ],
)
def test_with_adapters_axolotl_moves_all_and_recomputes_nothing(
    tmp_path: Path, switch: str
) -> None:
    # loaders/model.py: "offload replaces recompute" where cfg.adapter is set
    assert moved(remat(tmp_path, AXOLOTL + LORA + switch)) == EVERYTHING


def test_with_adapters_hidden_states_still_recompute(tmp_path: Path) -> None:
    switch = "gradient_checkpointing: true\nactivation_offloading: hidden_states\n"
    assert remat(tmp_path, AXOLOTL + LORA + switch) == "offload:block_input"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("selective_checkpointing: true", "custom:saved=attention"),
        ("selective_checkpointing: false", "full"),
        (
            "selective_checkpointing:\n  save: [attention, 'aten::mm']",
            "custom:saved=attention+out_proj+qkv+up",
        ),
        ("selective_checkpointing:\n  offload: true", "custom:offload=attention"),
        (
            "activation_offloading: hidden_states\nselective_checkpointing: true",
            "custom:saved=attention,offload=block_input",
        ),
        (
            "activation_offloading: hidden_states\nselective_checkpointing:\n  offload: true",
            "custom:offload=attention+block_input",
        ),
    ],
)
def test_selective_checkpointing_keeps_what_it_names(
    tmp_path: Path, keys: str, expected: str
) -> None:
    assert remat(tmp_path, f"{AXOLOTL}gradient_checkpointing: true\n{keys}\n") == expected


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("activation_offloading: true", "gradient_checkpointing: true beside it"),
        ("selective_checkpointing: true", "gradient_checkpointing: true beside it"),
        (
            "gradient_checkpointing: true\nactivation_offloading: hiden_states",
            "did you mean 'hidden_states'",
        ),
        (
            "gradient_checkpointing: true\nactivation_offloading: legacy\n"
            "selective_checkpointing: true",
            "expected hidden_states or false",
        ),
    ],
)
def test_what_axolotl_refuses_is_refused(tmp_path: Path, keys: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, f"{AXOLOTL}{keys}\n")


def test_trl_moves_what_its_checkpointing_leaves(tmp_path: Path) -> None:
    on = "gradient_checkpointing: true\nactivation_offloading: true\n"
    assert remat(tmp_path, TRL + on) == "offload:block_input"
    off = "gradient_checkpointing: false\nactivation_offloading: true\n"
    assert moved(remat(tmp_path, TRL + off)) == EVERYTHING
    neither = "gradient_checkpointing: false\nactivation_offloading: false\n"
    assert remat(tmp_path, TRL + neither) == "none"


def test_torchtune_moves_the_layers_inputs(tmp_path: Path) -> None:
    text = (
        "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
        "tokenizer:\n  max_seq_len: 2048\nbatch_size: 2\ndtype: bf16\n"
        "optimizer:\n  _component_: torch.optim.AdamW\n"
        "enable_activation_checkpointing: {}\nenable_activation_offloading: true\n"
    )
    assert remat(tmp_path, text.format("true")) == "offload:block_input"
    with pytest.raises(InputError, match="enable_activation_checkpointing: true beside it"):
        read(tmp_path, text.format("false"))
