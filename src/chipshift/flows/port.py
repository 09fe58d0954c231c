"""What the costs of a port are worked from: the target's estimate, and the same with a change.

Every cost is a difference of two such estimates, or of two of their parts, so that it is in the
seconds of the answer itself. With ``Worked`` estimates the costs carry their derivation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.collectives import AXES
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.estimate import choice_of, columns_of, step_time
from chipshift.estimate.passes import device_tokens
from chipshift.estimate.said import explained
from chipshift.estimate.score import Score, policy_of, score
from chipshift.estimate.setting import Bytes, Setting, setting
from chipshift.estimate.stack import Stack
from chipshift.estimate.stage import held_layers
from chipshift.jobs.job import TrainJob
from chipshift.models.model import Layer
from chipshift.models.ops import Cut
from chipshift.parallel import remat
from chipshift.worked import Worked, formula, leaf, rename

Number = Any


@dataclass(frozen=True)
class Cost:
    """What one thing costs, in the target's own estimate.

    Attributes:
        seconds: a step; None where a job file cannot tell, with the reason in ``evidence``.
        moved: bytes through HBM a step on a device, where that is what costs.
        each_s, each: seconds of one occurrence that no step count spreads, and of what.
        evidence: what is compared with what, and what is assumed.
    """

    seconds: Number | None
    evidence: str
    moved: Number | None = None
    each_s: Number | None = None
    each: str = ""


@dataclass(frozen=True)
class Port:
    """A job, its present run, and the best plan on a target with the numbers behind it.

    Attributes:
        unchanged: the present plan carried over, None where the degrees do not divide.
        goodput: share of the time that makes progress, a stated assumption.
    """

    job: TrainJob
    present: Estimate
    target: Estimate
    unchanged: Estimate | None
    goodput: float
    s: Setting
    c: Columns
    choice: Choice

    @property
    def worked(self) -> bool:
        """Whether numbers carry their derivation."""
        return isinstance(self.target.step_time_s, Worked)

    @property
    def policy(self) -> remat.Policy:
        """What the target's plan runs again."""
        return policy_of(self.s, self.choice)

    @property
    def counts(self) -> list[Number]:
        """Layers of the heaviest stage by kind."""
        return held_layers(self.s, self.c, self.choice).counts

    def given(self, value: float, unit: str, name: str, source: str) -> Number:
        """A figure of the cost itself: a leaf with its source where numbers are worked."""
        return leaf(value, unit, name, source) if self.worked else value

    def cut(self) -> Cut:
        """How the plan cuts one forward pass of one microbatch."""
        c = self.c
        sp = c.tp if self.choice.sequence_parallel else 1.0
        busiest = self.s.stack.moe_imbalance if float(c.ep) > 1 else 1.0
        tokens = device_tokens(c.microbatch, self.s.seq_len, c.cp)
        return Cut(tokens, self.s.document_len, c.tp, c.ep, sp, busiest, c.etp, c.ulysses)

    def of_kind(self, kind: int, of_layer: Number, name: str) -> Number:
        """A step's worth of what one layer of a kind takes a microbatch, on the fullest stage."""
        count = self.counts[kind]
        prefix = self.s.model.kind_prefixes[kind]
        return rename(of_layer, f"{prefix}layer_{name}") * count * self.c.accumulation

    def of_layers(self, of_layer: Callable[[Layer], Number], name: str) -> Number:
        """The same summed over the kinds of layers."""
        total: Number = 0.0
        for kind, (layer, _) in enumerate(self.s.model.layers):
            one = self.of_kind(kind, of_layer(layer), name)
            total = total + rename(one, f"{self.s.model.kind_prefixes[kind]}layers_{name}")
        return total


def port(job: TrainJob, present: Estimate, target: Estimate, unchanged: Estimate | None,
         goodput: float) -> Port:  # fmt: skip
    """The port to a target; its costs carry their derivation where the estimates do."""
    s = setting(job, target.machine, target.stack)
    worked = isinstance(target.step_time_s, Worked)
    c = columns_of(job, target.plan, target.machine, explain=worked,
                   plan_source=target.plan_source)  # fmt: skip
    return Port(job, present, target, unchanged, goodput, explained(s) if worked else s, c,
                choice_of(target.plan))  # fmt: skip


@formula(unit="s", source="the target's estimate without it, less the estimate with it")
def difference(without_s: Number, with_s: Number) -> Number:
    """Seconds a step that something is worth."""
    return without_s - with_s


@formula(unit="1", source="the cost over the target's step time")
def share_of_step(cost_s: Number, step_time_s: Number) -> Number:
    """A cost as a share of the step."""
    return cost_s / step_time_s


def with_stack(p: Port, **constants: Number) -> Score:
    """The target's plan scored with other constants of its stack."""
    stack: Stack = replace(p.s.stack, **constants)
    return score(replace(p.s, stack=stack), p.c, p.choice)


def with_bytes(p: Port, **sizes: Number) -> Score:
    """The target's plan scored with other bytes of an element, by role."""
    changed: Bytes = replace(p.s.bytes, **sizes)
    return score(replace(p.s, bytes=changed), p.c, p.choice)


def step_of(found: Score) -> Number:
    """A score's step time."""
    return step_time(*found.time.values(), *(found.exposed[axis] for axis in AXES))


def unaffected(p: Port, why: str) -> Cost:
    """The cost of what the target's estimate does not depend on: the same step with and without."""
    step = p.target.step_time_s
    seconds = difference(rename(step, "step_without_s"), rename(step, "step_with_s"))
    return Cost(seconds, why)
