"""What is added up over tp, and when: parts are summed once, as late as they can be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from chipshift.compiled.traced.sharded import TP, Cutting
from chipshift.compiled.traced.sums_over_tp import summed_over_tp
from tests.compiled.traced.programs import array

pytest.importorskip("jax")

ARRAY = 6 * 10 * 4
"""Bytes of (6, 10) in fp32. A sum over 4 devices sends each 2 x 3/4 of what it holds."""


def sums(of: Callable[[Any, Any], Any]) -> float:
    """Arrays summed over tp=4 in ``of(one, other)``: two matmuls over a width that tp cuts."""
    import jax

    def step(x: Any, a: Any, b: Any) -> Any:
        return of(x @ a, x @ b)

    closed = jax.make_jaxpr(step)(array(6, 8), array(8, 10), array(8, 10))
    cutting = Cutting(SimpleNamespace(shape={TP: 4}), (), None)
    sent = summed_over_tp(closed, [(None, TP), (TP, None), (TP, None)], cutting)
    return sent / (ARRAY * 2 * 3 / 4)


def test_parts_are_added_before_they_are_summed() -> None:
    assert sums(lambda one, other: one + other) == 1
    assert sums(lambda one, other: (one, other)) == 2


@pytest.mark.parametrize(
    "scaled", [lambda part: part * 0.5, lambda part: 0.5 * part, lambda part: part / 3.0]
)
def test_parts_times_a_number_are_parts(scaled: Callable[[Any], Any]) -> None:
    """On either side of the sign: s·(a₁ + a₂) = s·a₁ + s·a₂."""
    assert sums(lambda one, other: scaled(one) + other) == 1


def test_what_is_not_linear_in_the_parts_takes_their_sums() -> None:
    # 3/(a₁ + a₂) is not 3/a₁ + 3/a₂, nor a product of sums the sum of products of parts
    assert sums(lambda one, other: 3.0 / one + other) == 2
    assert sums(lambda one, other: one * other) == 2
    # a row that is no sum over tp is added to the sum, not to each part
    assert sums(lambda one, other: one + 1.0 + other) == 2
