"""Between domains: a rail-optimised fat tree of InfiniBand, RoCE or EFA.

Symbols: ``v`` bytes of the full array, ``m`` domains (nodes) of the group, ``k`` of its devices in
each, ``nic`` one-way B/s of a device's own network interface; the egress of a unit is k · nic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

_BOOK = "scaling book, chapter 'GPUs', collectives beyond the node"
_STAS = "Stas Bekman, ML Engineering, networking: all-reduce across nodes"


@formula(unit="s", source=_BOOK)
def all_gather_s(v: Any, m: Any, k: Any, nic: Any) -> Any:
    """(m-1)/m · v/(k · nic). Reduce-scatter is the same."""
    return (m - 1) / m * v / (k * nic)


@formula(unit="s", source=_BOOK)
def all_reduce_s(v: Any, m: Any, k: Any, nic: Any) -> Any:
    """2 (m-1)/m · v/(k · nic): the middle phase of a hierarchical all-reduce."""
    return 2 * (m - 1) / m * v / (k * nic)


@formula(unit="s", source=_BOOK)
def all_to_all_s(v: Any, m: Any, k: Any, nic: Any) -> Any:
    """(m-1)/m² · v/(k · nic): what leaves a node, over all its interfaces."""
    return (m - 1) / m / m * v / (k * nic)


@formula(unit="s", source="bytes over one device's interface")
def permute_s(v: Any, m: Any, nic: Any) -> Any:
    """v/nic where the neighbour is in another domain; 0 where there is only one."""
    return v / nic * (m > 1)


@formula(unit="s", source=_BOOK)
def two_level_s(inside: Any, outside: Any) -> Any:
    """The longer of the two levels: chunks of one travel while the other works."""
    return np.maximum(inside, outside)


@formula(unit="s", source=_BOOK)
def tree_level_s(v: Any, children: Any, egress: Any) -> Any:
    """v (d-1)/(d · egress): one level of a general tree; the time is the largest over levels."""
    return v * (children - 1) / (children * egress)


@formula(unit="s", source=_BOOK)
def sharded_tree_level_s(v: Any, children: Any, below: Any, inner: Any, egress: Any) -> Any:
    """v (d-1) s/(d · max(y, s) · egress): a level when the array is also cut over ``inner``.

    Args:
        children: d, units joined at this level.
        below: s, devices below one of them (1 at the node level).
        inner: y, devices of the mesh axis over which the array is already cut.
        egress: of one child unit.
    """
    return v * (children - 1) * below / (children * np.maximum(inner, below) * egress)


@formula(unit="s", source=_STAS)
def flat_ring_all_reduce_s(v: Any, n: Any, k: Any, nic: Any) -> Any:
    """2 (n-1)/n · v/(k · nic): one ring through all devices, every interface busy."""
    return 2 * (n - 1) / n * v / (k * nic)


@formula(unit="s", source=_STAS)
def hierarchical_all_reduce_s(v: Any, g: Any, m: Any, w: Any, nic: Any) -> Any:
    """max(2 (g-1)/g · v/w, 2 (m-1)/m · v/(g · nic)): its three phases, overlapped.

    Reduce-scatter and all-gather over the ``g`` devices of a node at ``w``, between them an
    all-reduce of each device's v/g over its own interface.
    """
    return np.maximum(2 * (g - 1) / g * v / w, 2 * (m - 1) / m * v / (g * nic))


@formula(unit="B/s", source=_STAS)
def nic_rate_used(busbw: Any, n: Any, m: Any) -> Any:
    """busbw · (m-1)/(n-1): what an interface carried in a hierarchical all-reduce."""
    return busbw * (m - 1) / (n - 1)


@formula(unit="s", source=_BOOK)
def pipeline_transfer_s(boundary: Any, w: Any, microbatches: Any, stages: Any) -> Any:
    """2 · boundary/(w · microbatches) · (microbatches + stages - 2): activations and gradients.

    Args:
        boundary: bytes that one stage hands on, over all microbatches of a step.
    """
    return 2 * boundary / (w * microbatches) * (microbatches + stages - 2)
