"""The planner finds what brute force finds, and its rows are estimates."""

from __future__ import annotations

import itertools
import random

import pytest

from chipshift.estimate import estimate
from chipshift.estimate.memory import PARTS
from chipshift.estimate.setting import setting
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.machines.machine import Machine
from chipshift.planner.search import search
from chipshift.planner.space import EVEN_STAGES, base_rows, choices, divisors
from chipshift.planner.table import Row
from chipshift.worked import plain
from tests.estimate.conftest import job_of

STACKS = {"gpu": "megatron", "tpu": "maxtext"}


def brute_force(job: TrainJob, machine: Machine, stack: str) -> tuple[float, int]:
    """Least step time over every legal plan that fits, by plain loops and ``estimate``."""
    s = setting(job, machine, stack)
    heads, width = job.model.layers[0][0].attention.heads, job.model.layers[0][0].mlp.width  # type: ignore[union-attr]
    n, batch, seq = machine.devices, job.sequences_per_step.value, job.seq_len.value
    best, seen = float("inf"), 0
    for dp, fsdp, cp, tp, pp in itertools.product(divisors(n), repeat=5):
        if dp * fsdp * cp * tp * pp != n or heads % tp or width % tp:
            continue
        if batch % (dp * fsdp) or (cp > 1 and seq % (2 * cp)) or pp > job.model.n_layers:
            continue
        share = batch // (dp * fsdp)
        for micro in divisors(share):
            for choice in choices(s, {}):
                for vpp in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16):
                    a = share // micro
                    if stack in EVEN_STAGES and job.model.n_layers % (pp * vpp):
                        continue
                    if not _legal(choice, vpp, dp, fsdp, cp, pp, a, job.model.n_layers):
                        continue
                    plan = Plan(
                        dp, fsdp, tp, cp, 1, 0, pp, vpp, float(micro), a, choice.remat,
                        choice.optimizer_sharding, choice.schedule, choice.cp_kind,
                    )  # fmt: skip
                    e = estimate(job, plan, machine, stack)
                    seen += 1
                    if e.fits:
                        best = min(best, float(plain(e.step_time_s)))
    return best, seen


def _legal(choice, vpp, dp, fsdp, cp, pp, accumulation, layers) -> bool:  # type: ignore[no-untyped-def]
    if (choice.schedule == "interleaved") != (vpp > 1) or (vpp > 1 and pp == 1):
        return False
    if vpp > 1 and (vpp > layers // pp or accumulation % pp):
        return False
    if choice.schedule == "zero_bubble" and pp == 1:
        return False
    replicas = dp if fsdp > 1 else dp * cp
    if choice.optimizer_sharding != "none" and replicas == 1:
        return False
    return not (choice.optimizer_sharding == "zero2" and pp > 1)


@pytest.mark.parametrize("name", ["h100*4", "v6e:2x2"])
def test_the_search_finds_what_brute_force_finds(name: str) -> None:
    job = job_of("llama-3.2-1b", sequences=8, seq_len=4096)
    machine = parse_machine(name)
    stack = STACKS[machine.chip.family]
    best, seen = brute_force(job, machine, stack)
    s = setting(job, machine, stack)
    whole, pruned = search(s, prune=False), search(s)
    assert whole.considered == whole.scored >= seen  # other orders of the axes are counted too
    assert pruned.considered >= seen
    usual = [min(r.step_time_s for r in f.fitting if not f.plan(r).order) for f in (whole, pruned)]
    assert usual == pytest.approx([best, best], rel=1e-12)
    # the best plans are tried in other orders too: the winner is never slower
    assert pruned.fitting[0].step_time_s == whole.fitting[0].step_time_s <= best


@pytest.mark.parametrize(
    ("model", "name", "sequences", "seq_len"),
    [("llama-3.1-405b", "v7x:8x8x8", 512, 8192), ("deepseek-v3", "h100*1024", 1024, 4096)],
)
def test_a_thousand_random_plans_equal_their_estimate(
    model: str, name: str, sequences: int, seq_len: int
) -> None:
    """Every part of time and memory of a scored row is the estimate's, to 1e-9."""
    job = job_of(model, sequences=sequences, seq_len=seq_len)
    machine = parse_machine(name)
    stack = STACKS[machine.chip.family]
    s = setting(job, machine, stack)
    rows = sample_rows(s, 500)
    for found, plan, parts in rows:
        e = estimate(job, plan, machine, stack)
        assert float(plain(e.step_time_s)) == pytest.approx(found.step_time_s, rel=1e-9), plan
        for key, value in parts.items():
            group, part = key.split(".")
            own = {"time": e.time, "exposed": e.collectives_exposed, "memory": e.memory}[group]
            assert float(plain(own[part])) == pytest.approx(value, rel=1e-9, abs=1e-15), (plan, key)


def sample_rows(s, count):  # type: ignore[no-untyped-def]
    """Random scored rows with their parts."""
    import numpy as np

    from chipshift.estimate.score import AXES, score, shared
    from chipshift.planner.search import Found, step_times
    from chipshift.planner.space import applies
    from chipshift.planner.table import columns, prepare

    base = base_rows(s, {})
    prepared = prepare(s, base)
    degrees = base.degrees[base.tuple_of]
    rng = np.random.default_rng(7)
    picks = random.Random(7)
    found = Found(s, base, [], [], 0, 0, 0, 0, 0.0)
    out = []
    options = choices(s, {})
    while len(out) < count:
        choice = picks.choice(options)
        rows = np.flatnonzero(applies(choice, base, degrees))
        if not len(rows):
            continue
        some = rng.choice(rows, min(50, len(rows)), replace=False)
        c, w = columns(prepared, some)
        result = score(s, c, choice, shared(s, c, w, choice))
        seconds = step_times(result)
        for i, index in enumerate(some.tolist()):
            row = Row(index, choice, float(seconds[i]), float(result.memory["total"][i]))
            parts = {f"time.{k}": _at(v, i) for k, v in result.time.items()}
            parts |= {f"exposed.{k}": _at(result.exposed[k], i) for k in AXES}
            parts |= {f"memory.{k}": _at(result.memory[k], i) for k in (*PARTS, "total")}
            out.append((row, found.plan(row), parts))
    return out[:count]


def _at(value, i):  # type: ignore[no-untyped-def]
    import numpy as np

    return float(np.broadcast_to(value, (i + 1,))[i] if np.ndim(value) == 0 else value[i])


def test_what_the_user_holds_is_held() -> None:
    job = job_of("llama-3.1-8b")
    s = setting(job, parse_machine("v6e:8x16"), "maxtext")
    found = search(s, {"tp": 4, "remat": "full"})
    for row in found.fitting[:20]:
        plan = found.plan(row)
        assert (plan.tp, plan.remat) == (4, "full")


def test_stages_are_even_where_the_stack_needs_it() -> None:
    job = job_of("llama-3.1-405b", sequences=512)  # 126 layers
    s = setting(job, parse_machine("v7x:8x8x8"), "maxtext")
    found = search(s, keep=64)
    for row in found.fitting:
        plan = found.plan(row)
        assert 126 % (plan.pp * plan.vpp) == 0
        assert plan.schedule == ("gpipe" if plan.pp > 1 else "1f1b")


def test_a_job_that_fits_nowhere_says_how_much_is_missing() -> None:
    job = job_of("llama-3.1-405b", sequences=4, seq_len=8192)
    s = setting(job, parse_machine("v6e:2x2"), "maxtext")
    found = search(s)
    assert not found.fitting
    assert found.not_fitting[0].memory_bytes > s.usable_bytes
    assert found.pruned + found.scored == found.considered
