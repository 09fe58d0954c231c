"""The MaxText command line: degrees that multiply to the machine, and a whole command."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from chipshift.estimate import estimate
from chipshift.flows.launch import maxtext
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from tests.estimate.conftest import job_of


def flags(model: str, machine: str, plan: Plan) -> dict[str, str]:
    job = job_of(model, int(plan.global_batch))
    line = maxtext(estimate(job, plan, parse_machine(machine), "maxtext"))
    assert line is not None
    assert "#" not in line
    return dict(re.findall(r"([a-z][\w-]*)=([^\s\"]+)", line))


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


def test_a_pipeline_holds_all_its_microbatches() -> None:
    # 16 replicas × 1 sequence × 8 microbatches over 128 devices = 1 a device, no accumulation
    found = flags("llama-3.1-8b", "v6e:8x16", Plan(dp=16, pp=8, accumulation=8, remat="full"))
    assert found["per_device_batch_size"] == "1"
    assert found["num_pipeline_microbatches"] == "8"
    assert "gradient_accumulation_steps" not in found


def test_a_model_without_a_name_in_maxtext_leaves_a_complete_command() -> None:
    found = flags("minitron-8b", "v6e:4x4", Plan(fsdp=16, remat="full"))
    assert found["model_name"] == "NAME_OF_YOUR_MODEL_CONFIG"
    assert found["attention"] == "flash"
