"""What the cut of a PyTorch module's parameters asks for, worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.expected_module import asked_for, beside_module

MATRIX = ("layer.weight", (8, 4), 4, ("fsdp", None))  # 128 B


def sums(axes: dict[str, int], *cuts: Any) -> dict[tuple[str, str], float]:
    batch = tuple(axis for axis in axes if axis != "tp")
    return {(kind, axis): sent for kind, axis, sent in asked_for(axes, batch, cuts)}


def test_a_matrix_over_fsdp_is_gathered_twice_and_its_gradient_scattered() -> None:
    # 3/4 of 128 B a time
    assert sums({"fsdp": 4}, MATRIX) == {
        ("all_gather", "fsdp"): 192, ("reduce_scatter", "fsdp"): 96,
    }  # fmt: skip


def test_dp_sums_the_part_and_tp_leaves_less_of_it() -> None:
    # a quarter of 128 B, twice a half of it
    assert sums({"dp": 2, "fsdp": 4}, MATRIX)["all_reduce", "dp"] == 32
    over_tp = ("layer.weight", (8, 4), 4, ("fsdp", "tp"))
    assert sums({"fsdp": 4, "tp": 2}, over_tp)["reduce_scatter", "fsdp"] == 48


def test_a_table_is_gathered_once_and_what_is_whole_is_summed_over_all() -> None:
    table = ("model.embed_tokens.weight", (8, 4), 4, ("fsdp", None))
    assert sums({"fsdp": 4}, table)["all_gather", "fsdp"] == 96
    whole = ("norm.weight", (7,), 4, (None,))
    # 28 B over eight devices: 2 x 7/8
    assert sums({"dp": 2, "fsdp": 4}, whole) == {("all_reduce", "dp+fsdp"): 49}


def test_nothing_is_expected_over_an_axis_that_cuts_activations() -> None:
    found = [
        {"kind": "all_reduce", "mesh_axis": axis, "bytes_per_device_per_step": 500.0}
        for axis in ("tp", "fsdp")
    ]
    over_tp, over_fsdp = beside_module(found, [], (), ["fsdp"])
    assert (over_tp["planned"], over_tp["expected_bytes_per_device_per_step"]) == (None, None)
    assert (over_fsdp["planned"], over_fsdp["expected_bytes_per_device_per_step"]) == (False, 0.0)


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

    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1024,
        "max_position_embeddings": 512, "tie_word_embeddings": False,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf8")
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
