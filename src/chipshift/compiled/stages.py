"""Collectives over devices of several slices, which go in stages: inside a slice, between slices.

A slice's devices talk over the chips' own links, slices over the data-center network (DCN). A sum
over both is scattered inside each slice, its parts are summed between slices, and the sums gathered
inside; of what is gathered, the other slices' parts come first. The stages' bytes add up to those
of one collective over all devices. Between slices a device's bytes are those that it hands over.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from chipshift.compiled.step.config import Config
from chipshift.fabric.lowering import Laid, Slice

Sums = dict[tuple[str, str], float]

AXES = ("dp", "fsdp", "ep", "cp", "tp")


@dataclass(frozen=True)
class Over:
    """Devices of a collective.

    Attributes:
        axis: mesh axes that have several of them, joined by ``+``; devices: all of them.
        inside: those inside a slice, ``dp/part`` where a part of an axis is; "" where there are
            none. slices: how many the rest goes over, 1 where none; across: their axis.
    """

    axis: str
    devices: int
    inside: str
    slices: int = 1
    across: str = ""

    @property
    def devices_inside(self) -> int:
        return self.devices // self.slices

    @property
    def in_stages(self) -> bool:
        """Whether several devices of each of several slices take part."""
        return self.slices > 1 and self.devices_inside > 1


def over(cfg: Config, names: tuple[str, ...]) -> Over:
    """The devices along ``names``, slices told apart where one axis crosses them (of two that do,
    the stages are not known)."""
    sizes = dict(zip(AXES, cfg.mesh, strict=True))
    held = [axis for axis in AXES if axis in names and sizes[axis] > 1]
    axis, devices = "+".join(held), prod(sizes[name] for name in held)
    across = "dp" if sizes["dp"] % cfg.slices == 0 else "fsdp"
    if cfg.slices == 1 or across not in held or sizes[across] % cfg.slices:
        return Over(axis, devices, axis)
    parts = sizes[across] > cfg.slices
    inside = "+".join(name for name in held if parts or name != across)
    return Over(axis, devices, inside + ("/part" if parts else ""), cfg.slices, across)


def summed(
    where: Over,
    held: float,
    on: Slice | None = None,
    laid: Laid | None = None,
    cut: bool = False,
) -> Sums:
    """An all-reduce of ``held`` bytes; ``cut``: each device keeps its part of an optimizer, by
    which the stage inside a slice goes."""
    n = where.devices_inside
    if where.slices == 1:
        return {("all_reduce", where.axis): 2 * held * (n - 1) / n} if n > 1 else {}
    sums: Sums = {("all_reduce", where.across): held / n}
    if n > 1:
        by_sum = on is not None and (
            on.scatters_stage_by_sum(n) or (laid is not None and by_layout(on, n, laid, cut))
        )
        kind, times = ("all_reduce", 2) if by_sum else ("reduce_scatter", 1)
        sums[kind, where.inside] = times * held * (n - 1) / n
        by_sum = on is not None and on.gathers_by_sum(n, held)
        kind, times = ("all_reduce", 2) if by_sum else ("all_gather", 1)
        key = (kind, where.inside)
        sums[key] = sums.get(key, 0.0) + times * held * (n - 1) / n
    return sums


def by_layout(on: Slice, n: int, laid: Laid, cut: bool) -> bool:
    """Whether an array's layout makes the stage inside a slice an all-reduce."""
    return on.scatters_layout_by_sum(n, laid) if cut else on.scatters_part_by_sum(n, laid)


def vector_summed(where: Over, held: float) -> Sums:
    """An all-reduce of a vector, which goes whole inside and between slices."""
    n = where.devices_inside
    sums = {("all_reduce", where.inside): 2 * held * (n - 1) / n} if n > 1 else {}
    return sums | ({("all_reduce", where.across): held} if where.slices > 1 else {})


def gathered(where: Over, held: float, on: Slice | None, padded: float = 1.0) -> Sums:
    """An all-gather to arrays of ``held`` bytes, which take ``padded`` times as many in memory."""
    n = where.devices_inside
    sums: Sums = {}
    if n > 1:
        by_sum = on is not None and on.gathers_by_sum(n, held * padded)
        kind, times = ("all_reduce", 2) if by_sum else ("all_gather", 1)
        sums[kind, where.inside] = times * held * (n - 1) / n
    if where.slices > 1:
        sums["all_gather", where.across] = held / where.devices
    return sums


def scattered(where: Over, held: float, by_sum: bool) -> Sums:
    """A reduce-scatter of ``held`` bytes; ``by_sum``: by an all-reduce of all of it. What libtpu
    sends in stages is ``summed``: gathered whole before each device cuts its part out."""
    n, s = where.devices_inside, where.slices
    sums: Sums = {}
    if n > 1:
        kind, times = ("all_reduce", 2) if by_sum else ("reduce_scatter", 1)
        sums[kind, where.inside] = times * held * (n - 1) / n
    if s > 1:
        sums["reduce_scatter", where.across] = held / n * (s - 1) / s
    return sums


def in_turn(done: Sums, wanted: Sums, cfg: Config) -> Sums:
    """``done`` with each scatter or gather over dp and other axes at once, which nothing in
    ``wanted`` is, counted as what it does the work of: one over the others, and one of its parts
    over dp. The bytes are the same."""
    sizes = dict(zip(AXES, cfg.mesh, strict=True))
    sums: Sums = {}
    for (kind, axis), sent in done.items():
        first, _, others = axis.partition("+")
        stages = [(kind, others), (kind, first)]
        both = kind in ("reduce_scatter", "all_gather") and first == "dp" and "/" not in axis
        if not both or (kind, axis) in wanted or any(stage not in wanted for stage in stages):
            sums[kind, axis] = sums.get((kind, axis), 0.0) + sent
            continue
        d, n = sizes["dp"], prod(sizes[name] for name in others.split("+"))
        held = sent * d * n / (d * n - 1)
        for stage, part in zip(stages, ((n - 1) / n, (d - 1) / (d * n)), strict=True):
            sums[stage] = sums.get(stage, 0.0) + held * part
    return sums
