"""The op roofline, on values worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.machines import chip
from chipshift.roofline import time as roof


def test_padding_rounds_up_to_whole_tiles() -> None:
    assert roof.padded(129.0, 128.0) == 256
    assert roof.padded(128.0, 128.0) == 128
    assert roof.padded(0.5, 128.0) == 128


def test_wave_quantisation_on_132_processors() -> None:
    # 133 tiles on 132 processors need two waves: 133/264 of the places are used
    share = roof.wave_share(133 * 128.0, 128.0, 128.0, 128.0, 132.0, 1.0)
    assert share == pytest.approx(133 / 264)
    # softness 0 is a kernel that splits the reduction: no loss
    assert roof.wave_share(133 * 128.0, 128.0, 128.0, 128.0, 132.0, 0.0) == 1


def test_a_reduction_of_k_half_reaches_half_the_rate() -> None:
    assert roof.reduction_share(150.0, 150.0) == 0.5


def test_a_matmul_at_peak() -> None:
    # v6e, bf16, 4096 × 2048 × 8192: 2·4096·2048·8192 / 918e12 = 149.7 µs
    t = roof.matrix_unit_time(4096.0, 2048.0, 8192.0, 1.0, 918e12, 1.0, 1.0, 1.0)
    assert t == pytest.approx(149.7e-6, rel=1e-3)


def test_bytes_of_a_matmul() -> None:
    # (2·3 + 3·4) inputs at 2 bytes, 2·4 outputs at 4 bytes: 36 + 32
    assert roof.matmul_bytes(2.0, 4.0, 3.0, 1.0, 2.0, 4.0) == 36 + 32


@pytest.mark.parametrize(
    ("key", "ridge"),
    # peak over HBM bandwidth, both as the data sheets give them
    [("a100", 312e12 / 2039e9), ("h100", 989.4e12 / 3350e9), ("v6e", 918e12 / 1638e9),
     ("v7x", 2307e12 / 7380e9), ("v5p", 459e12 / 2765e9)],
)  # fmt: skip
def test_ridge_points(key: str, ridge: float) -> None:
    c = chip(key)
    found = roof.ridge_point(c.value("peak_bf16_flop_per_s"), c.value("hbm_bandwidth_bytes_per_s"))
    assert found == pytest.approx(ridge, rel=0.02)


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(1e-7, 1e-5))
def test_an_op_is_never_faster_than_either_roof(m: float, n: float, launch: float) -> None:
    compute = roof.matrix_unit_time(m, n, 512.0, 1.0, 1e15, 0.8, 1.0, 0.9)
    memory = roof.stream_time(roof.matmul_bytes(m, n, 512.0, 1.0, 2.0, 2.0), 1e12, 0.9)
    total = roof.op_time(compute, memory, launch)
    assert total >= compute
    assert total >= memory
    assert math.isclose(total, max(compute, memory) + launch)


def test_attention_gains_with_length() -> None:
    assert roof.attention_share(400.0, 0.6, 400.0) == pytest.approx(0.3)
    assert roof.attention_share(1e9, 0.6, 400.0) == pytest.approx(0.6, rel=1e-5)
