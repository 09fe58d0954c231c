"""NCCL's own model of its algorithms: latency + bytes over algorithm bandwidth.

Two uses: the small-message points of a curve that was measured only at large sizes, and how the
start-up latency changes from the measured group to another one (the measured latency itself stays,
so nothing is counted twice). Figures and forms after NVIDIA, NCCL, src/graph/tuning.cc (2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SOURCE = "NVIDIA, NCCL, src/graph/tuning.cc"

_US = 1e-6


@dataclass(frozen=True)
class Protocol:
    """Latencies in seconds of one protocol, and the share of the bus bandwidth it reaches.

    Attributes:
        base_tree, base_ring: start of a call.
        nvlink_tree, nvlink_ring: a hop inside the node.
        net_tree, net_ring: a hop between nodes.
        overhead: of the network on every hop of a ring that leaves the node (Intel hosts).
        ring_share: of the bus bandwidth, on a ring.
    """

    base_tree: float
    base_ring: float
    nvlink_tree: float
    nvlink_ring: float
    net_tree: float
    net_ring: float
    overhead: float
    ring_share: float


PROTOCOLS = {
    "ll": Protocol(6.8 * _US, 6.6 * _US, 0.6 * _US, 0.6 * _US, 5.0 * _US, 2.7 * _US, 1 * _US, 0.5),
    "ll128": Protocol(
        14.0 * _US, 14.0 * _US, 1.25 * _US, 1.9 * _US, 8.5 * _US, 4.0 * _US, 1 * _US, 0.92
    ),
    "simple": Protocol(
        8.4 * _US, 8.4 * _US, 4.0 * _US, 3.4 * _US, 14.0 * _US, 14.0 * _US, 3 * _US, 1.0
    ),
}

PLANNED_LINK_BYTES_PER_S = {"ampere": 20.0e9, "hopper": 20.6e9, "blackwell": 40.1e9}
"""The rate of one NVLink that NCCL plans with: about 0.8 of the line rate (topo.h)."""

_BASE_PAT, _PAT_PER_RANK, _PAT_NET = 8.0 * _US, 2.8 * _US, 14.0 * _US
_NVLS, _NVLS_NET = 25.0 * _US, 18.0 * _US


def ring_steps(kind: str, n: int) -> int:
    """Steps of a ring: 2 (n-1) for an all-reduce, n-1 for a gather or scatter, else n."""
    if kind == "all_reduce":
        return 2 * (n - 1)
    return n - 1 if kind in ("all_gather", "reduce_scatter") else n


def bus_factor(kind: str, n: int) -> float:
    """busbw = size/time × this: comparable with link rate for ring-like algorithms.

    Size is V, but for an all-to-all it is one rank's buffer (V/n). Reduction in the switch
    legitimately exceeds the link rate.
    """
    if kind == "permute":
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (n - 1) / n


def ring_s(steps: int, inter_steps: int, protocol: str = "ll") -> float:
    """base + (steps - inter) · max(NVLink hop, network overhead) + inter · network hop."""
    p = PROTOCOLS[protocol]
    intra = max(p.nvlink_ring, p.overhead) if inter_steps else p.nvlink_ring
    return p.base_ring + (steps - inter_steps) * intra + inter_steps * p.net_ring


def tree_s(n: int, nodes: int, protocol: str = "ll") -> float:
    """base + 2 [(n/nodes - 1) NVLink hop + log2(nodes) network hop], for an all-reduce."""
    p = PROTOCOLS[protocol]
    return p.base_tree + 2 * ((n / nodes - 1) * p.nvlink_tree + math.log2(nodes) * p.net_tree)


def pat_s(n: int, nodes: int) -> float:
    """base + log2(nodes) · network hop/3.5 + 2.8 µs a rank, for all-gather and reduce-scatter."""
    return _BASE_PAT + math.log2(nodes) * _PAT_NET / 3.5 + _PAT_PER_RANK * n


def nvls_s(nodes: int) -> float:
    """In-switch all-reduce: one step inside, one network step more across nodes."""
    return _NVLS + (_NVLS_NET if nodes > 1 else 0.0)


def latency_s(kind: str, n: int, nodes: int) -> float:
    """The least of the algorithms that NCCL has for this kind (LL); 0 for a group of one.

    Args:
        kind: ``all_gather``, ``reduce_scatter``, ``all_reduce``, ``all_to_all`` or ``permute``.
        n: devices of the group.
        nodes: domains they lie in.
    """
    if n == 1:
        return 0.0
    if kind == "permute":
        return ring_s(1, 1 if nodes > 1 else 0)
    if kind == "all_reduce":
        ring = ring_s(ring_steps(kind, n), 2 * (nodes - 1))
        return min(ring, tree_s(n, nodes), nvls_s(nodes))
    ring = ring_s(n - 1, nodes - 1)
    return ring if kind == "all_to_all" else min(ring, pat_s(n, nodes))


def ring_time_s(kind: str, v: float, n: int, busbw: float, protocol: str) -> float:
    """Time of a ring inside one node: latency + v/algbw, algbw = share · busbw · n/steps."""
    steps = ring_steps(kind, n)
    algbw = PROTOCOLS[protocol].ring_share * busbw * n / steps
    return ring_s(steps, 0, protocol) + v / algbw


def best_ring_time_s(kind: str, v: float, n: int, busbw: float) -> float:
    """The fastest protocol of a ring inside one node."""
    return min(ring_time_s(kind, v, n, busbw, protocol) for protocol in PROTOCOLS)
