"""Kernels that a chip borrows are as good beside its own plain matmuls as their owner's."""

from __future__ import annotations

import pytest

from chipshift.machines import chip
from chipshift.roofline.kernels import Kernels, kernels


def of(key: str, dtype: str = "bf16") -> Kernels:
    return kernels(chip(key), dtype, 1.0 if dtype == "fp8" else 2.0, 128.0)


@pytest.mark.parametrize("key", ["mi300x", "mi325x", "mi350x", "mi355x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_no_kernel_is_better_beside_plain_matmuls_than_its_owners(key: str, dtype: str) -> None:
    """AMD's grouped matmuls and attention are H100's: nothing of theirs is measured."""
    own, owner = of(key, dtype), of("h100", dtype)
    beside = own.plain.e_max / owner.plain.e_max
    assert beside < 1  # AMD's matmuls reach half to six tenths of peak, H100's eight
    assert own.attention.e_forward == pytest.approx(owner.attention.e_forward * beside)
    assert own.attention.e_backward == pytest.approx(owner.attention.e_backward * beside)
    narrow = own.matmul.e_max / owner.matmul.e_max
    assert own.grouped.e_max == pytest.approx(owner.grouped.e_max * narrow)


def test_a_dtype_that_is_a_relatives_stands_to_bf16_as_it_does_there() -> None:
    """MI355X: bf16 reaches 0.6219 of peak (1,565 of 2,516.6 TFLOP/s), fp8 is not measured.
    MI300X: bf16 0.5112 (668.4 of 1,307.4), fp8 0.4677 (1,222.9 of 2,614.9).
    0.4677 / 0.5112 × 0.6219 = 0.5690."""
    assert of("mi300x", "fp8").matmul.e_max == pytest.approx(1222.9 / 2614.9, abs=2e-4)
    assert of("mi355x", "fp8").plain.e_max == pytest.approx(1565 / 2516.6, abs=2e-4)
    assert of("mi355x", "fp8").matmul.e_max == pytest.approx(0.5690, abs=1e-4)


def test_a_chip_with_kernels_of_its_own_keeps_them() -> None:
    for key in ("a100", "h200", "b200", "v6e", "v7x"):
        own = of(key)
        assert own.matmul.e_max == own.plain.e_max
    # v5p borrows everything from v6e, plain matmuls as well: nothing is changed
    assert of("v5p").matmul.e_max == of("v6e").matmul.e_max
