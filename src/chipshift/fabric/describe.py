"""A machine's fabric with a mesh on it, as data: what ``chipshift fabric`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chipshift.fabric import torus
from chipshift.fabric.collective import collective_terms, collective_time
from chipshift.fabric.links import Links, links, links_worked
from chipshift.fabric.paces import KINDS
from chipshift.fabric.placement import Placement, assign
from chipshift.machines.machine import Machine
from chipshift.worked import Worked, formula, leaf, plain


def describe(
    machine: Machine, mesh: Mapping[str, int], message_bytes: Sequence[float]
) -> dict[str, Any]:
    """Axes and collectives of the output contract ``chipshift/fabric/1``.

    Collectives are given for each axis longer than 1, each kind and each size, in that order;
    ``full_rate_s`` is what the bytes would take at the links' full rate, without the measured
    curve.

    Raises:
        InputError: when the mesh does not fill the machine.
    """
    placed = assign(machine, mesh)
    rows = {name: links(machine, one) for name, one in placed.items()}
    return {
        "schema": "chipshift/fabric/1",
        "machine": machine.name,
        "chips": machine.chips,
        "devices": machine.devices,
        "axes": [_axis(machine, name, placed[name], rows[name]) for name in mesh],
        "collectives": [
            _collective(kind, name, size, rows[name])
            for name in mesh
            if placed[name].size > 1
            for kind in KINDS
            for size in message_bytes
        ],
        "notes": _notes(machine, placed),
        "curves": _curves(rows),
    }


def explain(machine: Machine, mesh: Mapping[str, int], found: Mapping[str, Any]) -> Worked:
    """The working of one entry of ``collectives``'s ``time_s`` or of ``axes``'s bandwidth."""
    if "kind" not in found:
        name = found["name"]
        return _worked(group_bandwidth(links_worked(machine, assign(machine, mesh)[name])))
    row = links_worked(machine, assign(machine, mesh)[found["axis"]])
    size = leaf(found["message_bytes"], "B", "message_bytes", "asked for on the command line")
    return _worked(collective_time(found["kind"], size, row))


def group_bandwidth(row: Links) -> Any:
    """The B for which an all-gather of the whole group takes (n-1)/n · V/B at the links' rate."""
    path = row.paths["all_gather"]
    return bandwidth_bytes_per_s(row.size, path.inside_s_per_byte, path.outside_s_per_byte)


@formula(unit="B/s", source="definition: an all-gather takes (n-1)/n · V/B; the slower level binds")
def bandwidth_bytes_per_s(n: Any, inside_s_per_byte: Any, outside_s_per_byte: Any) -> Any:
    """(n-1)/n over the ideal seconds a byte of the slower level."""
    return (n - 1) / n / np.maximum(inside_s_per_byte, outside_s_per_byte)


def _worked(value: Any) -> Worked:
    if not isinstance(value, Worked):
        raise TypeError(f"a derivation was asked for and a {type(value).__name__} came out")
    return value


def _axis(machine: Machine, name: str, placement: Placement, row: Links) -> dict[str, Any]:
    pieces = [
        {"axis": piece.axis, "size": piece.size, "stride": piece.stride, "wraps": piece.wraps}
        for piece in placement.segments
    ]
    along = [piece.wraps for piece in placement.segments if piece.axis in torus.AXES]
    alone = placement.size == 1
    return {
        "name": name,
        "size": placement.size,
        "physical": pieces,
        "wraps": bool(along) and all(along),
        "split": placement.split,
        "hops": row.hops + (1 if row.n_out > 1 else 0),
        "links": _link_count(machine, row),
        "bandwidth_bytes_per_s": None if alone else float(group_bandwidth(row)),
        "note": placement.note,
    }


def _link_count(machine: Machine, row: Links) -> float:
    """Links of a chip that the group uses: a chip's own number on a switch, ports on a torus."""
    chip = machine.chip
    if machine.fabric[0].kind == "switched" and row.n_in > 1 and chip.has("scale_up_links"):
        return int(chip.value("scale_up_links"))
    count = float(row.port_count)
    return int(count) if count.is_integer() else count


def _collective(kind: str, axis: str, size: float, row: Links) -> dict[str, Any]:
    latency, bandwidth = collective_terms(kind, size, row)
    path = row.paths[kind]
    return {
        "kind": kind,
        "axis": axis,
        "message_bytes": float(size),
        "time_s": float(plain(collective_time(kind, size, row))),
        "latency_s": float(latency),
        "bandwidth_s": float(bandwidth),
        "full_rate_s": float(size * max(path.inside_s_per_byte, path.outside_s_per_byte)),
    }


def _notes(machine: Machine, placed: Mapping[str, Placement]) -> list[str]:
    notes = [f"{name}: {one.note}" for name, one in placed.items() if one.note]
    inner = machine.fabric[0]
    if machine.chip.key in ("v4", "v5p") and torus.can_be_twisted(inner.dims):
        shape = "x".join(str(size) for size in inner.dims)
        notes.append(
            f"{shape} is also offered as a twisted torus, whose all-to-all may be faster than given"
        )
    if inner.kind == "torus":
        notes.append("all-to-all on a torus is a lower bound: no measurement of one is public")
    return notes


def _curves(rows: Mapping[str, Links]) -> list[str]:
    """Sources of the measured curves in use, each once."""
    sources = [table.source for row in rows.values() if row.size > 1 for table in row.tables]
    return [one for one in dict.fromkeys(sources) if one != "the link's full rate"]
