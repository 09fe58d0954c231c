"""What users hand to ``compile --entry`` and ``--torch``: good programs and ones that cannot be."""

from __future__ import annotations

from typing import Any


def make_step(mesh: Any) -> Any:
    """Linear layer, rows over ``data``, columns over ``model``."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)

    columns, rows = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P("data", None))
    return step, (
        jax.ShapeDtypeStruct((512, 1024), jnp.bfloat16, sharding=columns),
        jax.ShapeDtypeStruct((256, 512), jnp.bfloat16, sharding=rows),
    )


def make_branching_step(mesh: Any) -> Any:
    import jax

    def step(x: Any) -> Any:
        if x.sum() > 0:  # line 33
            return x
        return -x

    return step, (jax.ShapeDtypeStruct((8, 128), "float32"),)


def make_nothing(mesh: Any) -> Any:
    return None


def _net(last: Any) -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)

        def forward(self, x: Any) -> Any:
            return last(self.down(torch.relu(self.up(x))))

    return Net(), (torch.zeros(8, 256),), lambda out, x: out.float().pow(2).mean()


def make_net() -> Any:
    return _net(lambda y: y)


def _branch(y: Any) -> Any:
    return y * 2 if y.mean() > 0 else y  # line 63


def _item(y: Any) -> Any:
    return y * y.abs().max().item()  # line 67


def _mask(y: Any) -> Any:
    return y[y > 0]  # line 71


def make_branch() -> Any:
    return _net(_branch)


def make_item() -> Any:
    return _net(_item)


def make_mask() -> Any:
    return _net(_mask)
