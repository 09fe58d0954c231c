"""Start-up latency of NCCL's algorithms, after its own tuning model.

The measured curves hold the latency of the group they were measured on; these figures say only
how it changes with the number of devices and nodes, so nothing is counted twice.
"""

from __future__ import annotations

import math

SOURCE = "NVIDIA, NCCL, src/graph/tuning.cc: base and hop latencies of the LL protocol"

_US = 1e-6
_BASE_TREE, _BASE_RING, _BASE_PAT = 6.8 * _US, 6.6 * _US, 8.0 * _US
_NVLINK_HOP, _NVLS = 0.6 * _US, 25.0 * _US
_NET_TREE, _NET_RING, _NET_PAT, _NET_NVLS = 5.0 * _US, 2.7 * _US, 14.0 * _US, 18.0 * _US
_NET_OVERHEAD, _PAT_PER_RANK = 1.0 * _US, 2.8 * _US  # overhead: Intel hosts; AMD hosts have 2 µs


def ring_s(steps: int, inter_steps: int) -> float:
    """base + (steps - inter) · max(NVLink hop, network overhead) + inter · network hop."""
    intra = max(_NVLINK_HOP, _NET_OVERHEAD) if inter_steps else _NVLINK_HOP
    return _BASE_RING + (steps - inter_steps) * intra + inter_steps * _NET_RING


def tree_s(n: int, nodes: int) -> float:
    """base + 2 [(n/nodes - 1) NVLink hop + log2(nodes) network hop], for an all-reduce."""
    return _BASE_TREE + 2 * ((n / nodes - 1) * _NVLINK_HOP + math.log2(nodes) * _NET_TREE)


def pat_s(n: int, nodes: int) -> float:
    """base + log2(nodes) · network hop/3.5 + 2.8 µs a rank, for all-gather and reduce-scatter."""
    return _BASE_PAT + math.log2(nodes) * _NET_PAT / 3.5 + _PAT_PER_RANK * n


def nvls_s(nodes: int) -> float:
    """In-switch all-reduce: one step inside, one network step more across nodes."""
    return _NVLS + (_NET_NVLS if nodes > 1 else 0.0)


def latency_s(kind: str, n: int, nodes: int) -> float:
    """The least of the algorithms that NCCL has for this kind; 0 for a group of one.

    Args:
        kind: ``all_gather``, ``reduce_scatter``, ``all_reduce``, ``all_to_all`` or ``permute``.
        n: devices of the group.
        nodes: domains they lie in.
    """
    if n == 1:
        return 0.0
    if kind == "all_reduce":
        ring = ring_s(2 * (n - 1), 2 * (nodes - 1) if nodes > 1 else 0)
        return min(ring, tree_s(n, nodes), nvls_s(nodes))
    if kind == "permute":
        return ring_s(1, 1 if nodes > 1 else 0)
    ring = ring_s(n - 1, nodes - 1)
    return ring if kind == "all_to_all" else min(ring, pat_s(n, nodes))
