"""What users hand to ``compile --entry`` and ``--torch``: good programs and ones that cannot be."""

from __future__ import annotations

from functools import partial
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
        if x.sum() > 0:
            return x
        return -x

    return step, (jax.ShapeDtypeStruct((8, 128), "float32"),)


def make_large(mesh: Any) -> Any:
    """Two arrays of 131,072 x 65,536 x 4 B = 32 GiB a device, alive at once."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            hidden = jnp.tanh(x @ w)
            return jnp.mean((jnp.sin(hidden) @ w.T) ** 2)

        return jax.grad(loss)(w)

    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("devices"))
    return step, (
        jax.ShapeDtypeStruct((1024, 65536), jnp.float32, sharding=whole),
        jax.ShapeDtypeStruct((4 * 131072, 1024), jnp.float32, sharding=rows),
    )


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


def make_tied() -> Any:
    """An embedding whose table is the head's weight too."""
    import torch

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(1024, 256)
            self.head = torch.nn.Linear(256, 1024, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.embed(ids))

    ids = torch.zeros(8, 16, dtype=torch.long)
    return Tied(), (ids,), lambda out, ids: out.float().pow(2).mean()


def _branch(y: Any) -> Any:
    return y * 2 if y.mean() > 0 else y


def _item(y: Any) -> Any:
    return y * y.abs().max().item()


def _mask(y: Any) -> Any:
    return y[y > 0]


def _nonzero(y: Any) -> Any:
    import torch

    return y[torch.nonzero(y[:, 0] > 0).squeeze(-1)]


def _unknown(y: Any) -> Any:
    import torch

    return torch.special.airy_ai(y)


def _view(y: Any) -> Any:
    flat = y.view(-1)
    flat.mul_(2)
    return y


make_branch, make_item, make_mask = (partial(_net, f) for f in (_branch, _item, _mask))
make_nonzero, make_unknown, make_view = (partial(_net, f) for f in (_nonzero, _unknown, _view))
