"""axolotl's and llm-foundry's YAML beyond what the common cases have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine
from tests.cli.call import call

from .test_formats import value_of

AXOLOTL = """
base_model: Qwen/Qwen2.5-7B-Instruct
sequence_len: 1024
micro_batch_size: 4
gradient_accumulation_steps: 2
sample_packing: true
"""

FOUNDRY = """
max_seq_len: 2048
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf
train_loader:
  name: text
optimizer:
  name: decoupled_adamw
global_train_batch_size: 128
device_train_microbatch_size: 2
precision: amp_bf16
"""

PEFT = """
  peft_config:
    peft_type: LORA
    r: 8
    target_modules: [q_proj, v_proj]
    use_dora: {dora}
"""

ZERO = """
deepspeed_config:
  zero_optimization:
    stage: 3
    reduce_bucket_size: auto
    offload_optimizer:
      device: cpu
"""


def read(folder: Path, text: str) -> TrainJob:
    (folder / "job.yaml").write_text(text)
    return read_job([str(folder / "job.yaml")])


def test_axolotl_without_a_dtype_takes_bf16(tmp_path: Path) -> None:
    assert value_of(read(tmp_path, AXOLOTL), "precision.compute") == "bf16"
    assert value_of(read(tmp_path, AXOLOTL + "fp16: true\n"), "precision.compute") == "fp16"
    off = read(tmp_path, AXOLOTL + "bf16: false\n")
    assert value_of(off, "precision.compute") == "fp32"


def test_axolotl_gathers_in_fp8_where_it_says_so(tmp_path: Path) -> None:
    fp8 = "fp8: true\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    job = read(tmp_path, AXOLOTL + fp8)
    assert (value_of(job, "precision.compute"), value_of(job, "precision.gather")) == (
        "fp8",
        "bf16",
    )
    job = read(tmp_path, AXOLOTL + fp8 + "fp8_enable_fsdp_float8_all_gather: true\n")
    assert value_of(job, "precision.gather") == "fp8"


def test_axolotl_experts_have_an_axis_that_replicates_the_rest(tmp_path: Path) -> None:
    text = AXOLOTL.replace("Qwen2.5-7B-Instruct", "Qwen3-30B-A3B")
    text += "expert_parallel_size: 2\ndp_shard_size: 2\nfsdp_version: 2\nfsdp_config:\n  a: 1\n"
    plan = value_of(read(tmp_path, text), "plan")
    # world = expert_parallel_size × dp_shard_size
    assert (plan.dp, plan.fsdp, plan.ep, plan.devices) == (2, 2, 2, 4)


def test_axolotl_on_ray_has_a_worker_a_device(tmp_path: Path) -> None:
    ray = "use_ray: true\nray_num_workers: 4\n"
    assert value_of(read(tmp_path, AXOLOTL + ray), "devices") == 4
    assert read(tmp_path, AXOLOTL + ray.replace("true", "false")).devices is None


@pytest.mark.parametrize("dora", [False, True])
def test_foundry_passes_dora_on(tmp_path: Path, dora: bool) -> None:
    peft = PEFT.format(dora=str(dora).lower())
    job = read(tmp_path, FOUNDRY.replace("\ntrain_loader", peft + "train_loader"))
    assert job.adapters is not None and job.adapters.dora is dora


def test_foundry_with_deepspeed_shards_as_zero_does(tmp_path: Path) -> None:
    job = read(tmp_path, FOUNDRY + ZERO)
    assert (job.plan_open, value_of(job, "precision.master")) == ("fsdp", "fp32")
    assert "cpu_offload" in {flag.kind for flag in job.flags}
    # without either of them replicas hold it all
    assert read(tmp_path, FOUNDRY).plan_open == "dp"


def test_foundry_replaces_keys_of_a_published_models_config(tmp_path: Path) -> None:
    more = "\n  config_overrides:\n    num_hidden_layers: 4\n    max_position_embeddings: 2048\n"
    job = read(tmp_path, FOUNDRY.replace("\ntrain_loader", more + "train_loader"))
    assert sum(count for _, count in job.model.layers) == 4
    found = {one.key.rsplit(".", 1)[-1]: one.matters for one in job.ignored}
    assert found["max_position_embeddings"] is False and "num_hidden_layers" not in found
    other = more + "    my_kernels: 3\n"
    job = read(tmp_path, FOUNDRY.replace("\ntrain_loader", other + "train_loader"))
    assert "model.config_overrides.my_kernels" in {one.key for one in job.ignored if one.matters}


def test_foundry_cuts_a_devices_share_into_equal_forwards(tmp_path: Path) -> None:
    # 1536 sequences on 64 devices are 24 each: no more than 20 at once are two forwards of 12;
    # 128 are 2 each, in one forward although 20 would fit
    for batch, forwards, each in ((1536, 2, 12.0), (128, 1, 2.0), (2560, 2, 20.0)):
        text = FOUNDRY.replace("size: 128", f"size: {batch}").replace("size: 2\n", "size: 20\n")
        plan = value_of(resolve_machine(read(tmp_path, text), parse_machine("h100*64")), "plan")
        assert (plan.accumulation, plan.microbatch) == (forwards, each)
    with pytest.raises(InputError, match="does not divide over 64 data-parallel replicas"):
        uneven = FOUNDRY.replace("size: 128", "size: 100")
        resolve_machine(read(tmp_path, uneven), parse_machine("h100*64"))


def test_deepspeed_without_a_microbatch_runs_a_devices_share_at_once(tmp_path: Path) -> None:
    for more, each in (("", 8.0), (', "gradient_accumulation_steps": 2', 4.0)):
        file = tmp_path / "ds.json"
        file.write_text('{"train_batch_size": 64' + more + ', "zero_optimization": {"stage": 2}}')
        job = read_job([str(file)], model="llama-2-7b", overrides={"seq_len": "1024"})
        plan = value_of(resolve_machine(job, parse_machine("h100*8")), "plan")
        assert (plan.dp, plan.microbatch, plan.accumulation) == (8, each, 64 / 8 / each)


def test_deepspeed_layers_that_are_dropped_are_said_to_matter(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 64, "progressive_layer_drop": {"enabled": true}}')
    job = read_job([str(file)], model="llama-2-7b", overrides={"seq_len": "1024"})
    assert {one.key: one.matters for one in job.ignored}["progressive_layer_drop.enabled"]


SWIFT = """{
  "model": "Qwen/Qwen2.5-7B-Instruct", "model_name": "a-bot", "tuner_type": "lora", "lora_rank": 8,
  "target_modules": "all-linear", "modules_to_save": "null", "max_length": 2048,
  "per_device_train_batch_size": 2, "per_gpu_train_batch_size": null, "deepspeed": "zero2"
}"""


def test_swift_names_its_model_by_model_alone(tmp_path: Path) -> None:
    file = tmp_path / "sft.json"
    file.write_text(SWIFT)
    job = read_job([str(file)])
    assert value_of(job, "model.name") == "qwen2.5-7b" and job.adapters is not None
    # a key that is null contradicts nothing
    assert not [one for one in job.ignored if one.matters]


def test_a_hub_of_checkpoints_is_its_model(tmp_path: Path) -> None:
    text = AXOLOTL.replace("Qwen/Qwen2.5-7B-Instruct", "HuggingFaceTB/SmolLM3-3B-checkpoints")
    assert value_of(read(tmp_path, text), "model.name") == "smollm3-3b"


def test_the_reading_gives_no_microbatch_that_only_the_machine_tells(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 64, "zero_optimization": {"stage": 2}}')
    found = call("read", str(file), "--model", "llama-2-7b", "--set", "seq_len=1024", "--json")
    plan = json.loads(found.out)["job"]["plan"]
    assert (plan["dp"], plan["microbatch"], plan["accumulation"]) == (None, None, 1)
