"""What tp cuts of a module's parameters, by what is done with them."""

from __future__ import annotations

from typing import Any

import pytest

from chipshift.compiled.traced.step import WholeProgram, input_labels
from chipshift.compiled.traced.tensor_parallel import Roles, roles
from tests.compiled.traced.programs import array, attention_of, mlp_of, program, tied

pytest.importorskip("jax")


def cut(of: WholeProgram, tp: int, replicas: int = 2) -> Roles:
    labels: list[Any] = [() for _ in of.parameters]
    labels += [input_labels(x.shape, replicas) for x in of.inputs]
    return roles(of.closed, of.names, labels, tp, lambda eqn: "model.py:7")


def test_out_to_a_width_and_back_is_cut_along_the_width() -> None:
    # up is (out, in) = (32, 16): its rows are outputs; down is (16, 32): its columns are inputs
    found = cut(mlp_of(32), 2)
    assert found.dims == {"up": 0, "bias": 0, "down": 1}
    assert found.roles == {"up": "columns", "bias": "with them", "down": "rows"}
    assert found.why == {}


def test_a_width_that_does_not_divide_is_whole_and_the_reason_said() -> None:
    found = cut(mlp_of(30), 4)
    assert found.dims == {}
    assert found.why == {
        "up": "30 do not divide over tp=4", "down": "30 do not divide over tp=4"
    }  # fmt: skip


def test_heads_are_cut_not_their_insides() -> None:
    # 4 heads of 8 over tp=4: queries, keys and values by outputs, what follows by inputs
    found = cut(attention_of(4, 4), 4)
    assert found.dims == {"q": 0, "k": 0, "v": 0, "o": 1}
    assert found.roles == {"q": "columns", "k": "columns", "v": "columns", "o": "rows"}


def test_fewer_key_heads_than_tp_stay_whole_and_queries_are_cut() -> None:
    # 8 query heads give 2 to a device; 2 key heads give none
    found = cut(attention_of(8, 2), 4)
    assert found.dims == {"q": 0, "o": 1}
    assert found.why == dict.fromkeys(
        ("k", "v"), "2 of it do not divide over 4 devices (model.py:7)"
    )


def test_as_many_key_heads_as_tp_are_cut_with_their_query_heads() -> None:
    assert cut(attention_of(8, 2), 2).dims == {"q": 0, "k": 0, "v": 0, "o": 1}


def test_heads_that_do_not_divide_are_whole() -> None:
    # 3 heads of 8: 24 outputs divide by 2, but not in whole heads
    found = cut(attention_of(3, 3), 2)
    assert found.dims == {}
    for name in ("q", "k", "v"):
        assert found.why[name] == "3 of it do not divide over 2 devices (model.py:7)"


def test_a_batch_of_one_sequence_is_followed_too() -> None:
    # (1, 6, 32) to (1, 6, 4, 8) and back: the batch is a dimension of one
    assert cut(attention_of(4, 4, sequences=1), 4, replicas=1).dims == {
        "q": 0,
        "k": 0,
        "v": 0,
        "o": 1,
    }


def test_a_table_that_is_the_head_too_is_cut_by_its_rows() -> None:
    found = cut(tied(), 2)
    assert (found.dims, found.roles) == ({"table": 0}, {"table": "vocabulary"})


def test_a_width_that_is_normed_is_whole_with_the_line_that_does_it() -> None:
    """Between out and back a norm over the whole width needs all of it on each device."""

    def loss(p: Any, x: Any) -> Any:
        hidden = x @ p["up"].T
        hidden = hidden / (hidden**2).sum(-1, keepdims=True) ** 0.5
        return ((hidden @ p["down"].T) ** 2).mean()

    found = cut(program(loss, {"up": (32, 16), "down": (16, 32)}, array(8, 16)), 2)
    assert found.dims == {}
    assert found.why["up"] == "its whole width is summed over (model.py:7)"


def test_halves_of_one_projection_are_not_cut_apart() -> None:
    """gate and up in one matrix, as Phi-3 has them: a cut of the 64 outputs would give a device
    gates whose ups are elsewhere."""

    def loss(p: Any, x: Any) -> Any:
        both = x @ p["gate_up"].T
        return (((both[:, :32] * both[:, 32:]) @ p["down"].T) ** 2).mean()

    found = cut(program(loss, {"gate_up": (64, 16), "down": (16, 32)}, array(8, 16)), 2)
    assert found.dims == {}
    assert found.why["gate_up"] == "a part of it is cut out (model.py:7)"


def test_a_single_matrix_is_whole() -> None:
    found = cut(
        program(lambda p, x: ((x @ p["w"].T) ** 2).mean(), {"w": (32, 16)}, array(8, 16)), 2
    )
    assert found.dims == {}
    assert "no pair of projections" in found.why["w"]
