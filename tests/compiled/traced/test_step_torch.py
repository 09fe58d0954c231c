"""The cut step's loss and gradients equal the PyTorch module's own, run eagerly with its weights.

Tolerance: two fp32 implementations, 2e-5 of the loss and 2e-4 of a gradient's largest element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(find_spec("torchax") is None, reason="a module is traced by torchax"),
]

MESHES: dict[str, dict[str, int]] = {
    "fsdp=2,tp=2": {"fsdp": 2, "tp": 2},
    "fsdp=4": {"fsdp": 4},
    "tp=4": {"fsdp": 1, "tp": 4},
    "dp=2,fsdp=2,tp=2": {"dp": 2, "fsdp": 2, "tp": 2},
}

DECODER: dict[str, Any] = {
    "hidden_size": 64, "vocab_size": 128, "num_hidden_layers": 2, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": DECODER | {"head_dim": 16},
    "qwen2": DECODER | {"tie_word_embeddings": True},
    "gpt2": {
        "n_embd": 64, "vocab_size": 128, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    },
}  # fmt: skip

Made = tuple[Any, tuple[Any, ...], Callable[..., Any]]
Values = tuple[float, dict[str, Any]]


def of_hugging_face(family: str) -> Made:
    """A causal language model with random weights on eight sequences of 16."""
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    config.use_cache = False
    build: Any = transformers.AutoModelForCausalLM
    model = build.from_config(config, attn_implementation="eager")

    def loss(out: Any, ids: Any) -> Any:
        logits = out.logits[:, :-1].float()
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)
        )

    return model, (torch.randint(0, 128, (8, 16)),), loss


class Attention(torch.nn.Module):
    """Eight query heads on two key heads through PyTorch's own attention, norms before."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.q, self.o = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.k, self.v = torch.nn.Linear(64, 16), torch.nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        q, k, v = (
            proj(y).view(*y.shape[:2], -1, 8).transpose(1, 2) for proj in (self.q, self.k, self.v)
        )
        y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        return x + self.o(y.transpose(1, 2).reshape(x.shape))


class HandWritten(torch.nn.Module):
    """An embedding, attention and a gated feed-forward, a norm and a head with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(128, 64)
        self.attention = Attention()
        self.gate, self.up = torch.nn.Linear(64, 96), torch.nn.Linear(64, 96)
        self.down, self.norm = torch.nn.Linear(96, 64), torch.nn.LayerNorm(64)
        self.head = torch.nn.Linear(64, 128)

    def forward(self, ids: Any) -> Any:
        x = self.attention(self.embed(ids))
        x = x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))
        return self.head(self.norm(x))


def hand_written() -> Made:
    def loss(out: Any, ids: Any) -> Any:
        return torch.nn.functional.cross_entropy(out.reshape(-1, 128), ids.reshape(-1))

    return HandWritten(), (torch.randint(0, 128, (8, 16)),), loss


def made(name: str) -> Made:
    torch.manual_seed(0)
    return hand_written() if name == "hand-written" else of_hugging_face(name)


def of_pytorch(module: Any, inputs: Any, loss: Any) -> Values:
    """Loss and gradients by PyTorch's own autograd, eagerly."""
    value = loss(module(*inputs), *inputs)
    value.backward()
    return value.item(), {n: p.grad.numpy() for n, p in module.named_parameters()}


def of_the_cut_step(module: Any, inputs: Any, loss: Any, axes: dict[str, int]) -> Values:
    """Loss and gradients of the step on a mesh of the CPU's virtual devices."""
    from chipshift.compiled import torch_program
    from chipshift.compiled.traced.step import cut_step

    size = int(np.prod(list(axes.values())))
    mesh = jax.make_mesh(
        tuple(axes.values()), tuple(axes), devices=jax.devices()[:size],
        axis_types=(jax.sharding.AxisType.Auto,) * len(axes),
    )  # fmt: skip
    cut = cut_step(
        torch_program.whole_program(torch_program.Made(module, inputs, loss)), mesh, lambda _: ""
    )
    values = (
        {n: p.detach().numpy() for n, p in module.named_parameters()},
        {n: b.numpy() for n, b in module.named_buffers()},
        *(x.numpy().astype("int32") for x in inputs),
    )
    placed = jax.tree.map(lambda x, at: jax.device_put(x, at.sharding), values, cut.arguments)
    value, grads = cut.step(*placed)
    return float(value), {n: np.asarray(g) for n, g in grads.items()}


def both(name: str, axes: dict[str, int]) -> tuple[Values, Values]:
    """Loss and gradients by PyTorch, and of the cut step."""
    module, inputs, loss = made(name)
    return of_pytorch(module, inputs, loss), of_the_cut_step(module, inputs, loss, axes)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process of its own: torchax gives PyTorch a device that torch.compile fails on."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("axes", MESHES.values(), ids=list(MESHES))
@pytest.mark.parametrize("name", [*FAMILIES, "hand-written"])
def test_loss_and_gradients_are_the_modules_own(
    name: str, axes: dict[str, int], elsewhere: ProcessPoolExecutor
) -> None:
    (wanted, by_name), (value, grads) = elsewhere.submit(both, name, axes).result()
    assert value == pytest.approx(wanted, rel=2e-5)
    assert set(grads) == set(by_name)
    for parameter, grad in grads.items():
        most = np.abs(by_name[parameter]).max()
        assert np.abs(grad - by_name[parameter]).max() <= 2e-4 * most + 1e-9, parameter
