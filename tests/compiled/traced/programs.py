"""Small programs written as a traced PyTorch module's loss is: matrices (out, in)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chipshift.compiled.traced.step import WholeProgram


def program(
    loss: Callable[..., Any], parameters: Mapping[str, tuple[int, ...]], *inputs: Any
) -> WholeProgram:
    """``loss(parameters, *inputs)`` of fp32 parameters of these shapes; inputs with a dtype."""
    import jax

    held = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in parameters.items()}

    def flat(*values: Any) -> Any:
        return loss(dict(zip(held, values, strict=False)), *values[len(held) :])

    return WholeProgram(jax.make_jaxpr(flat)(*held.values(), *inputs), held, {}, inputs)


def array(*shape: int, dtype: str = "float32") -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, dtype)


def mlp(p: Any, x: Any) -> Any:
    """Out to a width and back, a bias on the width."""
    import jax
    import jax.numpy as jnp

    return jnp.mean((jax.nn.relu(x @ p["up"].T + p["bias"]) @ p["down"].T) ** 2)


def mlp_of(width: int) -> WholeProgram:
    """Eight rows of 16, out to ``width``."""
    shapes = {"up": (width, 16), "bias": (width,), "down": (16, width)}
    return program(mlp, shapes, array(8, 16))


def attention_of(heads: int, key_heads: int, sequences: int = 4) -> WholeProgram:
    """Heads of 8 on sequences of 6 positions, 32 wide."""
    import jax.numpy as jnp

    from chipshift.compiled.traced.operators import attention

    def loss(p: Any, x: Any) -> Any:
        q, k, v = (
            jnp.swapaxes((x @ p[name].T).reshape(sequences, 6, -1, 8), 1, 2)
            for name in ("q", "k", "v")
        )
        y = attention(q, k, v, causal=True, grouped=heads > key_heads)
        y = jnp.swapaxes(y, 1, 2).reshape(sequences, 6, heads * 8) @ p["o"].T
        return jnp.mean((x + y) ** 2)

    shapes = {"q": (heads * 8, 32), "k": (key_heads * 8, 32), "v": (key_heads * 8, 32)}
    return program(loss, shapes | {"o": (32, heads * 8)}, array(sequences, 6, 32))


def tied() -> WholeProgram:
    """A table of 64 rows, 16 wide, whose transpose is the head; a softmax over the vocabulary."""
    import jax
    import jax.numpy as jnp

    from chipshift.compiled.traced.operators import looked_up

    def loss(p: Any, ids: Any) -> Any:
        logits = looked_up(p["table"], ids) @ p["table"].T
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), ids[..., None], -1))

    return program(loss, {"table": (64, 16)}, array(4, 6, dtype="int32"))
