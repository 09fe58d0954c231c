"""The physical axes that a machine's fabric offers to a mesh."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.fabric.torus import AXES
from chipshift.machines.machine import Domain

OUTER = ("scale_out", "dcn")
OUTER_NAMES = {"scale_out": "net", "dcn": "slice"}


@dataclass(frozen=True)
class Axis:
    """One physical axis.

    Attributes:
        name: ``x y z`` of a torus, ``core`` between a chip's own devices, ``nvlink`` in a switched
            or meshed domain, ``net`` or ``slice`` between domains.
        level: index into ``Machine.fabric`` (0 for ``core``).
        size: chips along it (devices for ``core``, domains for the outer ones).
        wraps: whether it closes into a ring.
    """

    name: str
    level: int
    size: int
    wraps: bool


def inner_axes(fabric: tuple[Domain, ...], devices_per_chip: int) -> tuple[Axis, ...]:
    """Axes inside a domain or slice: torus axes in order, or ``nvlink``; ``core`` last."""
    axes: list[Axis] = []
    torus_names = iter(AXES)
    for level, domain in enumerate(fabric):
        if domain.kind in OUTER:
            continue
        for size, wraps in zip(domain.dims, domain.wraps, strict=True):
            name = next(torus_names) if domain.kind == "torus" else "nvlink"
            axes.append(Axis(name, level, size, wraps))
    if devices_per_chip > 1:
        axes.append(Axis("core", 0, devices_per_chip, False))
    return tuple(axes)


def outer_axes(fabric: tuple[Domain, ...]) -> tuple[Axis, ...]:
    """Axes between domains or slices; none in a machine that is a single one."""
    return tuple(
        Axis(OUTER_NAMES[domain.kind], level, size, False)
        for level, domain in enumerate(fabric)
        if domain.kind in OUTER
        for size in domain.dims
    )
