"""The roofline op by op: what bounds an op, on the command line and in the plot."""

from __future__ import annotations

import json

import pytest

from chipshift.cli.app import run
from chipshift.estimate.op_table import OpTime, op_table, plan_cut
from chipshift.estimate.parts import Times
from chipshift.estimate.passes import work
from chipshift.estimate.setting import setting
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine
from chipshift.report.charts.roofline import Roof
from chipshift.report.pictures import plotted
from chipshift.report.roofline_screen import screen

JOB = "examples/llama3-8b.toml"


def ops(machine: str, stack: str, plan: Plan) -> dict[str, OpTime]:
    s = setting(read_job([JOB]), parse_machine(machine), stack)
    return {op.name: op for op in op_table(s, plan_cut(s, plan))}


def test_the_ops_add_up_to_the_layer_times_of_the_estimate() -> None:
    s = setting(read_job([JOB]), parse_machine("v6e:4x4"), "maxtext")
    plan = Plan(fsdp=8, tp=2)
    found = op_table(s, plan_cut(s, plan))
    layer = work(s, 2.0, 1.0, 1.0, 2.0, 1.0, True).layers[0]
    forward = Times()
    for times in layer.forward.values():
        forward = forward + times
    expected = forward + layer.input_grad + layer.weight_grad
    ends = {"embedding", "final_norm", "lm_head", "loss"}
    total = sum(op.time_s for op in found if op.name.split(".")[0] not in ends)
    assert total == pytest.approx(float(expected.total), rel=1e-9)


def test_a_large_matmul_is_bound_by_compute_and_a_norm_by_hbm() -> None:
    found = ops("v6e:4x4", "maxtext", Plan(fsdp=16))
    assert found["mlp_up"].bound == "compute"
    assert found["attention_norm"].bound == "hbm"
    # 2·8192·28672·4096 FLOP: gate and up together are 28,672 wide
    assert found["mlp_up"].flops == 2 * 8192 * 28672 * 4096


def test_a_matmul_of_few_rows_is_bound_by_hbm() -> None:
    """1/64 of a sequence is 128 rows: weights of 4096 × 28672 outweigh them."""
    found = ops("v6e:4x4", "maxtext", Plan(fsdp=16, microbatch=1 / 64))
    # FLOPs a byte ≈ rows for bf16 weights read once: about 128, and v6e's ridge is at 560
    assert 100 < found["mlp_up"].intensity_flop_per_byte < 128
    assert found["mlp_up"].bound == "hbm"
    assert "the ridge is at 560" in found["mlp_up"].why


def test_heads_cut_over_tp_divide_the_attention() -> None:
    whole = ops("v6e:4x4", "maxtext", Plan(fsdp=16))["attention"]
    half = ops("v6e:4x4", "maxtext", Plan(fsdp=8, tp=2))["attention"]
    assert half.flops == whole.flops / 2


def test_the_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["roofline", JOB, "--on", "h100", "--on", "v7x:2x2x1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "chipshift/roofline/1"
    h100, v7x = found["machines"]
    assert h100["ridge_flop_per_byte"]["bf16"] == pytest.approx(989.4e12 / 3.35e12, rel=1e-3)
    keys = {"name", "count", "flops", "bytes", "intensity_flop_per_byte", "time_s", "bound", "why"}
    assert all(keys <= op.keys() for op in v7x["ops"])
    assert {op["bound"] for op in v7x["ops"]} <= {"compute", "hbm", "on_chip", "overhead"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "h100", "--tp", "7"], "does not divide the model's 32 attention heads"),
        (["--on", "v6f"], "v6e"),
        (["--on", "h100", "--sequences", "0"], "above 0"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["roofline", JOB, *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_the_screen_fits_100_columns_and_names_what_it_plots(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["roofline", JOB, "--on", "h100", "--on", "v6e", "--on", "v7x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = ["".join(span.text for span in line) for line in screen(found)]
    assert max(map(len, lines)) <= 100
    assert all(any(name in line for line in lines) for name in plotted(found["machines"]))


def test_a_roof_is_the_slope_up_to_the_ridge_then_flat() -> None:
    """100 FLOP/s and 10 B/s: the ridge is at 10 FLOP a byte."""
    roof = Roof("m", "bf16", 100.0, 10.0, ())
    assert roof.ridge_flop_per_byte == 10.0
    assert roof.at(4.0) == 40.0
    assert roof.at(20.0) == 100.0
