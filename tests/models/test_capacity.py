"""Experts with a capacity: a mask deals tokens out by einsums, and every place is computed."""

from __future__ import annotations

import pytest

from chipshift.models.model import MoeMlp
from chipshift.models.ops import Cut, Op, mlp_ops

D, S = 64, 128
DROPLESS = MoeMlp(experts=4, top_k=2, width=32)
DEALT = MoeMlp(experts=4, top_k=2, width=32, capacity_factor=1.25)
TWO_SEQUENCES = Cut(tokens=2.0 * S, seq_len=float(S))


def ops(mlp: MoeMlp, cut: Cut = TWO_SEQUENCES) -> dict[str, Op]:
    return {op.name: op for op in mlp_ops(mlp, float(D), cut)}


def test_every_place_is_computed_and_only_tokens_are_model_flops() -> None:
    # 2 sequences x 128 tokens x 2 experts = 512 rows over 4 experts: 128 each; 160 places
    found, plain = ops(DEALT), ops(DROPLESS)
    assert float(plain["experts_up"].m) == 128.0
    assert float(found["experts_up"].m) == 160.0
    assert float(found["experts_up"].flops) == pytest.approx(float(plain["experts_up"].flops))
    assert found["experts_up"].kind == "matmul"  # a batch of dense matmuls, no ragged kernel


def test_masks_deal_a_sequence_out_and_gather_it_again() -> None:
    # 128 x 2 x 1.25 = 320 places a sequence: (320 x 128) x (128 x 64), and (128 x 320) x (320 x 64)
    found = ops(DEALT)
    deal, gather = found["dispatch"], found["combine"]
    assert [float(x) for x in (deal.m, deal.k, deal.n, deal.groups)] == [320, 128, 64, 2]
    assert [float(x) for x in (gather.m, gather.k, gather.n, gather.groups)] == [128, 320, 64, 2]
    assert float(found["masks"].elements) == 2 * 128 * 320
    assert float(deal.flops) == float(gather.flops) == 0.0
    assert "permute" not in found


def test_expert_parallel_devices_hold_fewer_experts_of_more_rows() -> None:
    # ep = 2: two experts a device, the rows of both devices' tokens: 2 x 160
    found = ops(DEALT, Cut(2.0 * S, float(S), ep=2.0, imbalance=1.1))
    assert float(found["experts_up"].groups) == 2.0
    assert float(found["experts_up"].m) == pytest.approx(320.0)


def test_dropless_experts_move_rows() -> None:
    found = ops(DROPLESS)
    assert float(found["permute"].m) == float(found["unpermute"].m) == 512.0
    assert "dispatch" not in found
