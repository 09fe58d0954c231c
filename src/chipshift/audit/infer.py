"""The kind of an expression, by local inference.

A name's kind is inferred lazily from the expression last bound to it, so that only names a rule
asks about cost anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from chipshift.audit.calls import call_kind
from chipshift.audit.kinds import (
    BATCH,
    BOOL,
    CONFIG,
    DEVICE,
    DICT,
    DTYPE,
    HOST,
    HOST_MASK,
    LIST,
    LOADER,
    MASK,
    MODULE,
    NONE,
    NUMBER,
    NUMPY,
    ON_DEVICE,
    SHAPE,
    STRING,
    TENSOR,
    TENSORS,
    UNKNOWN,
    Binding,
    Scope,
    join,
)
from chipshift.audit.names import (
    dotted,
    tail,
    text,
)
from chipshift.audit.vocabulary import (
    NAME_CONFIG,
    NAME_NUMBER,
    NAME_TENSOR,
    annotated,
)


class Inference:
    """Infers kinds in one module; ``aliases`` are its imports, ``forward`` whether the function
    being read is a module's forward (then unannotated parameters are taken as tensors)."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self.aliases = aliases
        self.scope = Scope()
        self.forward = False
        self.attributes: dict[str, Binding] = {}
        self.returns: dict[str, list[ast.expr]] = {}
        self.modules: set[str] = set()
        self.jitted: set[str] = set()
        self.depth = 0

    def looks_like_module(self, name: str) -> bool:
        """Whether a class of this file is a network module."""
        return name in self.modules

    def of(self, node: ast.expr | None) -> str:
        """The kind of an expression; UNKNOWN rather than a guess when nothing is known."""
        if node is None:
            return NONE
        if self.depth > 12:
            return UNKNOWN
        self.depth += 1
        try:
            method = READERS.get(type(node))
            return method(self, node) if method else UNKNOWN
        finally:
            self.depth -= 1

    def name(self, node: ast.Name) -> str:
        binding = self.scope.find(node.id)
        if binding is None:
            if node.id in self.aliases:
                return UNKNOWN
            return CONFIG if NAME_CONFIG.match(node.id) else UNKNOWN
        return self.binding(binding, node.id)

    def binding(self, binding: Binding, name: str) -> str:
        """The kind of what a binding holds, falling back on the one before while in progress."""
        if binding.kind:
            return binding.kind
        if binding.busy:
            return self.binding(binding.previous, name) if binding.previous else UNKNOWN
        binding.busy = True
        try:
            kind = self._bound(binding, name)
        finally:
            binding.busy = False
        binding.kind = kind
        return kind

    def _bound(self, binding: Binding, name: str) -> str:
        if NAME_CONFIG.match(name):
            return CONFIG
        node = binding.node
        if isinstance(node, ast.arg):
            return self.parameter(node, binding)
        if node is None:
            return UNKNOWN
        if binding.how == "iter":
            return self.element(node, binding.index, iterated=True)
        if binding.how == "element":
            return self.element(node, binding.index, iterated=False)
        if binding.how == "with":
            return UNKNOWN
        return self.of(node)

    def parameter(self, node: ast.arg, binding: Binding) -> str:
        """A parameter: its annotation, its default, or (in a forward) a tensor."""
        kind = annotated(node.annotation)
        if kind != UNKNOWN:
            return kind
        name = node.arg
        if NAME_CONFIG.match(name):
            return CONFIG
        if binding.kind:
            return binding.kind
        if name in ("self", "cls"):
            return MODULE
        if NAME_NUMBER.match(name):
            return UNKNOWN
        if self.forward or NAME_TENSOR.match(name):
            return TENSOR if self.forward else UNKNOWN
        return UNKNOWN

    def element(self, node: ast.expr, index: int, iterated: bool) -> str:
        """What stands at ``index`` of an iterated or unpacked value (-1: the item itself)."""
        if isinstance(node, ast.Call):
            called = tail(node.func)
            if called == "enumerate" and iterated and node.args:
                if index == 0:
                    return NUMBER
                inner = self.element(node.args[0], -1, iterated=True)
                return inner if index in (1, -1) else self._part(inner)
            if called == "zip" and iterated and 0 <= index < len(node.args):
                return self.element(node.args[index], -1, iterated=True)
            if called in ("range", "trange", "arange") and iterated:
                return NUMBER
            if called in ("tqdm", "iter", "reversed", "sorted", "islice", "prefetch") and node.args:
                return self.element(node.args[0], index, iterated)
            if called == "items" and iterated:
                owner = node.func.value if isinstance(node.func, ast.Attribute) else None
                return STRING if index == 0 else self._part(self.of(owner))
            if called == "values" and iterated:
                owner = node.func.value if isinstance(node.func, ast.Attribute) else None
                return self._part(self.of(owner))
            if called in ("parameters", "buffers"):
                return TENSOR
            if called in ("named_parameters", "named_buffers") and index == 1:
                return TENSOR
        if isinstance(node, ast.Tuple | ast.List) and not iterated and 0 <= index < len(node.elts):
            return self.of(node.elts[index])
        kind = self.of(node)
        if (
            kind == UNKNOWN
            and iterated
            and re.search(r"loader|dataset|data_iter|batches", text(node))
        ):
            return BATCH if index == -1 else HOST
        if kind == LOADER:
            return BATCH if index == -1 else HOST
        if kind == BATCH:
            return HOST
        if kind in (TENSOR, TENSORS):
            return TENSOR
        if kind in (HOST, NUMPY):
            return kind
        if kind == SHAPE:
            return NUMBER
        return UNKNOWN

    @staticmethod
    def _part(kind: str) -> str:
        return {BATCH: HOST, TENSORS: TENSOR, DICT: UNKNOWN, TENSOR: TENSOR, HOST: HOST}.get(
            kind, UNKNOWN
        )

    def constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None:
            return NONE
        if isinstance(value, bool):
            return BOOL
        return STRING if isinstance(value, str | bytes) else NUMBER

    def attribute(self, node: ast.Attribute) -> str:
        name = node.attr
        if name == "shape":
            return SHAPE
        if name in ("ndim", "device", "dtype", "itemsize"):
            return {"ndim": NUMBER, "device": DEVICE, "dtype": DTYPE}.get(name, NUMBER)
        base = node.value
        if isinstance(base, ast.Name) and base.id in ("self", "cls"):
            binding = self.attributes.get(name)
            if NAME_CONFIG.match(name):
                return CONFIG
            return self.binding(binding, name) if binding is not None else UNKNOWN
        full = dotted(node, self.aliases)
        if full is not None:
            if full.startswith("torch.") and name in ("float32", "float16", "bfloat16", "half"):
                return DTYPE
            return UNKNOWN
        kind = self.of(base)
        if kind in ON_DEVICE or kind == HOST:
            if name in ("data", "grad", "T", "mT", "real", "imag", "at"):
                return kind
            return UNKNOWN
        if kind == CONFIG:
            return CONFIG
        if kind == UNKNOWN and name in ("loss", "logits", "hidden_states", "last_hidden_state"):
            return TENSOR if name != "loss" or isinstance(base, ast.Name | ast.Call) else UNKNOWN
        return UNKNOWN

    def call(self, node: ast.Call) -> str:
        return call_kind(self, node)

    def compare(self, node: ast.Compare) -> str:
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return BOOL
        kinds = [self.of(node.left), *(self.of(one) for one in node.comparators)]
        if any(kind in ON_DEVICE for kind in kinds):
            return MASK
        if any(kind in (HOST, HOST_MASK) for kind in kinds):
            return HOST_MASK
        if NUMPY in kinds:
            return NUMPY
        return BOOL if any(kind != UNKNOWN for kind in kinds) else UNKNOWN

    def binary(self, node: ast.BinOp) -> str:
        left, right = self.of(node.left), self.of(node.right)
        pair = {left, right}
        if isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor) and MASK in pair:
            return MASK
        if pair & ON_DEVICE:
            return TENSOR
        if HOST in pair or HOST_MASK in pair:
            return HOST
        if NUMPY in pair:
            return NUMPY
        if pair <= {NUMBER, CONFIG, BOOL}:
            return NUMBER
        if STRING in pair:
            return STRING
        if isinstance(node.op, ast.MatMult):
            return TENSOR
        return NUMBER if NUMBER in pair and CONFIG in pair else UNKNOWN

    def unary(self, node: ast.UnaryOp) -> str:
        kind = self.of(node.operand)
        if isinstance(node.op, ast.Not):
            return BOOL if kind not in ON_DEVICE else kind
        return kind

    def boolean(self, node: ast.BoolOp) -> str:
        kind = UNKNOWN
        for value in node.values:
            if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Is | ast.IsNot):
                return NUMBER  # `flag or x is None`: the other operand is a flag too
            kind = join(kind, self.of(value))
        return kind

    def either(self, node: ast.IfExp) -> str:
        return join(self.of(node.body), self.of(node.orelse))

    def subscript(self, node: ast.Subscript) -> str:
        kind = self.of(node.value)
        if kind in (TENSOR, MASK, HOST, HOST_MASK, NUMPY, CONFIG):
            return kind
        if kind == SHAPE:
            return SHAPE if isinstance(node.slice, ast.Slice) else NUMBER
        if kind == TENSORS:
            return TENSORS if isinstance(node.slice, ast.Slice) else TENSOR
        if kind == BATCH:
            return HOST
        if kind == STRING:
            return STRING
        return UNKNOWN

    def sequence(self, node: ast.List | ast.Tuple) -> str:
        kinds = {self.of(item) for item in node.elts[:6] if not isinstance(item, ast.Starred)}
        if kinds and kinds <= ON_DEVICE:
            return TENSORS
        return LIST

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> str:
        kind = self.of(node.elt)
        if kind == UNKNOWN and isinstance(node.elt, ast.Call):
            called = node.elt.func
            if isinstance(called, ast.Attribute) and called.attr == "to":
                return TENSORS
        return TENSORS if kind in ON_DEVICE else LIST

    def string(self, node: ast.expr) -> str:
        return STRING

    def mapping(self, node: ast.expr) -> str:
        return DICT

    def named(self, node: ast.NamedExpr) -> str:
        return self.of(node.value)


Reader = Callable[[Inference, Any], str]
READERS: dict[type[ast.AST], Reader] = {
    ast.Name: Inference.name,
    ast.Constant: Inference.constant,
    ast.Attribute: Inference.attribute,
    ast.Call: Inference.call,
    ast.Compare: Inference.compare,
    ast.BinOp: Inference.binary,
    ast.UnaryOp: Inference.unary,
    ast.BoolOp: Inference.boolean,
    ast.IfExp: Inference.either,
    ast.Subscript: Inference.subscript,
    ast.List: Inference.sequence,
    ast.Tuple: Inference.sequence,
    ast.ListComp: Inference.comprehension,
    ast.GeneratorExp: Inference.comprehension,
    ast.JoinedStr: Inference.string,
    ast.Dict: Inference.mapping,
    ast.DictComp: Inference.mapping,
    ast.NamedExpr: Inference.named,
}
