"""Times of collectives of a whole table of plans, worked out once for each distinct key.

A collective's time goes by the links of its group and by its bytes, which few columns decide. Each
kind has a table: a row for each distinct links, a column for each distinct amount. Below the rows
of single links stand rows of sets of links, each holding the least time of its members: with the
set of all links that a group has in any order of the mesh axes, a row of the plan table is bounded
from below for every order at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.collectives import Traffic, pipeline_s
from chipshift.estimate.columns import GROUPS, Columns
from chipshift.estimate.context import Context, context_s
from chipshift.estimate.cuts import weight_cuts
from chipshift.estimate.parts import absent
from chipshift.estimate.sent_whole import scatters_one_sequence_whole
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, stage_layers, stage_params
from chipshift.estimate.traffic import (
    expert_exchange_s,
    feed_forward_pair_s,
    gradient_part_s,
    layer_collectives,
    tensor_pair_s,
    weight_parts_s,
)
from chipshift.fabric import Links, stack
from chipshift.fabric import take as take_links
from chipshift.models.model import Layer, MoeMlp
from chipshift.planner.sites import Ints, Sites

Floats = np.ndarray
SEQUENCE_PARALLEL = True


@dataclass(frozen=True)
class Table:
    """Seconds of one kind of collective: ``flat[row · width + column]``."""

    flat: Floats
    width: int

    def at(self, row: Ints, column: Ints | int = 0) -> Floats:
        """Times of these rows and columns."""
        return np.asarray(self.flat[row * self.width + column])


@dataclass(frozen=True)
class Rows:
    """What the tables have for rows: of each group the links of every site and of every set.

    Attributes:
        links: of each group, columns of shape (links, 1).
        members, starts: of each group, the rows of each set one after the other, where each begins.
        of: of each group, the row of each site, and then of the set of each tuple.
    """

    links: dict[str, Links]
    members: dict[str, Ints]
    starts: dict[str, Ints]
    of: dict[str, Ints]

    def table(self, group: str, times: Any, width: int) -> Table:
        """A table from the times on each of a group's links ((links, width), or to be so)."""
        n = len(self.links[group].size)
        whole = np.broadcast_to(np.asarray(times, dtype=float), (n, width))
        members = self.members[group]
        if len(members):
            least = np.minimum.reduceat(whole[members], self.starts[group], axis=0)
            whole = np.concatenate([whole, least])
        return Table(np.ascontiguousarray(whole).reshape(-1), width)


def rows_of(sites: Sites, bounds: bool) -> Rows:
    """The rows of every group's tables; ``bounds`` adds each tuple's set of links of any order."""
    links, members, starts, of = {}, {}, {}, {}
    for group in GROUPS:
        used, own = np.unique(sites.of[group], return_inverse=True)
        own = own.reshape(-1)
        links[group] = take_links(stack([sites.links[i] for i in used.tolist()]),
                                  np.arange(len(used))[:, None])  # fmt: skip
        members[group], starts[group] = np.empty(0, np.int64), np.empty(0, np.int64)
        if bounds and len(own):
            found, members[group], starts[group] = _sets(own, len(used), sites.first)
            own = np.concatenate([own, len(used) + found])
        of[group] = own
    return Rows(links, members, starts, of)


def _sets(rows: Ints, n: int, first: Ints) -> tuple[Ints, Ints, Ints]:
    """Each tuple's set of rows: its number, and the members of every set with their starts."""
    words = []
    for low in range(0, n, 63):
        bit = np.where((rows >= low) & (rows < low + 63), 1 << np.clip(rows - low, 0, 62), 0)
        words.append(np.bitwise_or.reduceat(bit, first[:-1]))
    code, below = np.zeros(len(first) - 1, np.int64), 1
    for word in words:
        values, index = np.unique(word, return_inverse=True)
        found, code = np.unique(code * len(values) + index.reshape(-1), return_inverse=True)
        code, below = code.reshape(-1), len(found)
    example = np.empty(below, np.int64)
    example[code] = np.arange(len(code))
    masks = np.stack([word[example] for word in words], axis=1)
    bits = (masks[:, :, None] >> np.arange(63)) & 1
    which, member = np.nonzero(bits.reshape(below, -1))
    return code, member, np.searchsorted(which, np.arange(below))


@dataclass(frozen=True)
class Collectives:
    """All tables of one setting and one table of plans; ``traffic`` gathers from them."""

    rows: Rows
    layers: list[Layer]
    lane_of_cut: Ints
    tensor: Table
    context: list[tuple[Table | None, ...]]
    experts: list[Table]
    expert_pairs: list[Table | None]
    gather: list[Floats]
    reduce: list[Floats]
    sums: Table
    expert_sums: Table | None
    sum_of: Ints
    expert_sum_of: Ints
    transfer: Table
    pp_nodes: Table
    teacher: Collectives | None = None

    def traffic(self, sites: Ints, cut: Ints, sums: Ints) -> Traffic:
        """Times of the collectives of plans.

        Args:
            sites: of each plan, or the number of sites + its tuple for the bound of any order.
            cut: the distinct cut of each plan.
            sums: for each plan its tuple · widths + place of vpp, into ``sum_of``.
        """
        of, lane = self.rows.of, self.lane_of_cut[cut]
        pair = self.tensor.at(of["tp"][sites], lane)
        cp, ep = of["cp"][sites], of["ep"][sites]
        seen: dict[int, Any] = {}

        def once(table: Table, row: Ints) -> Floats:
            if id(table) not in seen:
                seen[id(table)] = table.at(row, lane)
            return seen[id(table)]  # type: ignore[no-any-return]

        comm = [
            layer_collectives(
                layer, pair, Context(*(0.0 if t is None else once(t, cp) for t in context)),
                once(experts, ep), gather[sites], reduce[sites],
                None if beside is None else once(beside, of["tp"][sites]),
            )
            for layer, context, experts, beside, gather, reduce in zip(
                self.layers, self.context, self.experts, self.expert_pairs, self.gather,
                self.reduce, strict=True
            )
        ]  # fmt: skip
        summed = self.sums.at(of["dp"][sites], self.sum_of[sums])
        if self.expert_sums is not None:
            summed = summed + self.expert_sums.at(of["expert_dp"][sites], self.expert_sum_of[sums])
        pp = of["pp"][sites]
        taught = None if self.teacher is None else self.teacher.traffic(sites, cut, sums)
        return Traffic(comm, summed, self.transfer.at(pp, lane), self.pp_nodes.at(pp), taught)


def collectives(s: Setting, sites: Sites, degrees: dict[str, Floats], tokens: Floats,
                tp: Floats, sequences: Floats, vpp_values: Floats, cp_kind: str, bounds: bool
                ) -> Collectives:  # fmt: skip
    """Every table that a search gathers from.

    Args:
        degrees: each axis's degree of every tuple.
        tokens, tp, sequences: of each distinct cut; sequences are those of a microbatch.
        vpp_values: distinct numbers of virtual stages.
        bounds: also the rows that bound every order of a tuple.
    """
    rows = rows_of(sites, bounds)
    # a device's activations are scattered otherwise only where it has a single sequence
    several = np.minimum(sequences, 2) if scatters_one_sequence_whole(s) else np.ones_like(tp)
    lanes, lane_of_cut = _distinct(tokens, tp, several)
    lane_tokens, lane_tp, lane_sequences = lanes
    width = len(lane_tokens)
    links = rows.links

    def by_lane(group: str, times: Any) -> Table:
        return rows.table(group, times, width)

    pair = tensor_pair_s(s, lane_tokens, links["tp"], SEQUENCE_PARALLEL, lane_sequences)
    tensor = by_lane("tp", pair)
    expert_pairs: dict[object, Table | None] = {}
    context: dict[object, tuple[Table | None, ...]] = {}
    experts: dict[object, Table] = {}
    kinds = [layer for layer, _ in s.model.layers]
    for layer in kinds:
        if layer.attention not in context:
            found = context_s(
                s, layer, lane_tokens, lane_tp, links["cp"].size, links["cp"], cp_kind
            )
            parts = (found.forward, found.backward, found.heads_in, found.heads_out)
            context[layer.attention] = tuple(
                None if absent(part) else by_lane("cp", part) for part in parts
            )
        if layer.mlp not in experts:
            experts[layer.mlp] = by_lane("ep", expert_exchange_s(
                s, layer, lane_tokens, links["ep"].size, lane_tp, links["ep"]
            ))  # fmt: skip
            beside = feed_forward_pair_s(
                s, layer, lane_tokens, links["tp"].size, links["tp"], SEQUENCE_PARALLEL, pair
            )
            expert_pairs[layer.mlp] = None if beside is None else by_lane("tp", beside)
    tuple_of = np.concatenate([
        np.repeat(np.arange(len(sites.counts)), sites.counts),
        np.arange(len(sites.counts)) if bounds else np.empty(0, np.int64),
    ])  # fmt: skip
    weights = [_weight_tables(s, rows, degrees, kind, tuple_of) for kind in range(len(kinds))]
    sums, expert_sums, sum_of, expert_sum_of = _sum_tables(s, rows, degrees, vpp_values)
    return Collectives(
        rows, kinds, lane_of_cut, tensor,
        [context[layer.attention] for layer in kinds], [experts[layer.mlp] for layer in kinds],
        [expert_pairs[layer.mlp] for layer in kinds],
        [gather for gather, _ in weights], [reduce for _, reduce in weights],
        sums, expert_sums, sum_of, expert_sum_of,
        by_lane("pp", pipeline_s(s, lane_tokens, lane_tp, links["pp"])),
        rows.table("pp", links["pp"].n_out, 1),
        None if s.teacher is None
        else collectives(
            s.teacher, sites, degrees, tokens, tp, sequences, vpp_values, cp_kind, bounds
        ),
    )  # fmt: skip


def _distinct(*columns: Floats) -> tuple[list[Floats], Ints]:
    """Distinct rows of some columns of one length, column by column, and for each row its place."""
    rows = np.stack(np.broadcast_arrays(*columns), axis=1)
    found, of = np.unique(rows, axis=0, return_inverse=True)
    return [found[:, i] for i in range(len(columns))], of.reshape(-1)


def _columns(degrees: dict[str, Floats]) -> Columns:
    return Columns(**degrees, etp=degrees["tp"], vpp=1.0, microbatch=1.0, accumulation=1.0,
                   links={})  # fmt: skip


def _weight_tables(s: Setting, rows: Rows, degrees: dict[str, Floats], kind: int, tuple_of: Ints
                   ) -> tuple[Floats, Floats]:  # fmt: skip
    """One gather of a layer's weights and one scatter of its gradients, for each site and set."""
    dense, experts = device_params(s, _columns(degrees), kind)
    parts = [("weights", dense), ("expert_weights", experts)]
    out: list[Floats] = [np.zeros(len(tuple_of)), np.zeros(len(tuple_of))]
    layer = s.model.layers[kind][0]
    for group, params in parts[: 2 if isinstance(layer.mlp, MoeMlp) else 1]:
        amounts, of = np.unique(np.broadcast_to(params, degrees["tp"].shape), return_inverse=True)
        column = of.reshape(-1)[tuple_of]
        for i, times in enumerate(weight_parts_s(s, amounts, rows.links[group])):
            table = rows.table(group, times, len(amounts))
            out[i] = out[i] + table.at(rows.of[group], column)
    return out[0], out[1]


def _sum_tables(s: Setting, rows: Rows, degrees: dict[str, Floats], vpp_values: Floats
                ) -> tuple[Table, Table | None, Ints, Ints]:  # fmt: skip
    """The gradient sum of each (tuple, virtual stages), by links: all but experts, and experts."""
    whole = {axis: degree[:, None] for axis, degree in degrees.items()}
    c = _columns(whole)
    _, counts = stage_layers(s, c.pp, vpp_values[None, :])
    dense, experts = stage_params(s, c, counts)
    w, we = weight_cuts(c)
    shape = (len(degrees["tp"]), len(vpp_values))

    def table(group: str, params: Any) -> tuple[Table, Ints]:
        amounts, of = np.unique(np.broadcast_to(params, shape), return_inverse=True)
        times = gradient_part_s(s, amounts, rows.links[group])
        return rows.table(group, times, len(amounts)), of.reshape(-1)

    sums, sum_of = table("dp", dense / w)
    if not s.model.routed:
        return sums, None, sum_of, sum_of
    expert_sums, expert_sum_of = table("expert_dp", experts / we)
    return sums, expert_sums, sum_of, expert_sum_of
