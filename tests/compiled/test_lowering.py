"""What libtpu sends for the collectives that a sharding asks for, by rules of the slice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled.expected import expected
from chipshift.compiled.lowering import Slice, slice_of
from chipshift.compiled.step.config import Block, Config

GIB = 2.0**30


def on(chip: str, *dims: int, cores: int = 1) -> Slice:
    return Slice(chip, dims, math.prod(dims) * cores)


@pytest.mark.parametrize(
    ("where", "n", "array_bytes", "by_sum"),
    [
        (on("v5p", 4, 4, 4), 64, GIB, True),
        (on("v5p", 4, 4, 4), 32, GIB, False),  # half of the slice
        (on("v5p", 2, 4, 4), 32, GIB, False),  # a slice below 64 devices
        (on("v7x", 2, 4, 4, cores=2), 64, GIB, True),
        (on("v6e", 8, 8), 64, GIB, False),
        (on("v6e", 8, 8), 64, 2.0**24, True),  # 16 MiB and less
    ],
)
def test_gathers_over_a_whole_large_slice_are_all_reduces(
    where: Slice, n: int, array_bytes: float, by_sum: bool
) -> None:
    assert where.gathers_by_sum(n, array_bytes) is by_sum


@pytest.mark.parametrize(
    ("where", "by_sum"),
    [
        (on("v6e", 4, 4), True),
        (on("v6e", 2, 2), False),
        (on("v6e", 4, 8), False),  # not square
        (on("v5p", 2, 2, 2), True),
        (on("v5p", 2, 2, 1), False),
        (on("v7x", 2, 2, 2, cores=2), False),
    ],
)
def test_scatters_over_a_whole_slice_outside_a_matmul(where: Slice, by_sum: bool) -> None:
    assert where.scatters_by_sum(where.devices, in_matmul=False) is by_sum
    assert where.scatters_by_sum(where.devices, in_matmul=True) is False  # below 64 devices
    assert where.scatters_by_sum(where.devices // 2, in_matmul=False) is False


def test_a_matmul_of_64_devices_no_longer_takes_its_scatter_in() -> None:
    assert on("v6e", 8, 8).scatters_by_sum(64, in_matmul=True) is True


def test_a_slice_by_its_compilers_name_and_what_has_no_rules() -> None:
    assert slice_of("v7x", "tpu7x:2x2x1", 8, 1) == Slice("v7x", (2, 2, 1), 8)
    assert slice_of("v6e", "v6e:4x4", 32, 2) is None  # two slices
    assert slice_of("h100", "1x1x8", 8, 1) is None


def small(mesh: tuple[int, int, int, int, int], **settings: int) -> Config:
    block = Block(heads=4, kv_heads=4, head_dim=128, v_head_dim=128, mlp_width=512)
    return Config(256, 512, (((block,), 3),), mesh, 256, 512, **settings)  # type: ignore[arg-type]


def test_every_gather_and_scatter_of_weights_doubles_on_a_cube_of_v5p() -> None:
    cfg = small((1, 64, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v5p", 4, 4, 4))
    gathers, scatters = asked["all_gather", "fsdp"], asked["reduce_scatter", "fsdp"]
    assert ("all_gather", "fsdp") not in sent and ("reduce_scatter", "fsdp") not in sent
    more = sent["all_reduce", "fsdp"] - asked["all_reduce", "fsdp"]
    assert more == pytest.approx(2 * (gathers + scatters))


def test_a_gradient_over_dp_and_fsdp_of_v7x_is_summed_once_whole() -> None:
    """4 fsdp x 2 dp = the slice: 2 x 7/8 of each gradient in place of 3/4 + 2 x 1/2 of a quarter.
    The embedding's rows are summed over dp by the lookup as well, which is no matmul's."""
    cfg = small((2, 4, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v7x", 2, 2, 1, cores=2))
    gradients = asked["reduce_scatter", "fsdp"] / (3 / 4)
    assert ("reduce_scatter", "fsdp") not in sent
    more = sent["all_reduce", "dp+fsdp"] - asked["all_reduce", "dp+fsdp"]
    assert more == pytest.approx(2 * 7 / 8 * gradients)
    embedding = 512 * 256 * 2
    assert sent["all_reduce", "dp"] == pytest.approx(2 * 1 / 2 * embedding / 4)


@given(
    st.sampled_from([(1, 64, 1, 1, 1), (2, 32, 1, 1, 1), (1, 8, 8, 1, 1), (4, 16, 1, 1, 1)]),
    st.sampled_from(["v5e", "v6e", "v5p", "v7x"]),
)
def test_rules_add_bytes_and_leave_other_axes_alone(
    mesh: tuple[int, int, int, int, int], chip: str
) -> None:
    cfg = small(mesh)
    where = on(chip, 8, 8) if chip in ("v5e", "v6e") else on(chip, 4, 4, 4)
    asked, sent = expected(cfg), expected(cfg, where)
    assert sum(sent.values()) >= sum(asked.values()) * (1 - 1e-12)
    if mesh[0] > 1 and chip != "v7x":
        assert sent == asked  # no axis is the whole slice
