"""Step time side by side: what each machine spends it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from chipshift.report.charts.bars import Bar, Part, stacked
from chipshift.report.charts.svg import both, picture
from chipshift.units import duration

PARTS = (
    ("matmul", "matmuls"),
    ("attention", "attention"),
    ("memory_bound", "memory-bound ops"),
    ("tp", "tensor collectives"),
    ("cp", "context collectives"),
    ("ep", "expert collectives"),
    ("fsdp", "weight gathers, gradient scatters"),
    ("dp", "gradient sums"),
    ("pp", "pipeline transfers"),
    ("bubble", "pipeline bubble"),
    ("optimizer", "optimizer"),
    ("other", "other"),
)
"""Parts of a step in the order they are stacked; collectives are the exposed seconds."""


def step_parts(estimate: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of one estimate's step; they add up to ``step_time_s``."""
    times = estimate["time_s"]
    exposed = times["collectives_exposed"]
    seconds = {key: exposed[key] if key in exposed else times.get(key, 0.0) for key, _ in PARTS}
    seconds["other"] += times.get("input", 0.0)
    return tuple(Part(key, label, seconds[key]) for key, label in PARTS)


def breakdown(rows: Sequence[tuple[str, str, Mapping[str, Any], tuple[float, float] | None]]
              ) -> Markup:  # fmt: skip
    """One bar a row: label, note, estimate, and the interval of its step time."""
    bars = [Bar(label, note, step_parts(e), interval) for label, note, e, interval in rows]
    said = "; ".join(f"{bar.label} {duration(bar.total)}" for bar in bars)

    def draw(width: float) -> Markup:
        body, height = stacked(bars, width, duration, "seconds a step")
        return picture(width, height, "Step time by part", said, body)

    return both(draw)
