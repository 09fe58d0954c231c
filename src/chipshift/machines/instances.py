"""Instances as the clouds call them: ``p5.48xlarge``, ``a3-megagpu-8g``, ``ND96isr_H100_v5``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from chipshift.machines.build import domains_machine, gpu_machine, slice_machine
from chipshift.machines.load import KEYS, chip, chip_file
from chipshift.machines.machine import Machine
from chipshift.machines.slices import rentable

DATA = Path(__file__).parent / "instances.toml"

PREFIXES = ("standard-", "ml.")
"""What Azure and SageMaker write before the same names."""


@dataclass(frozen=True)
class Instance:
    """What a cloud rents under a name.

    Attributes:
        name: as the cloud writes it.
        chip: key of the chips in it.
        chips: how many.
        scale_out_bytes_per_s: one-way network rate of a chip; None for the chip's own figure.
        tray: part of a rack-wide domain (NVL72), which several of them fill.
        of_slice: a host of a slice (``ct6e-standard-4t``): so many together are one slice.
        source: of the figures.
    """

    name: str
    chip: str
    chips: int
    scale_out_bytes_per_s: float | None
    tray: bool
    of_slice: bool
    source: str


def instance_named(text: str) -> Instance | None:
    """The instance of this name, in any case, ``_`` and ``-`` alike; None where there is none."""
    name = text.strip().lower().replace("_", "-")
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return instances().get(name)


@cache
def instances() -> Mapping[str, Instance]:
    """Every instance, by its name in lower case with hyphens."""
    found = [
        Instance(name, row["chip"], row["chips"], row.get("scale_out_bytes_per_s"),
                 row.get("tray", False), False, f"{row['source']}, {row['date']}")
        for name, row in tomllib.loads(DATA.read_text("utf8")).items()
    ]  # fmt: skip
    for key in KEYS:
        sold = {shape.cloud_name for shape in rentable(key)}
        found += [
            Instance(
                name, key, int(row["chips"]), None, False, True, f"{row['source']}, {row['date']}"
            )
            for name, row in chip_file(key).vms.items()
            if name not in sold and " " not in name
        ]
    return {one.name.lower().replace("_", "-"): one for one in found}


def instances_of(chip_key: str) -> tuple[Instance, ...]:
    """Instances of a chip that are no hosts of its slices."""
    return tuple(one for one in instances().values() if one.chip == chip_key and not one.of_slice)


def gpu_instances(of: Instance, count: int) -> Machine:
    """``count`` instances of GPUs over the instance's own network: a domain each, or trays of one.

    Raises InputError when the count is below 1.
    """
    if of.tray:
        return _networked(gpu_machine(of.chip, of.chips * count), of, count)
    return _networked(domains_machine(chip(of.chip), of.chips, count), of, count)


def whole_instances(of: Instance, count: int) -> Machine:
    """``count`` instances that are each a slice of a Trainium, over the instance's own network."""
    shape = next(shape for shape in rentable(of.chip) if shape.chips == of.chips)
    return _networked(slice_machine(chip(of.chip), shape, count), of, count)


def _networked(machine: Machine, of: Instance, count: int) -> Machine:
    name = f"{of.name}*{count}" if count > 1 else of.name
    outer = machine.fabric[-1]
    if of.scale_out_bytes_per_s is None or outer.kind != "scale_out":
        return replace(machine, cloud_name=name)
    own = replace(
        outer, link_bytes_per_s=of.scale_out_bytes_per_s, source=f"{of.source}, {of.name}"
    )
    return replace(machine, cloud_name=name, fabric=(*machine.fabric[:-1], own))
