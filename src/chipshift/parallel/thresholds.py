"""Where a parallelism becomes bound by communication: the scaling book's thresholds."""

from __future__ import annotations

from typing import Any

from chipshift.worked import formula

Number = Any


@formula(unit="tokens", source="scaling book, training: FSDP and DP need B/X > C/W tokens a chip")
def data_parallel_tokens(peak_flop_per_s: Number, bytes_per_s: Number) -> Number:
    """Tokens a chip below which sharded data parallelism is bound by communication.

    One layer of P parameters computes 4·P FLOPs a token backward (2·P forward) and moves 4·P (2·P)
    bytes of bf16 weights, so that compute hides communication above C/W tokens. For experts
    multiply by E/k.

    Args:
        bytes_per_s: one-way bytes/s of a chip over all links that the axis uses, times 2 where
            each link carries both directions at once (a torus axis counts both).
    """
    return peak_flop_per_s / bytes_per_s


@formula(unit="devices", source="scaling book, training: Megatron sharding needs Y < F·W/C")
def tensor_parallel_degree(width: Number, bytes_per_s: Number, peak_flop_per_s: Number) -> Number:
    """Degree at which a feed-forward of ``width`` becomes bound by its tensor-parallel traffic."""
    return width * bytes_per_s / peak_flop_per_s


@formula(unit="elements", source="scaling book, GPUs: expert parallelism needs F > 8·C/W_node")
def expert_width(peak_flop_per_s: Number, node_bytes_per_s: Number, devices_per_node: Number
                 ) -> Number:  # fmt: skip
    """Expert width above which an all-to-all across nodes hides behind the experts' matmuls."""
    return devices_per_node * peak_flop_per_s / node_bytes_per_s
