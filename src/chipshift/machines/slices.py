"""The slice shapes that can be rented, from the tables in the chips' data files; their wraps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from chipshift.errors import InputError
from chipshift.machines.load import chip_file

WRAP_RULES: dict[str, Callable[[tuple[int, ...]], tuple[bool, ...]]] = {
    # v5e, v6e: an axis closes into a ring only where it spans the pod.
    "axes of 16": lambda dims: tuple(length == 16 for length in dims),
    # v4, v5p, v7x: the optical switches close the rings of slices made of whole 4x4x4 cubes.
    "cubes of 4": lambda dims: (all(length % 4 == 0 for length in dims),) * len(dims),
    # Trainium: every axis of more than two chips is wired as a ring.
    "every axis": lambda dims: tuple(length > 2 for length in dims),
    # Trainium3: a switch, no ring to close.
    "switched": lambda dims: (False,) * len(dims),
}
"""Which axes of a slice wrap, by the rule its data file names. Sources: How to Scale Your Model,
'How to Think About TPUs'; Google Cloud's TPU pages; MaxText's accelerator_to_spec_map.py, 2026."""


@dataclass(frozen=True)
class Vm:
    """A machine type that a slice is made of.

    Attributes:
        name: the cloud's machine type.
        chips: chips in one.
        dcn_bytes_per_s: one-way data-centre network rate, per chip.
    """

    name: str
    chips: int
    dcn_bytes_per_s: float


@dataclass(frozen=True)
class SliceShape:
    """A slice that can be rented.

    Attributes:
        dims: chips along each axis, as the cloud writes them.
        cloud_name: the cloud's accelerator type.
        vms: machine types it can be made of, the usual one first.
        wraps: for each axis, whether it closes into a ring.
    """

    dims: tuple[int, ...]
    cloud_name: str
    vms: tuple[Vm, ...]
    wraps: tuple[bool, ...]

    @property
    def topology(self) -> str:
        return "x".join(map(str, self.dims))

    @property
    def chips(self) -> int:
        return math.prod(self.dims)

    @property
    def vm(self) -> Vm:
        return self.vms[0]

    @property
    def hosts(self) -> int:
        return self.chips // self.vm.chips


@cache
def rentable(chip_key: str) -> tuple[SliceShape, ...]:
    """Slice shapes of a TPU or Trainium, smallest first, near-cubic first among equal sizes.

    Empty for GPUs, whose domains combine freely (``build.gpu_machine``).
    Raises InputError for an unknown chip.
    """
    table = chip_file(chip_key)
    if not table.slices:
        return ()
    where = f"{chip_key}.toml: slices"
    rule = WRAP_RULES.get(table.slices.get("wraps", ""))
    if rule is None:
        raise InputError(
            f"{where}: 'wraps' must be one of {', '.join(map(repr, WRAP_RULES))}, "
            f"found {table.slices.get('wraps')!r}"
        )
    vms = {
        name: Vm(name, int(row["chips"]), float(row["dcn_bytes_per_s"]))
        for name, row in table.vms.items()
    }
    shapes = []
    for row in table.slices["shapes"]:
        dims = tuple(int(length) for length in row["topology"].split("x"))
        unknown = [name for name in row["vms"] if name not in vms]
        if unknown or not row["vms"]:
            raise InputError(
                f"{where}: {row['topology']} names no machine type of [vms]: {unknown}"
            )
        kinds = tuple(vms[name] for name in row["vms"])
        shapes.append(SliceShape(dims, row["cloud_name"], kinds, rule(dims)))
    return tuple(sorted(shapes, key=lambda shape: (shape.chips, sum(shape.dims))))


def wraps(chip_key: str, dims: tuple[int, ...]) -> tuple[bool, ...]:
    """Which axes of a slice of this chip close into rings, by the documented rule.

    Raises InputError where the chip has no slices.
    """
    rule = WRAP_RULES.get(chip_file(chip_key).slices.get("wraps", ""))
    if rule is None:
        raise InputError(f"{chip_key} is not rented in slices: it has no torus")
    return rule(dims)
