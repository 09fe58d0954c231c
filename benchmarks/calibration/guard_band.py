"""The guard band of nanotron's peak memory, by its rule, and on runs that it has not seen.

usage: guard_band.py

The band is the 84th percentile (one standard deviation to one side) of what the sweep's reserved
memory is above the predicted peak, as a share of what it comes from: activations, logits and
gathered tensors. Each node count, and each model, is left out in turn: the band of the rest decides
which of its plans are called fitting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from chipshift.estimate.estimate import estimate
from chipshift.estimate.stack import stack
from chipshift.machines.names import parse_machine
from chipshift.validate.case import Case
from chipshift.validate.run import carried, predict_plan, read_data
from chipshift.validate.score import nearest_rank

QUANTILE = 0.84
machine = functools.cache(parse_machine)


@dataclass(frozen=True)
class Row:
    """One run: its shortfall over dynamic memory (None where it ran out), and when it fits.

    Attributes:
        room: free bytes on the fullest stage without any band, over its dynamic memory.
    """

    case: Case
    shortfall: float | None
    room: float


def row(case: Case) -> Row:
    """The run without any guard band."""
    found = estimate(case.job, case.plan, machine(case.machine), case.stack_release)
    share = stack(case.stack_release, case.chip).margin_share

    def dynamic(parts: dict[str, float]) -> float:
        return sum(float(parts[name]) for name in ("activations", "logits", "collectives"))

    full = dynamic(found.memory)
    room = (float(found.available) - float(found.memory["total"]) + share * full) / full
    measured = case.measured.memory_bytes
    if measured is None:
        return Row(case, None, room)
    peak = predict_plan(case.job, case.plan, machine(case.machine), case.stack_release).memory_bytes
    return Row(case, (measured - peak) / dynamic(found.first_stage_memory), room)


def band(rows: list[Row]) -> float:
    """The guard band's share by its rule."""
    return nearest_rank([r.shortfall for r in rows if r.shortfall is not None], QUANTILE)


def verdict(rows: list[tuple[Row, float]]) -> str:
    """Balanced accuracy, and the share of the runs called fitting that ran out."""
    ran = [r.room >= share for r, share in rows if not r.case.measured.oom]
    out = [r.room >= share for r, share in rows if r.case.measured.oom]
    right = (sum(ran) / len(ran) + 1 - sum(out) / len(out)) / 2
    wrong = sum(out) / (sum(ran) + sum(out))
    return f"balanced accuracy {right:.1%}, called fitting but ran out {wrong:.1%}"


GROUPS: dict[str, Callable[[Case], object]] = {
    "node count left out": lambda case: case.chips,
    "model left out": lambda case: case.model.partition("x")[0],
}


def main() -> None:
    data = read_data(carried("nanotron_h100_sweep.csv"))
    rows = [row(case) for case in data if isinstance(case, Case)]
    narrow = [r for r in rows if r.case.job.model.d_model < 16384]
    for what, chosen in (("all models", rows), ("without width 16,384", narrow)):
        share = band(chosen)
        print(f"{what}: band {share:.3f}, {verdict([(r, share) for r in chosen])}")
        for name, group in GROUPS.items():
            found = {
                key: band([r for r in chosen if group(r.case) != key])
                for key in {group(r.case) for r in chosen}
            }
            shares = f"{min(found.values()):.3f} to {max(found.values()):.3f}"
            said = verdict([(r, found[group(r.case)]) for r in chosen])
            print(f"  {name}: band {shares}, {said}")


if __name__ == "__main__":
    main()
