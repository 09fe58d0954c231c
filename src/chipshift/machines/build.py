"""Machines put together: chips, the levels of their fabric, and the name to write for them."""

from __future__ import annotations

from functools import cache

from chipshift.errors import InputError
from chipshift.machines.chip import Chip
from chipshift.machines.load import chip as chip_of
from chipshift.machines.machine import Domain, Machine
from chipshift.machines.slices import SliceShape, rentable

MOST_CHIPS = 1_000_000
"""No machine larger than this is read: nobody has one, and a typing mistake can."""


def slice_machine(chip: Chip, shape: SliceShape, slices: int = 1) -> Machine:
    """``slices`` slices of one shape; more than one are joined by the data-centre network.

    Raises InputError when ``slices`` is below 1 or the machine above ``MOST_CHIPS``.
    """
    _check_count(f"{chip.key}:{shape.topology}*{slices}", slices, shape.chips * slices)
    levels = list(_inside_slice(chip, shape))
    if slices > 1:
        # Trainium's instances meet over EFA, which its file gives as scale-out.
        kind, latency = (
            ("dcn", "dcn_hop_latency_s")
            if chip.family == "tpu"
            else ("scale_out", "scale_out_hop_latency_s")
        )
        rate = chip.figures["dcn_bytes_per_s" if kind == "dcn" else "scale_out_bytes_per_s"]
        levels.append(
            Domain(
                kind,
                (slices,),
                (False,),
                shape.vm.dcn_bytes_per_s,
                chip.value(latency),
                f"{rate.source}, {shape.vm.name}",
            )
        )
    several = f"*{slices}" if slices > 1 else ""
    return Machine(
        chip=chip,
        topology=shape.topology + several,
        chips=shape.chips * slices,
        slices=slices,
        cloud_name=shape.cloud_name + several if shape.cloud_name else "",
        fabric=tuple(levels),
    )


def domains_machine(chip: Chip, domain: int, domains: int) -> Machine:
    """``domains`` GPU domains of ``domain`` chips each over the scale-out network.

    Raises InputError when a domain is larger than the chip's own, or a count below 1.
    """
    written = f"{chip.key}:{domain}x{domains}"
    _check_count(written, min(domain, domains), domain * domains)
    most = domain_chips(chip)
    if domain > most:
        raise InputError(
            f"'{written}': a domain of {domain} chips, but {chip.name} has at most {most} in one; "
            f"write {chip.key}*{domain * domains} for the largest domains that divide the count"
        )
    kind, latency = ("mesh" if chip.vendor == "amd" else "switched"), "scale_up_hop_latency_s"
    link = chip.figures["scale_up_link_bytes_per_s"]
    rate = link.value if kind == "mesh" else link.value * chip.value("scale_up_links")
    levels = [Domain(kind, (domain,), (False,), rate, chip.value(latency), link.source)]
    if domains > 1:
        out = chip.figures["scale_out_bytes_per_s"]
        latency_s = chip.value("scale_out_hop_latency_s")
        levels.append(Domain("scale_out", (domains,), (False,), out.value, latency_s, out.source))
    return Machine(
        chip=chip,
        topology=f"{domain}x{domains}",
        chips=domain * domains,
        slices=domains,
        cloud_name="",
        fabric=tuple(levels),
    )


def gpu_machine(chip_key: str, chips: int) -> Machine:
    """So many GPUs, in the largest domains that divide the count and that the chip has.

    ``h100, 512`` is 64 domains of 8; ``gb200, 256`` 4 of 64; ``h100, 12`` 2 of 6.
    Raises InputError for a chip that is no GPU or a count below 1.
    """
    chip = chip_of(chip_key)
    if chip.family != "gpu":
        raise InputError(f"{chip_key} is rented in slices, not in domains of GPUs")
    _check_count(f"{chip_key}*{chips}", chips, chips)
    domain = next(size for size in range(domain_chips(chip), 0, -1) if chips % size == 0)
    return domains_machine(chip, domain, chips // domain)


def domain_chips(chip: Chip) -> int:
    """Chips in the largest scale-up domain of a GPU."""
    return int(chip.value("scale_up_domain_chips"))


@cache
def all_slices(chip_key: str) -> tuple[Machine, ...]:
    """Every single slice of a TPU or Trainium that can be rented, smallest to largest."""
    return tuple(slice_machine(chip_of(chip_key), shape) for shape in rentable(chip_key))


def _inside_slice(chip: Chip, shape: SliceShape) -> tuple[Domain, ...]:
    link = chip.figures["scale_up_link_bytes_per_s"]
    hop_s = chip.value("scale_up_hop_latency_s")
    if len(shape.dims) == 1:
        rate = link.value * chip.value("scale_up_links")
        return (Domain("switched", shape.dims, shape.wraps, rate, hop_s, link.source),)
    if chip.has("scale_up_z_link_bytes_per_s") and len(shape.dims) == 3:
        # The third axis of Trainium2 runs between instances, on slower links: a level of its own.
        z_link = chip.figures["scale_up_z_link_bytes_per_s"]
        return (
            Domain("torus", shape.dims[:2], shape.wraps[:2], link.value, hop_s, link.source),
            Domain("torus", shape.dims[2:], shape.wraps[2:], z_link.value, hop_s, z_link.source),
        )
    return (Domain("torus", shape.dims, shape.wraps, link.value, hop_s, link.source),)


def _check_count(written: str, count: int, chips: int) -> None:
    if count < 1:
        raise InputError(f"'{written}': a machine has at least 1 chip, found {count}")
    if chips > MOST_CHIPS:
        raise InputError(f"'{written}': {chips:,} chips is above the {MOST_CHIPS:,} that are read")
