"""A user's PyTorch module traced into JAX through torchax, parameters on the meta device.

What stops the trace becomes a finding (findings.py), and so does what it would silently get wrong
(aliasing.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chipshift.compiled.misfits import Made, check_loss
from chipshift.compiled.request import Request
from chipshift.compiled.traced.operators import register
from chipshift.compiled.traced.step import WholeProgram
from chipshift.compiled.users import imported
from chipshift.errors import InputError

SEQUENCE = 2048
"""Positions of the example input of a model given as a config, or as many as it has."""


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


def frozen(module: Any) -> tuple[str, ...]:
    """A note where parameters take no gradient: the traced step makes all of them."""
    without = [n for n, p in module.named_parameters() if not p.requires_grad]
    total = sum(1 for _ in module.named_parameters())
    if not without:
        return ()
    return (
        f"{len(without)} of {total} parameters take no gradient (requires_grad is off, "
        f"{without[0]} first); the traced step makes theirs too, which adds memory and traffic",
    )


def whole_program(made: Made, folders: tuple[str, ...] = ()) -> WholeProgram:
    """The loss of a module traced by itself: one program that knows no mesh.

    Raises:
        InputError: torchax is not installed.
        Misfit: the loss is not one number.
    """
    torchax, torch = _import()
    import jax
    import jax.numpy as jnp
    from torchax.interop import jax_view, torch_view

    env = torchax.default_env()

    def abstract(tensor: Any) -> Any:
        dtype = jnp.dtype(str(tensor.dtype).removeprefix("torch."))
        dtype = jnp.dtype("int32") if dtype == jnp.dtype("int64") else dtype
        return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype)

    parameters = {n: abstract(p) for n, p in made.module.named_parameters()}
    buffers = {n: abstract(b) for n, b in made.module.named_buffers()}
    inputs = tuple(abstract(x) for x in made.inputs)

    def value(*flat: Any) -> Any:
        with env:
            given = torch_view(flat[len(parameters) + len(buffers) :])
            own = torch_view(dict(zip([*parameters, *buffers], flat, strict=False)))
            out = torch.func.functional_call(made.module, own, given, tie_weights=True)
            found = made.loss(out, *given)
            check_loss(found, made.loss, folders)
            return jax_view(found)

    closed = jax.make_jaxpr(value)(*parameters.values(), *buffers.values(), *inputs)
    return WholeProgram(closed, parameters, buffers, inputs)


def _import() -> tuple[Any, Any]:
    try:
        import torch

        with _named_overloads(torch):
            import torchax
            import torchax.interop

            # Its operator tables are read when the first one is made.
            register(torch, torchax.default_env())
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
