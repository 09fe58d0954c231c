"""Which slices can be rented, which of their axes wrap, and the fabric that follows."""

from __future__ import annotations

import pytest

from chipshift.errors import InputError
from chipshift.machines import all_slices, gpu_machine, parse_machine, rentable, wraps
from chipshift.machines.load import KEYS, chip, chip_file

YES, NO = True, False


@pytest.mark.parametrize("key", ["v5e", "v6e"])
@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ((1, 1), (NO, NO)), ((2, 2), (NO, NO)), ((2, 4), (NO, NO)), ((4, 4), (NO, NO)),
        ((4, 8), (NO, NO)), ((8, 8), (NO, NO)), ((8, 16), (NO, YES)), ((16, 16), (YES, YES)),
    ],
)  # fmt: skip
def test_an_axis_of_v5e_and_v6e_wraps_only_where_it_is_16_long(
    key: str, dims: tuple[int, ...], expected: tuple[bool, ...]
) -> None:
    assert wraps(key, dims) == expected
    assert {shape.dims: shape.wraps for shape in rentable(key)}[dims] == expected


@pytest.mark.parametrize("key", ["v4", "v5p", "v7x"])
@pytest.mark.parametrize(
    ("dims", "wrapped"),
    [
        ((2, 2, 1), NO), ((2, 2, 2), NO), ((2, 2, 4), NO), ((2, 4, 4), NO),
        ((4, 4, 4), YES), ((4, 4, 8), YES), ((4, 8, 8), YES), ((8, 8, 8), YES), ((8, 8, 12), YES),
    ],
)  # fmt: skip
def test_v4_v5p_and_v7x_wrap_on_every_axis_or_on_none(
    key: str, dims: tuple[int, ...], wrapped: bool
) -> None:
    assert wraps(key, dims) == (wrapped,) * 3
    assert {shape.dims: shape.wraps for shape in rentable(key)}[dims] == (wrapped,) * 3


def test_wraps_of_trainium() -> None:
    assert wraps("trn2", (4, 4)) == (YES, YES)
    assert wraps("trn2", (4, 4, 4)) == (YES, YES, YES)
    assert wraps("trn1", (1, 1)) == (NO, NO)


def test_a_gpu_has_no_slices() -> None:
    assert rentable("h100") == () and all_slices("h100") == ()
    with pytest.raises(InputError, match="h100 is not rented in slices"):
        wraps("h100", (8, 8))
    with pytest.raises(InputError, match="v6e is rented in slices"):
        gpu_machine("v6e", 8)


@pytest.mark.parametrize("key", [key for key in KEYS if chip(key).family != "gpu"])
def test_slices_are_in_order_and_hold_whole_hosts(key: str) -> None:
    shapes = rentable(key)
    assert [shape.chips for shape in shapes] == sorted(shape.chips for shape in shapes)
    assert len({shape.dims for shape in shapes}) == len(shapes)
    names = [shape.cloud_name for shape in shapes if shape.cloud_name]
    assert len(set(names)) == len(names)
    for shape in shapes:
        for vm in shape.vms:
            assert shape.chips % vm.chips == 0, (shape.topology, vm.name)
        assert shape.hosts * shape.vm.chips == shape.chips
    assert [machine.chips for machine in all_slices(key)] == [shape.chips for shape in shapes]


@pytest.mark.parametrize(
    ("key", "prefix", "counted"),
    [("v4", "v4", 2), ("v5p", "v5p", 2), ("v7x", "tpu7x", 2), ("v5e", "v5litepod", 1),
     ("v6e", "v6e", 1)],
)  # fmt: skip
def test_the_clouds_number_counts_cores(key: str, prefix: str, counted: int) -> None:
    for shape in rentable(key):
        assert shape.cloud_name == f"{prefix}-{shape.chips * counted}"


def test_the_biggest_slices() -> None:
    biggest = {key: rentable(key)[-1].topology for key in ("v4", "v5e", "v5p", "v6e", "v7x")}
    assert biggest == {
        "v4": "16x16x16",  # 4096 chips, the pod
        "v5e": "16x16",
        "v5p": "16x16x24",  # 6144 of the pod's 8960
        "v6e": "16x16",
        "v7x": "16x24x24",  # 9216, the pod
    }


def test_network_of_each_machine_type() -> None:
    # v6e, a chip: 400 Gb/s over 4 chips = 12.5 GB/s; 200 over 8 = 3.125; 50 over 1 = 6.25.
    rates = {vm.name: vm.dcn_bytes_per_s for shape in rentable("v6e") for vm in shape.vms}
    assert rates == {
        "ct6e-standard-1t": 6.25e9,
        "ct6e-standard-4t": 12.5e9,
        "ct6e-standard-8t": 3.125e9,
    }


def test_fabric_of_one_slice_and_of_several() -> None:
    one = parse_machine("v6e:8x16")
    assert len(one.fabric) == 1
    torus = one.fabric[0]
    assert (torus.kind, torus.dims, torus.wraps) == ("torus", (8, 16), (NO, YES))
    assert torus.link_bytes_per_s == 100e9 and torus.hop_latency_s == 1e-6
    inner, outer = parse_machine("v6e:16x16*4").fabric
    assert (inner.kind, inner.dims) == ("torus", (16, 16))
    assert (outer.kind, outer.dims, outer.link_bytes_per_s) == ("dcn", (4,), 12.5e9)


def test_links_belong_to_chips_and_not_to_devices() -> None:
    assert parse_machine("v7x:4x4x4").fabric[0].link_bytes_per_s == 100e9


def test_fabric_of_gpus() -> None:
    inner, outer = parse_machine("h100:8x64").fabric
    assert (inner.kind, inner.dims, inner.link_bytes_per_s) == ("switched", (8,), 18 * 25e9)
    assert (outer.kind, outer.dims, outer.link_bytes_per_s) == ("scale_out", (64,), 50e9)
    mesh = parse_machine("mi300x*8").fabric
    assert len(mesh) == 1
    assert (mesh[0].kind, mesh[0].link_bytes_per_s) == ("mesh", 64e9)  # to each peer
    assert parse_machine("gb200*256").topology == "64x4"  # 64 is the largest divisor up to 72
    assert parse_machine("gb200*144").topology == "72x2"


def test_fabric_of_an_ultraserver_has_a_slower_third_axis() -> None:
    within, between = parse_machine("trn2:4x4x4").fabric
    assert (within.kind, within.dims, within.link_bytes_per_s) == ("torus", (4, 4), 128e9)
    assert (between.kind, between.dims, between.link_bytes_per_s) == ("torus", (4,), 64e9)
    outer = parse_machine("trn2:4x4x4*2").fabric[-1]
    assert (outer.kind, outer.dims, outer.link_bytes_per_s) == ("scale_out", (2,), 25e9)


def test_counts_of_chips_become_slices() -> None:
    written = {
        "v5p*64": "v5p:4x4x4",
        "v7x*256": "v7x:4x8x8",  # the nearest to a cube of all that have 256
        "v6e*3072": "v6e:16x16*12",
        "v6e*384": "v6e:8x16*3",
        "v5e*8192": "v5e:16x16*32",
        "trn1*512": "trn1:4x4*32",
        "trn2*32": "trn2:4x4*2",
        "trn2*128": "trn2:4x4x4*2",
        "trn3*144": "trn3:144",
    }
    for text, name in written.items():
        assert parse_machine(text).name == name


@pytest.mark.parametrize("key", [key for key in KEYS if chip(key).family != "gpu"])
def test_tables_of_slices_and_of_machine_types_are_sourced(key: str) -> None:
    table = chip_file(key)
    for name, row in {"slices": table.slices, **table.vms}.items():
        assert len(row["source"]) > 8, (key, name)
        assert row["date"].startswith("20"), (key, name)
    used = {vm.name for shape in rentable(key) for vm in shape.vms}
    assert used == set(table.vms)
