"""Every data file is sourced and checked, and its figures agree with each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.machines.compare import ridge_flop_per_byte, scale_up_bytes_per_s
from chipshift.machines.load import DATA, KEYS, all_chips, chip, chip_file, read_chip_file

EVERY_CHIP = (
    "peak_bf16_flop_per_s", "hbm_bytes", "usable_hbm_bytes_per_device",
    "hbm_bandwidth_bytes_per_s", "scale_up_link_bytes_per_s", "scale_up_links",
    "scale_up_domain_chips", "scale_up_hop_latency_s", "scale_out_bytes_per_s", "chips_per_host",
)  # fmt: skip
EVERY_GPU = (
    "l2_bytes", "sm_count", "smem_bytes_per_sm", "clock_hz",
    "tensor_flop_per_cycle_per_sm_bf16", "scale_out_hop_latency_s",
)  # fmt: skip
EVERY_ARRAY = (
    "vmem_bytes",
    "matrix_unit_rows",
    "matrix_unit_cols",
    "matrix_units",
    "cores_per_chip",
)


def test_there_is_one_file_for_each_key() -> None:
    assert sorted(path.stem for path in DATA.glob("*.toml")) == sorted(KEYS)
    assert [chip.key for chip in all_chips()] == list(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_every_figure_has_a_publisher_and_a_date(key: str) -> None:
    for name, figure in chip(key).figures.items():
        for source in (figure.source, *(other.source for other in figure.alternatives)):
            assert len(source) > 8, (key, name)
            assert not re.search(r"\bid[ :=]?\d", source), (key, name, source)
        assert re.match(r"20[12]\d", figure.date), (key, name)
        for other in figure.alternatives:
            assert other.value != figure.value, (key, name)
            assert other.why_not, (key, name)


@pytest.mark.parametrize("key", KEYS)
def test_every_chip_has_what_an_estimate_needs(key: str) -> None:
    found = chip(key)
    needed = EVERY_CHIP + (EVERY_GPU if found.family == "gpu" else EVERY_ARRAY)
    assert [name for name in needed if not found.has(name)] == []
    assert found.has("dcn_bytes_per_s") == (found.family == "tpu")


@pytest.mark.parametrize("key", KEYS)
def test_what_is_not_given_says_why_and_is_not_given(key: str) -> None:
    table = chip_file(key)
    assert not set(table.absent) & set(table.chip.figures)
    assert all(len(why) > 10 for why in table.absent.values())


@pytest.mark.parametrize("key", ["trn2", "trn3", "v4", "mi325x", "mi350x"])
def test_no_on_demand_price_where_none_is_sourced(key: str) -> None:
    assert not chip(key).has("price_usd_per_chip_hour_od")
    assert "price_usd_per_chip_hour_od" in chip_file(key).absent


@pytest.mark.parametrize("key", ["a100", "v4", "v5e"])
def test_no_fp8_where_there_is_none(key: str) -> None:
    assert not chip(key).has("peak_fp8_flop_per_s")


def test_conflicts_are_resolved_and_the_alternatives_kept() -> None:
    def others(key: str, name: str) -> set[float]:
        return {other.value for other in chip(key).figures[name].alternatives}

    # A TPU link is what Google prints; the achieved rate, 10% lower, is never the base of another.
    for key, printed, achieved in (("v5e", 50e9, 45e9), ("v6e", 100e9, 90e9), ("v7x", 100e9, 90e9)):
        assert chip(key).value("scale_up_link_bytes_per_s") == printed
        assert achieved in others(key, "scale_up_link_bytes_per_s")
    assert chip("v5p").value("hbm_bandwidth_bytes_per_s") == 2765e9
    assert 2.46e12 in others("v5p", "hbm_bandwidth_bytes_per_s")
    # fp8 runs at the bf16 rate on v5p and v6e; v7x doubles it, and has no agreed int8.
    for key in ("v5p", "v6e"):
        peak = chip(key).peak_flop_per_s
        assert peak("fp8") == peak("bf16")
    assert chip("v7x").value("peak_fp8_flop_per_s") == 2 * chip("v7x").value("peak_bf16_flop_per_s")
    assert not chip("v7x").has("peak_int8_flop_per_s")
    assert chip("v5e").value("vmem_bytes") == 128 * 2**20
    assert 48 * 2**20 in others("v5e", "vmem_bytes")
    assert chip("b200").value("hbm_bandwidth_bytes_per_s") == 7.7e12
    assert 2.25e15 in others("gb200", "peak_bf16_flop_per_s")
    assert chip("b300").value("peak_int8_flop_per_s") == 150e12
    assert 76.5e9 in others("mi355x", "scale_up_link_bytes_per_s")
    assert "second hand" in chip("trn2").figures["scale_up_link_bytes_per_s"].source


def test_usable_bytes_are_what_a_program_can_allocate() -> None:
    usable = {key: chip(key).value("usable_hbm_bytes_per_device") for key in KEYS}
    assert usable["h100"] == 84_942_979_072  # the label says 80e9
    assert usable["h200"] == 144_384 * 2**20
    assert usable["mi300x"] == 192 * 2**30
    assert usable["v6e"] == 31.25 * 2**30
    assert usable["v5p"] == 95 * 2**30
    assert usable["v7x"] == 94.75 * 2**30  # each of two devices, of its own 96
    assert usable["v5e"] == 15.75 * 2**30
    assert usable["v4"] == 30.75 * 2**30  # one device a chip (megacore)
    assert usable["trn2"] == 96 * 2**30 / 4  # four devices at LNC=2
    for key in ("mi325x", "mi350x", "trn1", "trn2", "trn3"):
        assert chip(key).figures["usable_hbm_bytes_per_device"].source.startswith("assumed: ")


# Arithmetic identities: a peak follows from units, width and clock.


@pytest.mark.parametrize(
    ("key", "peak_tflop_per_s"),
    [
        ("h100", 989.4),  # 132 SM x 4096 FLOP x 1.83e9
        ("h200", 989.4),
        ("a100", 311.9),  # 108 x 2048 x 1.41e9
        ("gb200", 2500.0),  # 148 x 8192 x 2.062e9
        ("mi300x", 1307.4),  # 304 x 2048 x 2.1e9
        ("mi325x", 1307.4),
        ("mi350x", 2306.9),  # 256 x 4096 x 2.2e9
        ("mi355x", 2516.6),  # 256 x 4096 x 2.4e9
    ],
)
def test_gpu_peak_is_units_by_flop_a_cycle_by_clock(key: str, peak_tflop_per_s: float) -> None:
    it = chip(key).value
    product = it("sm_count") * it("tensor_flop_per_cycle_per_sm_bf16") * it("clock_hz")
    assert product / 1e12 == pytest.approx(peak_tflop_per_s, abs=0.05)
    assert it("peak_bf16_flop_per_s") == pytest.approx(product, rel=5e-4)


@pytest.mark.parametrize(
    ("key", "peak_tflop_per_s"),
    [
        ("v4", 275.3),  # 8 x 128^2 x 2 x 1.05e9
        ("v5e", 196.6),  # 4 x 128^2 x 2 x 1.5e9
        ("v5p", 458.8),  # 8 x 128^2 x 2 x 1.75e9
        ("trn2", 629.1),  # 8 x 128^2 x 2 x 2.4e9, below the published 667
        ("trn1", 183.5),  # 2 x 128^2 x 2 x 2.8e9, below the published 190
    ],
)
def test_matrix_units_by_clock(key: str, peak_tflop_per_s: float) -> None:
    it = chip(key).value
    product = (
        it("matrix_units") * it("matrix_unit_rows") * it("matrix_unit_cols") * 2 * it("clock_hz")
    )
    assert product / 1e12 == pytest.approx(peak_tflop_per_s, abs=0.06)
    if key.startswith("v"):
        assert it("peak_bf16_flop_per_s") == pytest.approx(product, rel=3e-3)
    else:
        assert product < it("peak_bf16_flop_per_s") < 1.1 * product


@pytest.mark.parametrize("key", ["v6e", "v7x"])
def test_no_clock_from_which_to_work_out_a_wrong_peak(key: str) -> None:
    assert not chip(key).has("clock_hz")


def test_pod_totals() -> None:
    # v5e: 256 chips x 4 links x 50 GB/s = 51.2 TB/s of all-reduce; the bisection of a 16x16 torus
    # cuts 16 rows twice: 16 x 2 x 50 GB/s = 1.6 TB/s. v6e: twice both.
    for key, all_reduce, bisection in (("v5e", 51.2e12, 1.6e12), ("v6e", 102.4e12, 3.2e12)):
        assert 256 * scale_up_bytes_per_s(chip(key)) == all_reduce
        assert 16 * 2 * chip(key).value("scale_up_link_bytes_per_s") == bisection


def test_rack_and_instance_totals() -> None:
    # NVL72: 72 GPUs x 1.8 TB/s both ways = 129.6, printed as 130 TB/s.
    assert 72 * 2 * scale_up_bytes_per_s(chip("gb200")) == pytest.approx(129.6e12)
    # 72 x 8 TB/s = 576 TB/s of HBM and 72 x 186 GB = 13.4 TB, as NVIDIA prints for the rack.
    assert 72 * chip("gb200").value("hbm_bandwidth_bytes_per_s") == 576e12
    assert 72 * chip("gb200").value("hbm_bytes") == pytest.approx(13.4e12, rel=2e-3)
    # 2575 GiB/s in another copy of the v5p page is the 2765 GB/s of this one.
    assert chip("v5p").value("hbm_bandwidth_bytes_per_s") == pytest.approx(2575 * 2**30, rel=1e-3)
    # Trainium2: 16 x 667 = 10.67 PFLOP/s and 16 x 1299 = 20.8 an instance.
    assert 16 * chip("trn2").value("peak_bf16_flop_per_s") == pytest.approx(10.67e15, rel=1e-3)
    assert 16 * chip("trn2").value("peak_fp8_flop_per_s") == pytest.approx(20.8e15, rel=1e-3)
    # Trainium3: 64 x 2517 = 161,088 TFLOP/s an UltraServer of 64.
    assert 64 * chip("trn3").value("peak_fp8_flop_per_s") == 161_088e12
    # Trainium2's links: 4 x 128 + 2 x 64 = 640 GB/s each way, half of the 1280 that AWS prints.
    assert scale_up_bytes_per_s(chip("trn2")) == 640e9
    # Ironwood pod: 9216 x 4614 TFLOP/s = 42.5 EFLOP/s of fp8, 9216 x 192 GiB = 1.77e6 GiB ("PB").
    assert 9216 * chip("v7x").value("peak_fp8_flop_per_s") == pytest.approx(42.5e18, rel=1e-3)
    assert 9216 * chip("v7x").value("hbm_bytes") / 2**30 == pytest.approx(1.77e6, rel=1e-3)


@pytest.mark.parametrize(
    ("key", "flop_per_byte"),
    [
        ("a100", 153), ("h100", 295), ("h200", 206), ("b200", 292), ("gb200", 312), ("b300", 292),
        ("gb300", 312), ("mi300x", 247), ("mi325x", 218), ("mi355x", 315), ("v4", 229),
        ("v5e", 241), ("v5p", 166), ("v6e", 560), ("v7x", 313), ("trn1", 232), ("trn2", 230),
        ("trn3", 137),
    ],
)  # fmt: skip
def test_bf16_ridge_against_hbm(key: str, flop_per_byte: int) -> None:
    # For example v6e: 918e12 FLOP/s / 1638e9 B/s = 560.4 FLOP a byte.
    assert ridge_flop_per_byte(chip(key), "bf16") == pytest.approx(flop_per_byte, abs=0.6)


def test_ridge_of_a_dtype_that_a_chip_has_not() -> None:
    assert ridge_flop_per_byte(chip("v5e"), "fp8") is None


def test_devices_share_a_chip() -> None:
    several = {one.key: one.devices_per_chip for one in all_chips() if one.devices_per_chip > 1}
    assert several == {"v7x": 2, "trn1": 2, "trn2": 4, "trn3": 4}
    assert chip("v7x").peak_flop_per_s("bf16") == 1153.5e12


# A broken data file says which file, which key, what was found and what was expected.


def broken(tmp_path: Path, old: str, new: str) -> Path:
    text = (DATA / "h100.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "h100.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('key = "h100"', "key = 1", "h100.toml: 'key' must be a string, found 1"),
        ('vendor = "nvidia"', 'vendor = "nvidea"', "expected one of nvidia (gpu)"),
        ("devices_per_chip = 1", "devices_per_chip = 0", "'devices_per_chip' must be 1 or more"),
        ("value = 989.4e12", "value = nan", "peak_bf16_flop_per_s: value must be a finite number"),
        ("value = 989.4e12", "value = 0", "value must be above 0"),
        ("value = 989.4e12", "valu = 1", "unknown key 'valu'"),
        ('unit = "FLOP/s"', 'unit = "TFLOP/s"', "unit must be 'FLOP/s', found 'TFLOP/s'"),
        ('date = "2026-08-22"', 'date = "22 August"', "date must be a string YYYY"),
        ('source = "Stas', 'source = " "  # "Stas', "'source' must be a sentence, found ' '"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = broken(tmp_path, old, new)
    with pytest.raises(InputError) as caught:
        read_chip_file(path)
    assert sentence in str(caught.value) and str(caught.value).startswith("h100.toml")


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("= 1", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.toml: cannot be read as TOML"):
        read_chip_file(path)


def test_an_unknown_key() -> None:
    with pytest.raises(InputError, match="no chip is called 'h1000'; did you mean 'h100'"):
        chip("h1000")
