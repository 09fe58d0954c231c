"""Attention and feed-forward that read one norm's output and are added in one sum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chipshift.estimate.context import Context
from chipshift.estimate.traffic import layer_collectives
from chipshift.models.model import Attention, DenseMlp, Layer
from chipshift.models.ops import Cut, layer_ops

IN_A_ROW = Layer(Attention(4, 4, 16, 16), DenseMlp(256, 2), norm_params=128)
BESIDE = replace(IN_A_ROW, norm_params=64, side_by_side=True)


def test_a_norm_stands_before_both() -> None:
    in_a_row = [op.name for op in layer_ops(IN_A_ROW, 64.0, Cut(128.0, 128.0))]
    beside = [op.name for op in layer_ops(BESIDE, 64.0, Cut(128.0, 128.0))]
    assert [name for name in in_a_row if name not in beside] == ["mlp_norm"]
    assert [name for name in beside if name not in in_a_row] == []


def test_tensor_parallelism_gathers_and_sums_once_for_both() -> None:
    # a gather and a sum of 3 s together: forward 2 of them where one half follows the other
    def pairs(layer: Layer) -> tuple[float, float, float]:
        found = layer_collectives(layer, 3.0, Context(), 0.0, 0.0, 0.0)
        return found.tp_forward, found.tp_backward, found.tp_recompute

    assert pairs(IN_A_ROW) == pytest.approx((6.0, 6.0, 3.0))
    assert pairs(BESIDE) == pytest.approx((3.0, 3.0, 1.5))
