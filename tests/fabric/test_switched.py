"""Switched domains, full meshes, scale-out and DCN: the formulas on the sources' own examples."""

import pytest

from chipshift.fabric import dcn, mesh, neuron, scale_out, switched


def test_all_gather_of_512_mib_on_8_h100():
    # 7/8 × 512 MiB / 450 GB/s = 1.044 ms (1.5 ms measured).
    assert switched.all_gather_s(2**29, 8, 450e9) == pytest.approx(1.044e-3, 1e-3)


def test_all_reduce_is_twice_and_the_switch_could_halve_it():
    assert switched.all_reduce_s(8e9, 8, 450e9) == pytest.approx(2 * 7e9 / 450e9)
    assert switched.all_reduce_in_switch_s(8e9, 8, 450e9) == pytest.approx(8e9 / 450e9)
    assert switched.all_reduce_in_switch_s(8e9, 1, 450e9) == 0


def test_all_to_all_is_n_times_cheaper_than_all_gather():
    gather = switched.all_gather_s(1e9, 8, 450e9)
    assert switched.all_to_all_s(1e9, 8, 450e9) == pytest.approx(gather / 8)


@pytest.mark.parametrize(("n", "k", "share"), [(8, 8, 1.0), (8, 2, 0.25), (4, 8, 1.0)])
def test_ragged_all_to_all_moves_k_of_n(n, k, share):
    assert switched.ragged_share(n, k) == share


def test_distinct_destinations():
    # Z = 2 groups, K = 1: half the tokens leave: (1 - 1/2) × 1/2 = 1/4 of tokens × groups.
    assert switched.distinct_share(2, 1) == pytest.approx(0.25)
    # Z = 8, K = 8: (1 - (7/8)^8) × 7/8 = (1 - 0.3436) × 0.875 = 0.5743.
    assert switched.distinct_share(8, 8) == pytest.approx(0.5743, 1e-4)


def test_a_mesh_group_has_only_its_own_links():
    # Two MI300X: one link of 64 GB/s; eight: seven, 448 GB/s. MI355X: 7 × 76.5 = 535.5.
    assert mesh.bandwidth(2, 64e9) == 64e9
    assert mesh.bandwidth(8, 64e9) == 448e9
    assert mesh.bandwidth(8, 76.5e9) == 535.5e9
    assert mesh.bandwidth(1, 64e9) == 64e9


def test_superpod_levels_bind_at_the_leaf():
    # V/T: node 8/7 × 450 = 514, leaf 32/31 × 400 = 413, spine 4/3 × 12,800 = 17,067 GB/s.
    levels = {"node": (8, 450e9), "leaf": (32, 400e9), "spine": (4, 12.8e12)}
    rates = {name: 1 / scale_out.tree_level_s(1.0, d, w) for name, (d, w) in levels.items()}
    assert rates["node"] == pytest.approx(514.3e9, 1e-3)
    assert rates["leaf"] == pytest.approx(412.9e9, 1e-3)
    assert rates["spine"] == pytest.approx(17.07e12, 1e-3)
    assert min(rates, key=rates.get) == "leaf"


def test_an_array_cut_over_an_inner_axis():
    # Node term divided by min(Y, D), scale-out term multiplied by D/max(D, Y); D = 8 GPUs.
    node, leaf = (8, 1, 450e9), (32, 8, 400e9)

    def level(y, children, below, egress):
        return scale_out.sharded_tree_level_s(1.0, children, below, y, egress)

    def at(y, level_):
        children, below, egress = level_
        return level(y, children, below, egress)

    assert at(4, node) == pytest.approx(at(1, node) / 4)
    assert at(4, leaf) == pytest.approx(at(1, leaf))
    assert at(16, leaf) == pytest.approx(at(1, leaf) / 2)
    assert at(1, leaf) == pytest.approx(scale_out.tree_level_s(1.0, 32, 400e9))


def test_four_nodes_of_8_b200():
    # 4 GiB: a flat ring with every NIC busy: 2 × 31/32 × 4.295e9 / (8 × 50e9) = 20.8 ms; over
    # one NIC 2^32/50e9 = 85.9 ms; measured 22.05 ms, busbw 377 GB/s: 36.5 GB/s a NIC.
    v = 2**32
    assert scale_out.flat_ring_all_reduce_s(v, 32, 8, 50e9) == pytest.approx(20.8e-3, 1e-3)
    assert scale_out.permute_s(v, 2, 50e9) == pytest.approx(85.9e-3, 1e-3)
    assert scale_out.nic_rate_used(377e9, 32, 4) == pytest.approx(36.5e9, 1e-3)
    # Phases: 2 × 7/8 × V/900e9 = 8.35 ms inside, 2 × 3/4 × V/400e9 = 16.1 ms between.
    assert scale_out.hierarchical_all_reduce_s(v, 8, 4, 900e9, 50e9) == pytest.approx(16.1e-3, 1e-3)
    # The middle phase of the hierarchical form at that rate is the measured time again.
    assert scale_out.all_reduce_s(v, 4, 8, 377e9 * 3 / 31) == pytest.approx(22.05e-3, 2e-3)


def test_levels_are_pipelined():
    assert scale_out.two_level_s(3.0, 5.0) == 5.0


def test_all_to_all_across_nodes():
    # V (M-1)/(M² W_node): 1 GB over 4 nodes of 400 GB/s: 3/16 × 1e9/400e9 = 0.469 ms.
    assert scale_out.all_to_all_s(1e9, 4, 8, 50e9) == pytest.approx(3 / 16 / 400)


def test_pipeline_transfer():
    # 2 × 1e9/(50e9 × 8) × (8 + 4 - 2) = 50 ms.
    assert scale_out.pipeline_transfer_s(1e9, 50e9, 8, 4) == pytest.approx(0.05)


def test_dcn_all_reduce_over_four_v6e_pods():
    # 2 × 3/4 × (1e9/256) / 12.5e9 = 0.469 ms.
    assert dcn.all_reduce_s(1e9, 4, 256, 12.5e9) == pytest.approx(1.5 * 1e9 / 256 / 12.5e9)
    assert dcn.all_gather_s(1e9, 4, 256, 12.5e9) == pytest.approx(0.75 * 1e9 / 256 / 12.5e9)
    assert dcn.all_to_all_s(1e9, 4, 256, 12.5e9) == pytest.approx(0.1875 * 1e9 / 256 / 12.5e9)


@pytest.mark.parametrize(
    ("size", "name", "steps"), [(5e5, "mesh", 1), (1e7, "rdh", 5), (1e8, "kangaring", 16)]
)
def test_neuron_picks_its_algorithm_by_size(size, name, steps):
    # 32 ranks: mesh 1 step, recursive doubling log2(32) = 5, KangaRing half of 31 hops.
    assert neuron.algorithm(size) == name
    assert neuron.latency_s(32, size, 1e-6) == pytest.approx(steps * 1e-6)


def test_neuron_traffic():
    assert neuron.ring_traffic_bytes(16, 1e6) == 15e6
    assert neuron.mesh_all_reduce_traffic_bytes(16, 1e6) == 240e6
    assert neuron.ring_steps(16) == 15
