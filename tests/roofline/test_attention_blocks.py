"""Attention kernels that skip whole blocks of the mask alone, on units of a fixed width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.machines import chip
from chipshift.models.ops import mean_keys
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import attention_kernel, attention_shares


def counted(window: int, span: int, block: int) -> float:
    """Mean keys a query of the blocks that hold at least one key of a causal window."""
    made = 0
    for first in range(0, span, block):
        lowest, highest = max(0, first - window + 1), first + block - 1
        made += (highest // block - lowest // block + 1) * block * block
    return made / span


def test_a_whole_sequence_of_eight_blocks() -> None:
    # the i-th of 8 blocks of 1,024 meets i of them: 4.5 on average
    assert roof.block_keys(8192.0, 8192.0, 1024.0) == 4.5 * 1024


def test_a_window_far_below_a_block_still_meets_two() -> None:
    # 128 keys back from the first query of a block lie in the block before: 2 blocks each, the
    # first of 8 has one: 15/8 of 1,024
    assert roof.block_keys(128.0, 8192.0, 1024.0) == 15 / 8 * 1024


@given(st.integers(1, 16), st.sampled_from([256, 512, 1024]), st.integers(2, 4096))
def test_blocks_are_those_that_a_mask_touches(blocks: int, block: int, window: int) -> None:
    span = blocks * block
    window = min(window, span)
    found = roof.block_keys(float(window), float(span), float(block))
    # a window of m·block + 1 keys back touches one block fewer than one of a key more
    exact = counted(window, span, block)
    assert exact <= found + 1e-9
    assert found <= counted(min(window + 1, span), span, block) + 1e-9


@given(st.integers(1, 65536), st.integers(1, 65536))
def test_no_fewer_scores_are_made_than_the_mask_lets_through(window: int, span: int) -> None:
    reach = float(min(window, span))
    made = roof.block_keys(reach, float(span), 1024.0)
    assert made >= mean_keys(float(span), reach, 1.0) - 1e-6


def test_a_short_sequence_is_one_block() -> None:
    assert roof.block_keys(512.0, 512.0, 1024.0) == 512


@pytest.mark.parametrize(
    ("key", "widths", "share"),
    # 256 columns: a head of 64 fills a quarter, 128 half, MLA's 192 and 128 320/512 = 0.625;
    # 256 fills it and reaches no more. 128 columns: 64 fill half, and more helps no further.
    [("v6e", (64, 64), 0.25), ("v6e", (128, 128), 0.5), ("v7x", (192, 128), 0.625),
     ("v7x", (256, 256), 0.625), ("v5p", (64, 64), 0.5), ("v5e", (256, 256), 0.5),
     ("v5e", (32, 32), 0.25)],
)  # fmt: skip
def test_heads_narrower_than_a_unit(key: str, widths: tuple[int, int], share: float) -> None:
    kernel = attention_kernel(chip(key), float(widths[0]))
    far = 2.0**30  # so long that no block is cut by the mask to speak of
    forward, backward = attention_shares(
        kernel, far / 2, far, far, float(widths[0]), float(widths[1])
    )
    assert forward == pytest.approx(share, rel=1e-5)
    assert backward == pytest.approx(0.8 * share, rel=1e-5)


def test_a_windows_two_edges_waste_twice_what_a_causal_masks_one_does() -> None:
    # causal over 8,192: 4,096 keys of 4,608 made; a window of 1,024: 960 keys of 15/8·1,024 made
    kernel = attention_kernel(chip("v6e"), 128.0)
    whole, _ = attention_shares(kernel, 4096.0, 8192.0, 8192.0, 128.0, 128.0)
    assert whole == pytest.approx(0.5 * 4096 / 4608)
    narrow, _ = attention_shares(kernel, 960.0, 1024.0, 8192.0, 128.0, 128.0)
    assert narrow == pytest.approx(0.5 * 960 / 1920)


def test_a_gpus_kernels_stay_as_they_were_measured() -> None:
    kernel = attention_kernel(chip("h100"), 128.0)
    forward, backward = attention_shares(kernel, 960.0, 1024.0, 8192.0, 128.0, 128.0)
    assert forward == roof.attention_share(960.0, kernel.e_forward, kernel.s_half_forward)
    assert backward == roof.attention_share(960.0, kernel.e_backward, kernel.s_half_backward)
