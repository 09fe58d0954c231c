"""JAX steps with one hazard each, and what is counted."""

import pytest

from .conftest import line_of

jax = pytest.importorskip("jax", reason="runs real JAX steps")

HEAD = """
import jax
import jax.numpy as jnp
import numpy as np
def trace_inputs():
    state = jnp.zeros(())
    for n in {sizes}:
        state = yield state, np.ones((n,), np.float32)
"""


def code(body: str, sizes: str = "(8, 8, 8)") -> str:
    return HEAD.format(sizes=sizes) + body


def test_a_jitted_step_of_fixed_shapes_compiles_once(traced) -> None:
    result = traced(code("@jax.jit\ndef step(state, x):\n    return state + x.sum()\n"))
    assert (result.framework, result.steps, result.programs) == ("jax", 3, 1)
    assert not (result.recompiles or result.host_syncs or result.fallbacks or result.graph_breaks)


def test_each_new_input_shape_compiles(traced) -> None:
    result = traced(
        code("@jax.jit\ndef step(state, x):\n    return state + x.sum()\n", "(8, 9, 8, 7)")
    )
    assert result.programs == 3
    assert sum(r.count for r in result.recompiles) == 2
    assert result.recompiles[0].cause == (
        "an input's shape or type changed: x, now f32[9] and before f32[8]"
    )


def test_a_static_argument_that_counts_steps_compiles_each_time(traced) -> None:
    text = """
import functools, jax
import jax.numpy as jnp
def trace_inputs():
    for step in range(4):
        yield jnp.ones(4), step
@functools.partial(jax.jit, static_argnums=1)
def step(x, count):
    return x * count
"""
    result = traced(text)
    assert result.programs == 4
    assert sum(r.count for r in result.recompiles) == 3
    assert "static argument" in result.recompiles[0].cause


def test_a_function_jitted_anew_each_step_is_named(traced) -> None:
    text = code("def step(state, x):\n    return jax.jit(lambda s, v: s + v.sum())(state, x)\n")
    result = traced(text)
    assert result.recompiles[0].cause.startswith("a function that was not jitted before")
    assert result.recompiles[0].place.line == line_of(text, "jax.jit(lambda")
    assert any("not under jax.jit" in note for note in result.notes)


def test_each_read_of_an_array_is_counted_once_at_its_line(traced) -> None:
    text = code(
        "inner = jax.jit(lambda s, x: (s + x.sum(), x.mean(), x.max(), x * 2))\n"
        "def step(state, x):\n"
        "    state, mean, top, twice = inner(state, x)\n"
        "    a = float(mean)\n"
        "    again = float(mean)\n"
        "    b = top.item()\n"
        "    c = np.asarray(twice)\n"
        "    return state\n"
    )
    result = traced(text)
    reads = {(place.line, count) for place, count in result.host_syncs}
    # The value of `mean` stays on the host once it was read: the second line costs nothing.
    expected = {(line_of(text, f"{name} = "), 3) for name in ("a", "b", "c")}
    assert reads == expected


def test_a_branch_on_a_traced_value_is_reported_where_it_stands(traced) -> None:
    text = code(
        "@jax.jit\n"
        "def step(state, x):\n"
        "    if x.sum() > 0:\n"
        "        return state\n"
        "    return state + 1\n"
    )
    result = traced(text)
    (found,) = result.graph_breaks
    assert found.place == ("user_step.py", line_of(text, "if x.sum()"))
    assert found.why.startswith("TracerBoolConversionError")


def test_a_boolean_mask_is_reported_where_it_stands(traced) -> None:
    text = code("@jax.jit\ndef step(state, x):\n    return state + x[x > 0].sum()\n")
    (found,) = traced(text).graph_breaks
    assert found.place.line == line_of(text, "x[x > 0]")
    assert found.why.startswith("NonConcreteBooleanIndexError")


def test_a_callback_in_the_step_leaves_the_device(traced) -> None:
    text = code(
        "@jax.jit\n"
        "def step(state, x):\n"
        "    jax.debug.print('{}', x.sum())\n"
        "    return state + x.sum()\n"
    )
    result = traced(text)
    ((op, place, count),) = result.fallbacks
    assert (place.line, count) == (line_of(text, "jax.debug.print"), 3)
    assert op.startswith("debug_")
