"""What no plan can stay below: bounds that leave terms out and never add any.

Time: a step takes at least its ops, every microbatch of the slowest stage, recomputation included;
and with each collective at the least time of any order of the mesh axes (planner/collectives.py)
it takes no longer than in any order. Memory: the first stage holds at least the state and the
stored activations of its layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from chipshift.estimate.activations import stored_bytes
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.cuts import held_cuts, one_copy
from chipshift.estimate.score import policy_of
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import layers_params, stage_layers
from chipshift.parallel.memory import optimizer_bytes_per_param, state_bytes
from chipshift.parallel.schedule import in_flight
from chipshift.planner.sites import Ints
from chipshift.planner.table import Prepared, degrees_of
from chipshift.worked import plain

Floats = np.ndarray
PART = 2**16
"""Rows bounded at a time."""


@dataclass(frozen=True)
class Layouts:
    """Every (stages, virtual stages) of a table: layers of the fullest stage.

    Attributes:
        of: each row's layout.
        pp, vpp, counts: of each layout, ``counts`` by kind of layer.
        kept: share of those layers that the last stage has at least.
    """

    of: Ints
    pp: Floats
    vpp: Floats
    counts: list[Floats]
    kept: Floats


def layouts(s: Setting, p: Prepared) -> Layouts:
    """The layouts of a table of plans."""
    base = p.base
    pp, pp_of = np.unique(degrees_of(base)["pp"], return_inverse=True)
    vpp = p.vpp_values
    vpp_of = p.sum_of - base.tuple_of * len(vpp)
    each_pp, each_vpp = np.repeat(pp, len(vpp)), np.tile(vpp, len(pp))
    on_stage, counts = stage_layers(s, each_pp, each_vpp)
    # the last stage may hold up to one layer less than the fullest
    kept = np.where(each_pp > 1, 1 - 1 / np.maximum(on_stage, 1), 1.0)
    of = pp_of.reshape(-1)[base.tuple_of] * len(vpp) + vpp_of
    return Layouts(of, each_pp, each_vpp, counts, kept)


@dataclass(frozen=True)
class Floors:
    """Bounds of one choice for every row of a table.

    Attributes:
        seconds, stored: of each kind of layer, for each distinct cut: ops of one microbatch, the
            recomputed among them, and bytes that they leave stored.
        state: bytes of the state of a stage's layers, for each place of ``Prepared.sum_of``.
    """

    p: Prepared
    at: Layouts
    choice: Choice
    seconds: list[Floats]
    stored: list[Floats]
    state: Floats

    def time(self, rows: Ints) -> Floats:
        """Seconds of the layers' ops, every microbatch: no step is shorter."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), PART):
            some = rows[start : start + PART]
            layout = self.at.of[some]
            times = self._layers(self.seconds, some, layout) * self.at.kept[layout]
            out[start : start + PART] = times * self.p.base.accumulation[some]
        return out

    def memory(self, rows: Ints) -> Floats:
        """Bytes of the layers of the first stage, state and stored activations: none holds less."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), PART):
            some = rows[start : start + PART]
            layout = self.at.of[some]
            accumulation = self.p.base.accumulation[some]
            pp, vpp = self.at.pp[layout], self.at.vpp[layout]
            stored = self._layers(self.stored, some, layout)
            flying = in_flight(self.choice.schedule, pp, vpp, accumulation)
            out[start : start + PART] = self.state[self.p.sum_of[some]] + stored * flying
        return out

    def _layers(self, each: list[Floats], rows: Ints, layout: Ints) -> Floats:
        total = np.zeros(len(rows))
        cut = self.p.cut_of[rows]
        for one, count in zip(each, self.at.counts, strict=True):
            total += one[cut] * count[layout]
        return total


def floors(s: Setting, p: Prepared, at: Layouts, choice: Choice) -> Floors:
    """Bounds of a choice."""
    policy = policy_of(s, choice)
    cuts = len(p.cuts.tokens)
    seconds, stored = [], []
    for one in p.cuts.layers:
        cost = one.input_grad + one.weight_grad
        for tensor, times in one.forward.items():
            again = policy.every if policy.recomputes_tensor(tensor) else 0.0
            cost = cost + times.times(1.0 + again)
        seconds.append(np.broadcast_to(cost.total, (cuts,)))
        stored.append(np.broadcast_to(stored_bytes(s, policy, [1.0], [one], 1.0), (cuts,)))
    return Floors(p, at, choice, seconds, stored, state_floor(s, p, choice))


def state_floor(s: Setting, p: Prepared, choice: Choice) -> Floats:
    """Bytes of the layers' weights, gradients and moments: no device holds less."""
    whole = {axis: degree[:, None] for axis, degree in degrees_of(p.base).items()}
    vpp = p.vpp_values[None, :]
    c = Columns(**whole, etp=whole["tp"], vpp=vpp, microbatch=1.0, accumulation=1.0, links={})
    _, counts = stage_layers(s, c.pp, c.vpp)
    dense, experts = layers_params(s, c, counts)
    b = s.bytes
    kept = optimizer_bytes_per_param(b.master, b.moments, b.moments_per_param) * s.trainable
    total = np.zeros((len(p.base.degrees), vpp.size))
    cuts = held_cuts(s, c, choice)
    # of a step that keeps one copy of the weights, gradients depend on what is accumulated; those
    # made late take the room of the activations that are counted beside
    late = one_copy(s, choice) or float(plain(s.stack.gradients_at_peak)) < 1
    summed = 0.0 if late else b.gradients * s.trainable
    kinds = ((b.weights, cuts.weights), (summed, cuts.gradients), (kept, cuts.optimizer))
    for size, (cut, expert_cut) in kinds:
        total = total + state_bytes(dense, size, cut) + state_bytes(experts, size, expert_cut)
    return total.reshape(-1)


def without_memory_limit(s: Setting) -> Setting:
    """The same setting on devices of unlimited memory: what memory costs."""
    return replace(s, usable_bytes=float("inf"))
