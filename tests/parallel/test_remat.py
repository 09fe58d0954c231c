"""Rematerialisation policies: what stays, what runs again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.jobs.plan import of_all, of_some
from chipshift.parallel.remat import OP_TENSOR, POLICIES, TENSORS, policy


def test_none_recomputes_nothing_and_full_everything_but_the_output() -> None:
    assert not any(policy("none").recomputes(op) for op in OP_TENSOR)
    again = {op for op in OP_TENSOR if policy("full").recomputes(op)}
    assert {OP_TENSOR[op] for op in again} == set(TENSORS)
    assert not policy("full").recomputes("mlp_down")
    assert not policy("full").recomputes("experts_down")


def test_where_routers_weigh_the_experts_results_these_run_again_with_them() -> None:
    # their gradient reads the results; a dense layer's output is read by nobody
    full = policy("full", reruns_experts=True)
    assert full.recomputes("experts_down")
    assert full.recomputes("unpermute")
    assert full.recomputes("combine")
    assert not full.recomputes("mlp_down")
    assert not policy("minimal", reruns_experts=True).recomputes("experts_down")
    assert not policy("none", reruns_experts=True).recomputes("experts_down")


def test_a_framework_that_reruns_the_whole_block_reruns_its_output_too() -> None:
    assert policy("full", reruns_output=True).recomputes("mlp_down")
    assert not policy("selective", reruns_output=True).recomputes("mlp_down")


def test_maxtext_minimal_keeps_matmuls_and_recomputes_attention() -> None:
    minimal = policy("minimal")
    assert not minimal.recomputes("qkv_proj")
    assert not minimal.recomputes("mlp_up")
    assert minimal.recomputes("attention")
    assert not policy("minimal_with_context").recomputes("attention")


def test_offloaded_tensors_are_not_recomputed() -> None:
    away = policy("qkv_proj_offloaded")
    assert "qkv" in away.offloaded
    assert not away.recomputes("qkv_proj")
    assert away.recomputes("mlp_up")


def test_custom_policies_name_tensors() -> None:
    own = policy("custom:saved=qkv+up,offload=block_input")
    assert own.saved == {"qkv", "up"}
    assert own.offloaded == {"block_input"}


def test_a_policy_on_some_of_the_layers() -> None:
    some = policy("full:12/32")
    assert (some.name, some.saved, some.every) == ("full", frozenset(), 12 / 32)
    assert policy("full:1/2", reruns_output=True).recomputes("mlp_down")
    assert policy("selective_op:3/3") == policy("selective_op")


@given(layers=st.integers(0, 200), of=st.integers(1, 128))
def test_a_share_of_the_layers_is_named_and_read_back(layers: int, of: int) -> None:
    named = of_some("full", layers, of)
    assert of_all(named) == ("full" if layers else "none")
    assert policy(named).every == (min(layers / of, 1.0) if layers else 1.0)


@pytest.mark.parametrize(
    "name",
    ["fulll", "custom:saved=nothing", "custom:keep=qkv", "", "full:0/4", "full:5/4", "full:1/0",
     "fulll:1/2", "full:half"],
)  # fmt: skip
def test_an_unknown_policy_is_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match="remat"):
        policy(name)


def test_every_policy_keeps_only_tensors_that_exist() -> None:
    for found in POLICIES.values():
        assert found.saved <= set(TENSORS)
        assert found.offloaded <= {*TENSORS, "block_input"}
