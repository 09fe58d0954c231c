"""The classic thresholds, on the inputs that their sources give (rounded by them)."""

import pytest

from chipshift.parallel.thresholds import (
    dp_batch_threshold,
    ep_width_threshold,
    moe_dp_batch_threshold,
    tp_degree_threshold,
)


@pytest.mark.parametrize(
    ("c", "w", "tokens"),
    [
        (990e12, 450e9, 2200),  # H100 inside the node
        (990e12, 400e9, 2475),  # H100 across nodes
        (2250e12, 900e9, 2500),  # B200 inside
        (2250e12, 400e9, 5625),  # B200 across
        (459e12, 3 * 1.8e11, 850),  # v5p, three axes at 90 GB/s a link
        (459e12, 3 * 2.0e11, 765),  # at 100
        (459e12, 1.8e11, 2550),  # one axis of v5p
        (918e12, 2 * 1.8e11, 2550),  # v6e, two axes
        (918e12, 2 * 2.0e11, 2295),
        (2307e12, 3 * 1.8e11, 4272),  # v7x, a chip
        (2307e12, 3 * 2.0e11, 3845),
    ],
)
def test_batch_a_chip_that_data_parallelism_needs(c, w, tokens):
    assert dp_batch_threshold(c, w) == pytest.approx(tokens, rel=2e-4)


def test_experts_multiply_it_by_e_over_k():
    # 256 experts, 8 a token: 32 × 2200.
    assert moe_dp_batch_threshold(990e12, 450e9, 256, 8) == pytest.approx(32 * 2200)


def test_tensor_parallelism_ends_where_the_matmul_is_too_narrow():
    # F = 28,672 on H100: 28,672 × 450e9/990e12 = 13.03: 8 is fine, 16 is not.
    assert tp_degree_threshold(28672, 990e12, 450e9) == pytest.approx(13.03, 1e-3)


def test_expert_parallelism_across_nodes_needs_wide_experts():
    # 8 × 990e12/400e9 = 19,800.
    assert ep_width_threshold(990e12, 400e9) == pytest.approx(19800)
