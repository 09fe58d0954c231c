"""What users' modules do to their tensors that PyTorch's fake ones do not take by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def convertible() -> Iterator[None]:
    """``module.to(...)``, ``.half()``, ``.cuda()`` and ``trunc_normal_`` work on fake parameters.

    PyTorch swaps their insides, which fails while anything refers to them weakly; here each is
    replaced, a shared one once. Nothing is computed, so that every device is the CPU, and drawing
    again what fell outside of bounds, which asks for values, is left out.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:  # fmt: skip
            if func is torch.Tensor.cuda:
                return args[0]
            named = {k: _cpu(v) if k == "device" else v for k, v in (kwargs or {}).items()}
            if func is torch.Tensor.to:
                args = (args[0], *map(_cpu, args[1:]))
            return func(*args, **named)

    made: dict[tuple[int, int], tuple[Any, Any, Any]] = {}  # holds its keys' objects, by id

    def applied(self: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        for child in self.children() if recurse else ():
            child._apply(function)
        for key, old in self._parameters.items():
            if old is None:
                continue
            at = (id(function), id(old))
            if at not in made:
                new = torch.nn.Parameter(function(old.detach()), old.requires_grad)
                made[at] = (function, old, new)
            self._parameters[key] = made[at][2]
        for key, old in self._buffers.items():
            self._buffers[key] = None if old is None else function(old)
        return self

    def plain(model: Any = None, **_: Any) -> Any:
        return model if model is not None else lambda decorated: decorated

    changed = [
        (torch, "compile", plain),  # nothing is to be compiled, flex_attention's kernel neither
        (torch.nn.Module, "_apply", applied),
        (torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor),
    ]
    before = [(holder, name, getattr(holder, name, None)) for holder, name, _ in changed]
    for holder, name, new in changed:
        setattr(holder, name, new)
    try:
        with OnCpu():
            yield
    finally:
        for holder, name, old in before:
            setattr(holder, name, old)


def _cpu(given: Any) -> Any:
    """The CPU for the name of an accelerator; anything else as it is."""
    import torch

    names = ("cuda", "xla", "mps", "xpu")
    if isinstance(given, str) and given.split(":")[0] in names:
        return "cpu"
    return torch.device("cpu") if isinstance(given, torch.device) and given.type in names else given


def set_apart(module: Any) -> None:
    """Give parameters made by ``copy.deepcopy`` storages of their own.

    All views of such fake parameters are of one storage, by which weights are told apart.
    """
    import torch

    made: dict[int, Any] = {}
    for part in module.modules():
        for key, old in part._parameters.items():
            if old is None or _storage(old.detach()) == _storage(old):
                continue
            if id(old) not in made:
                made[id(old)] = torch.nn.Parameter(torch.empty_like(old), old.requires_grad)
            part._parameters[key] = made[id(old)]


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
