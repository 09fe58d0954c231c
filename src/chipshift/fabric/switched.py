"""A switched domain: NVLink through NVSwitch, NeuronLink through NeuronSwitch.

Every device has its whole one-way egress ``w`` towards any other, so a group of any size gets it.
Symbols: ``v`` bytes of the full array, ``n`` devices of the group, ``w`` one-way B/s of a device.
"""

from __future__ import annotations

from typing import Any

from chipshift.worked import formula

_BOOK = "scaling book, chapter 'GPUs', collectives within a node"


@formula(unit="s", source=_BOOK)
def all_gather_s(v: Any, n: Any, w: Any) -> Any:
    """(n-1)/n · v/w: each device receives every part but its own. Reduce-scatter is the same."""
    return (n - 1) / n * v / w


@formula(unit="s", source=_BOOK)
def all_reduce_s(v: Any, n: Any, w: Any) -> Any:
    """2 (n-1)/n · v/w: a reduce-scatter, then an all-gather."""
    return 2 * (n - 1) / n * v / w


@formula(unit="s", source=_BOOK)
def all_reduce_in_switch_s(v: Any, n: Any, w: Any) -> Any:
    """v/w, the ideal of reduction inside the switch (NVLS, SHARP); 0 for one device.

    Measured gain is about 1.3, not 2 (370 to 480 GB/s busbw on 8 H100): the measured curves
    carry it, and this bound is only the ideal.
    """
    return v / w * (n > 1)


@formula(unit="s", source=_BOOK)
def all_to_all_s(v: Any, n: Any, w: Any) -> Any:
    """(n-1)/n² · v/w: each device holds v/n and sends all of it but its own part."""
    return (n - 1) / n / n * v / w


@formula(unit="s", source="bytes over one device's egress")
def permute_s(v: Any, n: Any, w: Any) -> Any:
    """v/w for an operand of v bytes sent to one neighbour; 0 for a group of one."""
    return v / w * (n > 1)


@formula(unit="1", source="scaling book, chapter 'GPUs', expert parallelism: ragged all-to-all")
def ragged_share(n: Any, k: Any) -> Any:
    """min(k/n, 1): share of a dense all-to-all that top-k routing moves, to first order."""
    return k / n - (k / n - 1) * (k > n)


@formula(unit="1", source="expected distinct destinations of k uniform picks of n groups")
def distinct_share(n: Any, k: Any) -> Any:
    """(1 - ((n-1)/n)^k) · (n-1)/n: expected share of tokens × groups that leaves the group.

    A token sent to two experts of one group crosses once, and its own group is free.
    """
    return (1 - ((n - 1) / n) ** k) * (n - 1) / n
