"""Memory of a device against what it has available."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from chipshift.report.charts.bars import Bar, Part, stacked
from chipshift.report.charts.svg import both, picture
from chipshift.units import GIB

PARTS = (
    ("weights", "weights"),
    ("gradients", "gradients"),
    ("optimizer", "optimizer"),
    ("activations", "activations"),
    ("logits", "logits"),
    ("collectives", "gathered weights and buffers"),
    ("overhead", "runtime and fragmentation"),
)


def gib(gibibytes: float) -> str:
    """A figure that is already in GiB."""
    return f"{gibibytes:.0f} GiB" if gibibytes >= 9.95 else f"{gibibytes:.1f} GiB"


def memory(rows: list[tuple[str, str, Mapping[str, Any]]]) -> Markup:
    """One bar a row: label, note, estimate; the outline is what a program can allocate."""
    bars = [
        Bar(
            label, note,
            tuple(Part(f"m-{k}", words, e["memory_bytes"][k] / GIB) for k, words in PARTS),
            limit=e["memory_bytes"]["available"] / GIB,
        )
        for label, note, e in rows
    ]  # fmt: skip
    said = "; ".join(f"{b.label} {gib(b.total)} of {gib(b.limit or 0)}" for b in bars)

    def draw(width: float) -> Markup:
        body, height = stacked(bars, width, gib, "GiB a device; outline: available")
        return picture(width, height, "Memory a device", said, body)

    return both(draw)
