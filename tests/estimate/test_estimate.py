"""An estimate adds up, explains itself, and behaves as the arithmetic says it must."""

from __future__ import annotations

import dataclasses

import pytest

from chipshift.errors import InputError
from chipshift.estimate import Price, estimate
from chipshift.estimate.collectives import AXES
from chipshift.estimate.output import at_path, estimate_json, jsonable
from chipshift.estimate.stack import newest_release, stack
from chipshift.jobs.job import Assumed, Precision, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.ops import forward_flops_per_token
from chipshift.worked import Worked, plain
from tests.estimate.conftest import job_of

FSDP = Plan(fsdp=128, microbatch=2, remat="full")


def test_model_flops_of_llama_8b() -> None:
    """Forward: 2 × (matmul parameters + head) + causal attention, per token at S = 8192.

    A layer: q and o 2·4096², k and v 2·4096·1024, three matrices 4096 × 14336 = 218,103,808.
    32 layers and the head 4096 · 128,256 = 7,504,658,432 parameters, 15.009 GFLOP.
    Attention: 2 · S/2 · 32 heads · (128 + 128) · 32 layers = 2.147 GFLOP.
    """
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    matmul = 2 * (32 * layer + 4096 * 128256)
    attention = 2 * 4096 * 32 * 256 * 32
    found = forward_flops_per_token(job_of("llama-3.1-8b").model, 8192.0)
    assert found == pytest.approx(matmul + attention, rel=1e-12)
    assert matmul + attention == pytest.approx(17.157e9, rel=1e-3)


@pytest.mark.parametrize("name", ["h100*128", "v6e:8x16", "v7x:4x4x4"])
def test_the_parts_add_up_to_the_step(llama_8b: TrainJob, name: str) -> None:
    e = estimate(llama_8b, FSDP, parse_machine(name))
    parts = sum(e.time.values()) + sum(e.collectives_exposed[a] for a in AXES)
    assert e.step_time_s == pytest.approx(parts, rel=1e-12)
    memory = dict(e.memory)
    assert memory.pop("total") == pytest.approx(sum(memory.values()), rel=1e-12)


def test_derived_figures_follow_from_the_step_time(llama_8b: TrainJob) -> None:
    m = parse_machine("v7x:4x4x4")
    e = estimate(llama_8b, FSDP, m, price=Price(10.0, "test"))
    tokens = 256 * 8192
    assert e.tokens_per_s_per_chip == pytest.approx(tokens / e.step_time_s / 64)
    assert e.mfu == pytest.approx(
        e.model_flops_per_token * tokens / e.step_time_s / (64 * 2307e12), rel=1e-9
    )
    assert e.usd_per_step == pytest.approx(10 * 64 * e.step_time_s / 3600)
    assert e.usd_per_1e12_tokens == pytest.approx(e.usd_per_step * 1e12 / tokens)
    assert e.hfu > e.mfu  # full remat runs the forward pass again


@pytest.mark.parametrize("name", ["h100*128", "v6e:8x16", "v7x:4x4x4"])
def test_every_explained_figure_equals_the_computed_one(llama_8b: TrainJob, name: str) -> None:
    plan = dataclasses.replace(FSDP, fsdp=16, tp=4, cp=2, microbatch=4, accumulation=4)
    m = parse_machine(name)
    floats = jsonable(estimate_json(estimate(llama_8b, plan, m)))
    explained = estimate_json(estimate(llama_8b, plan, m, explain=True))
    checked = 0
    for path in _paths(explained):
        value = at_path(explained, path)
        if isinstance(value, Worked):
            assert value.value == pytest.approx(at_path(floats, path), rel=1e-12, abs=0), path
            checked += 1
    assert checked > 25


def _paths(tree: object, head: str = "") -> list[str]:
    if isinstance(tree, dict):
        return [p for k, v in tree.items() for p in _paths(v, f"{head}.{k}" if head else k)]
    return [head]


def test_a_derivation_ends_at_sourced_figures(llama_8b: TrainJob) -> None:
    e = estimate(llama_8b, FSDP, parse_machine("v6e:8x16"), explain=True)
    leaves: list[Worked] = []

    def walk(node: Worked) -> None:
        if not node.expression:
            leaves.append(node)
        for one in node.inputs:
            walk(one)

    walk(e.step_time_s)
    assert all(one.source for one in leaves)
    names = {one.name for one in leaves}
    assert {"peak_flop_per_s", "hbm_bytes_per_s", "seq_len", "d_model", "fsdp"} <= names


def test_sharding_state_over_more_devices_takes_less_memory(llama_8b: TrainJob) -> None:
    m = parse_machine("h100*128")
    whole = estimate(llama_8b, Plan(dp=128, microbatch=2, remat="full"), m)
    halves = estimate(llama_8b, Plan(dp=64, fsdp=2, microbatch=2, remat="full"), m)
    sharded = estimate(llama_8b, FSDP, m)
    for part in ("weights", "gradients", "optimizer"):
        assert halves.memory[part] == pytest.approx(whole.memory[part] / 2)
        assert sharded.memory[part] == pytest.approx(whole.memory[part] / 128)


def test_sixteen_bytes_a_parameter(llama_8b: TrainJob) -> None:
    """8,030,261,248 parameters × (2 + 2 + 4 + 8) bytes on a device that shards nothing."""
    precision = Assumed(Precision(gradients="bf16"), "test")
    job = dataclasses.replace(llama_8b, precision=precision)
    e = estimate(job, Plan(dp=128, microbatch=2, remat="full"), parse_machine("h100*128"))
    state = e.memory["weights"] + e.memory["gradients"] + e.memory["optimizer"]
    assert state == pytest.approx(16 * 8_030_261_248, rel=1e-12)


def test_zero1_shards_only_the_optimizer(llama_8b: TrainJob) -> None:
    m = parse_machine("h100*128")
    plain_dp = estimate(llama_8b, Plan(dp=128, microbatch=2, remat="full"), m)
    zero1 = estimate(
        llama_8b, Plan(dp=128, microbatch=2, remat="full", optimizer_sharding="zero1"), m
    )
    assert zero1.memory["weights"] == plain_dp.memory["weights"]
    assert zero1.memory["gradients"] == plain_dp.memory["gradients"]
    assert zero1.memory["optimizer"] == pytest.approx(plain_dp.memory["optimizer"] / 128)


def test_remat_trades_memory_for_time(llama_8b: TrainJob) -> None:
    m = parse_machine("h100*128")
    kept, again = (
        estimate(llama_8b, dataclasses.replace(FSDP, remat=r), m) for r in ("none", "full")
    )
    assert again.memory["activations"] < kept.memory["activations"] / 3
    assert again.recompute > 0
    assert kept.recompute == 0
    assert again.step_time_s > kept.step_time_s


def test_one_device_has_no_collectives() -> None:
    job = job_of("llama-3.2-1b", sequences=8, seq_len=2048)
    e = estimate(job, Plan(microbatch=8), parse_machine("h100*1"))
    assert all(plain(v) == 0 for v in e.collectives_total.values())
    assert e.time["bubble"] == 0


def test_a_pipeline_has_the_bubble_of_its_schedule(llama_8b: TrainJob) -> None:
    m = parse_machine("h100*128")
    p = Plan(dp=16, pp=8, microbatch=1, accumulation=16, remat="full")
    straight = estimate(llama_8b, p, m)
    woven = estimate(llama_8b, dataclasses.replace(p, schedule="interleaved", vpp=4), m)
    assert woven.time["bubble"] < straight.time["bubble"] / 3
    assert straight.time["bubble"] > 0


def test_moe_experts_are_cut_by_expert_parallelism() -> None:
    """Mixtral-8x7B: each of 32 layers holds 8 experts of 3 · 4096 · 14336 parameters."""
    job = job_of("mixtral-8x7b", sequences=256, seq_len=4096)
    m = parse_machine("h100*64")
    one = estimate(job, Plan(dp=64, microbatch=1, accumulation=4, remat="full"), m)
    cut = estimate(job, Plan(dp=64, ep=8, microbatch=1, accumulation=4, remat="full"), m)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert one.memory["weights"] - cut.memory["weights"] == pytest.approx(2 * experts * 7 / 8)
    assert cut.collectives_total["ep"] > 0
    assert one.collectives_total["ep"] == 0


def test_plans_that_contradict_machine_or_batch_are_refused(llama_8b: TrainJob) -> None:
    with pytest.raises(InputError, match="makes 64 devices"):
        estimate(llama_8b, Plan(fsdp=64, microbatch=4), parse_machine("h100*128"))
    with pytest.raises(InputError, match="is 128 sequences a step"):
        estimate(llama_8b, Plan(fsdp=128, microbatch=1), parse_machine("h100*128"))


def test_unvalidated_stacks_say_so(llama_8b: TrainJob) -> None:
    e = estimate(llama_8b, Plan(fsdp=64, microbatch=4, remat="full"), parse_machine("trn2:4x4"))
    assert e.error_band.n == 0
    assert e.error_band.median_abs_rel is None


def test_json_is_what_the_contract_names(llama_8b: TrainJob) -> None:
    row = jsonable(estimate_json(estimate(llama_8b, FSDP, parse_machine("v6e:8x16"))))
    assert set(row["time_s"]) == {
        "matmul", "attention", "memory_bound", "collectives_total", "collectives_exposed",
        "bubble", "optimizer", "input", "other", "recompute",
    }  # fmt: skip
    assert set(row["memory_bytes"]) == {
        "weights", "gradients", "optimizer", "activations", "logits", "collectives", "overhead",
        "total", "available", "fits",
    }  # fmt: skip
    assert row["plan"]["axes"] == {"fsdp": ["x", "y"]} or row["plan"]["axes"]["fsdp"]


@pytest.mark.parametrize(
    ("name", "newest"),
    [("megatron", True), ("megatron@25.09", False), ("jax", False), ("torchtitan", False)],
)
def test_a_release_that_nobody_named_is_the_newest_known(name: str, newest: bool) -> None:
    # jax follows maxtext's constants; neither maxtext's runs nor torchtitan's tell releases apart
    found = newest_release(name)
    assert bool(found) == newest
    if found:
        named = stack(f"{name}@{found}", "h100")
        assert dataclasses.replace(named, name=name) == stack(name, "h100")
