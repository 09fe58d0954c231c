"""What the cut of a PyTorch module's parameters asks for, worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.expected_module import Cut, asked_for, beside_module, sharding
from chipshift.fabric.lowering import Slice

MATRIX = Cut("layer.weight", (8, 4), 4, ("fsdp", None), uses=1, matmuls=1)  # 128 B


def sums(axes: dict[str, int], *cuts: Cut, **settings: Any) -> dict[tuple[str, str], float]:
    batch = tuple(axis for axis in axes if axis != "tp")
    return {(kind, axis): sent for kind, axis, sent in asked_for(axes, batch, cuts, **settings)}


def test_a_matrix_over_fsdp_is_gathered_twice_and_its_gradient_scattered() -> None:
    # 3/4 of 128 B a time
    assert sums({"fsdp": 4}, MATRIX) == {
        ("all_gather", "fsdp"): 192, ("reduce_scatter", "fsdp"): 96,
    }  # fmt: skip


def test_a_tpu_gathers_for_its_matmuls_in_bf16_and_scatters_the_gradient_as_it_is() -> None:
    assert sums({"fsdp": 4}, MATRIX, most_width=2) == {
        ("all_gather", "fsdp"): 96, ("reduce_scatter", "fsdp"): 96,
    }  # fmt: skip


def test_dp_sums_the_part_and_tp_leaves_less_of_it() -> None:
    # a quarter of 128 B, twice a half of it
    assert sums({"dp": 2, "fsdp": 4}, MATRIX)["all_reduce", "dp"] == 32
    over_tp = Cut("layer.weight", (8, 4), 4, ("fsdp", "tp"), matmuls=1)
    assert sums({"fsdp": 4, "tp": 2}, over_tp)["reduce_scatter", "fsdp"] == 48


def test_what_is_used_but_for_a_matmul_is_gathered_once_and_what_is_whole_is_summed() -> None:
    bias = Cut("bias", (8,), 4, ("fsdp",))
    assert sums({"fsdp": 4}, bias)["all_gather", "fsdp"] == 24
    whole = Cut("norm.weight", (7,), 4, (None,))
    # 28 B over eight devices: 2 x 7/8
    assert sums({"dp": 2, "fsdp": 4}, whole) == {("all_reduce", "dp+fsdp"): 49}


def test_rows_looked_up_of_a_table_cut_along_their_width_send_their_own_gradients() -> None:
    # the table is gathered, 3/4 of 128 B; 5 rows of 16 B a device go to the four parts' owners
    table = Cut("embed.weight", (8, 4), 4, (None, "fsdp"), rows=80)
    assert sums({"fsdp": 4}, table) == {
        ("all_gather", "fsdp"): 96, ("all_to_all", "fsdp"): 60,
    }  # fmt: skip


def test_a_table_that_is_the_head_too_is_gathered_once_forward_as_the_look_up_wants_it() -> None:
    # forward 3/4 of 128 B for both uses, backward 3/4 of 64 B for the matmul; the head's gradient
    # is scattered, 96 B, and 5 rows of 16 B a device go to their owners, 3/4 of 80 B
    tied = Cut("embed.weight", (8, 4), 4, (None, "fsdp"), uses=2, matmuls=1, rows=80)
    assert sums({"fsdp": 4}, tied, most_width=2) == {
        ("all_gather", "fsdp"): 96 + 48, ("reduce_scatter", "fsdp"): 96, ("all_to_all", "fsdp"): 60,
    }  # fmt: skip


def test_gradients_of_one_parameter_are_added_before_they_are_scattered() -> None:
    # three matmuls by one matrix: gathered once forward, three times backward, scattered once
    shared = Cut("layer.weight", (8, 4), 4, ("fsdp", None), uses=3, matmuls=3)
    assert sums({"fsdp": 4}, shared) == {
        ("all_gather", "fsdp"): 4 * 96, ("reduce_scatter", "fsdp"): 96,
    }  # fmt: skip


def test_over_a_whole_slice_of_64_a_tpu_gathers_and_scatters_by_sums() -> None:
    # all-reduces of 4 MiB that send twice 63/64 of it: gathered forward and backward, cast to bf16
    # when it is there, and scattered
    matrix = Cut("up.weight", (1024, 1024), 4, ("fsdp", None), uses=1, matmuls=1)
    on = Slice("v6e", (8, 8), 64)
    assert sums({"fsdp": 64}, matrix, most_width=2, on=on) == {
        ("all_reduce", "fsdp"): 3 * 2 * 2**22 * 63 / 64
    }


def test_activations_summed_over_tp_stand_beside_the_parameters() -> None:
    assert sums({"fsdp": 1, "tp": 2}, over_tp=500.0) == {("all_reduce", "tp"): 500}


def test_a_collective_that_the_cut_does_not_ask_for_is_unplanned_on_every_axis() -> None:
    found = [
        {"kind": "all_reduce", "mesh_axis": axis, "bytes_per_device_per_step": 500.0}
        for axis in ("tp", "fsdp")
    ]
    over_tp, over_fsdp = beside_module(found, [], (("all_reduce", "tp", 500.0),))
    assert (over_tp["planned"], over_tp["expected_bytes_per_device_per_step"]) == (True, 500.0)
    assert (over_fsdp["planned"], over_fsdp["expected_bytes_per_device_per_step"]) == (False, 0.0)


def test_parameters_of_one_name_in_all_layers_are_told_together() -> None:
    cuts = [Cut(f"layers.{n}.up.weight", (8, 4), 4, ("tp", "fsdp")) for n in range(3)]
    cuts.append(Cut("out.weight", (3, 4), 4, (None, "fsdp")))
    roles = {one.name: "columns" for one in cuts[:3]}
    assert sharding(cuts, roles, {"out.weight": "3 do not divide over tp=2"}) == [
        {"parameters": "layers.*.up.weight", "count": 3, "shape": [8, 4], "cut": ["tp", "fsdp"],
         "role": "columns", "whole_over_tp": None},
        {"parameters": "out.weight", "count": 1, "shape": [3, 4], "cut": [None, "fsdp"],
         "role": None, "whole_over_tp": "3 do not divide over tp=2"},
    ]  # fmt: skip


CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1024,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.compiler
@pytest.mark.reference
def test_a_hugging_face_model_scatters_what_its_cut_asks_for(tmp_path: Path) -> None:
    """Matrices of 1,835,008 parameters in fp32, 3/4 of them scattered; gathers are at most what is
    asked for, since XLA keeps some."""
    pytest.importorskip("jax")
    from chipshift.compiled.report import report
    from chipshift.compiled.request import Request
    from chipshift.compiled.run import run
    from chipshift.compiled.topology import target
    from chipshift.machines.names import parse_machine

    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), "utf8")
    machine = parse_machine("v6e:2x2")
    asked = Request("torch", "small", target(machine), entry=str(file), mesh=(("fsdp", 4),))
    found = report(asked, machine, run(asked, timeout_s=600), cached=False)
    assert found["compiled"], found["reason"]
    rows = {(one["kind"], one["mesh_axis"]): one for one in found["collectives"]}
    scatter, gather = rows["reduce_scatter", "fsdp"], rows["all_gather", "fsdp"]
    # the two layers' 2 x (4 x 256 x 256 + 3 x 256 x 512), the embedding and the head
    matrices = 2 * (4 * 256 * 256 + 3 * 256 * 512) + 2 * 1024 * 256
    assert scatter["bytes_per_device_per_step"] == pytest.approx(matrices * 4 * 3 / 4, rel=0.01)
    assert scatter["expected_bytes_per_device_per_step"] == pytest.approx(
        scatter["bytes_per_device_per_step"], rel=0.01
    )
    # every matrix once at the least, but the embedding, whose rows are looked up where they lie
    once = (matrices - 1024 * 256) * 4 * 3 / 4
    wanted = gather["expected_bytes_per_device_per_step"]
    assert 0.99 * once <= gather["bytes_per_device_per_step"] <= wanted
    assert gather["planned"] is True


@pytest.mark.compiler
@pytest.mark.reference
def test_over_fsdp_and_tp_all_is_sent_that_the_cut_asks_for(tmp_path: Path) -> None:
    """Within 1 % of each kind over each axis; nothing of a model whose heads divide is whole."""
    pytest.importorskip("jax")
    from chipshift.compiled.report import report
    from chipshift.compiled.request import Request
    from chipshift.compiled.run import run
    from chipshift.compiled.topology import target
    from chipshift.machines.names import parse_machine

    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), "utf8")
    machine = parse_machine("v6e:2x2")
    mesh = (("fsdp", 2), ("tp", 2))
    asked = Request("torch", "small", target(machine), entry=str(file), mesh=mesh)
    found = report(asked, machine, run(asked, timeout_s=600), cached=False)
    assert found["compiled"], found["reason"]
    rows = {(one["kind"], one["mesh_axis"]): one for one in found["collectives"]}
    for key in (("all_gather", "fsdp"), ("reduce_scatter", "fsdp"), ("all_reduce", "tp")):
        sent = rows[key]["bytes_per_device_per_step"]
        assert rows[key]["expected_bytes_per_device_per_step"] == pytest.approx(sent, rel=0.01)
    assert [one for one in found["sharding"] if one["whole_over_tp"]] == []
    unplanned = [one for one in found["collectives"] if not one["planned"]]
    assert sum(one["bytes_per_device_per_step"] for one in unplanned) < 0.03 * sum(
        one["bytes_per_device_per_step"] for one in found["collectives"]
    )
