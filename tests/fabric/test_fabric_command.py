"""``chipshift fabric``: the contract's object, a table that fits, and one sentence for mistakes."""

import json
import math

import pytest

from chipshift.cli.app import run


def fabric(capsys, *args):
    assert run(["fabric", *args]) == 0
    return capsys.readouterr().out


def test_the_object_of_the_contract(capsys):
    found = json.loads(fabric(capsys, "v6e:16x16", "--mesh", "fsdp=16,tp=16", "--json"))
    assert found["schema"] == "chipshift/fabric/1"
    assert found["machine"] == "v6e:16x16"
    fsdp, tp = found["axes"]
    assert (fsdp["name"], fsdp["size"], fsdp["hops"], fsdp["links"]) == ("fsdp", 16, 8, 2)
    assert tp["physical"] == [{"axis": "x", "size": 16, "stride": 1, "wraps": True}]
    assert tp["wraps"] and not tp["split"]
    assert tp["bandwidth_bytes_per_s"] == pytest.approx(200e9)
    for one in found["collectives"]:
        both = (one["latency_s"], one["bandwidth_s"])
        expected = sum(both) if one["kind"] == "permute" else max(both)
        assert one["time_s"] == pytest.approx(expected, rel=1e-12)
        assert one["full_rate_s"] < one["bandwidth_s"]
    assert found["collectives"][0]["full_rate_s"] == pytest.approx(15 / 16 * 2**20 / 200e9)
    # 1 MiB all-gather: 8 hops; an 8-hop half ring cannot be faster than its hops of 1 µs.
    assert found["collectives"][0]["latency_s"] == pytest.approx(8e-6)


@pytest.mark.parametrize("machine", ["h100*128", "v6e:16x16*4", "trn2:4x4*2", "mi300x*8"])
def test_terms_add_up_beyond_a_single_torus(capsys, machine):
    devices = {"h100*128": 128, "v6e:16x16*4": 1024, "trn2:4x4*2": 128, "mi300x*8": 8}[machine]
    found = json.loads(fabric(capsys, machine, "--mesh", f"fsdp={devices}", "--json"))
    for one in found["collectives"]:
        assert one["time_s"] == pytest.approx(one["latency_s"] + one["bandwidth_s"], rel=1e-12)


def test_an_axis_of_one_has_no_bandwidth_and_no_collectives(capsys):
    found = json.loads(fabric(capsys, "v7x:4x4x4", "--mesh", "dp=1,fsdp=128", "--json"))
    alone, whole = found["axes"]
    assert alone["bandwidth_bytes_per_s"] is None and alone["physical"] == []
    assert {one["axis"] for one in found["collectives"]} == {"fsdp"}
    # Six links of 100 GB/s, used once by a group that holds both devices of a chip.
    assert whole["bandwidth_bytes_per_s"] == pytest.approx(600e9)
    assert whole["wraps"]


def test_bandwidth_over_two_levels_is_the_slower_ones(capsys):
    # 16 nodes: all-gather 15/16 × V/400e9, so B = 127/128 / (15/16) × 400e9.
    found = json.loads(fabric(capsys, "h100*128", "--mesh", "fsdp=128", "--json"))
    expected = 127 / 128 / (15 / 16) * 400e9
    assert found["axes"][0]["bandwidth_bytes_per_s"] == pytest.approx(expected)


def test_a_split_says_what_it_costs(capsys):
    out = fabric(capsys, "v6e:16x16", "--mesh", "fsdp=64,tp=4")
    assert "a line, one port instead of two" in out
    assert "whose links 4 groups share" in out


def test_the_table_fits_100_columns(capsys):
    for machine, mesh in (("v6e:16x16*4", "dp=8,fsdp=32,tp=4"), ("v7x:4x4x4", "fsdp=32,tp=4")):
        out = fabric(capsys, machine, "--mesh", mesh, "--bytes", "1KiB,3MB,1e9,16GiB")
        assert max(len(line) for line in out.splitlines()) <= 100
        assert "3.00 MB" in out and "16 GiB" in out


@pytest.mark.parametrize("path", ["collectives.0.time_s", "axes.0.bandwidth_bytes_per_s"])
def test_a_figure_explains_itself(capsys, path):
    args = ("v6e:4x4", "--mesh", "fsdp=16", "--explain", path)
    found = json.loads(fabric(capsys, *args, "--json"))
    key, index, name = path.split(".")
    assert math.isclose(found["worked"]["value"], found[key][int(index)][name], rel_tol=1e-12)
    text = fabric(capsys, *args)
    assert "link_rate = 100,000,000,000 B/s" in text and "Google Cloud, TPU v6e" in text


def test_twisted_tori_are_mentioned(capsys):
    assert "twisted" in fabric(capsys, "v5p:4x4x8", "--mesh", "fsdp=128")
    assert "twisted" not in fabric(capsys, "v5p:8x8x8", "--mesh", "fsdp=512")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("v6e:4x4", "--mesh", "fsdp=4"), "v6e:4x4 has 16"),
        (("v6e:4x4", "--mesh", "fsdp"), "'fsdp' is not AXIS=SIZE"),
        (("v6e:4x4", "--mesh", "fsdp=0,tp=16"), "size of at least 1"),
        (("v6e:4x4", "--mesh", "tp=4,tp=4"), "given twice"),
        (("v6e:4x4", "--mesh", "tp=16", "--bytes", "3 potatoes"), "not a size"),
        (("v6e:4x4", "--mesh", "tp=16", "--bytes", "nan"), "not a size"),
        (("v6e:4x4", "--mesh", "tp=16", "--bytes", "1e99GB"), "not a size"),
        (("v6e:4x4", "--mesh", "tp=16", "--explain", "axes"), "expected collectives.N"),
        (("v6e:4x4", "--mesh", "tp=16", "--explain", "axes.7.bandwidth_bytes_per_s"), "1 entries"),
        (("v6e:5x5", "--mesh", "tp=25"), "5x5"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(capsys, args, words):
    assert run(["fabric", *args]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.strip().splitlines()) == 1
