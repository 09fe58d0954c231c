"""A user's PyTorch module traced into JAX through torchax, parameters on the meta device.

What stops the trace becomes a finding with the user's file and line and the way out.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipshift.compiled.request import Request
from chipshift.errors import InputError

SEQUENCE = 2048
"""Positions of the example input of a model given as a config."""


@dataclass(frozen=True)
class Cause:
    """An exception of the trace, recognised by its type's name and words in its text."""

    types: tuple[str, ...]
    words: tuple[str, ...]
    rule: str
    message: str
    instead: str


CAUSES = (
    Cause(
        ("OperatorNotFound",), (), "no-lowering",
        "this operator has no lowering for the TPU through torchax",
        "write it with operators that have one, or register a JAX implementation with "
        "torchax.ops.jaten.op; on TorchTPU check its own list of operators",
    ),
    Cause(
        ("TracerBoolConversionError",), (), "branch-on-tensor",
        "a Python branch on the value of a tensor",
        "torch.where or torch.cond, or decide from shapes and configuration instead",
    ),
    Cause(
        ("ConcretizationTypeError",), ("shape bool[]",), "branch-on-tensor",
        "a Python branch on the value of a tensor",
        "torch.where or torch.cond, or decide from shapes and configuration instead",
    ),
    Cause(
        ("NonConcreteBooleanIndexError",), (), "data-dependent-shape",
        "a boolean mask picks rows, so the shape depends on data",
        "keep the full shape and mask with torch.where, or a fixed capacity",
    ),
    Cause(
        ("ConcretizationTypeError", "TracerIntegerConversionError", "TracerArrayConversionError"),
        ("nonzero", "unique", "repeat", "size argument"), "data-dependent-shape",
        "a shape that depends on data",
        "a fixed size known before the step: pad, or bucket the lengths",
    ),
    Cause(
        ("ConcretizationTypeError", "TracerIntegerConversionError", "TracerArrayConversionError"),
        (), "host-read",
        "the value of a tensor is read on the host inside the step (.item(), int(), numpy())",
        "keep it on the device, or read it after the step",
    ),
    Cause(
        (), ("is not a valid index", "view_as", "in-place", "inplace", "Can't modify"),
        "in-place-alias",
        "an in-place write to a view, which has no aliasing meaning in a traced program",
        "assign a new tensor: torch.index_put, torch.scatter or slicing and torch.cat",
    ),
    Cause(
        ("NotImplementedError",), ("meta",), "no-meta-kernel",
        "this operator cannot run without data (no meta kernel)",
        "build the module so that it does not compute while it is constructed",
    ),
)  # fmt: skip


def make_model(request: Request) -> Any:
    """What the user's function returns, built on the meta device; or a Hugging Face config's model
    with a causal language model's loss on one sequence a device.

    Raises:
        InputError: the function cannot be imported, or transformers is not installed.
    """
    _, torch = _import()
    if request.entry.endswith(".json"):
        return _from_config(torch, request)
    from chipshift.compiled.programs import imported

    make = imported(request)
    with torch.device("meta"):
        return make()


def _from_config(torch: Any, request: Request) -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError(
            "--torch CONFIG.json needs transformers: pip install transformers"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(str(Path(request.entry)))
    except (OSError, ValueError) as error:
        raise InputError(f"--torch {request.entry}: {error}") from None
    config.use_cache = False
    with torch.device("meta"):
        build: Any = transformers.AutoModelForCausalLM
        model = build.from_config(config, attn_implementation="eager")
        ids = torch.zeros((request.target.devices, SEQUENCE), dtype=torch.int64)

    def loss(out: Any, ids: Any) -> Any:
        logits = out.logits[:, :-1].float()
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)
        )

    return model, (ids,), loss


def trace(request: Request, mesh: Any, made: Any) -> tuple[Any, tuple[Any, ...]]:
    """A jitted function (loss and gradients) and its abstract arguments.

    ``made`` is what the user's ``make_model()`` returned: (module, example inputs, loss function of
    the module's output). Parameters are cut over the mesh's first axis by their largest dimension
    that divides, inputs by their first.

    Raises:
        InputError: ``made`` has another form, or torchax is not installed.
    """
    torchax, torch = _import()
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P
    from torchax.interop import jax_view, torch_view

    module, inputs, loss = _checked(request, made)
    axis = mesh.axis_names[0]
    size = mesh.shape[axis]
    env = torchax.default_env()

    def abstract(tensor: Any, batch: bool) -> Any:
        shape = tuple(tensor.shape)
        spec = [None] * len(shape)
        dims = [0] if batch else sorted(range(len(shape)), key=lambda d: -shape[d])
        for dim in dims[:1] if not batch else dims:
            if shape and shape[dim] % size == 0:
                spec[dim] = axis
        dtype = jnp.dtype(str(tensor.dtype).removeprefix("torch."))
        dtype = jnp.dtype("int32") if dtype == jnp.dtype("int64") else dtype
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    params = {n: abstract(p, False) for n, p in module.named_parameters()}
    buffers = {n: abstract(b, False) for n, b in module.named_buffers()}
    examples = tuple(abstract(x, True) for x in inputs)

    def value(params: Any, buffers: Any, *inputs: Any) -> Any:
        with env:
            held = torch_view({**params, **buffers})
            out = torch.func.functional_call(module, held, torch_view(inputs), tie_weights=False)
            return jax_view(loss(out, *torch_view(inputs)))

    step = jax.jit(jax.value_and_grad(value))
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


def _checked(request: Request, made: Any) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
        raise InputError(
            f"'{request.entry}' must return (module, example inputs, loss function), "
            f"found {type(made).__name__}"
        )
    module, inputs, loss = made
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if not hasattr(module, "named_parameters"):
        raise InputError(f"'{request.entry}': the first of three is no torch.nn.Module")
    return module, inputs, loss


def finding(error: BaseException, folders: tuple[str, ...]) -> dict[str, Any]:
    """What stopped the trace, at the innermost line of the user's own code."""
    file, line = _users_line(error, folders)
    name, text = type(error).__name__, str(error)
    cause = next((c for c in CAUSES if _matches(c, name, text)), None)
    first = text.strip().split("\n", 1)[0][:300]
    return {
        "rule": cause.rule if cause else "trace-error",
        "severity": "blocker",
        "file": file,
        "line": line,
        "message": f"{cause.message}: {first}" if cause else f"{name}: {first}",
        "instead": cause.instead if cause else "",
    }


def _matches(cause: Cause, name: str, text: str) -> bool:
    of_type = not cause.types or name in cause.types
    return of_type and (not cause.words or any(word in text for word in cause.words))


def _users_line(error: BaseException, folders: tuple[str, ...]) -> tuple[str | None, int | None]:
    roots = [Path(folder).resolve() for folder in folders]
    own = Path(__file__).parents[1]
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        path = Path(frame.filename)
        if "site-packages" in path.parts or own in path.parents or not path.exists():
            continue
        for root in roots:
            if root in path.resolve().parents:
                return path.resolve().relative_to(root).as_posix(), frame.lineno
        if not frame.filename.startswith("<"):
            return frame.filename, frame.lineno
    return None, None
