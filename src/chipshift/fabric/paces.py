"""Ideal pace and latency of every kind of collective on a placed group, level by level.

Every count and rate goes through ``lift``: it hands numbers on as they are, or wraps them as
``Worked`` leaves with their source, so that the columns and their explanation are one computation.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chipshift.fabric import dcn, mesh, scale_out, switched, torus
from chipshift.fabric.placement import Segment
from chipshift.machines.machine import Domain
from chipshift.worked import rename

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")

Lift = Callable[[float, str, str, str], Any]
"""(value, unit, name, source) -> the value, or a Worked leaf of it."""

_HERE = "placement of the mesh axis"
_RATE_NAMES = {
    "switched": "egress_rate", "mesh": "link_rate", "torus": "link_rate",
    "scale_out": "nic_rate", "dcn": "dcn_rate",
}  # fmt: skip


@dataclass(frozen=True)
class ChipLinks:
    """What a chip brings to every group.

    Attributes:
        key: of the chip, for its measured curves.
        devices: of one chip; they share its links.
        die_rate: one-way B/s between them.
        hop_source: where the hop latency is from.
    """

    key: str
    devices: int
    die_rate: float
    die_source: str
    hop_source: str


@dataclass(frozen=True)
class Inside:
    """The part of a group that lies in one domain or slice.

    Attributes:
        n: devices of it.
        bandwidth: B/s one-way a device: an all-gather takes (n-1)/n · V/B.
        hops: links on the longest path; 1 on a switch.
        ports: links of a device that the group uses.
        pace: ideal seconds a byte of the part's array, per kind.
        hop_s: torus latency, per kind; zeros on a switch, whose curves hold it.
        reference: one-way rate of a torus link, for the abscissa of its curve; 0 on a switch.
        level: whose curves apply.
    """

    n: int
    bandwidth: Any
    hops: int
    ports: float
    pace: Mapping[str, Any]
    hop_s: Mapping[str, Any]
    reference: float
    level: str


def level_rate(level: Domain, lift: Lift) -> Any:
    """One-way rate of a level's link, named for its kind."""
    return lift(level.link_bytes_per_s, "B/s", _RATE_NAMES[level.kind], level.source)


def inside(
    chip: ChipLinks,
    fabric: tuple[Domain, ...],
    pieces: list[Segment],
    lift: Lift,
) -> Inside:
    """What ``pieces`` (axes inside one domain or slice) have for links."""
    on_switch = fabric[0].kind in ("switched", "mesh")
    return (_on_switch if on_switch else _on_torus)(chip, fabric, pieces, lift)


def _on_switch(
    chip: ChipLinks,
    fabric: tuple[Domain, ...],
    pieces: list[Segment],
    lift: Lift,
) -> Inside:
    """NVLink, NeuronSwitch or Infinity Fabric: the group's size alone decides."""
    size = math.prod(piece.size for piece in pieces)
    on_chip = math.prod(piece.size for piece in pieces if piece.axis == "core")
    meshed = fabric[0].kind == "mesh"
    n = lift(size, "", "devices", _HERE)
    w = _shared(level_rate(fabric[0], lift), on_chip, chip.devices)
    b = mesh.bandwidth(n, w) if meshed else w
    if size == on_chip > 1:
        b = lift(chip.die_rate, "B/s", "die_to_die_rate", chip.die_source)
    pace = {
        "all_gather": switched.all_gather_s(1.0, n, b),
        "all_reduce": switched.all_reduce_s(1.0, n, b),
        "all_to_all": switched.all_to_all_s(1.0, n, b),
        "permute": switched.permute_s(1.0, size, b if size == on_chip else w),
    }
    pace["reduce_scatter"] = pace["all_gather"]
    ports = size - 1 if meshed else min(size - 1, 1)
    return Inside(size, b, min(size - 1, 1), ports, pace, dict.fromkeys(KINDS, 0.0), 0.0, "domain")


def _on_torus(
    chip: ChipLinks,
    fabric: tuple[Domain, ...],
    pieces: list[Segment],
    lift: Lift,
) -> Inside:
    """Pieces of torus axes; links are shared with the chip's devices that the group leaves out."""
    on_chip = math.prod(piece.size for piece in pieces if piece.axis == "core")
    along = [piece for piece in pieces if piece.axis != "core"]
    size = math.prod(piece.size for piece in pieces)
    n = lift(size, "", "devices", _HERE)
    if along:
        hops = sum(torus.hops(piece.size, piece.stride, piece.wraps) for piece in along)
        hop = lift(fabric[0].hop_latency_s, "s", "hop_latency", chip.hop_source)
        named = [
            rename(_path_s(hop, piece), f"{_label(piece, along)}_latency_s") for piece in along
        ]
        hop_s = functools.reduce(operator.add, named)
        shift_s = max((_shift_s(hop, piece) for piece in along), key=float)
        b = _shared(_corner_bandwidth(fabric, along, lift), on_chip, chip.devices)
        to_all = _all_to_all(fabric, along, size // on_chip, on_chip / chip.devices, lift)
        shift = _permute(fabric, along, on_chip, chip.devices, lift)
    else:
        hops = min(size - 1, 1)
        hop_s = shift_s = lift(hops * fabric[0].hop_latency_s, "s", "hop", chip.hop_source)
        b = lift(chip.die_rate, "B/s", "die_to_die_rate", chip.die_source)
        to_all, shift = switched.all_to_all_s(1.0, n, b), switched.permute_s(1.0, size, b)
    gather = torus.all_gather_s(1.0, n, b)
    pace = {
        "all_gather": gather,
        "reduce_scatter": gather,
        "all_reduce": torus.all_reduce_s(1.0, n, b),
        "all_to_all": to_all,
        "permute": shift,
    }
    latency = {**dict.fromkeys(KINDS, hop_s), "all_reduce": 2 * hop_s, "permute": shift_s}
    ports = sum(torus.ports(p.stride, p.wraps) for p in along)
    return Inside(size, b, hops, ports, pace, latency, fabric[0].link_bytes_per_s, "torus")


def _shared(rate: Any, on_chip: int, devices_per_chip: int) -> Any:
    """A chip's rate for a group with ``on_chip`` of its devices: the others use it too."""
    return rate if on_chip == devices_per_chip else rate * (on_chip / devices_per_chip)


def _label(piece: Segment, along: list[Segment]) -> str:
    """An axis' name, with the piece's stride where the group has two pieces of one axis."""
    twice = sum(other.axis == piece.axis for other in along) > 1
    return f"{piece.axis}_by_{piece.stride}" if twice else piece.axis


def _path_s(hop: Any, piece: Segment) -> Any:
    return torus.latency_s(torus.hops(piece.size, piece.stride, piece.wraps), hop)


def _shift_s(hop: Any, piece: Segment) -> Any:
    """A shift by one: to the neighbour, and on a line from its end back to its start."""
    hop_count = piece.stride if piece.wraps else (piece.size - 1) * piece.stride
    return torus.latency_s(hop_count, hop)


def _corner_bandwidth(fabric: tuple[Domain, ...], along: list[Segment], lift: Lift) -> Any:
    """Ports of a corner device × their rates over the axes; of two pieces of one, the worse."""
    rates: list[Any] = []
    for name in dict.fromkeys(piece.axis for piece in along):
        worst = min(
            (piece for piece in along if piece.axis == name),
            key=lambda piece: torus.ports(piece.stride, piece.wraps),
        )
        ports = torus.ports(worst.stride, worst.wraps)
        rate = torus.bandwidth(ports, level_rate(fabric[worst.level], lift))
        rates.append(rename(rate, f"{name}_bandwidth"))
    return functools.reduce(operator.add, rates)


def _all_to_all(
    fabric: tuple[Domain, ...], along: list[Segment], chips: int, share: float, lift: Lift
) -> Any:
    """The axis whose busiest link takes longest."""
    times = []
    for piece in along:
        load = torus.all_to_all_load([(piece.size, piece.stride, piece.wraps)])
        rate = level_rate(fabric[piece.level], lift)
        times.append(torus.all_to_all_s(1.0, load, chips, rate if share == 1 else rate * share))
    return max(times, key=float)


def _permute(
    fabric: tuple[Domain, ...], along: list[Segment], on_chip: int, devices: int, lift: Lift
) -> Any:
    """The axis on which a shift by one takes longest.

    Of the group's devices on one chip only the last hands on to the next chip.
    """
    times = []
    for piece in along:
        rate = _shared(level_rate(fabric[piece.level], lift), on_chip, devices)
        times.append(torus.permute_s(1.0, piece.stride, rate))
    return max(times, key=float)


def outside_paces(kind: str, n_out: int, n_in: int, nic: Any, lift: Lift) -> dict[str, Any]:
    """Ideal seconds a byte between domains (scale-out) or slices (DCN); zeros in a single one."""
    if n_out == 1:
        return dict.fromkeys(KINDS, 0.0)
    m = lift(n_out, "", "slices" if kind == "dcn" else "domains", _HERE)
    k = lift(n_in, "", "devices_inside", _HERE)
    if kind == "dcn":
        paces = {
            "all_gather": dcn.all_gather_s(1.0, m, k, nic),
            "all_reduce": dcn.all_reduce_s(1.0, m, k, nic),
            "all_to_all": dcn.all_to_all_s(1.0, m, k, nic),
            "permute": dcn.permute_s(1.0, n_out, nic),
        }
    else:
        paces = {
            "all_gather": scale_out.all_gather_s(1.0, m, k, nic),
            "all_reduce": scale_out.all_reduce_s(1.0, m, k, nic),
            "all_to_all": scale_out.all_to_all_s(1.0, m, k, nic),
            "permute": scale_out.permute_s(1.0, n_out, nic),
        }
    return {**paces, "reduce_scatter": paces["all_gather"]}


def inside_abscissa(kind: str, inside: Inside, n_out: int) -> float:
    """Curve's abscissa a byte of v: bytes a hop puts on a link, or the array's own bytes."""
    if inside.n == 1:
        return 1.0
    if inside.reference:
        pace = float(inside.pace[kind]) / (2 if kind == "all_reduce" else 1)
        hops = 1 if kind == "permute" else inside.hops
        return pace * inside.reference / hops / (n_out if kind == "all_to_all" else 1)
    return 1.0 / (inside.n * n_out) if kind == "all_to_all" else 1.0


def outside_abscissa(kind: str, n_in: int, n_out: int) -> float:
    """The measured curve is over the array of a domain of eight interfaces."""
    if n_out == 1 or kind == "permute":
        return 1.0
    return 8.0 / (n_in * n_out) if kind == "all_to_all" else 8.0 / n_in
