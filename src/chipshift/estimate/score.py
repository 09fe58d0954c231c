"""Time and memory of plans: every part, from numbers alone.

``score`` is the one place where an estimate is put together. ``estimate`` calls it with the floats
of one plan, the planner with arrays of thousands, ``--explain`` with sourced leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chipshift.estimate.collectives import AXES, Traffic, forwards_beside, step_collectives, traffic
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.idle import host_s, other_s
from chipshift.estimate.memory import first_stage_parts, memory_parts, update_bytes
from chipshift.estimate.parts import absent, plus
from chipshift.estimate.passes import Ops, Stage, stage, stage_pass, work
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import balanced, stages_to_fill
from chipshift.estimate.update import optimizer_s
from chipshift.parallel import remat, schedule
from chipshift.worked import plain, rename

Number = Any


@dataclass(frozen=True)
class Score:
    """Parts of ``time_s`` and ``memory_bytes`` (outputs.md), numbers of equal length.

    ``update_memory`` is what stays allocated at the end of the optimizer step,
    ``first_stage_memory`` the parts of memory on the first stage.
    """

    time: dict[str, Number]
    total: dict[str, Number]
    exposed: dict[str, Number]
    recompute: Number
    memory: dict[str, Number]
    update_memory: Number = 0.0
    first_stage_memory: dict[str, Number] = field(default_factory=dict)


def policy_of(s: Setting, choice: Choice) -> remat.Policy:
    """The choice's remat policy as the stack runs it."""
    return policy_named(s, choice.remat)


def policy_named(s: Setting, name: str) -> remat.Policy:
    """A remat policy as the stack runs it."""
    return remat.policy(
        name,
        reruns_output=float(s.stack.reruns_output) > 0,
        reruns_experts=float(s.stack.reruns_experts) > 0,
    )


def ops(s: Setting, c: Columns, choice: Choice, at: Stage) -> Ops:
    """Ops of a microbatch and the optimizer: no order of axes in them."""
    taught = [] if at.teacher is None else at.teacher.counts
    one = stage_pass(s, c, at, policy_of(s, choice))
    return Ops(one, optimizer_s(s, c, choice, at.counts), taught)


def memory(s: Setting, c: Columns, choice: Choice, at: Stage) -> dict[str, Number]:
    """Every part of memory."""
    return memory_parts(s, c, choice, policy_of(s, choice), at)


def score(s: Setting, c: Columns, choice: Choice) -> Score:
    """Every part of ``time_s`` and ``memory_bytes`` for one plan or a table of plans.

    Args:
        s: job, machine and stack.
        c: degrees, batch and links.
        choice: the categorical part that all rows share.
    """
    at = held(s, c, choice)
    found = time_only(s, c, choice, at)
    update = update_bytes(s, c, choice, at)
    first = first_stage_parts(s, c, choice, policy_of(s, choice), at)
    return replace(found, memory=memory(s, c, choice, at), update_memory=update,
                   first_stage_memory=first)  # fmt: skip


def held(s: Setting, c: Columns, choice: Choice) -> Stage:
    """What the stages hold, with the costs of the cut."""
    w = work(s, c.tp, c.cp, c.ep, c.etp, c.microbatch, choice.sequence_parallel, c.ulysses)
    return stage(s, c, choice, w)


def time_only(s: Setting, c: Columns, choice: Choice, at: Stage) -> Score:
    """A score without its memory."""
    return timed(s, c, choice, ops(s, c, choice, at), at.counts, traffic(s, c, choice, at))


def timed(s: Setting, c: Columns, choice: Choice, made: Ops, counts: list[Number],
          moved: Traffic) -> Score:  # fmt: skip
    """A score without its memory, from what the rows compute and what they send.

    The step grows, or stays, with each time in ``moved``, so that the times of the best links of
    any order bound the step of every order from below. What a collective adds is exposed, and the
    exposed part grows with it; ``serial``, a third of it a pass, lengthens the bubble and covers
    at most as much of two gaps of the host (tests/planner hold the bound to random plans).
    """
    one, policy = made.one, policy_of(s, choice)
    total, exposed = step_collectives(s, c, choice, policy, counts, moved, made)
    n = c.accumulation
    beside = plus(forwards_beside(s), 0.0 if s.teacher is None else 1.0)
    serial = rename((exposed["tp"] + exposed["cp"] + exposed["ep"]) / n / plus(3, beside),
                    "exposed_a_pass_s")  # fmt: skip
    on_stage = sum(counts[1:], counts[0])
    fill = c.pp if choice.stage_layers else stages_to_fill(s, c.pp, on_stage)
    bubble = schedule.bubble(
        choice.schedule, fill, c.vpp,
        one.forward_s + (serial if absent(beside) else serial * (1 + beside)),
        one.recompute.total + one.input_grad.total + serial,
        one.weight_grad.total + serial,
    )  # fmt: skip
    bound = one.compute
    time: dict[str, Number] = {
        "matmul": rename(bound.named("microbatch").matmul * n, "matmul_s"),
        "attention": rename(bound.named("microbatch").attention * n, "attention_s"),
        "memory_bound": rename(bound.named("microbatch").memory * n, "memory_bound_s"),
        "bubble": rename(bubble, "bubble_s"),
        "optimizer": made.optimizer,
        "input": np.zeros_like(plain(n)) + 0.0,
    }
    busy = time["matmul"] + time["attention"] + time["memory_bound"] + bubble
    for axis in AXES:
        busy = busy + exposed[axis]
    busy = rename(busy, "busy_s")
    paced = n + (fill - 1) if balanced(s) else n
    time["other"] = other_s(
        s, c, host_s(s, c, choice, policy, one.ops, on_stage, one.more_ops), one.compute_s + serial,
        one.offload, busy, moved.pp_nodes, paced,
    )  # fmt: skip
    return Score(
        time=time,
        total=total,
        exposed=exposed,
        recompute=rename(one.recompute.total * n, "recompute_s"),
        memory={},
    )
