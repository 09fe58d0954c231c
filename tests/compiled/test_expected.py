"""What the sharding arithmetic expects, worked by hand: activations over tp, sums over dp."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chipshift.compiled.expected import expected
from chipshift.compiled.hlo.collective import Collective
from chipshift.compiled.reading import in_step
from chipshift.compiled.request import Request
from chipshift.compiled.step.config import Block, Config, Variant
from chipshift.compiled.topology import Target

DENSE = Block(heads=4, kv_heads=4, head_dim=64, v_head_dim=64, mlp_width=512)
ROUTED = replace(DENSE, mlp_width=0, experts=8, top_k=2, expert_width=128)
SHARED = replace(ROUTED, shared_width=256)

HIDDEN = 2 * 256 * 256 * 2 / 2
"""Bytes that one device of two sends to gather two sequences of 256, 256 wide, in bf16."""


def sent(block: Block, **settings: object) -> dict[str, float]:
    """Hidden states over tp=2 a layer, the two gathers and scatters outside the layers left out."""
    cfg = Config(256, 512, (((block,), 3),), (1, 1, 1, 1, 2), 256, 2)
    sums = expected(replace(cfg, **settings))  # type: ignore[arg-type]
    return {
        kind: (sums[kind, "tp"] - 2 * HIDDEN) / 3 / HIDDEN
        for kind in ("all_gather", "reduce_scatter")
    }


def test_a_dense_layer_gathers_six_times_and_scatters_five_times() -> None:
    """Each half: gathered forward, for the gradients and recomputed; scattered there and back, the
    first half's sum once more."""
    assert sent(DENSE) == pytest.approx({"all_gather": 6, "reduce_scatter": 5})


def test_a_norm_after_the_feed_forward_wants_its_sum_again() -> None:
    for remat in ("full", "save_out_proj"):  # what is kept there comes after the norm
        found = sent(DENSE, variant=Variant(post_norms=True), remat=remat)
        assert found == pytest.approx({"all_gather": 6, "reduce_scatter": 6})
    assert sent(DENSE, remat="save_out_proj")["reduce_scatter"] == pytest.approx(4)


def test_a_routers_logits_are_gathered_twice_and_their_gradient_is_scattered() -> None:
    """8 logits of 4 bytes a token, where the hidden state has 256 of 2: a sixteenth of it."""
    found = sent(ROUTED)
    assert found == pytest.approx({"all_gather": 6 + 2 / 16, "reduce_scatter": 5 + 1 / 16})


@pytest.mark.parametrize(("gate", "gathers", "scatters"), [(False, 6, 6), (True, 7, 8)])
def test_a_shared_experts_sum_is_scattered_with_the_routed_experts_unless_a_gate_wants_it(
    gate: bool, gathers: int, scatters: int
) -> None:
    """Its input's gradient is scattered by itself. Its sum's gradient is the routed experts' own,
    and is gathered with it, but for the gate, which has its sum scattered twice."""
    found = sent(replace(SHARED, shared_gate=gate))
    wanted = {"all_gather": gathers + 2 / 16, "reduce_scatter": scatters + 1 / 16}
    assert found == pytest.approx(wanted)


def test_under_cp_the_gradient_of_both_sums_is_gathered_twice() -> None:
    """Over cp=2 a device has half the tokens: halves of 7 gathers, of 6 scatters, of the logits'
    sixteenths and of the two gathers and scatters outside the layers."""
    cfg = Config(256, 512, (((SHARED,), 3),), (1, 1, 1, 2, 2), 256, 2)
    sums = expected(cfg)
    assert sums["all_gather", "tp"] == pytest.approx((3 * (7 + 2 / 16) + 2) / 2 * HIDDEN)
    assert sums["reduce_scatter", "tp"] == pytest.approx((3 * (6 + 1 / 16) + 2) / 2 * HIDDEN)


@pytest.mark.parametrize(
    ("q_rank", "gathers", "scatters"),
    [
        # keys' latent of 64 and its 32 rotary columns, of 256, forward and recomputed, beside the
        # hidden state for the queries; their gradients scattered beside its
        (None, 6 + 2 * 96 / 256, 5 + 96 / 256),
        # queries' latent in place of the hidden state, forward, recomputed and its gradient
        (128, 6 - 2 + 2 * (96 + 128) / 256, 5 - 1 + (96 + 128) / 256),
    ],
)
def test_latents_are_gathered_and_scattered_in_place_of_the_hidden_state(
    q_rank: int | None, gathers: float, scatters: float
) -> None:
    latent = replace(DENSE, kv_rank=64, rope_dim=32, q_rank=q_rank, head_dim=96)
    assert sent(latent) == pytest.approx({"all_gather": gathers, "reduce_scatter": scatters})


def test_what_routed_experts_take_is_gathered_once_less_where_it_is_kept() -> None:
    """Kept with everything else it is gathered no second time; a shared expert gathers it still."""
    assert sent(ROUTED, remat="none")["all_gather"] == pytest.approx(5 + 2 / 16)
    assert sent(SHARED, remat="none")["all_gather"] == pytest.approx(6 + 2 / 16)


@pytest.mark.parametrize("zero", [False, True])
def test_matrices_into_latents_have_their_gradients_summed_over_tp_too(zero: bool) -> None:
    """Two layers of 256 x 96 and 256 x 32 weights, bf16, on dp=2, tp=2, which no axis cuts: each
    is added up over all four, 2 x 3/4 of it sent; a sharded optimizer's in halves over dp, half of
    it sent, and each half over the two of tp, sent once."""
    block = replace(DENSE, kv_rank=64, rope_dim=32, q_rank=32, head_dim=96)
    dense = replace(block, kv_rank=None, rope_dim=0, q_rank=None)
    cfg = Config(256, 512, (((block,), 2),), (2, 1, 1, 1, 2), 256, 2, zero=zero)
    held = 2 * 256 * (96 + 32) * 2
    more = expected(cfg), expected(replace(cfg, segments=(((dense,), 2),)))
    over = "tp" if zero else "dp+tp"
    grown = more[0]["all_reduce", over] - more[1].get(("all_reduce", over), 0.0)
    assert grown == pytest.approx(held / 2 if zero else 1.5 * held)


def test_fewer_key_heads_than_tp_devices_are_gathered_whole_and_one_has_a_gradient() -> None:
    """2 heads of 64 x 256 weights for keys and 2 for values, bf16, on fsdp=2 and tp=4, 3 layers:
    half of all gathered twice over fsdp, half of one head's gradient scattered, and the halves of
    all that a device keeps summed over tp, 2 x 3/4 sent. Against 4 heads, one on each device."""
    block = replace(DENSE, heads=4, kv_heads=2, head_dim=64, v_head_dim=64)
    few, four = (
        expected(Config(256, 512, (((one, ), 3),), (1, 2, 1, 1, 4), 256, 2))
        for one in (block, replace(block, kv_heads=4))
    )  # fmt: skip
    head = 64 * 256 * 2
    more = {key: few[key] - four.get(key, 0.0) for key in few}
    assert more["all_gather", "fsdp"] == pytest.approx(3 * 2 * 2 * head / 2)
    assert more["reduce_scatter", "fsdp"] == pytest.approx(0.0)
    assert more["all_reduce", "tp"] == pytest.approx(3 * 2 * (2 * head / 2) * 2 * 3 / 4)


def over_dp(accumulation: int, *, fsdp: int = 1, tied: bool = False) -> dict[str, float]:
    """Bytes over dp=4 a step, optimizer sharded, the fp32 sums of norms left out."""
    cfg = Config(256, 512, (((DENSE,), 3),), (4, fsdp, 1, 1, 1), 256, 4 * fsdp * accumulation)
    cfg = replace(cfg, accumulation=accumulation, zero=True, tied=tied)
    return {kind: sent for (kind, axis), sent in expected(cfg).items() if axis == "dp"}


MATRICES = 3 * (4 * 256 * 256 + 3 * 256 * 512) * 2
"""Bytes in bf16 of three layers: q, k, v and o; gate, up and down."""
TABLE = 512 * 256 * 2
NORMS = (3 * 2 + 1) * 256 * 4


@pytest.mark.parametrize("accumulation", [1, 8])
def test_gradients_whole_on_a_device_are_scattered_to_the_optimizers_parts(
    accumulation: int,
) -> None:
    """Each microbatch's, three quarters of it: matrices, the head and the looked-up table. The
    weights are gathered once a step."""
    found = over_dp(accumulation)
    every = MATRICES + 2 * TABLE
    assert found["reduce_scatter"] == pytest.approx(accumulation * every * 3 / 4)
    assert found["all_gather"] == pytest.approx(every * 3 / 4)
    assert found["all_reduce"] == pytest.approx(accumulation * 2 * NORMS * 3 / 4)


def test_a_tied_table_is_scattered_once_for_lookup_and_head() -> None:
    assert over_dp(1)["reduce_scatter"] - over_dp(1, tied=True)["reduce_scatter"] == pytest.approx(
        TABLE * 3 / 4
    )


def test_what_fsdp_leaves_of_a_gradient_is_scattered_over_dp() -> None:
    """Halves under fsdp=2, three quarters of each for each of 8 microbatches."""
    found = over_dp(8, fsdp=2)
    assert found["reduce_scatter"] == pytest.approx(8 * (MATRICES + 2 * TABLE) / 2 * 3 / 4)
    assert "all_reduce" not in found  # norms are summed over dp and fsdp at once


def test_without_a_sharded_optimizer_gradients_are_all_reduced() -> None:
    cfg = Config(256, 512, (((DENSE,), 3),), (4, 1, 1, 1, 1), 256, 4)
    every = MATRICES + 2 * TABLE + NORMS
    assert expected(cfg)["all_reduce", "dp"] == pytest.approx(2 * every * 3 / 4)


def test_an_all_to_all_that_the_step_does_not_write_is_inserted() -> None:
    """Named after what it stands next to; the experts' own, a user's and a nameless one stay."""
    cfg = Config(256, 512, (((DENSE,), 3),), (1, 1, 1, 1, 2), 256, 2)
    aim = Target("v7x:1x1x1", "v7x", "tpu", "v7x:1x1x1", 1, 2)
    built_in, users = Request("job", "small", aim, config=cfg), Request("entry", "small", aim)

    def inserted(request: Request, operation: str) -> tuple[float, str]:
        one = Collective("all_to_all", "tp", 2, 1, 64.0, "", False, False, operation, None)
        found = in_step(request, one)
        return found.inserted, found.why

    assert inserted(built_in, "jit(step)/jvp()/concatenate") == (64.0, "laid out anew")
    assert inserted(built_in, "jit(step)/jvp()/shard_map/all_to_all") == (0.0, "")
    assert inserted(built_in, "") == (0.0, "")
    assert inserted(users, "jit(step)/jvp()/concatenate") == (0.0, "")


@pytest.mark.parametrize(("tied", "tables"), [(False, 2 * 2), (True, 2 * 4)])
def test_sums_over_dp_of_what_lies_outside_the_layers_are_done_once_a_step_in_fp32(
    tied: bool, tables: int
) -> None:
    """Of four microbatches each layer's gradients are summed four times, those of embedding and
    head once at twice the width; four times in bf16 where both are one table."""
    cfg = Config(256, 512, (((DENSE,), 3),), (2, 4, 1, 1, 1), 256, 16, tied=tied)
    one, four = (expected(replace(cfg, accumulation=n))["all_reduce", "dp"] for n in (1, 4))
    table = 2 * 1 / 2 * 512 * 256 * 2 / 4  # an all-reduce of a quarter over two devices, in bf16
    layers = one - 2 * table
    assert four == pytest.approx(4 * layers + tables * table)
