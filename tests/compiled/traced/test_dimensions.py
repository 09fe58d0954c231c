"""Labels follow dimensions through single operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from chipshift.compiled.traced.dimensions import Event, Labels, follow


def _one(fn: Any, *arrays: jax.Array) -> Any:
    """The only operation of a small function."""
    (eqn,) = jax.make_jaxpr(fn)(*arrays).jaxpr.eqns
    return eqn


def _follow(eqn: Any, *ins: Labels) -> tuple[list[Labels], list[Event]]:
    return follow(eqn, ins, lambda label: 2, lambda a, b: a)


def test_element_by_element_keeps_each_dimensions_label() -> None:
    eqn = _one(lambda a, b: a * b, jnp.ones((4, 8)), jnp.ones((4, 8)))
    assert _follow(eqn, ("batch", None), (None, "width")) == ([("batch", "width")], [])


def test_a_sum_ends_the_label_of_the_dimension_summed_over() -> None:
    eqn = _one(
        lambda a: jax.lax.reduce_sum_p.bind(a, axes=(1,), out_sharding=None), jnp.ones((4, 8))
    )
    outs, ended = _follow(eqn, ("batch", "width"))
    assert outs == [("batch",)]
    assert [(e.what, e.label) for e in ended] == [("reduced", "width")]


def test_a_running_sum_cannot_keep_the_label_it_goes_along() -> None:
    eqn = _one(lambda a: jax.lax.cumsum(a, axis=1), jnp.ones((4, 8)))
    outs, ended = _follow(eqn, ("batch", "width"))
    assert outs == [("batch", None)]
    assert [(e.what, e.label) for e in ended] == [("lost", "width")]


def test_an_operation_without_results_ends_what_goes_into_it() -> None:
    # jax.debug.print has no result: it takes the whole array to the host
    eqn = _one(lambda a: jax.debug.print("{}", a), jnp.ones((4, 8)))
    outs, ended = _follow(eqn, ("batch", None))
    assert outs == []
    assert [(e.what, e.label) for e in ended] == [("lost", "batch")]
