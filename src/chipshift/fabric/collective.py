"""The one door: how long a collective of so many bytes takes on a group's links.

``bytes_v`` is V, the bytes of the full array of one replica group: gathered (all-gather), before
the scatter (reduce-scatter), of each device (all-reduce), over all devices (all-to-all); for a
permute it is the operand that each device sends.

A call costs at least its latency, whatever its bytes: a collective that is not issued must be
left out by its count. A group of one costs exactly 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.fabric.curves import OCTAVES
from chipshift.fabric.links import Links
from chipshift.worked import Worked, formula, plain, rename


def collective_time(kind: str, bytes_v: Any, links: Links) -> Any:
    """Seconds. Branch-free in ``bytes_v`` and ``links``: floats, equal-length arrays or Worked.

    The larger of latency and transfer on a torus (for a permute their sum), their sum on switched
    and scale-out networks; over two levels the slower of the two, pipelined, plus the start-up.

    Raises:
        KeyError: for a kind that is none of ``links.KINDS``.
    """
    path = links.paths[kind]
    inside = _transfer(bytes_v, path.inside_s_per_byte, path.inside_x, path.inside_curve, links)
    outside = rename(_outside(kind, bytes_v, links), "transfer_outside_s")
    inside = rename(inside, "transfer_inside_s")
    if kind == "permute":
        return permute_time_s(path.startup_s, path.hop_s, inside, outside)
    return collective_time_s(path.startup_s, path.hop_s, inside, outside)


def inside_time(kind: str, bytes_v: Any, links: Links) -> Any:
    """Seconds of a collective's part in one domain or slice, its start-up included.

    Raises:
        KeyError: for a kind that is none of ``links.KINDS``.
    """
    path = links.paths[kind]
    inside = _transfer(bytes_v, path.inside_s_per_byte, path.inside_x, path.inside_curve, links)
    inside = rename(inside, "transfer_inside_s")
    return inside_time_s(path.startup_s, path.hop_s, inside)


def collective_terms(kind: str, bytes_v: Any, links: Links) -> tuple[Any, Any]:
    """(latency_s, bandwidth_s): the two terms of ``collective_time``, before they are combined.

    On a torus alone the time is the larger of the two; with a start-up (switched, scale-out, DCN)
    and for a permute it is their sum, so hops that hide behind the transfer over slices are
    counted there.
    """
    path = links.paths[kind]
    inside = _transfer(bytes_v, path.inside_s_per_byte, path.inside_x, path.inside_curve, links)
    transfer = np.maximum(inside, _outside(kind, bytes_v, links))
    if kind == "permute":
        return path.startup_s + path.hop_s, transfer
    across = plain(links.n_out) > 1
    hidden = path.hop_s * across
    return path.startup_s + (path.hop_s - hidden), np.maximum(hidden, transfer)


@formula(unit="s", source="start-up, then hops hidden behind the slower of two pipelined levels")
def collective_time_s(startup: Any, hops: Any, inside: Any, outside: Any) -> Any:
    """startup + max(hops, inside, outside)."""
    return startup + np.maximum(np.maximum(hops, inside), outside)


@formula(unit="s", source="start-up, then hops hidden behind the transfer")
def inside_time_s(startup: Any, hops: Any, inside: Any) -> Any:
    """startup + max(hops, inside)."""
    return startup + np.maximum(hops, inside)


@formula(unit="s", source="scaling book, chapter 'TPUs': point to point, hops and bytes add")
def permute_time_s(startup: Any, hops: Any, inside: Any, outside: Any) -> Any:
    """startup + hops + max(inside, outside)."""
    return startup + hops + np.maximum(inside, outside)


@formula(unit="s", source="ideal time a byte × bytes that the full rate would move in the time")
def transfer_s(full_rate_bytes: Any, s_per_byte: Any) -> Any:
    """full_rate_bytes · s_per_byte."""
    return full_rate_bytes * s_per_byte


def _outside(kind: str, bytes_v: Any, links: Links) -> Any:
    if not links.two_level:
        return 0.0
    path = links.paths[kind]
    return _transfer(bytes_v, path.outside_s_per_byte, path.outside_x, path.outside_curve, links)


def _transfer(bytes_v: Any, s_per_byte: Any, x: Any, first_cell: Any, links: Links) -> Any:
    """Seconds of one level: the measured curve's bytes at the full rate, times the ideal pace."""
    v = plain(bytes_v)
    cell = first_cell + np.minimum(np.maximum(np.frexp(v * x)[1] - 1, 0), OCTAVES - 1)
    moved = links.intercept[cell] / x + links.slope[cell] * v
    if isinstance(bytes_v, Worked) or isinstance(s_per_byte, Worked):
        moved = _lengthened(bytes_v, float(moved), links.tables[int(first_cell) // OCTAVES].source)
        s_per_byte = rename(s_per_byte, "s_per_byte")
    return transfer_s(moved, s_per_byte)


def _lengthened(bytes_v: Any, full_rate_bytes: float, source: str) -> Worked:
    """What the measured curve makes of a message, as a step of the working."""
    named = bytes_v if getattr(bytes_v, "name", "") else rename(bytes_v, "message_bytes")
    inputs = (named,) if isinstance(named, Worked) else ()
    text = f"{named.name if inputs else named} lengthened as on the measured curve"
    return Worked(full_rate_bytes, "B", "full_rate_bytes", text, inputs, source)
