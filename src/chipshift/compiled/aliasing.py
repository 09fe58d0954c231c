"""In-place writes that a traced PyTorch program does not see: a view and its base drift apart.

In PyTorch a view shares memory with its base, so that a write to one shows in the other. Traced
through torchax 0.0.13 every array is its own, but for views made by indexing (``y[1:]``); what was
written through ``view``, ``t``, ``chunk`` and the like is lost, without a word. The module is run
once on the meta device, and a tensor that is read after a write it could not see is a finding.
"""

from __future__ import annotations

import sys
from typing import Any

from chipshift.compiled.findings import users_line

_AUGMENTED = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__imod__")
_UNSEEN_THROUGH_INDEXING = ("zero_", "fill_")
_MESSAGE = (
    "an in-place write here changes memory that another tensor, read later at line {read}, shares; "
    "in a traced program that tensor keeps its old values"
)
_INSTEAD = (
    "make a new tensor and use that (torch.where, torch.cat, y = y.view(-1) * 2), or write through "
    "an index of the tensor itself (y[..., 0] = value)"
)


def aliasing(module: Any, inputs: tuple[Any, ...], loss: Any, folders: tuple[str, ...]) -> Any:
    """Findings of one run of ``loss(module(*inputs), *inputs)`` on the meta device.

    What else stops the run (a value asked for, an operator without a meta kernel) ends it: the
    trace itself will say so.
    """
    watch = _watch(folders)
    try:
        with watch:
            loss(module(*inputs), *inputs)
    except Exception:
        pass
    return tuple(watch.findings.values())


def _watch(folders: tuple[str, ...]) -> Any:
    """A torch function mode that follows views and writes; a class made here, since torch is
    imported only when used."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils.weak import WeakTensorKeyDictionary

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.findings: dict[tuple[str | None, int | None], dict[str, Any]] = {}
            self.families: dict[int, Any] = {}  # memory -> the tensors on it
            self.indexed: Any = WeakTensorKeyDictionary()  # view -> made by indexing alone
            self.stale: Any = WeakTensorKeyDictionary()  # tensor -> where it was written unseen

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            name = getattr(func, "__name__", "")
            if not tensors:
                return func(*args, **kwargs)
            if name != "__get__":  # an attribute such as .shape reads no values
                self._read(tensors)
            out = func(*args, **kwargs)
            if writes(name, kwargs):
                self._written(tensors[0], name)
            else:
                made = out if isinstance(out, tuple | list) else (out,)
                for view in made:
                    if isinstance(view, torch.Tensor) and _memory(view) == _memory(tensors[0]):
                        self._viewed(view, tensors[0], name)
            return out

        def _viewed(self, view: Any, of: Any, name: str) -> None:
            if view is not of:
                family = self.families.setdefault(_memory(of), WeakTensorKeyDictionary())
                family[of] = family[view] = True
                self.indexed[view] = name == "__getitem__" and self.indexed.get(of, True)

        def _written(self, target: Any, name: str) -> None:
            """What shares the target's memory is out of date, unless indexing alone made it: then
            torchax writes through to the base, and the base's views are read through it."""
            through = self.indexed.get(target, True) and name not in _UNSEEN_THROUGH_INDEXING
            whole = target not in self.indexed
            self.stale.pop(target, None)
            line = users_line(frames(), folders)
            for other in list(self.families.get(_memory(target), {})):
                if other is not target and not (
                    self.indexed.get(other, True) and (through or whole)
                ):
                    self.stale[other] = line

        def _read(self, tensors: list[Any]) -> None:
            for tensor in tensors:
                written = self.stale.pop(tensor, None)
                if written is None:
                    continue
                _, read = users_line(frames(), folders)
                self.findings.setdefault(
                    written,
                    {
                        "rule": "inplace-alias",
                        "severity": "high",
                        "file": written[0],
                        "line": written[1],
                        "message": _MESSAGE.format(read=read),
                        "instead": _INSTEAD,
                    },
                )

    return Watch()


def _memory(tensor: Any) -> int:
    """What tells the memory of one tensor from another's."""
    return int(tensor.untyped_storage()._cdata)


def writes(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether a call of that name changes its first argument."""
    dunder = name.startswith("__")
    return (
        name in _AUGMENTED
        or name == "__setitem__"
        or (name.endswith("_") and not dunder)
        or kwargs.get("inplace") is True
    )


def frames() -> Any:
    """(file, line) of the running frames, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
