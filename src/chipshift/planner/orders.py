"""Axis assignment: the best plans with their mesh axes in other orders.

The usual order is JAX's: the axis that communicates most takes whole physical axes first. Whether
another order is better depends on how two axes share the links, which no bound worth its cost
settles beforehand; so every plan is scored in the usual order, and the most promising in all
of them.
"""

from __future__ import annotations

import numpy as np

from chipshift.estimate.groups import other_orders, placements
from chipshift.estimate.setting import Setting
from chipshift.planner.space import Base


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
        return base, rows[:0]
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
