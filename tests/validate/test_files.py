"""Files of measured runs as people keep them: compressed, from Windows, with broken lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.validate.case import Case, Skip
from chipshift.validate.records import to_case
from chipshift.validate.run import predict_case, predict_plan, read_data, run, to_json

from .test_records import record
from .test_sweep import ROW


def records_text() -> str:
    return "\n".join(json.dumps(record(id=name)) for name in ("a", "b")) + "\n"


def sweep_text(columns: list[str] | None = None, **more: str) -> str:
    out = io.StringIO()
    row = ROW | more
    writer = csv.DictWriter(out, columns or list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return out.getvalue()


@pytest.mark.parametrize("text", [records_text(), sweep_text()], ids=["records", "sweep"])
@pytest.mark.parametrize(
    "written",
    [
        lambda text: text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: ("\n" + text + "\n\n").encode(),
    ],
    ids=["plain", "crlf", "bom", "gzip", "blank lines"],
)
def test_a_file_is_read_however_it_is_kept(
    tmp_path: Path, text: str, written: Callable[[str], bytes]
) -> None:
    plain, kept = tmp_path / "plain", tmp_path / "kept"
    plain.write_bytes(text.encode())
    kept.write_bytes(written(text))
    expected, found = read_data(plain), read_data(kept)
    assert all(isinstance(row, Case) for row in expected)
    assert [row.id for row in found] == [row.id for row in expected]
    assert all(isinstance(row, Case) for row in found)


@pytest.mark.parametrize("data", [b"\x1f\x8bnot gzip", b"\xff\xfe{\x00", b"\x00\x01"])
def test_what_is_no_text_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "runs"
    file.write_bytes(data)
    with pytest.raises(InputError, match="runs"):
        read_data(file)


def test_a_broken_line_is_skipped_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    good = json.dumps(record(id="good"))
    file.write_text(f'{good}\n{{"id": "cut\n{good}\n[1]\n')
    found = read_data(file)
    assert [isinstance(row, Case) for row in found] == [True, False, True, False]
    skips = [row for row in found if isinstance(row, Skip)]
    assert [(skip.id, skip.line) for skip in skips] == [("line 2", 2), ("line 4", 4)]
    assert "not a JSON object" in skips[0].why
    answer = to_json(run(found))
    assert answer["rows"] == 4
    assert answer["scored"] + len(answer["skipped"]) == 4


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(record(notes="one\u2028two\x85three"), ensure_ascii=False) + "\n")
    assert isinstance(read_data(file)[0], Case)


def as_text(value: Any) -> Any:
    """Every number of a record written as text, thousands with commas."""
    if isinstance(value, dict):
        return {key: as_text(one) for key, one in value.items()}
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:,}" if numeric else value


def test_numbers_may_be_text() -> None:
    def seconds(row: dict[str, Any]) -> float:
        found = to_case(row)
        assert isinstance(found, Case), found
        return predict_case(found, predict_plan).predicted.step_time_s

    assert seconds(as_text(record())) == seconds(record())


@pytest.mark.parametrize(
    ("key", "value"),
    [("layers", "x"), ("d_model", float("inf")), ("heads", -8), ("d_ff", 10**30), ("vocab", 1.5),
     ("seq_len", [])],
)  # fmt: skip
def test_a_size_that_is_none_is_said_as_it_stands(key: str, value: Any) -> None:
    found = to_case(record(model={key: value}, global_batch=None), line=7)
    assert isinstance(found, Skip)
    assert found.line == 7
    assert f"model's {key} is not stated; model.{key} is " in found.why


def test_more_heads_than_width_is_no_model() -> None:
    found = to_case(record(model={"heads": 1024}))
    assert isinstance(found, Skip)
    assert "1024 heads, more than its width of 512" in found.why


@pytest.mark.parametrize("value", ["x", float("nan"), -1, [], {}])
@pytest.mark.parametrize("key", ["microbatch", "dtype_class", "remat_class", "stack", "measured"])
def test_an_odd_value_elsewhere_costs_no_row(key: str, value: Any) -> None:
    found = to_case(record(**{key: value}))
    assert isinstance(found, Case)
    assert predict_case(found, predict_plan).predicted.step_time_s > 0


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("A100-SXM4-80GB", "a100"), ("GB200 NVL72", "gb200"),
        ("TPU v5 lite", "v5e"), ("v5litepod-16", "v5e"), ("TPUv4", "v4"), ("Trillium", "v6e"),
        ("TPU v7 (Ironwood)", "v7x"), ("Trainium 2", "trn2"), ("trn1.32xlarge", "trn1"),
    ],
)  # fmt: skip
def test_a_chip_by_any_of_its_names(said: str, key: str) -> None:
    found = to_case(record(chip_key=None, chip=said, parallelism={"tp": 1, "pp": 1}))
    assert isinstance(found, Case), found
    assert found.chip == key


def test_the_sweeps_columns_may_stand_in_any_order_with_others_beside(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(sweep_text([*reversed(ROW), "mine"], mine="x"))
    (found,) = read_data(file)
    assert isinstance(found, Case)
    assert found.plan.devices == 32
    assert found.line == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": "x"}, "tp is 'x', expected a whole number"),
        ({"nodes": ""}, "nodes is ''"),
        ({"tok/s/gpu": ""}, "tok/s/gpu is ''"),
        ({"num_heads": "4096"}, "num_heads is 4096, more than the hidden size of 2048"),
        ({"tok/s/gpu": "nan"}, "tok/s/gpu is 'nan'"),
        ({"status": "Other"}, "status is 'Other'"),
    ],
)
def test_a_row_of_the_sweep_that_cannot_be_scored_says_why(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(sweep_text(**changes))
    (found,) = read_data(file)
    assert isinstance(found, Skip)
    assert said in found.why
    assert (found.id, found.line) == ("0", 2)


def test_other_sizes_of_the_sweep_are_worked_from_their_parameters(tmp_path: Path) -> None:
    # 40 layers of width 5120 and feed-forward 13824, multi-head, as Llama 2 13B: attention 4·5120²,
    # feed-forward 3·5120·13824, embedding and head 131072·5120 each: 14.03e9 parameters
    odd = {"hidden_size": "5120", "num_layers": "40", "num_heads": "40", "num_kv_heads": "40"}
    known = odd | {"Total Params Numeric": "14.03"}
    for changes, width in ((known, 13824), (odd, 17920)):
        file = tmp_path / "sweep.csv"
        file.write_text(sweep_text(**changes))
        (found,) = read_data(file)
        assert isinstance(found, Case)
        mlp = found.job.model.layers[0][0].mlp
        assert mlp is not None
        assert mlp.width == width
        assert found.inferred[0][0] == "feed-forward width"


@pytest.mark.parametrize(("zero", "plan"), [("2", (32, 1, "zero2")), ("3", (1, 32, "none"))])
def test_every_stage_of_zero_is_read(tmp_path: Path, zero: str, plan: tuple[int, int, str]) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(sweep_text(zero_stage=zero))
    (found,) = read_data(file)
    assert isinstance(found, Case)
    assert (found.plan.dp, found.plan.fsdp, found.plan.optimizer_sharding) == plan
