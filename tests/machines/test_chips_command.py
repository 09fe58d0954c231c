"""``chipshift chips``: what is printed, in plain text and as JSON."""

from __future__ import annotations

import json

import pytest

from chipshift.cli.app import run
from chipshift.machines.load import KEYS, chip


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(["chips", *args]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    return out


def test_the_list_names_every_chip(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert [line.split()[0] for line in lines[2 : 2 + len(KEYS)]] == list(KEYS)
    assert any(line.split()[0] == "trn2" and "–" in line for line in lines if line)


@pytest.mark.parametrize("key", KEYS)
def test_each_figure_is_printed_with_its_source(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, key)
    joined = " ".join(text.split())
    for name, figure in chip(key).figures.items():
        assert name in text
        assert " ".join(figure.source.split()) in joined
        assert figure.date in text
        for other in figure.alternatives:
            assert other.why_not in joined


def test_slices_and_their_wraps_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    joined = " ".join(printed(capsys, "v6e").split())
    assert "Axes of 16 wrap: 8x16 (v6e-128)" in joined
    assert "Every axis wraps: 16x16 (v6e-256)" in joined
    assert "ct6e-standard-8t (8 chips, 3.125 GB/s of network a chip)" in joined


def row_of(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(start))
    return line.strip()[len(start) :].split()


def test_side_by_side_in_the_same_units(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--compare", "h100,v6e,v7x")
    assert text.splitlines()[0].split() == ["h100", "v6e", "v7x", "v7x"]
    assert text.splitlines()[1].split() == ["a", "chip", "a", "device"]
    assert row_of(text, "bf16, TFLOP/s") == ["989.4", "918.0", "2,307.0", "1,153.5"]
    assert row_of(text, "HBM usable, GiB") == ["79.11", "31.25", "189.50", "94.75"]
    # 989.4e12/3350e9 = 295, 918e12/1638e9 = 560, 2307e12/7380e9 = 313
    assert row_of(text, "bf16, FLOP/B") == ["295", "560", "313", "313"]
    # 18 x 25; 4 x 100; 6 x 100, and half of it for each device
    assert row_of(text, "all scale-up links, GB/s") == ["450.00", "400.00", "600.00", "300.00"]
    # 989.4e12/450e9 = 2199; 918e12/400e9 = 2295; 2307e12/600e9 = 3845
    assert row_of(text, "all scale-up links, FLOP/B") == ["2,199", "2,295", "3,845", "3,845"]
    assert row_of(text, "scale-out or DCN, GB/s") == ["50.00", "12.50", "12.50", "6.25"]


def test_many_chips_still_fit(capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "--compare", ",".join(KEYS))


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed_json(capsys, "v7x"))
    assert found["schema"] == "chipshift/chips/1"
    (only,) = found["chips"]
    assert only["key"] == "v7x" and only["name"] == "Google TPU7x (Ironwood)"
    peak = only["figures"]["peak_bf16_flop_per_s"]
    assert peak["value"] == 2307e12 and peak["unit"] == "FLOP/s"
    assert peak["date"] == "2026-05-08" and peak["source"].startswith("Google Cloud")
    assert {"value", "source", "why_not"} == set(peak["alternatives"][0])
    assert isinstance(only["figures"]["scale_up_links"]["value"], int)  # counts are integers
    cube = next(shape for shape in only["slices"] if shape["topology"] == "4x4x4")
    assert cube["cloud_name"] == "tpu7x-128" and cube["wraps"] == [True, True, True]
    assert len(json.loads(printed_json(capsys))["chips"]) == len(KEYS)


def test_json_of_a_comparison_gives_chip_and_device(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed_json(capsys, "--compare", "h100,v7x"))
    rows = {row["name"]: row for row in found["compare"]}
    assert rows["peak_bf16_flop_per_s"]["per_chip"] == {"h100": 989.4e12, "v7x": 2307e12}
    assert rows["peak_bf16_flop_per_s"]["per_device"] == {"h100": 989.4e12, "v7x": 1153.5e12}
    assert rows["peak_fp16_flop_per_s"]["per_chip"]["v7x"] is None


def printed_json(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(["chips", *args, "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["h1000"], "no chip is called 'h1000'; did you mean 'h100'"),
        (["--compare", "h100,v6f"], "no chip is called 'v6f'"),
        (["--compare", ","], "names no chip; write --compare h100,v6e,v7x"),
        (["v6e", "--compare", "h100"], "give either 'v6e' or --compare, not both"),
    ],
)
def test_mistakes(args: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chips", *args]) == 2
    caught = capsys.readouterr()
    assert sentence in caught.err and caught.out == "" and caught.err.count("\n") == 1


def test_a_chip_names_the_instances_that_hold_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A3 High: 4 × 200 Gb/s for 8 GPUs are 12.5 GB/s a GPU, one way."""
    assert run(["chips", "h100"]) == 0
    said = capsys.readouterr().out
    assert "p5.48xlarge (8 chips, 50 GB/s of network a chip)" in said
    assert "a3-highgpu-8g (8 chips, 12.5 GB/s of network a chip)" in said
    assert run(["chips", "h100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["chips"][0]["instances"]
    assert {"BM.GPU.H100.8", "ND96isr_H100_v5", "a3-megagpu-8g"} <= {row["name"] for row in rows}
    assert all(row["chips"] == 8 and row["source"] for row in rows)
