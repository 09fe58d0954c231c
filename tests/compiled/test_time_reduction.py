"""Measured runs reduced to programs of one device: what is cut, and what stays as it was."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.step.config import Block
from chipshift.jobs.plan import Plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def reduction() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("time_reduction")


@pytest.fixture(scope="module")
def runs(reduction: Any) -> list[tuple[Any, Any]]:
    return list(reduction.runs())


def the(runs: list[tuple[Any, Any]], chip: str, model: str, **plan: int) -> Any:
    """The first run of a model on a chip with these degrees, reduced."""
    return next(
        one
        for case, one in runs
        if (case.chip, case.model) == (chip, model)
        and all(getattr(case.plan, axis) == degree for axis, degree in plan.items())
    )


def test_a_model_whose_layers_differ_has_a_program_for_each_kind(runs: Any) -> None:
    """Gemma 4 4B: of 42 layers every sixth is global, with heads of 512 instead of 256."""
    one = the(runs, "v7x", "gemma4-4b")
    kinds = [(config.segments[0][0][0].head_dim, layers) for config, layers in one.programs]
    assert kinds == [(256, 35), (512, 7)]
    assert {config.segments[0][1] for config, _ in one.programs} == {2}
    # two sequences of 8,192 a device, of which the program has one
    assert one.times == 2


def test_experts_are_cut_with_the_tokens(runs: Any) -> None:
    """DeepSeek-V3 on v7x: 8 sequences of 4,096 a device over all 256 experts at 8 a token, that is
    8 x 4096 x 8 / 256 = 1,024 rows an expert; one sequence over 32 experts, the same 1,024."""
    routed, dense = the(runs, "v7x", "deepseek-v3").programs
    block = routed[0].segments[0][0][0]
    assert (block.experts, block.top_k, routed[1], dense[1]) == (32, 8, 58, 3)
    rows = routed[0].batch * routed[0].seq_len * block.top_k / block.experts
    assert rows == 8 * 4096 * 8 / 256


def test_no_fewer_experts_than_a_token_chooses(runs: Any) -> None:
    """Mixtral 8x7B: 12 sequences of 4,096, so that a twelfth of 8 experts would be left; they are
    the two that a token chooses, with the slots that its recipe keeps."""
    ((config, layers),) = the(runs, "v6e", "mixtral-8x7b").programs
    assert (config.segments[0][0][0].experts, layers) == (2, 32)
    assert config.capacity == 1.25


def test_experts_that_drop_no_token_are_another_program(runs: Any) -> None:
    """By their recipes' flags: Mixtral has megablox=False and keeps slots, Gemma 4 26B
    megablox=True; a dense model has no experts, whatever its flags say."""
    same = {model: the(runs, chip, model).same for chip, model in
            [("v6e", "mixtral-8x7b"), ("v7x", "gemma4-26b"), ("v7x", "gemma4-4b")]}  # fmt: skip
    assert same == {"mixtral-8x7b": True, "gemma4-26b": False, "gemma4-4b": True}


def test_context_parallelism_is_a_part_of_the_sequence(runs: Any) -> None:
    """Llama 3.1 70B at 131,072 positions over cp=8: 16,384 a device, two programs of 8,192, which
    are those of its runs at 8,192."""
    long, short = the(runs, "v7x", "llama3-70b", cp=8), the(runs, "v7x", "llama3-70b", cp=1)
    assert long.programs == short.programs
    assert (long.times, short.times) == (2, 2)


def test_a_device_holds_its_part_of_heads_width_and_experts(reduction: Any) -> None:
    """tp=4 of 32 heads, two key heads and 1,024 wide; ep=2 of 16 experts and half the tokens."""
    block = Block(heads=32, kv_heads=2, head_dim=128, v_head_dim=128, mlp_width=1024)
    routed = replace(block, experts=16, top_k=2, expert_width=512, shared_width=256)
    found = reduction.cut(routed, Plan(tp=4, ep=2), 0.5)
    assert (found.heads, found.kv_heads, found.mlp_width) == (8, 1, 256)
    assert (found.experts, found.expert_width, found.shared_width) == (4, 128, 64)
    assert reduction.cut(block, Plan(), 0.5) == block


@pytest.mark.parametrize(
    ("remat", "kept"),
    [
        ("custom:offload=block_input", "full"),
        ("custom:offload=block_input+qkv", "custom:saved=qkv"),
        ("minimal", "custom:saved=qkv+out_proj+up"),
    ],
)
def test_offloaded_tensors_are_not_worked_out_again(reduction: Any, remat: str, kept: str) -> None:
    assert reduction.kept(remat) == kept
