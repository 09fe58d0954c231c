"""The same-units table: which figures stand in it and how each is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chipshift.units import duration, gib, significant

Estimate = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        path: dotted path of the figure in an estimate's JSON.
        show: the figure as text; it is never handed None.
        unit: of what ``show`` prints, for the label.
        better: -1 when less is better, 1 when more is, 0 when neither.
    """

    label: str
    path: str
    show: Callable[[Any], str]
    better: int = 0


def percent(value: float) -> str:
    return f"{value:.1%}"


def usd(value: float) -> str:
    """Dollars and cents, with four digits where they are fractions of a dollar."""
    return f"${value:,.2f}" if value >= 1 else f"${significant(value, 4)}"


def dollars(value: float) -> str:
    """A large sum in whole dollars."""
    return f"${value:,.0f}"


TOKENS = Row("Tokens a step", "job.tokens_per_step", lambda v: f"{v:,.0f}")
"""Stands in the table where the machines' steps differ in tokens."""

ROWS = (
    Row("Step time", "step_time_s", duration, -1),
    Row("Tokens/s a chip", "tokens_per_s_per_chip", lambda v: f"{v:,.0f}", 1),
    Row("Model TFLOP/s a chip", "tflops_per_chip", lambda v: significant(v, 3), 1),
    Row("MFU", "mfu", percent, 1),
    Row("HFU", "hfu", percent),
    Row("Memory a device", "memory_bytes.total", gib, -1),
    Row("available", "memory_bytes.available", gib, 1),
    Row("Price of a chip-hour", "cost.usd_per_chip_hour", usd, -1),
    Row("Cost of a step", "cost.usd_per_step", usd, -1),
    Row("Cost of 1e12 tokens", "cost.usd_per_1e12_tokens", dollars, -1),
)


def rows_for(columns: Sequence[Estimate]) -> tuple[Row, ...]:
    """The rows of a table with these columns: tokens and HFU where they say something."""
    differ = len({value_at(e, TOKENS.path) for e in columns}) > 1
    recomputes = any(value_at(e, "mfu") != value_at(e, "hfu") for e in columns)
    rows = tuple(row for row in ROWS if recomputes or row.path != "hfu")
    return (TOKENS, *rows) if differ else rows


def value_at(tree: Any, path: str) -> Any:
    """The value at a dotted path, None where a step of it is absent."""
    for step in path.split("."):
        if isinstance(tree, Mapping) and step in tree:
            tree = tree[step]
        elif isinstance(tree, (list, tuple)) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree


def cell(estimate: Estimate | None, row: Row) -> str:
    """The figure as text; a dash where it is unknown."""
    value = None if estimate is None else value_at(estimate, row.path)
    return "–" if value is None else row.show(value)


DEGREES = ("dp", "fsdp", "tp", "cp", "ep", "pp", "vpp")


def plan_text(plan: Mapping[str, Any] | None) -> str:
    """The degrees above 1, the batch and the remat policy in one line."""
    if plan is None:
        return "none fits"
    parts = [f"{axis} {plan[axis]}" for axis in DEGREES if plan.get(axis, 1) > 1]
    dealt = plan.get("ulysses_degree", 1)
    if dealt > 1:
        parts.append(f"heads dealt over {dealt} of cp" if dealt < plan["cp"] else "heads dealt")
    batch = f"microbatch {plan['microbatch']:g}"
    if plan["accumulation"] > 1:
        batch += f" × {plan['accumulation']}"
    parts.append(batch)
    parts.append(f"remat {plan['remat']}")
    if plan.get("optimizer_sharding", "none") != "none":
        parts.append(plan["optimizer_sharding"])
    if plan.get("pp", 1) > 1:
        parts.append(plan.get("schedule", "1f1b"))
    if plan.get("reordered"):
        longer = [axis for axis in plan["order"] if plan.get(axis, 1) > 1]
        parts.append(f"axes in the order {' '.join(longer)}")
    return ", ".join(parts)


def machine_text(machine: Mapping[str, Any]) -> str:
    """``64 chips = 128 devices = tpu7x-128 (4x4x4)``."""
    chips, devices = machine["chips"], machine["devices"]
    parts = [f"{chips:,} chip" + ("s" if chips != 1 else "")]
    if devices != chips:
        parts.append(f"{devices:,} devices")
    cloud = machine.get("cloud_name")
    parts.append(f"{cloud} ({machine['topology']})" if cloud else machine["topology"])
    return " = ".join(parts)
