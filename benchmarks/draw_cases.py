"""Cases drawn from the planner's own space: what the estimate has not been made from.

    python benchmarks/draw_cases.py --seed 20261202 --each 2
    python benchmarks/draw_cases.py --seed 7 --ordinary 16

For each job below: plans drawn at random from every plan that the planner would consider without a
pipeline (stack ``jax``, with a rematerialisation policy of the step's), and its first choice. Kept
are those that the step can be cut by and that are estimated between a third of the memory and a
tenth above it. Prints lines for data/compile_cases.toml.

``--ordinary``: plans as one would choose them. Model, slice and batch are drawn too, chips and
kinds of plan in turn; of the cuts of the devices that the planner lists within ``NEAR`` of its best
for the kind, one is drawn, with its fastest plan.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace

from compare_compile import job_of
from verify_compile import parse, request_of

from chipshift.compiled.describe import plan_text
from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.estimate.setting import Setting, setting
from chipshift.jobs.job import Assumed
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.planner.search import search
from chipshift.planner.space import base_rows, choices
from chipshift.worked import plain

JOBS = (  # model, machine, positions, sequences a step
    ("llama-3.1-8b", "v6e:4x8", 8192, 128),
    ("qwen2.5-14b", "v6e:8x8", 4096, 256),
    ("mixtral-8x7b", "v6e:8x16", 4096, 512),
    ("qwen3-30b-a3b", "v5e:8x16", 4096, 256),
    ("deepseek-v2-lite", "v5e:4x8", 4096, 128),
    ("gemma-2-9b", "v5e:8x8", 4096, 128),
    ("mistral-7b-v0.3", "v5p:2x2x2", 8192, 64),
    ("llama-3.3-70b", "v5p:4x4x8", 8192, 256),
    ("qwen3-235b-a22b", "v5p:4x8x8", 4096, 1024),
    ("deepseek-v3", "v7x:4x8x8", 4096, 2048),
    ("glm-4.5-air", "v7x:4x4x4", 4096, 512),
    ("qwen3-14b", "v7x:2x2x2", 8192, 128),
    ("olmoe-1b-7b", "v6e:4x4*2", 4096, 256),
    ("llama-3.1-8b", "v5e:8x8*2", 8192, 256),
    ("moonlight-16b-a3b", "v7x:2x2x4", 4096, 256),
    ("gemma-3-27b", "v6e:8x8", 4096, 256),
)
REMATS = ("full", "full", "none", "save_qkv_proj", "minimal_with_context", "save_out_proj")
LEAST, MOST = 0.35, 1.12
"""Estimated share of the memory between which a plan is kept."""
TRIES = 400
MOST_TP, MOST_ACCUMULATED = 8, 8

MODELS = (
    *("llama-3.1-8b", "llama-3.2-3b", "llama-3.1-70b", "llama-2-13b", "qwen2.5-7b", "qwen2.5-32b"),
    *("qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "mistral-7b-v0.3", "mistral-nemo-12b"),
    *("mistral-small-24b", "gemma-2-9b", "gemma-3-12b", "granite-3.1-8b", "phi-4", "ministral-8b"),
    *("mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "olmoe-1b-7b"),
    *("deepseek-v2-lite", "moonlight-16b-a3b", "deepseek-v2", "glm-4.5-air", "qwen2-57b-a14b"),
)
SLICES = {
    "v6e": ("2x4", "4x4", "4x8", "8x8", "8x16", "4x4*2", "4x8*2"),
    "v5e": ("4x4", "4x8", "8x8", "8x16", "16x16", "8x8*2", "8x16*2"),
    "v5p": ("2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "2x2x2*2", "2x4x4*2"),
    "v7x": ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "2x2x2*2", "2x2x4*2"),
}
KINDS: tuple[tuple[str, ...] | None, ...] = (("fsdp",), ("fsdp", "tp"), ("fsdp", "cp"), None,
    ("fsdp", "ep"), ("dp", "fsdp"))  # fmt: skip
"""Axes that an ordinary plan has, all of them and no other, slices' dp beside; None: any plan."""
NEAR = 1.3
"""Step time of an ordinary plan, at most, over that of the planner's best of its kind."""


def drawn(rng: random.Random, s: Setting) -> Plan:
    """A plan from the planner's space."""
    base = base_rows(s, {"pp": 1})
    row = rng.randrange(len(base))
    dp, fsdp, cp, tp, ep, _ = (int(degree) for degree in base.degrees[base.tuple_of[row]])
    return Plan(
        dp=dp,
        fsdp=fsdp,
        cp=cp,
        tp=tp,
        ep=ep,
        microbatch=float(base.microbatch[row]),
        accumulation=int(base.accumulation[row]),
        remat=rng.choice(REMATS),
        optimizer_sharding=rng.choice(choices(s, {"pp": 1})).optimizer_sharding,
    )


def line_of(model: str, machine: str, seq_len: int, plan: Plan) -> str:
    """A line of the case file."""
    return f"{model} {machine} {seq_len} {plan_text(plan).replace('.0,', ',')}"


def share_of(line: str) -> float:
    """Estimated share of the memory; 0 where the step cannot be cut so."""
    row = parse(line)
    try:
        request_of(row)
    except InputError:
        return 0.0
    plan = Plan(**row["plan"])
    found = estimate(job_of(row, plan), plan, parse_machine(row["machine"]), "jax")
    return float(plain(found.memory["total"])) / float(plain(found.available))


def lines(rng: random.Random, job: tuple[str, str, int, int], each: int) -> list[str]:
    """Drawn cases of a job, and the planner's first choice."""
    model, machine, seq_len, sequences = job
    row = parse(f"{model} {machine} {seq_len} dp={sequences}")
    s = setting(job_of(row, Plan(**row["plan"])), parse_machine(machine), "jax")
    found: list[str] = []
    for _ in range(TRIES):
        plan = drawn(rng, s)
        if len(found) == each:
            break
        if plan.tp > MOST_TP or plan.accumulation > MOST_ACCUMULATED:
            continue
        line = line_of(model, machine, seq_len, plan)
        if LEAST < share_of(line) < MOST:
            found.append(line)
    best = [line_of(model, machine, seq_len, k.plan) for k in search(s, {"pp": 1}).fitting[:1]]
    return found + [line for line in best if share_of(line)]


def ordinary(rng: random.Random, chip: str, axes: tuple[str, ...] | None) -> str:
    """A case on a slice of the chip, "" where no plan of its draw fits that the step can be cut
    by."""
    model, machine = rng.choice(MODELS), f"{chip}:{rng.choice(SLICES[chip])}"
    seq_len, each = rng.choice((4096, 4096, 8192)), rng.choice((1, 2, 4, 8))
    on = parse_machine(machine)
    row = parse(f"{model} {machine} {seq_len} dp={on.devices}")
    sequences = Assumed(each * on.devices, "the draw")
    job = replace(job_of(row, Plan(**row["plan"])), sequences_per_step=sequences)
    fixed: dict[str, str | int | float] = {"pp": 1}
    if axes is not None:
        fixed |= {axis: 1 for axis in ("tp", "cp", "ep") if axis not in axes}
        fixed |= {"optimizer_sharding": "none"}
        fixed |= {} if "dp" in axes else {"dp": on.slices}
    listed = search(setting(job, on, "jax"), fixed).fitting
    cuts: dict[tuple[int, ...], str] = {}
    for one in listed:
        plan = one.plan
        if any(getattr(plan, axis) == 1 for axis in axes or ()) or plan.tp > MOST_TP:
            continue
        if one.step_time_s <= NEAR * listed[0].step_time_s:
            cut = (plan.dp, plan.fsdp, plan.tp, plan.cp, plan.ep)
            cuts.setdefault(cut, line_of(model, machine, seq_len, plan))
    lines = [line for line in cuts.values() if share_of(line)]
    return rng.choice(lines) if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="plans drawn for each job")
    parser.add_argument("--ordinary", type=int, default=0, help="cases of ordinary plans")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    found = 0
    while found < chosen.ordinary:
        kind = KINDS[(found + found // len(SLICES)) % len(KINDS)]
        line = ordinary(rng, tuple(SLICES)[found % len(SLICES)], kind)
        if line:
            found += 1
            print(line, flush=True)
    if chosen.ordinary:
        return 0
    for job in JOBS:
        for line in dict.fromkeys(lines(rng, job, chosen.each)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
