"""The classic results of sharding arithmetic come out of the product's own functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.parallel import memory, traffic

N = 7e9  # parameters


def adamw_bytes(gradient_bytes: float, shards: float) -> float:
    kept = memory.optimizer_bytes_per_param(4.0, 4.0, 2.0)
    return sum(memory.state_bytes(N, b, shards) for b in (2.0, gradient_bytes, kept))


def test_mixed_precision_adamw_keeps_16_bytes_a_parameter() -> None:
    # bf16 weights 2 + bf16 gradients 2 + fp32 master 4 + two fp32 moments 8 (Rajbhandari 2020)
    assert adamw_bytes(2.0, 1.0) == 16 * N


def test_with_fp32_gradients_18() -> None:
    assert adamw_bytes(4.0, 1.0) == 18 * N


def test_fully_sharded_over_64_it_is_a_64th() -> None:
    assert adamw_bytes(2.0, 64.0) == pytest.approx(16 * N / 64)


def test_zero_stages_of_the_paper() -> None:
    """ZeRO paper, figure 1: 7.5 B parameters, 64 devices: 120, 31.4, 16.6 and 1.9 GB."""
    psi, n = 7.5e9, 64.0
    kept = memory.optimizer_bytes_per_param(4.0, 4.0, 2.0)

    def total(weights: float, gradients: float, optimizer: float) -> float:
        return (
            memory.state_bytes(psi, 2.0, weights)
            + memory.state_bytes(psi, 2.0, gradients)
            + memory.state_bytes(psi, kept, optimizer)
        )

    assert total(1, 1, 1) / 1e9 == pytest.approx(120)
    assert total(1, 1, n) / 1e9 == pytest.approx(31.4, abs=0.05)
    assert total(1, n, n) / 1e9 == pytest.approx(16.6, abs=0.05)
    assert total(n, n, n) / 1e9 == pytest.approx(1.9, abs=0.05)


def test_fsdp_moves_one_and_a_half_times_what_ddp_moves() -> None:
    """Equal dtypes, no accumulation: 2 gathers + 1 scatter against an all-reduce = 2 of them."""
    assert traffic.fsdp_over_ddp(2.0, 2.0, 2.0, 1.0) == 1.5


def test_and_what_it_moves_otherwise() -> None:
    # bf16 gathers, fp32 reductions on both sides: (2·2 + 4) / (2·4) = 1
    assert traffic.fsdp_over_ddp(2.0, 4.0, 4.0, 1.0) == 1.0
    # four microbatches: FSDP gathers and scatters in each, DDP reduces once
    assert traffic.fsdp_over_ddp(2.0, 2.0, 2.0, 4.0) == 6.0


def test_weight_shards_of_hybrid_and_pure_data_parallel() -> None:
    assert memory.weight_shards(1.0, 8.0) == 1  # nothing is sharded without fsdp
    assert memory.weight_shards(16.0, 2.0) == 32
    # 64 shards, 8 expert groups, experts not cut by tp: 8 devices share one expert's copy
    assert memory.expert_shards(32.0, 2.0, 4.0, 4.0, 8.0) == 8
    # an expert that tp does not cut (etp = 1) is shared by the tp group as well
    assert memory.expert_shards(32.0, 2.0, 4.0, 1.0, 8.0) == 32


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8))
def test_replicas_of_a_gradient_hold_its_shards(dp: int, fsdp: int, cp: int) -> None:
    replicas = memory.gradient_replicas(float(dp), float(fsdp), float(cp))
    assert replicas % memory.weight_shards(float(fsdp), float(cp)) == 0


def test_bytes_of_the_collectives() -> None:
    # one layer of 200 M parameters gathered in bf16
    assert traffic.weight_gather_bytes(2e8, 2.0) == 4e8
    # 8192 tokens of width 4096 in bf16
    assert traffic.tensor_parallel_bytes(8192.0, 4096.0, 2.0) == 8192 * 4096 * 2
    # keys and values of 8 heads, 128 + 128 wide, of four devices with 2048 tokens each
    assert traffic.context_bytes(2048.0, 8.0, 256.0, 2.0, 4.0) == 2048 * 8 * 256 * 2 * 4
    # top-2 of 1024 tokens, sequence cut by 4, eight devices
    assert traffic.expert_bytes(1024.0, 2.0, 4096.0, 2.0, 8.0, 4.0) == 1024 * 2 * 4096 * 2 / 4 * 8


def test_logits_of_llama_3() -> None:
    # 8192 tokens × 128,256 entries × 10 bytes = 9.8 GiB: why the loss is chunked
    whole = memory.logits_bytes(8192.0, 128256.0, 1.0, 10.0, 1.0)
    assert whole / 2**30 == pytest.approx(9.785, abs=0.001)
    assert memory.logits_bytes(8192.0, 128256.0, 4.0, 10.0, 2.0) == whole / 8


def test_what_data_parallelism_holds_beside_its_state() -> None:
    # bf16 buckets, and a flat bf16 buffer of all weights with the device's own eighth of it
    assert memory.bucket_bytes(1e9, 2.0, 8.0) == 2e9
    assert memory.flat_gather_bytes(1e9, 2.0, 8.0) == 2.25e9
    # nothing is summed or gathered on one replica
    assert memory.bucket_bytes(1e9, 2.0, 1.0) == 0
    assert memory.flat_gather_bytes(1e9, 2.0, 1.0) == 0
    # 4096 tokens of width 3072, two tensors in bf16
    assert memory.wide_bytes(4096.0, 3072.0, 2.0, 8.0) == 4 * 4096 * 3072
    assert memory.wide_bytes(4096.0, 3072.0, 2.0, 1.0) == 0
    # a buffer made after 3 GB are free adds what it is larger
    assert memory.beyond(5e9, 3e9) == 2e9
    assert memory.beyond(2e9, 3e9) == 0
