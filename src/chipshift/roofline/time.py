"""Time of one op on one device: the roofline, with the matrix unit's shape in it.

Every function is branch-free and takes floats, arrays or ``Worked``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.worked import formula

Number = Any


@formula(unit="elements", source="a matrix unit works on whole tiles")
def padded(size: Number, tile: Number) -> Number:
    """``size`` rounded up to whole tiles; a fractional size below one tile takes a whole tile."""
    return np.ceil(size / tile) * tile


@formula(unit="1", source="tiles fill whole waves of processors; softened where kernels split k")
def wave_share(m: Number, n: Number, tile_m: Number, tile_n: Number, units: Number,
               softness: Number) -> Number:  # fmt: skip
    """Share of the last wave's processors that have a tile, between 0 and 1.

    ``softness`` 1 is plain wave quantisation, 0 none (persistent kernels that split the reduction).
    """
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    waves = np.ceil(tiles / units)
    return 1 / (1 + softness * (waves * units / tiles - 1))


@formula(unit="1", source="pipeline fill: a reduction of k_half reaches half the rate")
def reduction_share(k: Number, k_half: Number) -> Number:
    """Share of the rate that a reduction of length k reaches: k/(k + k_half)."""
    return k / (k + k_half)


@formula(unit="s", source="padded FLOPs over peak × achieved share")
def matrix_unit_time(m_padded: Number, n_padded: Number, k_padded: Number, groups: Number,
                     peak_flop_per_s: Number, e_max: Number, share_of_wave: Number,
                     share_of_reduction: Number) -> Number:  # fmt: skip
    """Seconds the matrix units are busy with ``groups`` padded matmuls."""
    rate = peak_flop_per_s * e_max * share_of_wave * share_of_reduction
    return 2 * m_padded * n_padded * k_padded * groups / rate


@formula(unit="B", source="each operand read once, the result written once")
def matmul_bytes(m: Number, n: Number, k: Number, groups: Number, in_bytes: Number,
                 out_bytes: Number) -> Number:  # fmt: skip
    """HBM traffic of ``groups`` matmuls (m, k) × (k, n)."""
    return groups * ((m * k + k * n) * in_bytes + m * n * out_bytes)


@formula(unit="s", source="bytes over achieved HBM bandwidth")
def stream_time(moved_bytes: Number, hbm_bytes_per_s: Number, e_hbm: Number) -> Number:
    """Seconds to move bytes through HBM at the achieved share of its bandwidth."""
    return moved_bytes / (hbm_bytes_per_s * e_hbm)


@formula(unit="s", source="roofline: the slower of the matrix unit and memory, plus the launch")
def op_time(compute_s: Number, memory_s: Number, launch_s: Number) -> Number:
    """Seconds of one op."""
    return np.maximum(compute_s, memory_s) + launch_s


@formula(unit="1", source="attention kernels gain with length: s_half keys reach half of e_max")
def attention_share(keys: Number, e_max: Number, s_half: Number) -> Number:
    """Achieved share of peak of an attention kernel that meets ``keys`` keys a query."""
    return e_max * keys / (keys + s_half)


@formula(
    unit="keys", source="derived: a block of queries meets ceil(W/B) + 1 blocks of keys, whole"
)
def block_keys(reach: Number, span: Number, block: Number) -> Number:
    """Mean number of keys that a kernel of whole blocks makes scores for, causal.

    Args:
        reach: the most keys of a query: its window W, or all of ``span``.
        span: tokens along which the window moves.
        block: queries and keys of a block, B; a shorter span is one block.

    The i-th block of queries meets min(i, w) blocks of keys, w = ceil(W/B) + 1: B·(n + 1)/2 keys
    where the window is the whole span of n blocks, about W + B where it is short.
    """
    side = np.minimum(block, span)
    blocks = span / side
    most = np.minimum(np.ceil(reach / side) + 1, blocks)
    return side * (most - most * (most - 1) / (2 * blocks))


@formula(unit="keys", source="scores of a block that the mask throws away are made as well")
def masked_keys(keys: Number, reach: Number, span: Number, block: Number, s_half: Number
                ) -> Number:  # fmt: skip
    """Keys a query that the mask leaves of whole blocks; ``s_half`` where no key is masked."""
    return np.where(keys < reach, block_keys(reach, span, block) - keys, s_half)


@formula(unit="1", source="heads narrower than a matrix unit leave the rest of it idle")
def width_share(head_dim: Number, v_head_dim: Number, qk_padded: Number, v_padded: Number,
                full: Number) -> Number:  # fmt: skip
    """What heads of these widths reach of the rate at which a kernel can run at most.

    Args:
        head_dim, v_head_dim: reduction of QKᵀ and outputs of PV.
        qk_padded, v_padded: both rounded up to whole matrix units.
        full: share of the unit beyond which filling it more does not help.
    """
    return np.minimum((head_dim + v_head_dim) / (qk_padded + v_padded) / full, 1.0)


@formula(unit="s", source="attention FLOPs over peak × achieved share")
def attention_compute_time(flops: Number, peak_flop_per_s: Number, share: Number) -> Number:
    """Seconds of an attention kernel on the matrix units."""
    return flops / (peak_flop_per_s * share)


@formula(unit="FLOP/B", source="peak over HBM bandwidth")
def ridge_point(peak_flop_per_s: Number, hbm_bytes_per_s: Number) -> Number:
    """Arithmetic intensity above which an op can be bound by compute."""
    return peak_flop_per_s / hbm_bytes_per_s


@formula(unit="FLOP/B", source="FLOPs over bytes")
def intensity(flops: Number, moved_bytes: Number) -> Number:
    """Arithmetic intensity of an op."""
    return flops / moved_bytes
