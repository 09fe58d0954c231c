"""AWS Neuron's collective algorithms: traffic and latency of each, and which one runs.

Symbols: ``n`` ranks, ``c`` bytes of a rank's chunk, ``v`` = n · c. Latency a hop is 1 to 2 µs
inside an instance and about 15 µs over EFA. Bandwidths come from the machine: no measured bus
bandwidth of Trainium is public, so times on its torus use the formulas of ``torus``, and these
functions give the steps and bytes that the vendor's guide states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

_GUIDE = "AWS Neuron documentation, runtime guide on collective communication"

INTRA_HOP_S = 1.5e-6
EFA_HOP_S = 15e-6
MESH_BELOW_BYTES = 1e6
RDH_UP_TO_BYTES = 56e6


@formula(unit="B", source=_GUIDE)
def ring_traffic_bytes(n: Any, c: Any) -> Any:
    """(n-1) · c a rank, of a ring all-gather or reduce-scatter (and of KangaRing, its variant)."""
    return (n - 1) * c


@formula(unit="B", source=_GUIDE)
def mesh_all_reduce_traffic_bytes(n: Any, c: Any) -> Any:
    """(n-1) · n · c a rank: one step, in which every rank sends its whole array to every other."""
    return (n - 1) * n * c


@formula(unit="1", source=_GUIDE)
def ring_steps(n: Any) -> Any:
    """n - 1 hops, one after the other."""
    return n - 1


@formula(unit="1", source=_GUIDE)
def kanga_ring_steps(n: Any) -> Any:
    """Half of the ring's hops: both directions at once."""
    return np.ceil((n - 1) / 2)


@formula(unit="1", source=_GUIDE)
def recursive_doubling_steps(n: Any) -> Any:
    """log2(n), rounded up: recursive doubling and halving."""
    return np.ceil(np.log2(n))


@formula(unit="1", source=_GUIDE)
def mesh_steps(n: Any) -> Any:
    """One step, none for a single rank."""
    return np.minimum(n - 1, 1)


@formula(unit="s", source=_GUIDE)
def latency_s(n: Any, v: Any, hop_s: Any) -> Any:
    """Steps · hop of the algorithm that the runtime picks by size.

    Mesh below 1 MB, recursive doubling and halving to 56 MB, KangaRing above.
    """
    steps = np.where(
        v < MESH_BELOW_BYTES,
        mesh_steps(n),
        np.where(v <= RDH_UP_TO_BYTES, recursive_doubling_steps(n), kanga_ring_steps(n)),
    )
    return steps * hop_s


def algorithm(v: float) -> str:
    """Name of the algorithm that runs for a message of ``v`` bytes."""
    if v < MESH_BELOW_BYTES:
        return "mesh"
    return "rdh" if v <= RDH_UP_TO_BYTES else "kangaring"
