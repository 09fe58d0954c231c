"""What a value can be: device tensor, boolean mask, host tensor, NumPy, number.

Kinds are short strings; a binding says how a name got its value, a scope which names are seen.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

TENSOR, MASK, HOST, HOST_MASK, NUMPY = "tensor", "mask", "host", "hostmask", "numpy"
NUMBER, STRING, BOOL, NONE, SHAPE = "number", "string", "bool", "none", "shape"
TENSORS, LIST, DICT, BATCH, LOADER = "tensors", "list", "dict", "batch", "loader"
MODULE, OPTIMIZER, SCALER, CONFIG, DEVICE, DTYPE, RANK, UNKNOWN = (
    "module",
    "optimizer",
    "scaler",
    "config",
    "device",
    "dtype",
    "rank",
    "unknown",
)
ON_DEVICE = frozenset({TENSOR, MASK})
ARRAY = frozenset({TENSOR, MASK, HOST, HOST_MASK, NUMPY})


@dataclass(slots=True)
class Binding:
    """How a name got its value: ``how`` is value, iter, with, param, element or enumerate."""

    how: str
    node: ast.expr | ast.arg | None
    index: int = -1
    previous: Binding | None = None
    kind: str = ""
    busy: bool = False
    line: int = 0


@dataclass(slots=True)
class Scope:
    """Names of a function (or the module) over those of what encloses it."""

    names: dict[str, Binding] = field(default_factory=dict)
    parent: Scope | None = None
    attributes: dict[str, Binding] = field(default_factory=dict)

    def find(self, name: str) -> Binding | None:
        """The binding visible for ``name``; ``self.x`` is looked up in the class's attributes."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


def join(one: str, two: str) -> str:
    """The kind of a value that is one or the other."""
    if one == two:
        return one
    for kind in (UNKNOWN, NONE):
        if one == kind:
            return two
        if two == kind:
            return one
    if one in ON_DEVICE or two in ON_DEVICE:
        return TENSOR
    return UNKNOWN
