"""Names of machines: every form, both ways, and the sentence each mistake gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.machines import all_slices, chip_named, gpu_machine, parse_machine, readings
from chipshift.machines.announced import announced, chips_per_host
from chipshift.machines.instances import instances
from chipshift.machines.load import KEYS, chip
from chipshift.machines.names import has_size
from chipshift.machines.slices import rentable

SLICED = [key for key in KEYS if chip(key).family != "gpu"]
GPUS = [key for key in KEYS if chip(key).family == "gpu"]


@pytest.mark.parametrize(
    ("written", "name", "chips", "devices"),
    [
        ("v6e:16x16", "v6e:16x16", 256, 256),
        ("v6e:16x8", "v6e:8x16", 128, 128),
        ("v6e:16x16*4", "v6e:16x16*4", 1024, 1024),
        ("v6e*1024", "v6e:16x16*4", 1024, 1024),
        ("v6e-256", "v6e:16x16", 256, 256),
        ("v6e-256*2", "v6e:16x16*2", 512, 512),
        ("v5p-128", "v5p:4x4x4", 64, 64),  # TensorCores, two a chip
        ("tpu7x-128", "v7x:4x4x4", 64, 128),  # TensorCores, two a chip, and each a device
        ("v7x*64", "v7x:4x4x4", 64, 128),
        ("v7x:8x4x4", "v7x:4x4x8", 128, 256),
        ("v7x:2x2", "v7x:2x2x1", 4, 8),
        ("v5litepod-16", "v5e:4x4", 16, 16),
        ("v5e-16", "v5e:4x4", 16, 16),
        ("h100:8x64", "h100:8x64", 512, 512),
        ("h100:64x8", "h100:8x64", 512, 512),
        ("h100:8", "h100:8x1", 8, 8),
        ("h100*512", "h100:8x64", 512, 512),
        ("h100*12", "h100:6x2", 12, 12),  # the largest divisor of 12 that is not above 8
        ("  H100-SXM * 8 ", "h100:8x1", 8, 8),
        ("Ironwood:4×4×4", "v7x:4x4x4", 64, 128),
        ("TRILLIUM*256", "v6e:16x16", 256, 256),
        ("16*p5.48xlarge", "h100:8x16", 128, 128),  # eight GPUs each, a domain each
        ("p5.48xlarge*16", "h100:8x16", 128, 128),
        ("p4de.24xlarge", "a100:8x1", 8, 8),
        ("p5en.48xlarge*2", "h200:8x2", 16, 16),
        ("ml.p5.48xlarge", "h100:8x1", 8, 8),
        ("a3-highgpu-8g*4", "h100:8x4", 32, 32),
        ("a3-megagpu-8g", "h100:8x1", 8, 8),
        ("a3-ultragpu-8g", "h200:8x1", 8, 8),
        ("a4-highgpu-8g", "b200:8x1", 8, 8),
        ("a4x-highgpu-4g*36", "gb200:72x2", 144, 144),  # 4 a tray, 18 trays a rack
        ("u-p6e-gb200x36*2", "gb200:36x2", 72, 72),  # half racks are domains of their own
        ("ND96isr_H100_v5*8", "h100:8x8", 64, 64),
        ("Standard_ND96isr_MI300X_v5", "mi300x:8x1", 8, 8),
        ("BM.GPU.MI355X.8*64", "mi355x:8x64", 512, 512),
        ("trn1.32xlarge", "trn1:4x4", 16, 32),
        ("trn1n.32xlarge*2", "trn1:4x4*2", 32, 64),
        ("2*trn2.48xlarge", "trn2:4x4*2", 32, 128),
        ("trn2u.48xlarge*4", "trn2:4x4x4", 64, 256),  # four make an UltraServer
        ("ct6e-standard-4t", "v6e:2x2", 4, 4),
        ("ct6e-standard-4t*64", "v6e:16x16", 256, 256),  # hosts of one slice
        ("tpu7x-standard-4t*16", "v7x:4x4x4", 64, 128),
        ("2*v6e:16x16", "v6e:16x16*2", 512, 512),
        ("128*h100", "h100:8x16", 128, 128),
    ],
)
def test_every_form(written: str, name: str, chips: int, devices: int) -> None:
    machine = parse_machine(written)
    assert (machine.name, machine.chips, machine.devices) == (name, chips, devices)
    assert parse_machine(machine.cloud_name or machine.name) == machine
    assert parse_machine(machine.name).name == machine.name


def test_readings_give_chips_devices_and_the_clouds_name() -> None:
    assert readings(parse_machine("v7x:4x4x4")) == "64 chips = 128 devices = tpu7x-128 (4x4x4)"
    assert readings(parse_machine("h100*512")) == (
        "512 chips = 512 devices = h100:8x64 (64 domains of 8)"
    )
    assert readings(parse_machine("v6e*512")) == (
        "512 chips = 512 devices = v6e-256*2 (16x16, 2 slices)"
    )
    assert readings(parse_machine("v6e:1x1")) == "1 chip = 1 device = v6e-1 (1x1)"


def test_an_instance_brings_its_own_network() -> None:
    """One way, a GPU: A3 High 4 × 200 Gb/s over 8 GPUs = 100 Gb/s = 12.5 GB/s, A3 Mega twice
    that, P5 32 × 100 Gb/s over 8 = 400 Gb/s = 50 GB/s, P4de 4 × 100 over 8 = 6.25 GB/s."""
    rate = {
        name: parse_machine(f"{name}*2").fabric[-1].link_bytes_per_s
        for name in ("a3-highgpu-8g", "a3-megagpu-8g", "p5.48xlarge", "p4de.24xlarge")
    }
    assert list(rate.values()) == [12.5e9, 25e9, 50e9, 6.25e9]


@pytest.mark.parametrize("name", sorted(one.name for one in instances().values()))
def test_every_instance_is_named_both_ways(name: str) -> None:
    one, several = parse_machine(name), parse_machine(f"4*{name}")
    assert one.chips == instances()[name.lower().replace("_", "-")].chips
    assert several.chips == 4 * one.chips and several == parse_machine(f"{name}*4".upper())
    if several.cloud_name:
        assert parse_machine(several.cloud_name) == several
    assert parse_machine(several.name).chips == several.chips


def test_an_instance_without_a_network_figure_has_its_chips() -> None:
    assert parse_machine("BM.GPU.H100.8*4").fabric == parse_machine("h100:8x4").fabric


@pytest.mark.parametrize(
    ("written", "sized"),
    [("v7x", False), ("Trillium", False), ("h100_sxm", False), ("p5.48xlarge", True),
     ("v6e-256", True), ("ct6e-standard-4t", True), ("h100*8", True), ("v6e:4x4", True)],
)  # fmt: skip
def test_only_a_chip_has_no_size(written: str, sized: bool) -> None:
    assert has_size(written) is sized


@pytest.mark.parametrize("key", SLICED)
def test_every_slice_is_named_both_ways(key: str) -> None:
    for machine in all_slices(key):
        assert parse_machine(machine.name) == machine
        assert parse_machine(machine.name.upper()) == machine
        if machine.cloud_name:
            assert parse_machine(machine.cloud_name) == machine


@given(st.sampled_from(SLICED), st.data(), st.integers(1, 64))
def test_several_slices_are_named_both_ways(key: str, data: st.DataObject, slices: int) -> None:
    shape = data.draw(st.sampled_from(rentable(key)))
    machine = parse_machine(f"{key}:{shape.topology}*{slices}")
    assert machine.chips == shape.chips * slices and machine.slices == slices
    assert parse_machine(machine.name) == machine
    if machine.cloud_name:
        assert parse_machine(machine.cloud_name) == machine


@given(st.sampled_from(SLICED), st.data())
def test_the_order_of_lengths_and_the_case_do_not_matter(key: str, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(rentable(key)))
    lengths = "x".join(map(str, data.draw(st.permutations(shape.dims))))
    assert parse_machine(f"{key.upper()}:{lengths}") == parse_machine(f"{key}:{shape.topology}")


@given(st.sampled_from(SLICED), st.integers(1, 20_000))
def test_a_count_is_met_exactly_or_is_an_error(key: str, chips: int) -> None:
    try:
        machine = parse_machine(f"{key}*{chips}")
    except InputError as error:
        assert "the nearest have" in str(error)
        return
    assert machine.chips == chips
    assert parse_machine(machine.name) == machine


@given(st.sampled_from(GPUS), st.integers(1, 20_000))
def test_a_count_of_gpus_takes_the_largest_domain_that_divides_it(key: str, chips: int) -> None:
    machine = gpu_machine(key, chips)
    domain, domains = map(int, machine.topology.split("x"))
    most = int(chip(key).value("scale_up_domain_chips"))
    assert domain * domains == machine.chips == chips
    assert domain <= most
    assert not any(chips % larger == 0 for larger in range(domain + 1, most + 1))
    assert parse_machine(machine.name) == machine == parse_machine(f"{key}*{chips}")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("v6e:8x9", "no v6e slice is 8x9; the nearest that can be rented are 8x8, 8x16 and 4x8"),
        ("v7x:4x4", "the nearest that can be rented are 2x4x4, "),
        ("v7x:64", "no v7x slice is 64; the nearest that can be rented are 4x4x4, "),  # 64 chips
        ("v6e:0x1", "no v6e slice is 0x1; the nearest that can be rented are 1x1, "),
        ("v6e*100", "no v6e slice has 100 chips; the nearest have 64 (8x8) and 128 (8x16)"),
        ("v6e", "has no size: write v6e:16x16, v6e*256 or v6e-256"),
        ("h100", "has no size: write h100*128 or h100:8x16"),
        ("v5p-100", "the number counts TensorCores, 2 a chip"),
        ("v6e*0", "at least 1 chip, found 0"),
        ("v6e:4x4*0", "at least 1 chip, found 0"),
        ("v6e*-4", "not of a form that is read"),
        ("", "not of a form that is read"),
        ("v6e:16xx16", "not lengths joined by x"),
        ("h100:16x16", "at most 8 in one; write h100*256"),
        ("h100:8x64*2", "GPUs are written CHIP:DOMAINxDOMAINS"),
        ("h100*999999999", "above the 1,000,000"),
        ("h10*8", "did you mean 'h100'"),
        ("v6f-256", "no chip is called 'v6f-256'"),
        ("v3*128", "no chip is called 'v3'; did you mean 'v4'? (expected one of a100, h100,"),
        ("h100-8", "not a cloud's name"),
        ("p5.24xlarge", "no chip is called 'p5.24xlarge'; did you mean 'p5.48xlarge'?"),
        ("p4d.24xlarge*2", "did you mean 'p4de.24xlarge'?"),  # 40 GB: another chip
        ("a3-highgpu-4g", "did you mean 'a3-highgpu-8g'?"),
        ("ND96isr_H100_v6", "'ND96isr_H100_v6'; did you mean 'ND96isr_H100_v5'?"),
        ("p5.48xlarge*0", "at least 1 chip, found 0"),
        ("2*v6e:16x16*3", "gives a count twice: write v6e:16x16*6"),
    ],
)
def test_each_mistake_gets_one_sentence(written: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_machine(written)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="v6eh10px*:-. 7", max_size=14))
def test_anything_else_is_a_sentence_too(text: str) -> None:
    try:
        machine = parse_machine(text)
    except InputError:
        return
    assert parse_machine(machine.name) == machine


def test_an_unknown_chip_names_the_nearest() -> None:
    assert chip_named("Trillium").key == "v6e"
    with pytest.raises(InputError, match="did you mean 'trillium'"):
        chip_named("trilium")


@pytest.mark.parametrize("key", list(announced()))
def test_a_chip_without_figures_names_the_nearest_that_have_them(key: str) -> None:
    near = announced()[key]["nearest"]
    assert set(near) <= set(KEYS)
    for written in (f"{key}*8", f"{key.upper()}:8x2"):
        with pytest.raises(InputError, match=f"has no figures here; .* {' and '.join(near)}"):
            parse_machine(written)


def test_chips_of_a_host() -> None:
    # an HGX board has 8, a compute tray of NVL72 has 4
    assert (chips_per_host("h100"), chips_per_host("gb200")) == (8, 4)
    assert chips_per_host("vr200") == 4 and chips_per_host("no-such-chip") is None
