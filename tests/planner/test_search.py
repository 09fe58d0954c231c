"""The planner finds what brute force finds, and its rows are estimates."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from chipshift.estimate import estimate
from chipshift.estimate.collectives import AXES as SCORE_AXES
from chipshift.estimate.columns import GROUPS
from chipshift.estimate.groups import group_links, placements
from chipshift.estimate.memory import PARTS
from chipshift.estimate.score import ops, timed
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.stack import stack as stack_of
from chipshift.fabric.links import same_links
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.machines.machine import Machine
from chipshift.planner.bounds import floors, layouts
from chipshift.planner.choose import choose
from chipshift.planner.search import search
from chipshift.planner.sites import all_sites
from chipshift.planner.space import EVEN_STAGES, applies, base_rows, choices, divisors
from chipshift.planner.table import Row, plan_of, prepare, rows_stage, scored, step_times
from chipshift.worked import plain
from tests.estimate.conftest import job_of

STACKS = {"gpu": "megatron", "tpu": "maxtext"}
AXES = ("dp", "fsdp", "cp", "tp", "pp")


def brute_force(job: TrainJob, machine: Machine, stack: str, held: dict[str, str]
                ) -> tuple[float, int, int, float]:  # fmt: skip
    """Every legal plan in every order of its mesh axes, by plain loops and ``estimate``.

    Returns:
        The least step time that fits; how many plans there are, counting orders that give every
        group the same links once; how many of them fit; the least memory of any.
    """
    s = setting(job, machine, stack)
    layer = job.model.layers[-1][0]
    heads, width = layer.attention.heads, layer.mlp.width  # type: ignore[union-attr]
    experts = getattr(layer.mlp, "experts", 1)
    n, batch, seq = machine.devices, job.sequences_per_step.value, job.seq_len.value
    best, seen, fit, least = float("inf"), 0, 0, float("inf")
    for dp, fsdp, cp, tp, pp, ep in itertools.product(*[divisors(n)] * 5, divisors(experts)):
        if dp * fsdp * cp * tp * pp != n or heads % tp or width % tp:
            continue
        if batch % (dp * fsdp) or (cp > 1 and seq % (2 * cp)) or pp > job.model.n_layers:
            continue
        shards = fsdp * cp if fsdp > 1 else 1
        if (dp * fsdp * cp) % ep or (shards % ep and ep % shards):
            continue
        share = batch // (dp * fsdp)
        orders = distinct_orders(machine, dp, fsdp, cp, tp, ep, pp)
        for micro in divisors(share):
            for choice in choices(s, held):
                for vpp in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16):
                    a = share // micro
                    if stack in EVEN_STAGES and job.model.n_layers % (pp * vpp):
                        continue
                    if not _legal(choice, vpp, dp, fsdp, cp, pp, a, job.model.n_layers):
                        continue
                    for order in orders:
                        plan = Plan(
                            dp, fsdp, tp, cp, ep, 0, pp, vpp, float(micro), a, choice.remat,
                            choice.optimizer_sharding, choice.schedule, choice.cp_kind,
                            order=order,
                        )  # fmt: skip
                        e = estimate(job, plan, machine, stack)
                        seen += 1
                        least = min(least, float(plain(e.memory["total"])))
                        if e.fits:
                            fit += 1
                            best = min(best, float(plain(e.step_time_s)))
    return best, seen, fit, least


def links_in_order(machine: Machine, dp: int, fsdp: int, cp: int, tp: int, ep: int, pp: int,
                   order: tuple[str, ...]) -> dict[str, Any]:  # fmt: skip
    """The links of the groups with the mesh axes in an order, outermost first."""
    return group_links(machine, placements(machine, dp, fsdp, cp, tp, ep, pp, 0, order))


def distinct_orders(machine: Machine, dp: int, fsdp: int, cp: int, tp: int, ep: int, pp: int
                    ) -> list[tuple[str, ...]]:  # fmt: skip
    """One order of the mesh axes for each set of links that the groups can have."""
    found = {
        tuple(same_links(one)
              for one in links_in_order(machine, dp, fsdp, cp, tp, ep, pp, order).values()): order
        for order in itertools.permutations(AXES)
    }  # fmt: skip
    return list(found.values())


def _legal(choice, vpp, dp, fsdp, cp, pp, accumulation, layers) -> bool:  # type: ignore[no-untyped-def]
    if (choice.schedule == "interleaved") != (vpp > 1) or (vpp > 1 and pp == 1):
        return False
    if vpp > 1 and (vpp > layers // pp or accumulation % pp):
        return False
    if choice.schedule == "gpipe" and accumulation % pp:
        return False  # MaxText: microbatches in multiples of the stages
    if choice.schedule == "zero_bubble" and pp == 1:
        return False
    replicas = dp if fsdp > 1 else dp * cp
    if choice.optimizer_sharding != "none" and replicas == 1:
        return False
    return not (choice.optimizer_sharding == "zero2" and pp > 1)


@pytest.mark.parametrize(
    ("model", "name", "sequences", "held"),
    [
        ("llama-3.2-1b", "h100*4", 8, {}),
        ("llama-3.2-1b", "v6e:2x2", 8, {}),
        ("llama-3.2-1b", "v6e:2x4", 4, {"remat": "full"}),  # JAX's ring over a small slice
        ("llama-3.2-1b", "v5p:2x2x2", 4, {"remat": "full"}),  # axes that do not wrap
        ("llama-3.2-1b", "v7x:2x2x1", 4, {"remat": "full"}),  # two devices a chip
        ("llama-3.2-1b", "h100:4x2", 4, {"remat": "full"}),  # a switch and a network
        ("llama-3.2-1b", "v5e:2x2*2", 4, {"remat": "full"}),  # slices over the data centre
        ("mixtral-8x7b", "h200:4x2", 4, {"remat": "full", "optimizer_sharding": "zero1"}),
        ("mixtral-8x7b", "v7x:2x2x2", 2, {"remat": "full", "optimizer_sharding": "none"}),
    ],
)  # fmt: skip
def test_the_search_finds_what_brute_force_over_all_orders_finds(
    model: str, name: str, sequences: int, held: dict[str, str]
) -> None:
    job = job_of(model, sequences=sequences, seq_len=4096)
    machine = parse_machine(name)
    stack = STACKS[machine.chip.family]
    best, seen, fit, _ = brute_force(job, machine, stack, held)
    s = setting(job, machine, stack)
    whole, pruned = search(s, held, prune=False), search(s, held)
    assert whole.considered == whole.scored == pruned.considered == seen
    assert whole.counted_fitting == fit
    assert pruned.scored + pruned.pruned == seen and (pruned.pruned > 0 or seen < 500)
    for found in (whole, pruned):
        assert found.fitting[0].step_time_s == pytest.approx(best, rel=1e-12)
        plan = found.fitting[0].plan
        assert float(plain(estimate(job, plan, machine, stack).step_time_s)) == pytest.approx(
            best, rel=1e-12
        )
    kept = [[(r.step_time_s, r.memory_bytes) for r in f.fitting] for f in (whole, pruned)]
    assert kept[0] == kept[1]  # not only the winner: all that are kept


@pytest.mark.parametrize("name", ["v6e:16x16", "v7x:4x4x4", "h100:8x8", "v6e:8x16*2", "trn2:4x4"])
def test_every_order_of_the_axes_is_a_site(name: str) -> None:
    """A tuple's sites are the distinct links that its groups have over all 120 orders."""
    machine = parse_machine(name)
    s = setting(job_of("mixtral-8x7b", sequences=512, seq_len=4096), machine, "maxtext")
    base = base_rows(s, {})
    sites = all_sites(machine, base.degrees)
    for at in random.Random(3).sample(range(len(base.degrees)), 12):
        dp, fsdp, cp, tp, ep, pp = base.degrees[at].tolist()
        own = range(int(sites.first[at]), int(sites.first[at + 1]))
        here = [
            tuple(same_links(sites.links[sites.of[g][i]]) for g in GROUPS) for i in own
        ]  # fmt: skip
        named = [sites.orders[sites.order[i]] for i in own]
        assert named[0] == ()  # the usual order comes first
        for order, links in zip(named, here, strict=True):
            one = links_in_order(machine, dp, fsdp, cp, tp, ep, pp, order)
            assert tuple(same_links(one[g]) for g in GROUPS) == links
        wanted = {
            tuple(same_links(row[g]) for g in GROUPS)
            for order in itertools.permutations(AXES)
            for row in [links_in_order(machine, dp, fsdp, cp, tp, ep, pp, order)]
        }
        assert set(here) == wanted and len(here) == len(wanted)


@pytest.mark.parametrize(
    ("model", "name", "sequences"),
    [
        ("llama-3.1-8b", "v6e:16x16", 256),
        ("llama-3.1-70b", "h100:8x64", 512),
        ("deepseek-v3", "v7x:4x8x8", 1024),
        ("mixtral-8x7b", "v6e:8x16*4", 512),
        ("llama-3.1-8b", "h100:8x32 under nanotron", 256),  # its stages are cut by cost
        ("mixtral-8x7b", "h100:8x16 under torchtitan", 256),
        ("llama-3.1-8b", "h100:8x16 under deepspeed", 256),  # zero2
    ],
)
def test_the_bounds_hold_for_every_plan_in_every_order(
    model: str, name: str, sequences: int
) -> None:
    job = job_of(model, sequences=sequences, seq_len=4096)
    written, _, stack = name.partition(" under ")
    machine = parse_machine(written)
    s = setting(job, machine, stack or STACKS[machine.chip.family])
    base = base_rows(s, {})
    options = choices(s, {})
    p = prepare(s, base, options[0].cp_kind)
    at = layouts(s, p)
    rng = np.random.default_rng(11)
    for choice in options:
        rows = np.flatnonzero(applies(choice, base))
        if not len(rows):
            continue
        rows = rng.choice(rows, min(40, len(rows)), replace=False)
        bound = floors(s, p, at, choice)
        c, here = rows_stage(s, p, rows, choice)
        made = ops(s, c, choice, here)
        any_order = step_times(timed(s, c, choice, made, here.counts, p.least_traffic(rows)))
        for i, row in enumerate(rows.tolist()):
            of = base.tuple_of[row]
            sites = np.arange(p.sites.first[of], p.sites.first[of + 1])
            found = scored(s, p, np.full(len(sites), row), sites, choice)
            seconds = step_times(found)
            least = float(seconds.min())
            assert any_order[i] <= least * (1 + 1e-12)
            assert bound.time(rows[i : i + 1])[0] <= least * (1 + 1e-12)
            total = float(np.max(found.memory["total"]))
            assert bound.memory(rows[i : i + 1])[0] <= total * (1 + 1e-12)
            if len(sites) == 1:
                assert any_order[i] == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "name", "sequences", "seq_len", "stack"),
    [
        ("llama-3.1-405b", "v7x:8x8x8", 512, 8192, "maxtext"),
        ("deepseek-v3", "h100*1024", 1024, 4096, "megatron"),
        ("llama-3.1-8b", "h100*64", 256, 4096, "nanotron@1"),
    ],
)
def test_a_thousand_random_plans_equal_their_estimate(
    model: str, name: str, sequences: int, seq_len: int, stack: str
) -> None:
    """Every part of time and memory of a scored row is the estimate's, to 1e-9."""
    job = job_of(model, sequences=sequences, seq_len=seq_len)
    machine = parse_machine(name)
    s = setting(job, machine, stack)
    rows = sample_rows(s, 500)
    for found, plan, parts in rows:
        e = estimate(job, plan, machine, stack)
        assert float(plain(e.step_time_s)) == pytest.approx(found.step_time_s, rel=1e-9), plan
        for key, value in parts.items():
            group, part = key.split(".")
            own = {"time": e.time, "exposed": e.collectives_exposed, "memory": e.memory,
                   "total": e.collectives_total}[group]  # fmt: skip
            assert float(plain(own[part])) == pytest.approx(value, rel=1e-9, abs=1e-15), (plan, key)


def sample_rows(s: Setting, count: int) -> list[tuple[Row, Plan, dict[str, float]]]:
    """Random scored rows, on random sites, with their parts."""
    base = base_rows(s, {})
    options = choices(s, {})
    p = prepare(s, base, options[0].cp_kind, bounds=False)
    rng = np.random.default_rng(7)
    picks = random.Random(7)
    out: list[tuple[Row, Plan, dict[str, float]]] = []
    while len(out) < count:
        choice = picks.choice(options)
        rows = np.flatnonzero(applies(choice, base))
        if not len(rows):
            continue
        some = rng.choice(rows, min(50, len(rows)), replace=False)
        of = base.tuple_of[some]
        sites = p.sites.first[of] + rng.integers(0, p.sites.counts[of])
        result = scored(s, p, some, sites, choice)
        seconds = step_times(result)
        for i, index in enumerate(some.tolist()):
            total = float(result.memory["total"][i])
            row = Row(index, choice, float(seconds[i]), total, int(sites[i]))
            parts = {f"time.{k}": _at(v, i) for k, v in result.time.items()}
            parts |= {f"exposed.{k}": _at(result.exposed[k], i) for k in SCORE_AXES}
            parts |= {f"total.{k}": _at(result.total[k], i) for k in SCORE_AXES}
            parts |= {f"memory.{k}": _at(result.memory[k], i) for k in (*PARTS, "total")}
            out.append((row, plan_of(p, row), parts))
    return out[:count]


def _at(value, i):  # type: ignore[no-untyped-def]
    return float(np.broadcast_to(value, (i + 1,))[i] if np.ndim(value) == 0 else value[i])


def test_what_the_user_holds_is_held() -> None:
    job = job_of("llama-3.1-8b")
    s = setting(job, parse_machine("v6e:8x16"), "maxtext")
    found = search(s, {"tp": 4, "remat": "full"})
    for row in found.fitting[:20]:
        plan = row.plan
        assert (plan.tp, plan.remat) == (4, "full")


def test_stages_are_even_where_the_stack_needs_it() -> None:
    job = job_of("llama-3.1-405b", sequences=512)  # 126 layers
    s = setting(job, parse_machine("v7x:8x8x8"), "maxtext")
    found = search(s, keep=64)
    for row in found.fitting:
        plan = row.plan
        assert 126 % (plan.pp * plan.vpp) == 0
        assert plan.schedule == ("gpipe" if plan.pp > 1 else "1f1b")


def test_a_job_that_fits_nowhere_says_how_much_is_missing() -> None:
    job = job_of("llama-3.1-405b", sequences=4, seq_len=8192)
    s = setting(job, parse_machine("v6e:2x2"), "maxtext")
    found = search(s)
    assert not found.fitting
    assert found.not_fitting[0].memory_bytes > s.usable_bytes
    assert found.pruned + found.scored == found.considered


@pytest.mark.parametrize(
    ("model", "name", "held"),
    [("llama-3.1-8b", "v6e:2x2", {}), ("mixtral-8x7b", "h100:4x2", {"remat": "selective"})],
)
def test_what_is_missing_is_what_the_smallest_of_all_plans_lacks(
    model: str, name: str, held: dict[str, str]
) -> None:
    job = job_of(model, sequences=4, seq_len=8192)
    machine = parse_machine(name)
    stack = STACKS[machine.chip.family]
    best, _, fit, least = brute_force(job, machine, stack, held)
    chosen = choose(job, machine, stack, fixed=held, explain_choice=False)
    assert best == float("inf") and fit == 0 and chosen.best is None
    available = machine.chip.value("usable_hbm_bytes_per_device")
    assert chosen.short_bytes == pytest.approx(least - available, rel=1e-12)
    assert chosen.smallest is not None
    own = estimate(job, chosen.smallest, machine, stack)
    assert chosen.short_bytes == float(plain(own.memory["total"])) - available
    assert chosen.found.not_fitting[0].memory_bytes == pytest.approx(least, rel=1e-9)


def test_what_is_missing_by_hand() -> None:
    """Llama-3.1-8B on four v6e chips: tp 4, everything recomputed.

    State: 8,030,261,248 parameters over 4 devices, but for the 4,096 of the last norm, which each
    holds whole: 2,007,565,312 + 3,072 = 2,007,568,384, at 2 + 4 + 4 + 8 = 18 bytes (bf16 weights,
    fp32 gradients, master and two moments) 36,136,230,912. Stored: the input of 32 layers,
    8,192 tokens × 4,096 / 4 × 2 bytes = 16,777,216 each: 536,870,912. At work on one layer, in
    elements: two norms and the output projection 3 × 8,388,608, q, k and v 8,192 × (8 + 2 + 2) ×
    128 = 12,582,912, attention's output with its row sums 8,192 × 8 × 130 = 8,519,680, up and gate
    8,192 × 2 × 14,336 / 4 = 58,720,256, their product half of that, and the widest's gradient
    58,720,256: 193,069,056, at 2 bytes 386,138,112. Logits 8,192 × 128,256 / 4 = 262,668,288,
    times the bytes that the stack keeps of each. Usable: 31.25 GiB = 33,554,432,000.
    """
    machine = parse_machine("v6e:2x2")
    of = stack_of("paxml", "v6e")
    held = {"tp": 4, "remat": "full", "optimizer_sharding": "none", "microbatch": 1}
    job = job_of("llama-3.1-8b", sequences=4, seq_len=8192)
    chosen = choose(job, machine, "paxml", fixed=held, explain_choice=False)
    moving = 536_870_912 + 386_138_112 + 262_668_288 * of.logit_memory_bytes
    fixed = of.context_bytes + of.workspace_bytes + of.comm_buffer_bytes  # of one group: tp
    needs = 36_136_230_912 + moving * (1 + of.fragmentation) + fixed
    assert (of.working_layers, of.activation_memory_scale, of.bucket_copy_bytes) == (1, 1, 0)
    assert chosen.short_bytes == pytest.approx(needs - 33_554_432_000, rel=1e-9)


def test_no_legal_plan_lacks_nothing_that_could_be_named() -> None:
    # 17 divides neither the heads nor the sequence, and 16 layers make at most 16 stages
    job = job_of("llama-3.2-1b", sequences=1, seq_len=4096)
    chosen = choose(job, parse_machine("h100*17"), "megatron")
    assert chosen.found.considered == 0
    assert chosen.short_bytes is None and chosen.smallest is None
