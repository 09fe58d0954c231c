"""In-place writes: a finding exactly where the traced program gives other values than PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.reference

PATTERNS: dict[str, Callable[[Any], Any]] = {}


def pattern(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PATTERNS[function.__name__] = function
    return function


@pattern
def assign_a_column(y: Any) -> Any:
    y[:, 0] = 1.0
    return y


@pattern
def zero_a_row(y: Any) -> Any:
    y[0].zero_()
    return y


@pattern
def scale_a_row(y: Any) -> Any:
    row = y[0]
    row *= 2
    return y


@pattern
def add_through_reshape(y: Any) -> Any:
    y.reshape(-1).add_(1.0)
    return y


@pattern
def use_the_view_alone(y: Any) -> Any:
    return y.view(-1).mul_(2.0)


@pattern
def assign_through_view(y: Any) -> Any:
    flat = y.view(-1)
    flat[3] = 7.0
    return y


@pattern
def assign_through_transpose(y: Any) -> Any:
    y.t()[0] = 9.0
    return y


@pattern
def scale_a_chunk(y: Any) -> Any:
    first, _ = y.chunk(2, dim=1)
    first.mul_(3.0)
    return y


@pattern
def clear_the_diagonal(y: Any) -> Any:
    y.diagonal().zero_()
    return y


@pattern
def scale_detached(y: Any) -> Any:
    y.detach().mul_(2.0)
    return y


@pattern
def write_the_base_of_a_transpose(y: Any) -> Any:
    turned = y.t()
    y += 1
    return turned


@pattern
def write_the_base_of_a_row(y: Any) -> Any:
    row = y[0]
    y.add_(1.0)
    return row


@pattern
def relu_in_place(y: Any) -> Any:
    return torch.relu_(y)


@pattern
def functional_relu_in_place_through_a_view(y: Any) -> Any:
    torch.nn.functional.relu(y.view(-1), inplace=True)
    return y


@pattern
def copy_between_parts(y: Any) -> Any:
    y.narrow(0, 0, 2).copy_(y.narrow(0, 2, 2))
    return y


def example() -> np.ndarray[Any, Any]:
    return np.arange(16, dtype="float32").reshape(4, 4) - 7


def all_through_torchax() -> dict[str, np.ndarray[Any, Any]]:
    """What each pattern gives where torchax traces it and XLA runs it."""
    from chipshift.compiled.torch_program import _import

    torchax, _ = _import()
    from torchax.interop import jax_view, torch_view

    env = torchax.default_env()

    def traced(function: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
        def inside(a: Any) -> Any:
            with env:
                return jax_view(function(torch_view(a) * 1))

        return np.asarray(jax.jit(inside)(example()))

    return {name: traced(function) for name, function in PATTERNS.items()}


@pytest.fixture(scope="module")
def through_torchax() -> dict[str, np.ndarray[Any, Any]]:
    """In a process of its own: torchax gives PyTorch a device that torch.compile fails on."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(all_through_torchax).result()


@pytest.mark.parametrize("name", PATTERNS)
def test_a_finding_where_and_only_where_the_trace_differs(name: str, through_torchax: Any) -> None:
    from chipshift.compiled.aliasing import aliasing

    function = PATTERNS[name]
    expected = function(torch.tensor(example()) * 1).numpy()
    differs = not np.array_equal(expected, through_torchax[name])
    with torch.device("meta"):
        x = torch.zeros(4, 4)
    found = aliasing(lambda x: function(x * 1), (x,), lambda out, x: out.sum(), ())
    assert [one["rule"] for one in found] == (["inplace-alias"] if differs else [])
