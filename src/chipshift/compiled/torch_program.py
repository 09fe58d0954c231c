"""A user's PyTorch module traced into JAX through torchax, parameters on the meta device.

What stops the trace becomes a finding (findings.py), and so does what it would silently get wrong
(aliasing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from chipshift.compiled.expected_module import Cut
from chipshift.compiled.request import Request
from chipshift.compiled.users import imported
from chipshift.errors import InputError

SEQUENCE = 2048
"""Positions of the example input of a model given as a config, or as many as it has."""

COLUMNS = (
    "q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "gate_proj", "up_proj",
    "gate_up_proj", "fc1", "w1", "w3", "lm_head", "embed_tokens", "wte",
)  # fmt: skip
ROWS = ("o_proj", "out_proj", "dense_4h_to_h", "down_proj", "fc2", "w2")
"""Parameters that tp cuts by their outputs (rows of an embedding) and by their inputs."""


@dataclass(frozen=True)
class Made:
    """A user's module, example inputs, and the loss of its output and those."""

    module: Any
    inputs: tuple[Any, ...]
    loss: Callable[..., Any]


def make_model(request: Request, replicas: int) -> Any:
    """What the user's function returns, built on the meta device; or a Hugging Face config's model
    with a causal language model's loss on one sequence a replica.

    Raises:
        InputError: the function cannot be imported, or transformers is not installed.
    """
    _, torch = _import()
    if request.entry.endswith(".json"):
        return _from_config(torch, request, replicas)
    make = imported(request)
    with torch.device("meta"):
        return make()


def _from_config(torch: Any, request: Request, replicas: int) -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError(
            "--torch CONFIG.json needs transformers: pip install 'chipshift[torch]'"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(str(Path(request.entry)))
        config.use_cache = False
        with torch.device("meta"):
            build: Any = transformers.AutoModelForCausalLM
            model = build.from_config(config, attn_implementation="eager")
    except (OSError, ValueError, KeyError, TypeError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise InputError(
            f"--torch {request.entry}: transformers makes no causal language model of it ({first})"
        ) from None
    length = min(SEQUENCE, getattr(config, "max_position_embeddings", None) or SEQUENCE)
    with torch.device("meta"):
        ids = torch.zeros((replicas, length), dtype=torch.int64)

    def loss(out: Any, ids: Any) -> Any:
        logits = out.logits[:, :-1].float()
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)
        )

    return model, (ids,), loss


def batch_axes(mesh: Any) -> tuple[str, ...]:
    """Mesh axes over which inputs are cut: dp and fsdp, on a mesh of other names the first."""
    return tuple(a for a in ("dp", "fsdp") if a in mesh.shape) or (mesh.axis_names[0],)


def parameter_spec(mesh: Any, name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Mesh axis of each dimension of a parameter.

    tp cuts what is named as in Hugging Face's decoders: outputs of the projections into attention
    and feed-forward, inputs of those out of them, rows of an embedding. fsdp (on a mesh of other
    names the first axis) cuts the largest other dimension that divides.
    """
    spec: list[Any] = [None] * len(shape)
    words = name.split(".")
    column, row = (any(w in words for w in names) for names in (COLUMNS, ROWS))
    tp = 0 if column else 1 if row and len(shape) > 1 else None
    if tp is not None and shape and mesh.shape.get("tp", 1) > 1:
        spec[tp] = "tp" if shape[tp] % mesh.shape["tp"] == 0 else None
    axis = "fsdp" if "fsdp" in mesh.shape else None if "dp" in mesh.shape else mesh.axis_names[0]
    for dim in sorted(range(len(shape)), key=lambda d: -shape[d]):
        if axis and spec[dim] is None and shape[dim] % mesh.shape[axis] == 0:
            spec[dim] = axis
            break
    return tuple(spec)


def cuts(mesh: Any, made: Made) -> list[Cut]:
    """Every parameter with its bytes an element and how it is cut."""
    return [
        (name, tuple(p.shape), p.element_size(), parameter_spec(mesh, name, tuple(p.shape)))
        for name, p in made.module.named_parameters()
    ]


def trace(mesh: Any, made: Made) -> tuple[Any, tuple[Any, ...]]:
    """A jitted function (loss and gradients, cut as the parameters are) and its abstract arguments.

    Raises:
        InputError: torchax is not installed.
    """
    torchax, torch = _import()
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P
    from torchax.interop import jax_view, torch_view

    env = torchax.default_env()

    def abstract(tensor: Any, spec: tuple[Any, ...]) -> Any:
        dtype = jnp.dtype(str(tensor.dtype).removeprefix("torch."))
        dtype = jnp.dtype("int32") if dtype == jnp.dtype("int64") else dtype
        sharding = NamedSharding(mesh, P(*spec))
        return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype, sharding=sharding)

    def parameter(name: str, tensor: Any) -> Any:
        return abstract(tensor, parameter_spec(mesh, name, tuple(tensor.shape)))

    over = batch_axes(mesh)
    replicas = prod(mesh.shape[axis] for axis in over)

    def example(tensor: Any) -> Any:
        cut = tensor.ndim > 0 and tensor.shape[0] % replicas == 0
        return abstract(tensor, (over,) if cut else ())

    params = {n: parameter(n, p) for n, p in made.module.named_parameters()}
    buffers = {n: parameter(n, b) for n, b in made.module.named_buffers()}
    examples = tuple(example(x) for x in made.inputs)

    def value(params: Any, buffers: Any, *inputs: Any) -> Any:
        with env:
            held = torch_view({**params, **buffers})
            given = torch_view(inputs)
            out = torch.func.functional_call(made.module, held, given, tie_weights=True)
            return jax_view(made.loss(out, *given))

    whole = NamedSharding(mesh, P())
    step = jax.jit(
        jax.value_and_grad(value), out_shardings=(whole, {n: p.sharding for n, p in params.items()})
    )
    return step, (params, buffers, *examples)


def _import() -> tuple[Any, Any]:
    try:
        import torch

        with _named_overloads(torch):
            import torchax
            import torchax.interop

            torchax.default_env()  # its operator tables are read when the first one is made
    except ImportError as error:
        raise InputError(
            f"--torch needs torchax and torch: pip install 'chipshift[torch]' ({error})"
        ) from None
    return torchax, torch


@contextmanager
def _named_overloads(torch: Any) -> Iterator[None]:
    """torch 2.13 dropped the named-tensor overloads that torchax 0.0.13 lists at import: while it
    is imported, answer a placeholder for each. No traced program calls one."""
    packet = type(torch.ops.aten.prod)
    found = packet.__getattr__

    def answer(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if "name" in name.lower() and not name.startswith("__"):
                return (str(self), name)
            raise

    packet.__getattr__ = answer
    try:
        yield
    finally:
        packet.__getattr__ = found


def checked(request: Request, made: Any) -> Made:
    """The module, example inputs and loss that ``make_model()`` returned.

    Raises:
        InputError: it returned something else.
    """
    if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
        raise InputError(
            f"'{request.entry}' must return (module, example inputs, loss function), "
            f"found {type(made).__name__}"
        )
    module, inputs, loss = made
    if not hasattr(module, "named_parameters"):
        raise InputError(f"'{request.entry}': the first of three is no torch.nn.Module")
    inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    for number, one in enumerate(inputs):
        if not hasattr(one, "dtype"):
            raise InputError(
                f"'{request.entry}': example input {number} is a {type(one).__name__}; expected "
                "tensors, in the order of the module's forward"
            )
    return Made(module, inputs, loss)
