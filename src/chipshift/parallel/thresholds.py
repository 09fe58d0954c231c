"""When communication, not arithmetic, sets the pace: the classic ratios, as functions.

Symbols: ``c`` dense FLOP/s and ``w`` one-way B/s of the same unit (chip with chip), 2-byte
weights, gradients and activations, F the width of the MLP.
"""

from __future__ import annotations

from typing import Any

from chipshift.worked import formula

_BOOK = "scaling book, chapters 'Training' and 'GPUs': rooflines of the parallelisms"


@formula(unit="tokens/chip", source=_BOOK)
def dp_batch_threshold(c: Any, w: Any) -> Any:
    """c/w: tokens a chip below which data parallelism and FSDP are bound by communication.

    Backward, an MLP of two D×F matrices multiplies B tokens a chip in 8·B·D·F/c and all-reduces
    4·D·F bytes of gradients in 8·D·F/w. On a torus w is the rate of all links in use (a wrapped
    axes: 2 a links), in a domain the device's egress, across domains the node's.
    """
    return c / w


@formula(unit="tokens/chip", source=_BOOK)
def moe_dp_batch_threshold(c: Any, w: Any, experts: Any, top_k: Any) -> Any:
    """E/k · c/w: a token works on k of the E experts whose weights are all moved."""
    return experts / top_k * (c / w)


@formula(unit="devices", source=_BOOK)
def tp_degree_threshold(f: Any, c: Any, w: Any) -> Any:
    """F · w/c: above this degree tensor parallelism is bound by communication."""
    return f * w / c


@formula(unit="1", source=_BOOK)
def ep_width_threshold(c: Any, w_node: Any) -> Any:
    """8 · c/w_node: an expert must be wider for its all-to-all between nodes to hide.

    Args:
        w_node: one-way B/s of a **node's** egress, against c of a chip: 8 chips share it.
    """
    return 8 * c / w_node
