"""What Megatron does beside its matmuls and collectives: gradients' sums, rows of experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chipshift.estimate.context import Context
from chipshift.estimate.estimate import columns_of
from chipshift.estimate.op_times import op_times
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.stack import Stack
from chipshift.estimate.traffic import feed_forward_pair_s, layer_collectives, tensor_pair_s
from chipshift.jobs.job import Assumed, Precision
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.model import MoeMlp
from chipshift.models.ops import Op

from .conftest import job_of


def on_h100(name: str, compute: str = "bf16", stack: str = "megatron") -> Setting:
    precision = Assumed(Precision(compute=compute), "test")
    return setting(job_of(name, precision=precision), parse_machine("h100:8"), stack)


def grad_s(s: Setting, op: Op, stack: Stack) -> tuple[float, float]:
    """Seconds of a weight's gradient: of its matmul, of the sum that it is added to."""
    made = op_times(op, s.kernels, stack, 1.0)[2]
    return float(made.matmul), float(made.memory)


def test_a_weights_gradient_is_added_to_its_sum_whatever_the_rows() -> None:
    s = on_h100("llama-3.1-8b")
    few = Op("mlp_up", "matmul", m=1024.0, n=8192.0, k=4096.0)
    many = replace(few, m=4096.0)
    added = replace(s.stack, weight_sum_bytes=4.0)
    # 8,192 × 4,096 parameters, 4 bytes each
    expected = 8192 * 4096 * 4 / (float(s.kernels.hbm_bytes_per_s) * float(s.kernels.stream_e_hbm))
    assert grad_s(s, few, added)[1] == pytest.approx(expected)
    assert grad_s(s, many, added)[1] == pytest.approx(expected)
    assert grad_s(s, few, replace(s.stack, weight_sum_bytes=0.0))[1] == 0
    frozen = op_times(few, s.kernels, added, 0.0)[2]
    assert float(frozen.memory) == 0


def test_an_outputs_gradient_is_cast_at_its_own_width() -> None:
    s = on_h100("llama-3.1-8b", "fp8")
    forward, back, _ = op_times(
        Op("mlp_up", "matmul", m=1024.0, n=8192.0, k=4096.0), s.kernels, s.stack, 1.0
    )
    # 4,096 columns are cast forward, 8,192 backward
    assert float(back.memory) == pytest.approx(2 * float(forward.memory))


def pair_s(name: str, etp: float, stack: str = "megatron") -> tuple[float, float | None]:
    """Seconds of the pair of 4,096 tokens over 4 devices, and of a routed layer's own."""
    s = on_h100(name, stack=stack)
    links = columns_of(s.job, Plan(dp=2, tp=4), s.machine).links["tp"]
    whole = float(tensor_pair_s(s, 4096.0, links, True))
    layer = next(ly for ly, _ in s.model.layers if isinstance(ly.mlp, MoeMlp))
    own = feed_forward_pair_s(s, layer, 4096.0, etp, links, True, whole)
    return whole, None if own is None else float(own)


def test_rows_of_experts_that_tensor_parallelism_cuts_are_gathered_top_k_times() -> None:
    # Mixtral sends a token to 2 experts: two rows where a dense layer gathers one
    whole, own = pair_s("mixtral-8x7b", etp=4.0)
    s = on_h100("mixtral-8x7b")
    links = columns_of(s.job, Plan(dp=2, tp=4), s.machine).links["tp"]
    assert own == pytest.approx(float(tensor_pair_s(s, 8192.0, links, True)))
    assert own == pytest.approx(2 * whole, rel=0.15)  # less what does not grow with the bytes


def test_whole_experts_gather_nothing() -> None:
    assert pair_s("mixtral-8x7b", etp=1.0)[1] == 0


def test_a_shared_expert_is_cut_as_a_dense_layer() -> None:
    whole, own = pair_s("deepseek-v3", etp=1.0)
    assert own == pytest.approx(whole)


def test_rows_are_gathered_so_by_megatrons_dispatcher_alone() -> None:
    assert pair_s("mixtral-8x7b", etp=4.0, stack="maxtext")[1] is None


def test_a_routed_layers_own_pair_stands_beside_attentions() -> None:
    layer = next(ly for ly, _ in on_h100("mixtral-8x7b").model.layers)
    found = layer_collectives(layer, 3.0, Context(), 0.0, 0.0, 0.0, 5.0)
    assert (found.tp_forward, found.tp_backward) == (8.0, 8.0)
    assert layer_collectives(layer, 3.0, Context(), 0.0, 0.0, 0.0).tp_forward == 6.0
