"""The user's own measurement: our error on their run, and targets anchored to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chipshift.estimate import Estimate
from chipshift.flows.options import Measured
from chipshift.worked import formula, plain

Number = Any


@dataclass(frozen=True)
class AnchoredTarget:
    """A target's step time as predicted, and as the predicted ratio times the measured one."""

    machine: str
    raw_step_time_s: float
    anchored_step_time_s: float


@dataclass(frozen=True)
class Anchored:
    """The measurement beside the estimate of the same run; raw and anchored never mixed."""

    measured: Measured
    error_step_time: float | None
    error_memory: float | None
    targets: list[AnchoredTarget]


@formula(unit="1", source="(predicted − measured) / measured")
def relative_error(predicted: Number, measured: Number) -> Number:
    """Signed relative error of a prediction."""
    return (predicted - measured) / measured


@formula(unit="s", source="predicted ratio × measured present")
def anchored_time(target_s: Number, present_s: Number, measured_s: Number) -> Number:
    """A target's step time if our error is the same on both machines."""
    return target_s / present_s * measured_s


def anchor(now: Estimate, targets: Sequence[Estimate], measured: Measured) -> Anchored | None:
    """Compare with the user's figures; None when they gave none."""
    if measured.step_time_s is None and measured.memory_bytes is None:
        return None
    present = float(plain(now.step_time_s))
    step, memory = measured.step_time_s, measured.memory_bytes
    rows = [] if step is None else [
        AnchoredTarget(
            e.machine.name,
            float(plain(e.step_time_s)),
            anchored_time(float(plain(e.step_time_s)), present, step),
        )
        for e in targets
    ]  # fmt: skip
    return Anchored(
        measured,
        None if step is None else relative_error(present, step),
        None if memory is None else relative_error(float(plain(now.memory["total"])), memory),
        rows,
    )
