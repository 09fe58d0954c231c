"""Axis assignment: the plans that another order of the mesh axes could still improve.

Ops, memory and optimizer do not depend on where the axes sit: a plan in any order takes at least
those parts of its time. After the usual order has been searched, only plans whose bare parts are
below the best time found can still beat it in another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from chipshift.estimate.columns import Choice
from chipshift.estimate.groups import other_orders, placements
from chipshift.estimate.score import Score
from chipshift.estimate.setting import Setting
from chipshift.planner.space import Base


@dataclass
class Candidates:
    """Rows that another order could improve, by categorical choice, with their bare seconds."""

    rows: dict[Choice, list[np.ndarray]] = field(default_factory=dict)
    bare: dict[Choice, list[np.ndarray]] = field(default_factory=dict)

    def offer(self, choice: Choice, rows: np.ndarray, found: Score, fits: np.ndarray, bound: float
              ) -> None:  # fmt: skip
        """Keep rows that fit and whose bare parts are within the bound."""
        parts = ("matmul", "attention", "memory_bound", "optimizer")
        seconds = sum((found.time[p] for p in parts[1:]), found.time[parts[0]])
        keep = np.flatnonzero(fits & (seconds <= bound))
        self.rows.setdefault(choice, []).append(rows[keep])
        self.bare.setdefault(choice, []).append(np.broadcast_to(seconds, fits.shape)[keep])

    def within(self, bound: float) -> dict[Choice, np.ndarray]:
        """Rows still within the final bound, by choice."""
        out: dict[Choice, np.ndarray] = {}
        for choice, parts in self.rows.items():
            rows, bare = np.concatenate(parts), np.concatenate(self.bare[choice])
            if (bare <= bound).any():
                out[choice] = rows[bare <= bound]
        return out


def reordered(s: Setting, base: Base, rows: np.ndarray) -> tuple[Base, np.ndarray]:
    """Rows of their own for every other order that places a row's axes elsewhere.

    Returns:
        A base of the reordered rows alone, and for each the index of the row it came from.
    """
    degrees: list[np.ndarray] = []
    orders: list[tuple[str, ...]] = []
    picked: list[np.ndarray] = []
    tuple_of: list[np.ndarray] = []
    owner = base.tuple_of[rows]
    for at in np.unique(owner).tolist():
        dp, fsdp, cp, tp, ep, pp = base.degrees[at].tolist()
        seen = [placements(s.machine, dp, fsdp, cp, tp, ep, pp)]
        for order in other_orders(s.machine):
            there = placements(s.machine, dp, fsdp, cp, tp, ep, pp, 0, order)
            if there in seen:
                continue
            seen.append(there)
            own = rows[owner == at]
            tuple_of.append(np.full(len(own), len(degrees)))
            picked.append(own)
            degrees.append(base.degrees[at])
            orders.append(order)
    if not degrees:
        return replace(base, tuple_of=base.tuple_of[:0]), rows[:0]
    source = np.concatenate(picked)
    return (
        Base(np.array(degrees), orders, np.concatenate(tuple_of), base.vpp[source],
             base.microbatch[source], base.accumulation[source]),
        source,
    )  # fmt: skip


def joined(first: Base, second: Base) -> Base:
    """Both bases as one; the second's rows follow the first's."""
    return Base(
        np.concatenate([first.degrees, second.degrees]),
        first.orders + second.orders,
        np.concatenate([first.tuple_of, second.tuple_of + len(first.degrees)]),
        np.concatenate([first.vpp, second.vpp]),
        np.concatenate([first.microbatch, second.microbatch]),
        np.concatenate([first.accumulation, second.accumulation]),
    )
