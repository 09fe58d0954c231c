"""Heads dealt over context-parallel devices (DeepSpeed-Ulysses), worked by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.estimate import estimate
from chipshift.estimate.context import dealt_heads_s
from chipshift.estimate.estimate import Estimate
from chipshift.estimate.groups import group_links, placements
from chipshift.estimate.output import at_path, estimate_json
from chipshift.estimate.setting import setting
from chipshift.fabric import collective_time
from chipshift.jobs.job import Flag
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.ops import Cut, layer_ops
from chipshift.parallel.traffic import dealt_heads_bytes, dealt_kv_heads
from chipshift.planner.space import base_rows, choices
from chipshift.planner.table import Row, plan_of, prepare, scored
from chipshift.worked import Worked
from tests.estimate.conftest import job_of

H100 = parse_machine("h100*32")
DEALT = Plan(fsdp=4, cp=8, cp_kind="all_to_all", microbatch=2.0, accumulation=8, remat="none")
RING = dataclasses.replace(DEALT, cp_kind="ring")


def of(plan: Plan, model: str = "llama-3.1-8b", stack: str = "megatron") -> Estimate:
    return estimate(job_of(model, sequences=64), plan, H100, stack)


def test_bytes_of_each_all_to_all() -> None:
    """b = 2 sequences of s = 8,192 over cp = 8 leave 2,048 rows; h = 32 heads of d = 128.

    Queries: 2,048 · 32 · 128 · 2 B = 16 MiB on a device, of which 7/8 go elsewhere. V counts the
    whole group: 8 · 16 MiB. Keys have 8 heads, one for each device: 4 MiB.
    """
    assert dealt_heads_bytes(2048, 32, 128, 2, 8) == 8 * 16 * 2**20
    assert dealt_heads_bytes(2048, dealt_kv_heads(8, 8), 128, 2, 8) == 8 * 4 * 2**20


@pytest.mark.parametrize(
    ("kv_heads", "ranks", "sent"),
    [
        (8, 4, 8),  # two for each device
        (8, 8, 8),
        (4, 8, 8),  # repeated twice
        (1, 16, 16),  # multi-query: a copy for every device
    ],
)
def test_fewer_key_value_heads_than_devices_are_repeated(
    kv_heads: int, ranks: int, sent: int
) -> None:
    assert dealt_kv_heads(kv_heads, ranks) == sent


def test_a_layer_deals_queries_keys_values_and_output_once_each_way() -> None:
    """Forward 4 all-to-alls a layer, backward 4 more; none hides behind compute."""
    e = of(DEALT)
    links = group_links(H100, placements(H100, 1, 4, 8, 1, 1, 1))["cp"]
    rows = 2 * 8192 / 8
    wide = collective_time("all_to_all", rows * 32 * 128 * 2 * 8, links)
    narrow = collective_time("all_to_all", rows * 8 * 128 * 2 * 8, links)
    layer = 2 * (wide + 2 * narrow + wide)
    assert e.collectives_total["cp"] == pytest.approx(32 * 8 * layer, rel=1e-12)
    assert e.collectives_exposed["cp"] == e.collectives_total["cp"]


def test_megatron_deepspeed_deals_keys_and_values_of_every_query() -> None:
    """32 heads of keys and of values in place of 8: four all-to-alls of one size each way."""
    fork = (Flag("deepspeed", "deepspeed", "true", "train.sh", 1),)
    e = estimate(job_of("llama-3.1-8b", sequences=64, flags=fork), DEALT, H100, "megatron")
    links = group_links(H100, placements(H100, 1, 4, 8, 1, 1, 1))["cp"]
    wide = collective_time("all_to_all", 2 * 8192 / 8 * 32 * 128 * 2 * 8, links)
    assert e.collectives_total["cp"] == pytest.approx(32 * 8 * 2 * 4 * wide, rel=1e-12)


@pytest.mark.parametrize(
    ("remat", "again_in", "again_out"),
    [
        ("none", 0, 0),
        ("selective", 1, 1),  # Megatron runs core attention again, its exchange inside it
        ("full", 1, 1),
        ("minimal_with_context", 0, 0),  # queries, keys, values and the output are kept
        ("custom:saved=attention", 1, 0),  # its backward pass reads its inputs, dealt out again
    ],
)
def test_what_runs_again_is_dealt_out_again(remat: str, again_in: int, again_out: int) -> None:
    e = of(dataclasses.replace(DEALT, remat=remat))
    s = setting(job_of("llama-3.1-8b", sequences=64), H100, "megatron")
    attention = s.model.layers[0][0].attention
    assert attention is not None
    links = group_links(H100, placements(H100, 1, 4, 8, 1, 1, 1))["cp"]
    into, out = dealt_heads_s(s, attention, 2048.0, 1.0, 8.0, links)
    layer = (2 + again_in) * into + (2 + again_out) * out
    assert e.collectives_total["cp"] == pytest.approx(32 * 8 * layer, rel=1e-12)


def test_attention_has_whole_sequences_of_a_part_of_the_heads() -> None:
    """8 rows of 16 dealt over 4: all 32 rows, heads 32/4, key/value heads 8/4; FLOPs the same."""
    layer = job_of("llama-3.1-8b").model.layers[0][0]
    ring = {op.name: op for op in layer_ops(layer, 4096, Cut(8.0, 32.0))}
    dealt = {op.name: op for op in layer_ops(layer, 4096, Cut(8.0, 32.0, ulysses=4.0))}
    a = dealt["attention"]
    assert (a.q_tokens, a.heads, a.kv_heads, a.keys) == (32.0, 8.0, 2.0, 16.0)
    assert a.flops == ring["attention"].flops
    del ring["attention"], dealt["attention"]
    assert ring == dealt  # projections and the rest keep their tokens and all heads


def test_memory_of_what_attention_keeps() -> None:
    """Queries, keys and values of whole sequences of 1/8 of the heads are as many bytes as before;
    the output is kept twice, as attention made it and as the output projection reads it:
    2,048 rows · 32 heads · 128 · 2 B = 16 MiB a layer more.
    """
    more = of(DEALT).memory["activations"] - of(RING).memory["activations"]
    assert more == pytest.approx(32 * 16 * 2**20, rel=1e-9)


def test_repeated_heads_are_kept_repeated() -> None:
    """Gemma 2 2B: 8 heads and 4 key/value heads of 256, 26 layers, dealt over 8: each device keeps
    one key/value head of whole sequences where 4/8 of one would do.

    Rows 2,048 a device, 16,384 dealt: half a head · 2 (keys, values) · 256 · 16,384 · 2 B = 8 MiB,
    and the output's second copy 2,048 · 8 · 256 · 2 B = 8 MiB.
    """
    more = of(DEALT, "gemma-2-2b").memory["activations"]
    more = more - of(RING, "gemma-2-2b").memory["activations"]
    assert more == pytest.approx(26 * (8 + 8) * 2**20, rel=1e-9)


def test_weights_are_sharded_over_cp_either_way() -> None:
    """ZeRO-3 partitions over data and sequence parallel devices together (fsdp 4 × cp 8)."""
    dealt, ring = of(DEALT), of(RING)
    for part in ("weights", "gradients", "optimizer", "logits"):
        assert dealt.memory[part] == ring.memory[part]
    assert dealt.collectives_total["fsdp"] == ring.collectives_total["fsdp"]


def test_heads_dealt_inside_rings() -> None:
    """cp = 8 as all-to-alls of 4 inside rings of 2: a device has the rows of four, 8,192, and
    passes the two of its 8 key/value heads on once forward, twice backward: 8,192 · 2 · 256 · 2 B.
    """
    e = of(dataclasses.replace(DEALT, ulysses_degree=4))
    groups = group_links(H100, placements(H100, 1, 4, 8, 1, 1, 1, ulysses=4))
    rows = 2048
    wide = collective_time("all_to_all", rows * 32 * 128 * 2 * 4, groups["heads"])
    narrow = collective_time("all_to_all", rows * 8 * 128 * 2 * 4, groups["heads"])
    step = collective_time("permute", 8192 * 2 * 256 * 2, groups["around"])
    dealt, ring = 2 * (2 * wide + 2 * narrow), 3 * step
    assert e.collectives_total["cp"] == pytest.approx(32 * 8 * (dealt + ring), rel=1e-12)
    exposed = e.collectives_exposed["cp"]
    assert 32 * 8 * dealt <= exposed < e.collectives_total["cp"]  # the ring hides, the heads do not


def test_all_of_cp_may_be_said_or_left_out() -> None:
    assert of(DEALT).step_time_s == of(dataclasses.replace(DEALT, ulysses_degree=8)).step_time_s


@pytest.mark.parametrize(
    ("model", "name", "stack"),
    [
        ("llama-3.1-8b", "h100*64", "megatron"),
        ("llama-3.1-8b", "v6e:8x8", "jax"),
        ("mixtral-8x7b", "v6e:8x8", "maxtext"),
    ],
)
def test_the_planners_rows_are_estimates(model: str, name: str, stack: str) -> None:
    """A table of plans that deal heads is scored by the same functions, to 1e-9."""
    job, machine = job_of(model, sequences=64), parse_machine(name)
    s = setting(job, machine, stack)
    base = base_rows(s, {"dp": 1, "pp": 1})
    choice = dataclasses.replace(choices(s, {})[0], cp_kind="all_to_all", remat="full")
    table = prepare(s, base, "all_to_all", bounds=False)
    cp, tp = (base.degrees[base.tuple_of, i] for i in (2, 3))
    rows = np.flatnonzero((cp > 1) & (32 // tp % cp == 0))
    rows = np.random.default_rng(5).choice(rows, 40, replace=False)
    sites = table.sites.first[base.tuple_of[rows]]
    found = scored(s, table, rows, sites, choice)
    for i, row in enumerate(rows.tolist()):
        plan = plan_of(table, Row(row, choice, 0.0, 0.0, int(sites[i])))
        assert plan.ulysses == plan.cp > 1
        e = estimate(job, plan, machine, stack)
        for axis in ("cp", "tp", "fsdp"):
            exposed = np.broadcast_to(found.exposed[axis], rows.shape)
            assert e.collectives_exposed[axis] == pytest.approx(exposed[i], rel=1e-9, abs=1e-15)
        for part in ("attention", "matmul", "other"):
            assert e.time[part] == pytest.approx(found.time[part][i], rel=1e-9)
        assert e.memory["total"] == pytest.approx(found.memory["total"][i], rel=1e-9)


def test_the_working_names_the_exchange() -> None:
    e = estimate(job_of("llama-3.1-8b", sequences=64), DEALT, H100, "megatron", explain=True)
    total = at_path(estimate_json(e), "time_s.collectives_total.cp")
    names, sources = set(), set()
    left = [total]
    while left:
        one = left.pop()
        if isinstance(one, Worked):
            names.add(one.name)
            sources.add(one.source)
            left += one.inputs
    assert {"queries_all_to_all_s", "keys_dealt_bytes", "heads_in_s", "heads_out_s"} <= names
    assert any("Jacobs et al. 2023" in source for source in sources)


@given(
    heads=st.sampled_from([8, 16, 32, 64]),
    group=st.sampled_from([1, 2, 4, 8]),
    ranks=st.sampled_from([2, 4, 8]),
    rows=st.integers(1, 512),
)
def test_dealing_heads_out_changes_no_arithmetic(
    heads: int, group: int, ranks: int, rows: int
) -> None:
    """However heads are dealt, attention multiplies as much, and has as many elements of queries;
    of keys and values as many as before, or one head of whole sequences where they are fewer."""
    layer = job_of("llama-3.1-8b").model.layers[0][0]
    assert layer.attention is not None
    kv_heads = heads // group
    own = dataclasses.replace(layer.attention, heads=heads, kv_heads=kv_heads)
    kind = dataclasses.replace(layer, attention=own)
    length = float(rows * ranks)
    ring, dealt = (
        next(op for op in layer_ops(kind, 4096, cut) if op.name == "attention")
        for cut in (Cut(float(rows), length), Cut(float(rows), length, ulysses=float(ranks)))
    )
    assert dealt.flops == pytest.approx(ring.flops, rel=1e-12)
    assert dealt.q_tokens * dealt.heads == ring.q_tokens * ring.heads
    assert dealt.q_tokens * dealt.kv_heads == max(rows * kv_heads, length)


def test_zero_3_whose_group_is_cp_alone_shares_weights_over_it() -> None:
    """8,030,261,248 parameters over 8 devices of one sequence: 2 + 4 + 12 bytes each, an eighth."""
    machine = parse_machine("h100*8")
    plan = Plan(cp=8, cp_kind="all_to_all", remat="full", cp_shards=True)
    job = job_of("llama-3.1-8b", sequences=1)
    e = estimate(job, plan, machine)
    held = e.memory["weights"] + e.memory["gradients"] + e.memory["optimizer"]
    assert held == pytest.approx(18 * 8_030_261_248 / 8, rel=1e-12)
    whole = estimate(job, dataclasses.replace(plan, cp_shards=False), machine)
    assert [estimate_json(one)["plan"]["cp_shards"] for one in (e, whole)] == [True, False]
    assert whole.memory["weights"] == pytest.approx(8 * e.memory["weights"], rel=1e-12)
    # its gradients were summed over cp; now its weights are gathered and its gradients scattered
    assert whole.collectives_total["dp"] > 0 == whole.collectives_total["fsdp"]
    assert e.collectives_total["fsdp"] > 0 == e.collectives_total["dp"]


def test_experts_of_zero_3_over_cp_alone_are_cut_by_what_ep_leaves() -> None:
    """Mixtral over ep = 4 of cp = 8: two devices share an expert, all eight the rest.

    46,702,792,704 parameters less 32 × 8 × 3 × 4,096 × 14,336 = 45,097,156,608 of experts.
    """
    plan = Plan(cp=8, ep=4, cp_kind="all_to_all", remat="full", cp_shards=True)
    e = estimate(job_of("mixtral-8x7b", sequences=1), plan, parse_machine("h100*8"))
    dense = 46_702_792_704 - 45_097_156_608
    assert e.memory["weights"] == pytest.approx(2 * 45_097_156_608 / 8 + 2 * dense / 8, rel=1e-9)


def test_sparse_attention_gathers_latents() -> None:
    """GLM-5: 512 of a latent and 64 of its rotary part, for 64 heads of keys and values of 256."""
    plan = Plan(cp=32, cp_kind="allgather", microbatch=64.0, remat="none")
    job = job_of("glm-5.1", 64, 131072)
    (layer, _), *_ = job.model.layers
    assert layer.attention is not None and layer.attention.latent_keys
    wide = dataclasses.replace(layer.attention, latent_keys=False)
    layers = tuple((dataclasses.replace(one, attention=wide), n) for one, n in job.model.layers)
    whole = dataclasses.replace(job, model=dataclasses.replace(job.model, layers=layers))
    latents, expanded = (
        float(estimate(one, plan, H100, "megatron").collectives_total["cp"]) for one in (job, whole)
    )
    assert latents == pytest.approx(expanded * 576 / (64 * 512), rel=0.05)
