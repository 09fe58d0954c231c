"""Names of machines, as people write them: all forms, both ways.

``v6e:16x16``, ``v6e:16x16*4``, ``h100:8x64``, ``h100*512``, ``v6e*1024``, and the clouds' own
``v6e-256``, ``v5p-128``, ``tpu7x-128``, ``v5litepod-16``, ``trn2.48xlarge``, ``p5.48xlarge*16``,
``a3-megagpu-8g``, ``ND96isr_H100_v5``. A count may stand first: ``16*p5.48xlarge``.
"""

from __future__ import annotations

import math
import re

from chipshift.errors import InputError, nearest
from chipshift.machines.announced import without_figures
from chipshift.machines.build import domain_chips, domains_machine, gpu_machine, slice_machine
from chipshift.machines.chip import Chip
from chipshift.machines.instances import (
    Instance,
    gpu_instances,
    instance_named,
    instances,
    whole_instances,
)
from chipshift.machines.load import KEYS, chip
from chipshift.machines.machine import Machine
from chipshift.machines.slices import SliceShape, rentable

ALIASES: dict[str, str] = {
    "a100-80gb": "a100", "a100-80g": "a100", "a100-sxm": "a100", "a100-sxm4": "a100",
    "h100-sxm": "h100", "h100-sxm5": "h100", "h100-80gb": "h100",
    "h200-sxm": "h200", "h200-141gb": "h200", "b200-sxm": "b200", "b300-sxm": "b300",
    "gb200-nvl72": "gb200", "gb300-nvl72": "gb300",
    "tpu-v4": "v4", "tpuv4": "v4",
    "tpu-v5e": "v5e", "tpuv5e": "v5e", "v5litepod": "v5e", "v5lite": "v5e",
    "tpu-v5p": "v5p", "tpuv5p": "v5p",
    "tpu-v6e": "v6e", "tpuv6e": "v6e", "trillium": "v6e",
    "tpu7x": "v7x", "tpu-7x": "v7x", "tpu-v7x": "v7x", "tpuv7x": "v7x", "ironwood": "v7x",
    "v7": "v7x", "tpu7": "v7x",
    "tpu-v4-podslice": "v4", "tpu-v5-lite-podslice": "v5e", "tpu-v5p-slice": "v5p",
    "tpu-v6e-slice": "v6e", "nvidia-a100-80gb": "a100", "nvidia-h100-80gb": "h100",
    "nvidia-h100-mega-80gb": "h100", "nvidia-h200-141gb": "h200", "nvidia-b200": "b200",
    "nvidia-gb200": "gb200",
    "trainium": "trn1", "trainium1": "trn1", "trainium2": "trn2", "trainium3": "trn3",
}  # fmt: skip
"""What people call a chip besides its key, in lower case with hyphens."""

FORMS = (
    "CHIP:TOPOLOGY (v6e:16x16, h100:8x64), CHIP*COUNT (h100*512) or a cloud's name (v6e-256, "
    "p5.48xlarge*16)"
)

_MACHINE = re.compile(
    r"((?P<first>\d{1,9})\*)?(?P<head>[a-z0-9.\-]+)(:(?P<topology>[0-9x]+))?(\*(?P<times>\d{1,9}))?"
)
_CLOUD = re.compile(r"(?P<prefix>[a-z0-9\-]+)-(?P<count>\d{1,9})")
_DIMS = re.compile(r"\d{1,7}(x\d{1,7}){0,3}")


def chip_named(text: str) -> Chip:
    """The chip of this name or alias, in any case.

    Raises:
        InputError: with the nearest name that is one.
    """
    key = _chip_key(text)
    if key is None:
        raise InputError(_unknown(text))
    return chip(key)


def parse_machine(text: str) -> Machine:
    """The machine that ``text`` names, in any form and any case.

    Raises:
        InputError: saying what was found, what was expected, and the nearest that can be rented.
    """
    found = _MACHINE.fullmatch(_plain(text).replace("×", "x"))
    if found is None:
        raise InputError(f"machine '{text}' is not of a form that is read: {FORMS}")
    head, topology = found["head"], found["topology"]
    if found["first"] is not None and found["times"] is not None:
        product = int(found["first"]) * int(found["times"])
        whole = head if topology is None else f"{head}:{topology}"
        raise InputError(f"machine '{text}' gives a count twice: write {whole}*{product}")
    times = found["times"] or found["first"]
    count = int(times) if times is not None else None
    if topology is not None:
        return _of_topology(text, chip_named(head), topology, count)
    if _chip_key(head) is not None:
        if count is None:
            raise InputError(f"machine '{text}' has no size: write {_examples(chip_named(head))}")
        return _of_count(text, chip_named(head), count)
    return _of_cloud_name(text, head, 1 if count is None else count)


def has_size(text: str) -> bool:
    """Whether a name says how many chips: all do but a chip's own (``v7x``, ``trillium``)."""
    is_name = re.fullmatch(r"[\w.\-]+", _plain(text)) is not None
    return any(c in text for c in ":*") or (is_name and _chip_key(text) is None)


def chip_of(text: str) -> Chip:
    """The chip of a machine named with or without its size.

    Raises:
        InputError: no machine is so called.
    """
    return parse_machine(text).chip if has_size(text) else chip_named(text)


def readings(machine: Machine) -> str:
    """Chips, devices and the cloud's name: ``64 chips = 128 devices = tpu7x-128 (4x4x4)``."""
    if machine.chip.family == "gpu":
        domain = machine.chips // machine.slices
        written = machine.cloud_name or machine.name
        shape = f"{machine.topology}, " if machine.cloud_name else ""
        last = f"{written} ({shape}{_plural(machine.slices, 'domain')} of {domain})"
    else:
        shape = machine.topology.partition("*")[0]
        units = "slices" if machine.chip.family == "tpu" else "instances"
        if machine.chip.family == "trainium" and shape in ("4x4x4", "64", "144"):
            units = "UltraServers"
        several = f", {machine.slices} {units}" if machine.slices > 1 else ""
        last = f"{machine.cloud_name or machine.name} ({shape}{several})"
    return f"{_plural(machine.chips, 'chip')} = {_plural(machine.devices, 'device')} = {last}"


def _of_topology(text: str, of: Chip, topology: str, slices: int | None) -> Machine:
    if not _DIMS.fullmatch(topology):
        raise InputError(f"machine '{text}': topology '{topology}' is not lengths joined by x")
    dims = tuple(int(length) for length in topology.split("x"))
    if of.family == "gpu":
        return _of_domains(text, of, dims, slices)
    wanted = _without_ones(dims)
    for shape in rentable(of.key):
        if _without_ones(shape.dims) == wanted:
            return slice_machine(of, shape, 1 if slices is None else slices)
    raise InputError(
        f"machine '{text}': no {of.key} slice is {topology}; the nearest that can be rented "
        f"are {_list(_nearest_shapes(of.key, dims))}"
    )


def _of_domains(text: str, of: Chip, dims: tuple[int, ...], slices: int | None) -> Machine:
    if slices is not None or len(dims) > 2:
        raise InputError(
            f"machine '{text}': GPUs are written CHIP:DOMAINxDOMAINS "
            f"({of.key}:{domain_chips(of)}x4) or CHIP*COUNT ({of.key}*{domain_chips(of) * 4})"
        )
    domain, domains = dims if len(dims) == 2 else (dims[0], 1)
    if domain > domain_chips(of) >= domains > 1:
        domain, domains = domains, domain  # 64x8 of eight-GPU nodes can only mean 8x64
    return domains_machine(of, domain, domains)


def _of_count(text: str, of: Chip, count: int) -> Machine:
    if of.family == "gpu":
        return gpu_machine(of.key, count)
    if count < 1:
        raise InputError(f"machine '{text}': a machine has at least 1 chip, found {count}")
    shapes = rentable(of.key)
    for shape in shapes:  # the most nearly cubic comes first among equal sizes
        if shape.chips == count:
            return slice_machine(of, shape)
    biggest = shapes[-1].chips
    # Several slices: the fewest equal ones. TPU slices below half the biggest are not split into,
    # so that a mistyped count is an error rather than hundreds of small slices.
    least = int(of.value("chips_per_host")) if of.family == "trainium" else biggest // 2
    if count > biggest or of.family == "trainium":
        for shape in sorted(shapes, key=lambda shape: (-shape.chips, sum(shape.dims))):
            if count % shape.chips == 0 and shape.chips >= least:
                return slice_machine(of, shape, count // shape.chips)
    raise InputError(
        f"machine '{text}': no {of.key} slice has {count:,} chips; the nearest have "
        f"{_list(_nearest_counts(of.key, count))}"
    )


def _of_instances(text: str, of: Instance, count: int) -> Machine:
    """So many instances; hosts of a slice are taken as one slice of all their chips."""
    family = chip(of.chip).family
    if count < 1:
        raise InputError(f"machine '{text}': a machine has at least 1 chip, found {count}")
    if family == "gpu":
        return gpu_instances(of, count)
    if of.of_slice:
        return _of_count(text, chip(of.chip), of.chips * count)
    return whole_instances(of, count)


def _of_cloud_name(text: str, head: str, slices: int) -> Machine:
    instance = instance_named(head)
    if instance is not None:
        return _of_instances(text, instance, slices)
    for trainium in KEYS:
        if trainium.startswith("trn") and head.startswith(trainium):
            return _of_listed_name(text, chip(trainium), head, slices)
    found = _CLOUD.fullmatch(head)
    key = _chip_key(found["prefix"]) if found else None
    if found is None or key is None:
        raise InputError(f"machine '{text}': {_unknown(_as_written(text, head))}")
    of = chip(key)
    if of.family != "tpu":
        raise InputError(
            f"machine '{text}' is not a cloud's name for {of.name}: write {_examples(of)}"
        )
    written = rentable(of.key)[0].cloud_name.rpartition("-")[0]
    return _of_listed_name(text, of, f"{written}-{int(found['count'])}", slices)


def _of_listed_name(text: str, of: Chip, cloud_name: str, slices: int) -> Machine:
    shapes = rentable(of.key)
    for shape in shapes:
        if shape.cloud_name.lower() == cloud_name:
            return slice_machine(of, shape, slices)
    number = cloud_name.rpartition("-")[2]
    if not number.isdigit():
        names = ", ".join(shape.cloud_name for shape in shapes if shape.cloud_name)
        raise InputError(f"machine '{text}': {of.key} is rented as {names}")
    per_chip = int(of.value("cores_per_chip"))
    unit = "chips" if per_chip == 1 else f"TensorCores, {per_chip} a chip"
    near = sorted(shapes, key=lambda shape: abs(shape.chips * per_chip - int(number)))[:2]
    raise InputError(
        f"machine '{text}': no {of.key} slice is called {cloud_name} (the number counts {unit}); "
        f"the nearest that can be rented are "
        + _list([f"{shape.cloud_name} ({shape.topology})" for shape in near])
    )


def _chip_key(text: str) -> str | None:
    name = _plain(text)
    return name if name in KEYS else ALIASES.get(name)


def _as_written(text: str, head: str) -> str:
    """The part of the user's text that was read as ``head``, in the user's own spelling."""
    at = _plain(text).find(head)
    own = text.strip()
    return own[at : at + len(head)] if len(_plain(text)) == len(own) else head


def _unknown(name: str) -> str:
    plain = _plain(name)
    if sentence := without_figures(plain):
        return sentence
    near = nearest(plain, KEYS) or nearest(plain, (*ALIASES, *instances()))
    for lower, one in instances().items():
        near = near.replace(f"'{lower}'", f"'{one.name}'")
    return f"no chip is called '{name}'{near} (expected one of {', '.join(KEYS)})"


def _plain(text: str) -> str:
    joined = re.sub(r"\s*([:*])\s*", r"\1", text.strip().lower())
    return joined.replace("_", "-").replace(" ", "-")


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    """16x8 is 8x16, and 4x4x1 is 4x4."""
    return tuple(sorted(length for length in dims if length != 1))


def _nearest_shapes(chip_key: str, dims: tuple[int, ...]) -> list[str]:
    """The three slices whose longest, middle and shortest lengths differ by the least factor.

    A single number where slices have more axes is a count of chips: the three nearest in size.
    """
    if len(dims) == 1:
        by_size = sorted(rentable(chip_key), key=lambda shape: abs(shape.chips - dims[0]))
        return [shape.topology for shape in by_size[:3]]
    wanted = _longest_first(dims)

    def factor(shape: SliceShape) -> tuple[float, int]:
        pairs = zip(_longest_first(shape.dims), wanted, strict=True)
        return math.prod(max(a, b) / min(a, b) for a, b in pairs), shape.chips

    return [shape.topology for shape in sorted(rentable(chip_key), key=factor)[:3]]


def _longest_first(dims: tuple[int, ...]) -> list[int]:
    """Four lengths, the missing ones (and a mistyped 0) taken as 1."""
    return sorted((*(max(length, 1) for length in dims), 1, 1, 1), reverse=True)[:4]


def _nearest_counts(chip_key: str, count: int) -> list[str]:
    shapes = rentable(chip_key)
    below = [shape for shape in shapes if shape.chips < count][-1:]
    above = [shape for shape in shapes if shape.chips > count][:1]
    listed = [f"{shape.chips:,} ({shape.topology})" for shape in (*below, *above)]
    biggest = shapes[-1]
    if not above:
        slices = -(-count // biggest.chips)
        listed.append(f"{slices * biggest.chips:,} ({biggest.topology}*{slices})")
    return listed


def _examples(of: Chip) -> str:
    if of.family == "gpu":
        size = domain_chips(of)
        return f"{of.key}*{size * 16} or {of.key}:{size}x16"
    shape = rentable(of.key)[-1]
    return f"{of.key}:{shape.topology}, {of.key}*{shape.chips} or {shape.cloud_name}"


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
