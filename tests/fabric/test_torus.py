"""Torus formulas: worked values, and a link-level simulation that never beats them."""

import numpy as np
import pytest

from chipshift.fabric import torus

from .simulate import all_to_all_load, gossip_steps, ring_shift_load, worst_cut

W1 = 45e9  # one-way, one v5e link, as the scaling book counts it


def test_ring_of_16_takes_15_sixteenths_of_v_over_both_directions():
    # 15/16 × 1.6e9 / (2 × 45e9) = 16.667 ms
    b = torus.bandwidth(torus.ports(1, closes=True), W1)
    assert torus.all_gather_s(1.6e9, 16, b) == pytest.approx(1.5e9 / 90e9)
    assert torus.all_reduce_s(1.6e9, 16, b) == pytest.approx(2 * 1.5e9 / 90e9)


def test_line_of_four_is_the_books_v5e_example():
    # 34 MB over 4 chips without wraparound: 3 hops of V/4 at 45 GB/s = 566.7 µs; 3 hops of 1 µs.
    b = torus.bandwidth(torus.ports(1, closes=False), W1)
    assert torus.all_gather_s(34e6, 4, b) == pytest.approx(3 * 8.5e6 / 45e9)
    assert torus.hops(4, 1, closes=False) == 3
    assert torus.collective_s(torus.latency_s(3, 1e-6), 560e-6) == 560e-6
    assert torus.collective_s(torus.latency_s(3, 1e-6), 1e-6) == 3e-6


@pytest.mark.parametrize(
    ("size", "stride", "closes", "hops"),
    [(16, 1, True, 8), (5, 1, True, 3), (4, 4, True, 8), (4, 1, False, 3), (1, 1, False, 0)],
)
def test_hops_are_half_a_ring_or_a_whole_line(size, stride, closes, hops):
    assert torus.hops(size, stride, closes) == hops


def test_corner_to_corner_of_a_4x4_is_the_books_question_5():
    # 6 hops of 1 µs; 17.1 MB over the 2 ports of a corner at 45 GB/s = 190 µs.
    assert torus.point_to_point_s(17.1e6, 6, 1e-6, 2, W1) == pytest.approx(6e-6 + 190e-6)


def test_a_hop_hides_45_kb_on_v5e_and_100_kb_on_v6e():
    assert torus.latency_bound_below_bytes(1e-6, 45e9) == pytest.approx(45e3)
    assert torus.latency_bound_below_bytes(1e-6, 100e9) == pytest.approx(100e3)


def test_a_strided_piece_shares_its_ring():
    # 4 of 16, 4 apart, wrapped: s (g-1)/g V/W2 = 4 × 3/4 × V / (2 w1) = 1.5 V/w1.
    b = torus.bandwidth(torus.ports(4, closes=True), 1.0)
    assert torus.all_gather_s(1.0, 4, b) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("dims", "wraps", "fragments", "seed"),
    [
        ((4,), (True,), 4, 0),
        ((8,), (True,), 4, 0),
        ((4,), (False,), 4, 0),
        ((2, 2), (False, False), 8, 0),
        ((2, 4), (False, False), 4, 2),
        ((4, 4), (False, False), 8, 0),
        ((4, 4), (True, True), 8, 0),
        ((2, 2, 2), (False, False, False), 9, 0),
        ((4, 4, 4), (True, True, True), 6, 0),
        ((4, 16), (False, True), 8, 0),
        ((8, 16), (False, True), 3, 0),
    ],
)
def test_a_schedule_on_the_links_reaches_the_all_gather_bound(dims, wraps, fragments, seed):
    # Steps of one fragment a link against (n-1) fragments through the ports of a corner.
    n = int(np.prod(dims))
    b = torus.bandwidth(sum(torus.ports(1, wrap) for wrap in wraps), 1.0)
    bound = torus.all_gather_s(n * fragments, n, b)
    assert gossip_steps(dims, wraps, fragments, seed) == pytest.approx(np.ceil(bound))


@pytest.mark.parametrize(
    ("dims", "wraps", "strides"),
    [
        ((16,), (True,), (1,)),
        ((4,), (True,), (4,)),
        ((4, 4), (True, True), (2, 1)),
        ((4, 4), (True, False), (4, 1)),
        ((4, 4), (False, False), (1, 2)),
        ((2, 8), (True, True), (8, 1)),
        ((2, 4), (False, True), (1, 1)),
        ((2, 2, 4), (False, False, True), (1, 2, 1)),
        ((3, 5), (False, True), (1, 3)),
    ],
)
def test_no_schedule_beats_the_bound_and_the_best_reaches_it(dims, wraps, strides):
    # Exact, over every set of chips: mixed wraps and pieces that other groups share included.
    n = int(np.prod(dims))
    ports = sum(torus.ports(s, w) for w, s in zip(wraps, strides, strict=True))
    assert worst_cut(dims, wraps, strides) == pytest.approx(torus.all_gather_s(n, n, ports))


@pytest.mark.parametrize(("size", "stride"), [(4, 1), (16, 1), (4, 4), (8, 2), (5, 3)])
@pytest.mark.parametrize("closes", [True, False])
def test_interleaved_groups_load_the_busiest_link_as_the_formula_says(size, stride, closes):
    # V = size shards of one byte; every one of the `stride` groups gathers at once.
    b = torus.bandwidth(torus.ports(stride, closes), 1.0)
    load = ring_shift_load(size, stride, stride, closes)
    assert load == pytest.approx(torus.all_gather_s(size, size, b))


@pytest.mark.parametrize(
    ("dims", "wraps"),
    [
        ((4,), (True,)),
        ((8,), (True,)),
        ((5,), (True,)),
        ((4,), (False,)),
        ((5,), (False,)),
        ((2, 2), (False, False)),
        ((2, 4), (False, False)),
        ((4, 4), (True, True)),
        ((4, 6), (True, False)),
        ((2, 2, 4), (False, False, True)),
    ],
)
def test_all_to_all_is_the_bytes_through_the_busiest_link(dims, wraps):
    # One byte from every chip to every chip: V = n² bytes.
    n = int(np.prod(dims))
    load = torus.all_to_all_load([(d, 1, w) for d, w in zip(dims, wraps, strict=True)])
    assert torus.all_to_all_s(n * n, load, n, 1.0) == pytest.approx(all_to_all_load(dims, wraps))


def test_all_to_all_on_a_ring_is_a_quarter_of_the_all_gather_limit():
    # (V/W2)/4 on an even ring; on a line twice that.
    ring = torus.all_to_all_s(1e9, torus.all_to_all_load([(16, 1, True)]), 16, W1)
    line = torus.all_to_all_s(1e9, torus.all_to_all_load([(16, 1, False)]), 16, W1)
    assert ring == pytest.approx(1e9 / (2 * W1) / 4)
    assert line == pytest.approx(2 * ring)


@pytest.mark.parametrize(
    ("link", "bisection", "pod"), [(50e9, 1.6e12, 51.2e12), (100e9, 3.2e12, 102.4e12)]
)
def test_google_pod_totals_of_v5e_and_v6e(link, bisection, pod):
    # 16 rows × 2 cuts × link; 256 chips × 4 ports × link.
    assert torus.bisection_bytes_per_s(16, 2, link) == bisection
    assert 256 * torus.bandwidth(2 * torus.ports(1, closes=True), link) == pod
