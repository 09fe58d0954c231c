"""Operators of torchax 0.0.13 that do not bear being cut, written in JAX.

A matmul of four dimensions becomes one of three there, sequences and heads merged in one dimension:
cut over both, it can no longer be followed, nor partitioned without resending. A table with a
padding row has that row's gradient overwritten, which XLA does on every device's part of the rows.
"""

from __future__ import annotations

from typing import Any


def register(torch: Any, env: Any) -> None:
    """Have an environment of torchax trace these operators as they stand here."""
    import jax.numpy as jnp
    from torchax.interop import jax_view, torch_view

    def matmul(x: Any, y: Any) -> Any:
        return torch_view(jnp.matmul(jax_view(x), jax_view(y)))

    spelled = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.ops.aten.matmul)
    for name in spelled:
        env.override_op_definition(name, matmul)
    product = torch.nn.functional.scaled_dot_product_attention
    own = env._get_op_or_decomp(torch.ops.aten.scaled_dot_product_attention).func

    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if dropout_p > 0:
            return own(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, env=env
            )
        mask = None if attn_mask is None else jax_view(attn_mask)
        q, k, v = (jax_view(x) for x in (query, key, value))
        return torch_view(attention(q, k, v, mask, is_causal, scale, enable_gqa))

    env.override_op_definition(product, scaled_dot_product_attention)

    def embedding(
        weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:  # fmt: skip
        return torch_view(looked_up(jax_view(weight), jax_view(indices), padding_idx))

    env.override_op_definition(torch.ops.aten.embedding, embedding)


def looked_up(table: Any, indices: Any, padding: int = -1) -> Any:
    """Rows of a table; the row ``padding`` has no gradient, -1 = there is none such."""
    import jax
    import jax.numpy as jnp

    rows = jnp.take(table, indices, axis=0)
    if padding < 0:
        return rows
    return jnp.where((indices == padding)[..., None], jax.lax.stop_gradient(rows), rows)


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None,
    grouped: bool = False,
) -> Any:  # fmt: skip
    """softmax(q k' x scale + mask) v, as PyTorch's scaled_dot_product_attention defines it.

    Args:
        q, k, v: (..., heads, positions, width). mask: of booleans (True = seen) or added.
        grouped: key heads repeat, one after the other, for as many query heads.
    """
    import jax
    import jax.numpy as jnp

    if grouped:
        k, v = (repeated(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2))
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = (jax.lax.broadcasted_iota("int32", scores.shape[-2:], d) for d in (0, 1))
        scores = jnp.where(rows >= columns, scores, -jnp.inf)
    if mask is not None:
        seen = mask.dtype == jnp.bool_
        scores = jnp.where(mask, scores, -jnp.inf) if seen else scores + mask
    return jnp.matmul(jax.nn.softmax(scores, axis=-1), v)


def repeated(x: Any, times: int) -> Any:
    """Each head of (..., heads, positions, width) ``times`` times, side by side."""
    import jax.numpy as jnp

    *outer, heads, positions, width = x.shape
    spread = jnp.broadcast_to(x[..., :, None, :, :], (*outer, heads, times, positions, width))
    return spread.reshape(*outer, heads * times, positions, width)
