"""What a trace of a PyTorch module passes over without a word, each with the user's line.

Traced through torchax 0.0.13 a module is a function that JAX differentiates: ``torch.no_grad``,
``autocast`` and an ``autograd.Function``'s own backward are Python that leaves nothing in it;
random numbers come of a key that is fixed while it is traced; what is written to a buffer is not
handed out. The module is run once on the meta device to find them; in-place writes are
aliasing.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chipshift.compiled.aliasing import aliasing, frames, writes
from chipshift.compiled.findings import users_line

Place = tuple[str | None, int | None]

WORDS = {
    "no-grad-lost": (
        "high",
        "gradients stop here in PyTorch; the traced step is differentiated by JAX, which goes "
        "through it",
        "detach what comes out (y = y.detach()), which a trace keeps",
    ),
    "custom-backward-lost": (
        "high",
        "the backward of this torch.autograd.Function is not used: JAX differentiates its forward",
        "write it as operations whose derivative is the wanted one, or as a jax.custom_vjp called "
        "through torchax.interop",
    ),
    "autocast-lost": (
        "high",
        "autocast is not seen by a trace: what is inside is computed and kept in the tensors' own "
        "dtype",
        "build the module in that dtype (module.bfloat16()), or cast the inputs of each matmul",
    ),
    "rng-fixed": (
        "medium",
        "random numbers are drawn while the step is traced: every step has the same ones",
        "set dropout to 0, or draw them outside and hand them in as an input; memory and "
        "collectives are the same",
    ),
    "buffer-update-lost": (
        "medium",
        "a buffer is changed here, and the traced step hands out loss and gradients only: the next "
        "step finds the old value",
        "keep such a state outside the step, or return it beside the output",
    ),
}
"""Rule -> severity, message, way out."""

RANDOM = (
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout1d",
    "dropout2d", "dropout3d", "rand", "randn", "randint", "randperm", "rand_like", "randn_like",
    "randint_like", "bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "uniform_",
    "random_", "exponential_", "rrelu", "gumbel_softmax",
)  # fmt: skip


def silent(
    module: Any, inputs: tuple[Any, ...], loss: Any, folders: tuple[str, ...]
) -> tuple[dict[str, Any], ...]:
    """Findings of one run of ``loss(module(*inputs), *inputs)``, in-place writes among them."""
    found: dict[tuple[str, Place], dict[str, Any]] = {}

    def seen(rule: str, place: Place) -> None:
        severity, message, instead = WORDS[rule]
        found.setdefault(
            (rule, place),
            {
                "rule": rule, "severity": severity, "file": place[0], "line": place[1],
                "message": message, "instead": instead,
            },
        )  # fmt: skip

    buffers = {id(buffer) for buffer in module.buffers()}
    with _contexts(seen, folders), _mode(seen, buffers, folders):
        written = aliasing(module, inputs, loss, folders)
    return (*written, *found.values())


def _mode(seen: Callable[[str, Place], None], buffers: set[int], folders: tuple[str, ...]) -> Any:
    """A torch function mode that looks for random numbers and writes to buffers."""
    from torch.overrides import TorchFunctionMode

    class Look(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            to_buffer = writes(name, kwargs) and args and id(args[0]) in buffers
            if to_buffer or (name == "batch_norm" and _moves_statistics(args, kwargs)):
                seen("buffer-update-lost", users_line(frames(), folders))
            elif _draws(name, args, kwargs):
                seen("rng-fixed", users_line(frames(), folders))
            return func(*args, **kwargs)

    return Look()


def _draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws random numbers."""
    if name == "scaled_dot_product_attention":
        return (kwargs.get("dropout_p") or 0.0) > 0
    return name in RANDOM and not ("dropout" in name and _off(args, kwargs))


def _off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a dropout drops nothing: its share is 0, or it is not training."""
    share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return not share or not training


def _moves_statistics(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Of ``F.batch_norm(x, running_mean, running_var, weight, bias, training, ...)``."""
    mean = kwargs.get("running_mean", args[1] if len(args) > 1 else None)
    training = kwargs.get("training", args[5] if len(args) > 5 else False)
    return mean is not None and bool(training)


@contextmanager
def _contexts(seen: Callable[[str, Place], None], folders: tuple[str, ...]) -> Iterator[None]:
    """What is entered or called in Python, and leaves no operation behind; only where the user's
    own code does it: libraries turn gradients off for tables that have none."""
    import torch

    def told(rule: str, original: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            place = _direct(folders)
            if place[0] is not None:
                seen(rule, place)
            return original(*args, **kwargs)

        return wrapped

    def assigned(module: Any, name: str, value: Any) -> None:
        old = module.__dict__.get("_buffers", {}).get(name)
        if old is not None and value is not old:
            place = _direct(folders)
            if place[0] is not None:
                seen("buffer-update-lost", place)
        plain_set(module, name, value)

    plain_set = torch.nn.Module.__setattr__
    function: Any = torch.autograd.Function
    with ExitStack() as stack:
        for owner, name, new in (
            (torch.no_grad, "__enter__", told("no-grad-lost", torch.no_grad.__enter__)),
            (torch.autocast, "__enter__", told("autocast-lost", torch.autocast.__enter__)),
            (torch.nn.Module, "__setattr__", assigned),
        ):
            stack.enter_context(_replaced(owner, name, new))
        apply = function.__dict__["apply"].__func__

        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            place = _direct(folders)
            if place[0] is not None:
                seen("custom-backward-lost", place)
            return apply(cls, *args, **kwargs)

        stack.enter_context(_replaced(function, "apply", classmethod(applied)))
        yield


@contextmanager
def _replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    old = owner.__dict__[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def _direct(folders: tuple[str, ...]) -> Place:
    """The user's line, where the user's own code is what calls: (None, None) from a library."""
    for name, line in frames():
        path = Path(name)
        if path.name == "silent.py" or "torch" in path.parts or name.startswith("<"):
            continue
        return users_line([(name, line)], folders)
    return None, None
