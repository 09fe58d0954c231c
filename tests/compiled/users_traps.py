"""PyTorch modules that a trace cannot take, or takes otherwise than PyTorch does."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Double(torch.autograd.Function):
    """Its backward is not its forward's derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2.0


class Net(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 512), nn.Linear(512, 256)
        self.norm, self.body = nn.BatchNorm1d(512), [body]
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        return self.down(self.body[0](self, self.up(x)))


def mean(out: Any, x: Any) -> Any:
    return out.float().pow(2).mean()


def made(body: Any, loss: Any = mean, inputs: int = 1) -> Any:
    return Net(body), tuple(torch.zeros(8, 256) for _ in range(inputs)), loss


def no_grad(net: Any, h: Any) -> Any:
    with torch.no_grad():  # no_grad
        h = torch.tanh(h)
    return h + 1


def custom(net: Any, h: Any) -> Any:
    return Double.apply(h)  # custom


def autocast(net: Any, h: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):  # autocast
        return h @ h.T @ h


def dropout(net: Any, h: Any) -> Any:
    return functional.dropout(h, 0.1)  # dropout


def noise(net: Any, h: Any) -> Any:
    return h + torch.randn_like(h)  # noise


def counted(net: Any, h: Any) -> Any:
    net.seen.add_(1)  # counted
    return h


def assigned(net: Any, h: Any) -> Any:
    net.seen = net.seen + h.mean()  # assigned
    return h


def normed(net: Any, h: Any) -> Any:
    return net.norm(h)  # normed


def on_cuda(net: Any, h: Any) -> Any:
    return h.cuda()  # on_cuda


def flash(net: Any, h: Any) -> Any:
    import flash_attn  # flash

    return flash_attn.flash_attn_func(h, h, h)


def absent(net: Any, h: Any) -> Any:
    import no_such_package  # absent

    return no_such_package.go(h)


def hooked(net: Any, h: Any) -> Any:
    h.register_hook(lambda grad: grad * 2)  # hooked
    return h


def asserted(net: Any, h: Any) -> Any:
    assert h.mean() < 10  # asserted
    return h


def listed(net: Any, h: Any) -> Any:
    return h[h.argmax(-1).tolist()]  # listed


def reshaped(net: Any, h: Any) -> Any:
    return h.view(8, 511)  # reshaped


def quiet(net: Any, h: Any) -> Any:
    """Nothing of it is lost: a detached tensor, dropout that drops nothing, attention over heads
    whose batch and length are one dimension's, a view of what is not contiguous."""
    h = functional.dropout(h + h.detach(), 0.1, training=False)
    q = h.t().reshape(512, 8).t().reshape(1, 8, 4, 128).transpose(1, 2)
    return functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(8, 512)


def vector(out: Any, x: Any) -> Any:
    return out.float().pow(2).mean(-1)


def table(out: Any, x: Any) -> Any:
    return {"loss": out.mean()}


def of_output_alone(out: Any) -> Any:
    return out.mean()


make_two_inputs = partial(made, quiet, inputs=2)
make_vector = partial(made, quiet, vector)
make_table = partial(made, quiet, table)
make_of_output_alone = partial(made, quiet, of_output_alone)


def make_frozen() -> Any:
    net, inputs, loss = made(quiet)
    net.up.requires_grad_(False)
    return net, inputs, loss


(
    make_no_grad, make_custom, make_autocast, make_dropout, make_noise, make_counted, make_assigned,
    make_normed, make_on_cuda, make_flash, make_absent, make_hooked, make_asserted, make_listed,
    make_reshaped, make_quiet,
) = (
    partial(made, body)
    for body in (
        no_grad, custom, autocast, dropout, noise, counted, assigned, normed, on_cuda, flash,
        absent, hooked, asserted, listed, reshaped, quiet,
    )
)  # fmt: skip
