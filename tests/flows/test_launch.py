"""What to type next: degrees that multiply to the machine, and names that the programs know."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.estimate import Estimate, estimate
from chipshift.flows.launch import LONGEST_NAME, MAXTEXT_MODELS, maxtext, workload_name
from chipshift.flows.launch_torch import lines_of, note_of
from chipshift.jobs.job import Flag, Given, Precision
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines import all_slices, parse_machine
from chipshift.planner.space import REMATS_BY_STACK
from tests.estimate.conftest import job_of

KNOWN = tomllib.loads((Path(__file__).parent / "maxtext_keys.toml").read_text("utf8"))
XPK = {"cluster", "workload", "base-docker-image", "tpu-type", "num-slices", "command"}


def on(model: str, machine: str, plan: Plan, stack: str = "maxtext", **changes: object) -> Estimate:
    job = job_of(model, int(plan.global_batch), **changes)  # type: ignore[arg-type]
    return estimate(job, plan, parse_machine(machine), stack)


def parsed(line: str) -> tuple[dict[str, str], dict[str, str]]:
    """xpk's options and MaxText's settings, as a shell would hand them over."""
    words = shlex.split(line)
    assert words[:3] == ["xpk", "workload", "create"]
    options = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
    command = options["command"].split()
    assert command[:3] == ["python3", "-m", "maxtext.trainers.pre_train.train"]
    pairs = [word.partition("=") for word in command[3:]]
    settings = {key: value for key, _, value in pairs}
    assert len(settings) == len(pairs), "a setting is given twice"
    return options, settings


def flags(model: str, machine: str, plan: Plan, **changes: object) -> dict[str, str]:
    line = maxtext(on(model, machine, plan, **changes))
    assert line is not None
    options, settings = parsed(line)
    return options | settings


def product(found: dict[str, str], level: str) -> int:
    return math.prod(int(v) for k, v in found.items() if k.startswith(f"{level}_"))


def test_fsdp_over_four_slices_takes_the_slices_from_fsdp() -> None:
    # 512 × 2 = 1,024 chips = 4 slices of 256: fsdp is 4 over DCN × 128 inside, 128 × 2 = 256
    found = flags("llama-3.1-8b", "v6e:16x16*4", Plan(fsdp=512, tp=2, remat="full"))
    assert found["dcn_fsdp_parallelism"] == "4"
    assert found["ici_fsdp_parallelism"] == "128"
    assert (product(found, "dcn"), product(found, "ici")) == (4, 256)
    assert found["tpu-type"] == "v6e-256"
    assert found["num-slices"] == "4"


def test_replicas_take_the_slices_where_they_are_outermost() -> None:
    found = flags("llama-3.1-8b", "v6e:16x16*4", Plan(dp=8, fsdp=128, remat="full"))
    assert found["dcn_data_parallelism"] == "4"
    assert found["ici_data_parallelism"] == "2"
    assert (product(found, "dcn"), product(found, "ici")) == (4, 256)


def test_experts_come_out_of_the_axes_that_cut_the_batch() -> None:
    # dp 4 × fsdp 8 × tp 8 = 256 with ep 8 inside fsdp: MaxText's mesh is 4 × 1 × 8 (expert) × 8
    plan = Plan(dp=4, fsdp=8, tp=8, ep=8, optimizer_sharding="zero1")
    found = flags("mixtral-8x7b", "v6e:16x16", plan)
    assert found["ici_expert_parallelism"] == "8"
    assert found["ici_fsdp_parallelism"] == "1"
    assert product(found, "ici") == 256


OWN = ["diloco", "data", "stage", "fsdp", "fsdp_transpose", "context", "context_usp_ulysses",
       "context_autoregressive", "tensor", "tensor_sequence", "expert",
       "autoregressive"]  # fmt: skip
"""Google, MaxText, configs/base.yml, 2026-08-22: ``mesh_axes``."""


def test_an_order_of_the_axes_that_is_not_maxtexts_own_is_said() -> None:
    plan = Plan(fsdp=8, cp=4, tp=4, remat="full", order=("pp", "dp", "tp", "cp", "fsdp"))
    found = flags("llama-3.1-8b", "v6e:8x16", plan)["mesh_axes"]
    axes = found.strip("[]").split(",")
    assert sorted(axes) == sorted(OWN) and found.startswith("[")
    at = [axes.index(name) for name in ("tensor", "context", "fsdp", "autoregressive")]
    assert at == sorted(at)


def test_maxtexts_own_order_goes_without_saying() -> None:
    assert "mesh_axes" not in flags("llama-3.1-8b", "v6e:8x16", Plan(fsdp=32, tp=4, remat="full"))
    swapped = Plan(fsdp=32, tp=4, remat="full", order=("dp", "pp", "fsdp", "cp", "tp"))
    assert "mesh_axes" not in flags("llama-3.1-8b", "v6e:8x16", swapped)  # dp = pp = 1
    # experts lie inside fsdp, so outside tp: MaxText's own list has them inside it
    both = flags("mixtral-8x7b", "v5p:4x4x8", Plan(fsdp=32, ep=8, tp=4, remat="full"))
    axes = both["mesh_axes"].strip("[]").split(",")
    assert axes.index("fsdp") < axes.index("expert") < axes.index("tensor")


def test_slices_go_to_the_axis_that_the_estimate_has_them_on() -> None:
    """Over the data-centre network replicas come first, before the stages of a pipeline."""
    plan = Plan(dp=2, fsdp=32, pp=4, accumulation=8, remat="full")
    found = flags("llama-3.1-8b", "v6e:8x16*2", plan)
    assert found["dcn_data_parallelism"] == "2" and "dcn_pipeline_parallelism" not in found


def test_a_sharded_optimizer_is_asked_for() -> None:
    plan = Plan(dp=32, tp=4, remat="full")
    assert "shard_optimizer_over_data" not in flags("llama-3.1-8b", "v6e:8x16", plan)
    sharded = flags("llama-3.1-8b", "v6e:8x16", replace(plan, optimizer_sharding="zero1"))
    assert sharded["shard_optimizer_over_data"] == "true"


def test_accumulation_gives_the_batch_of_one_microbatch() -> None:
    # 32 replicas × 1 sequence over 128 devices = 0.25 a device, 8 times
    found = flags("llama-3.1-8b", "v6e:8x16", Plan(dp=32, tp=4, accumulation=8, remat="full"))
    assert found["per_device_batch_size"] == "0.25"
    assert found["gradient_accumulation_steps"] == "8"


def test_a_pipeline_holds_all_its_microbatches_and_says_its_layers() -> None:
    # 16 replicas × 1 sequence × 8 microbatches over 128 devices = 1 a device, no accumulation;
    # 32 layers over 8 stages are 4 a stage
    found = flags("llama-3.1-8b", "v6e:8x16", Plan(dp=16, pp=8, accumulation=8, remat="full"))
    assert found["per_device_batch_size"] == "1"
    assert found["num_pipeline_microbatches"] == "8"
    assert found["num_layers_per_pipeline_stage"] == "4"
    assert "pipeline_parallel_layers" not in found
    assert found["scan_layers"] == "false"
    assert "gradient_accumulation_steps" not in found


def test_virtual_stages_are_repeats_of_shorter_ones() -> None:
    # 32 layers = 4 stages × 2 repeats × 4 layers
    plan = Plan(dp=32, pp=4, vpp=2, accumulation=8, remat="full", schedule="interleaved")
    assert flags("llama-3.1-8b", "v6e:8x16", plan)["num_layers_per_pipeline_stage"] == "4"


def test_layers_that_do_not_divide_stay_outside_the_pipeline() -> None:
    # DeepSeek's block pipelines its 58 mixtures of experts: 4 stages of 14 are 56 of them
    plan = Plan(fsdp=64, pp=4, accumulation=8, remat="full")
    found = flags("deepseek-v3", "v6e:16x16", plan)
    assert found["num_layers_per_pipeline_stage"] == "14"
    assert found["pipeline_parallel_layers"] == "56"


@given(st.integers(1, 4096), st.integers(1, 64))
def test_devices_times_the_batch_of_a_device_keep_every_sequence(replicas: int, held: int) -> None:
    """MaxText takes int(devices × per_device_batch_size): rounded down, it would lose one."""
    from chipshift.flows.launch import per_device

    devices = 3 * replicas  # a tp of 3: the fraction is never exact
    assert int(devices * float(per_device(replicas * held, devices))) == replicas * held


def test_run_name_output_and_data_are_there_for_the_user_to_fill_in() -> None:
    found = flags("llama-3.1-8b", "v6e:8x16", Plan(fsdp=128, remat="full"))
    assert found["run_name"] == found["workload"] == "llama-3-1-8b-v6e-8x16"
    assert found["base_output_directory"].startswith("gs://")
    assert found["dataset_type"] == "grain"
    assert found["grain_train_files"].startswith("gs://")
    assert found["tokenizer_path"]
    assert found["cluster"] == "YOUR_CLUSTER"


def test_what_differs_from_the_default_precision_is_said() -> None:
    plan = Plan(fsdp=128, remat="full")
    plain = flags("llama-3.1-8b", "v7x:4x4x4", plan)
    assert not {"weight_dtype", "grad_dtype", "mu_dtype", "quantization"} & set(plain)
    narrow = Precision(compute="fp8", weights="bf16", gradients="bf16", master="none",
                       moments="bf16")  # fmt: skip
    found = flags("llama-3.1-8b", "v7x:4x4x4", plan, precision=Given(narrow, "job.toml", 3))
    assert found["weight_dtype"] == found["grad_dtype"] == "bfloat16"
    assert found["quantization"] == "fp8_full"
    assert found["use_qwix_quantization"] == "true"


def test_attentions_backward_pass_is_one_kernel_unless_the_job_has_two() -> None:
    plan = Plan(fsdp=128, remat="full")
    two = Flag("separate_backward", "sa_use_fused_bwd_kernel", "False", "job.yml", 1)
    assert flags("llama-3.1-8b", "v7x:4x4x4", plan)["sa_use_fused_bwd_kernel"] == "true"
    assert "sa_use_fused_bwd_kernel" not in flags("llama-3.1-8b", "v7x:4x4x4", plan, flags=(two,))


PLANS = (
    ("llama-3.1-8b", "v6e:16x16*4", Plan(dp=8, fsdp=128, remat="full")),
    ("llama-3.1-8b", "v7x:4x4x4", Plan(fsdp=64, cp=2, cp_kind="ring", microbatch=2.0)),
    ("llama-3.1-8b", "v7x:4x4x4", Plan(fsdp=64, cp=2, cp_kind="all_to_all", microbatch=2.0)),
    (
        "llama-3.1-8b",
        "v7x:4x4x4",
        Plan(fsdp=32, cp=4, cp_kind="all_to_all", ulysses_degree=2, microbatch=4.0),
    ),
    ("llama-3.1-8b", "v6e:8x16", Plan(dp=16, pp=8, accumulation=8, remat="full")),
    ("llama-3.1-8b", "v6e:8x16", Plan(dp=32, tp=4, accumulation=8, optimizer_sharding="zero1")),
    ("deepseek-v3", "v6e:16x16", Plan(fsdp=64, pp=4, accumulation=8, remat="full")),
    ("mixtral-8x7b", "v5p:4x4x8", Plan(dp=2, fsdp=64, ep=8)),
)


@pytest.mark.parametrize(("model", "machine", "plan"), PLANS, ids=lambda v: str(v)[:40])
def test_every_setting_is_one_that_maxtext_and_xpk_know(
    model: str, machine: str, plan: Plan
) -> None:
    for remat in (*REMATS_BY_STACK["maxtext"], "selective", "offload:block_input", "offload:qkv"):
        line = maxtext(on(model, machine, replace(plan, remat=remat)))
        assert line is not None
        options, settings = parsed(line)
        assert set(options) == XPK
        assert set(settings) <= set(KNOWN["keys"])
        for key in ("model_name", "remat_policy", "dataset_type", "tokenizer_type", "attention",
                    "quantization", "opt_type", "context_parallel_strategy"):  # fmt: skip
            if key in settings:
                assert settings[key] in KNOWN[key], key


def test_the_models_are_maxtexts_own() -> None:
    assert set(MAXTEXT_MODELS.values()) <= set(KNOWN["model_name"])


@pytest.mark.parametrize(("chip", "listed"), [("v6e", "v6e"), ("v7x", "tpu7x")])
def test_slices_bear_the_accelerator_types_that_the_cloud_rents(chip: str, listed: str) -> None:
    names = {machine.cloud_name for machine in all_slices(chip)}
    assert names <= set(KNOWN[f"accelerators_{listed}"])


def test_a_model_without_a_name_in_maxtext_leaves_a_complete_command() -> None:
    found = flags("minitron-8b", "v6e:4x4", Plan(fsdp=16, remat="full"))
    assert found["model_name"] == "NAME_OF_YOUR_MODEL_CONFIG"
    assert found["attention"] == "flash"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "3rd try_of MY.model" * 5, "ÄÖ"])
def test_a_workload_has_a_name_that_kubernetes_takes(name: str) -> None:
    found = workload_name(on("llama-3.1-8b", "v6e:4x4", Plan(fsdp=16, remat="full")))
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", found)
    assert len(found) <= LONGEST_NAME
    e = on("llama-3.1-8b", "v6e:4x4", Plan(fsdp=16, remat="full"))
    renamed = replace(e, job=replace(e.job, model=replace(e.job.model, name=name)))
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", workload_name(renamed))


@pytest.mark.parametrize(("model", "machine", "plan"), PLANS[:4], ids=lambda v: str(v)[:40])
def test_the_command_read_back_is_the_plan(
    model: str, machine: str, plan: Plan, tmp_path: Path
) -> None:
    line = maxtext(on(model, machine, plan))
    assert line is not None
    script = tmp_path / "run.sh"
    script.write_text(line + "\n", "utf8")
    job = read_job([str(script)])
    assert job.machine is not None
    assert job.machine.value == machine
    assert job.plan is not None
    found = job.plan.value
    assert (found.tp, found.cp, found.pp) == (plan.tp, plan.cp, plan.pp)
    assert found.dp * found.fsdp == plan.dp * plan.fsdp
    assert found.global_batch == plan.global_batch
    assert found.microbatch == plan.microbatch


def test_megatron_on_another_gpu_is_given_its_own_arguments() -> None:
    plan = Plan(dp=16, tp=8, pp=4, vpp=2, microbatch=1.0, accumulation=8, remat="selective",
                optimizer_sharding="zero1", schedule="interleaved")  # fmt: skip
    found = lines_of(on("llama-3.1-70b", "mi300x*512", plan, "megatron"))
    line = found.pop("megatron")
    assert found == {}
    assert line.startswith("torchrun --nnodes=64 --nproc-per-node=8 pretrain_gpt.py")
    assert "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4" in line
    assert "--num-virtual-stages-per-pipeline-rank 2" in line
    assert "--global-batch-size 128" in line  # 16 replicas × 1 × 8
    assert "--use-distributed-optimizer" in line
    assert "ROCm" in note_of(on("llama-3.1-70b", "mi300x*512", plan, "megatron"))


@pytest.mark.parametrize(
    ("degree", "said"),
    [
        (0, "--cp-comm-type a2a --micro"),
        (2, "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 --micro"),
    ],
)
def test_megatron_is_told_that_heads_are_dealt_out(degree: int, said: str) -> None:
    plan = Plan(dp=32, cp=4, cp_kind="all_to_all", ulysses_degree=degree, microbatch=8.0)
    line = lines_of(on("llama-3.1-8b", "mi300x*128", plan, "megatron"))["megatron"]
    assert said in line


def test_maxtext_is_told_that_heads_are_dealt_out() -> None:
    plan = Plan(fsdp=32, cp=4, cp_kind="all_to_all", microbatch=4.0)
    found = flags("llama-3.1-8b", "v7x:4x4x4", plan)
    assert found["context_parallel_strategy"] == "ulysses"
    assert found["ici_context_parallelism"] == "4"
    found = flags("llama-3.1-8b", "v7x:4x4x4", replace(plan, ulysses_degree=2))
    assert found["context_parallel_strategy"] == "usp"
    assert found["ici_context_parallelism"] == found["ici_context_usp_ulysses_parallelism"] == "2"


def test_torchtitan_on_another_gpu_is_given_its_own_overrides() -> None:
    plan = Plan(dp=2, fsdp=64, microbatch=2.0, accumulation=1, remat="selective_op")
    line = lines_of(on("llama-3.1-8b", "mi300x*128", plan, "torchtitan"))["torchtitan"]
    assert "--parallelism.data_parallel_replicate_degree=2" in line
    assert "--parallelism.data_parallel_shard_degree=64" in line
    assert "--training.local_batch_size=2 --training.global_batch_size=256" in line
    assert "--activation_checkpoint.mode=selective --activation_checkpoint.selective_ac_option=op" \
        in line  # fmt: skip


def test_a_policy_on_some_of_the_layers_is_written_as_each_framework_counts_them() -> None:
    # 32 layers over two stages: 12 of 32 are 6 of each stage's 16
    plan = Plan(dp=64, pp=2, microbatch=1.0, accumulation=2, remat="full:12/32")
    line = lines_of(on("llama-3.1-8b", "mi300x*128", plan, "megatron"))["megatron"]
    said = "--recompute-granularity full --recompute-method block --recompute-num-layers 6"
    assert line.endswith(said)
    plan = Plan(fsdp=128, microbatch=2.0, remat="full:1/2")
    line = lines_of(on("llama-3.1-8b", "mi300x*128", plan, "torchtitan"))["torchtitan"]
    assert "--activation_checkpoint.mode=selective --activation_checkpoint.selective_ac_option=2" \
        in line  # fmt: skip
    found = flags("llama-3.1-8b", "v7x:4x4x4", Plan(fsdp=128, microbatch=2.0, remat="full:1/2"))
    assert found["remat_policy"] == "full"  # MaxText has no such share


def test_where_there_is_no_command_it_says_so_and_where_the_degrees_go() -> None:
    plan = Plan(dp=16, tp=4, remat="full", optimizer_sharding="zero1", accumulation=2)
    e = on("llama-3.1-8b", "trn2:4x4", plan, "neuron")
    assert lines_of(e) == {}
    note = note_of(e)
    assert note.startswith("no command is written: NeuronX Distributed Training")
    assert "tensor_model_parallel_size 4" in note
    assert "zero1 True" in note
    other = on("llama-3.1-8b", "v6e:4x4", Plan(fsdp=16, remat="full"), "torchax")
    assert lines_of(other) == {}
    assert "torchax" in note_of(other)
