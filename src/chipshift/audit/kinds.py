"""What a value is, by local inference: device tensor, boolean mask, host tensor, NumPy, number.

Kinds are short strings. A name's kind is inferred lazily from the expression last bound to it, so
that only names a rule asks about cost anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chipshift.audit.names import dotted, tail, text, words

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


TENSOR_RESULTS = words(
    """abs add all any argmax argmin argsort bool byte clamp clip clone contiguous cos cuda
    cumsum detach diff div double dot eq exp expand expand_as eye flatten flip float floor
    full_like gather half index_select int item_ log log_softmax logical_and logical_not
    logical_or long lt gt ge le masked_fill masked_fill_ masked_select matmul max mean min mm
    bmm mul narrow ne neg norm nonzero permute pow prod relu repeat repeat_interleave reshape
    round scatter scatter_add sigmoid sin softmax sort split sqrt square squeeze std sub sum
    sum_ t tanh to topk transpose tril triu type type_as unfold unique unsqueeze var view
    view_as where zero_ astype at set block_until_ready isnan isinf isfinite new_zeros
    new_ones new_full new_tensor chunk unbind swapaxes ravel backward requires_grad_ data
    logsumexp amax amin sign erf div_ sub_ add_ mul_ mv outer cross_entropy bfloat16 float16
    nanmean median mode cumprod roll fill_ copy_ nan_to_num lerp square_"""
)
MASK_RESULTS = words(
    """bool isnan isinf isfinite eq ne lt gt le ge logical_and logical_or logical_not logical_xor
    any all greater less equal not_equal isin isclose"""
)
NUMBER_RESULTS = words(
    """item size dim numel nelement ndimension element_size stride get_device tell count index"""
)
TORCH_HOST = words("from_numpy load as_tensor tensor")
TORCH_MAKERS = words(
    """tensor zeros ones empty full rand randn randint arange linspace eye randperm"""
)
NOT_TENSOR_TORCH = words(
    """device dtype is_tensor is_grad_enabled no_grad enable_grad inference_mode load save
    manual_seed compile set_default_dtype set_grad_enabled Generator Size finfo iinfo numel
    is_floating_point get_default_dtype is_autocast_enabled typename seed initial_seed
    autocast get_rng_state promote_types result_type jit are_deterministic_algorithms_enabled
    float32 float16 bfloat16 int64 int32 bool long float half double uint8 int8
    get_float32_matmul_precision __version__ is_complex is_storage is_inference
    is_inference_mode_enabled can_cast"""
)
JAX_ARRAY_ROOTS = ("jax.numpy.", "jax.lax.", "jax.nn.", "jax.random.", "jax.scipy.")
NAME_CONFIG = re.compile(
    r"^(self\.)?(\w+_)?(cfg|config|args|opt|opts|hparams|hps|flags|FLAGS|params_dict|hp|conf"
    r"|settings|options|kwargs|argv)$"
)
NAME_MASK = re.compile(r"(^|_)(mask|masks|keep|valid|is_valid|padding_mask)(_|\d|$)")
NAME_NUMBER = re.compile(
    r"^(n|num|max|min|step|steps|epoch|iter|it|idx|index|lr|rank|world_size|batch_size|seq_len"
    r"|length|size|dim|head|heads|layer|depth|width|height|count|total|start|end|eps|scale|level"
    r"|stage|patience|port|seed|timeout|k|num_.*|n_.*|max_.*|.*_(size|len|length|dim|steps?|iters?"
    r"|epochs?|count|num|idx|index|id|ids_len|rate|interval|freq|ratio|rank|level|path|dir|name))$"
)
NAME_TENSOR = re.compile(
    r"^(loss|losses|total_loss|logits|logit|outputs?|preds?|pred|hidden_states|hidden|x|y|q|k|v|z"
    r"|images?|imgs?|inputs?|labels?|targets?|target|embeds?|embeddings?|features?|feats?|feat"
    r"|scores?|probs?|log_probs?|mask|masks|attn|weights?|noise|latents?|tokens|input_ids|attention"
    r"_mask|hidden_states|advantages?|values|rewards?|boxes|bboxes|queries|keys|grad_norm|.*_loss"
    r"|loss_.*|.*_logits|.*_mask|.*_embeds?|.*_states|.*_probs?)$"
)
NUMBER_TYPES = words("int float bool str bytes Path")
TENSOR_TYPES = re.compile(
    r"(^|\W)(torch\.Tensor|Tensor|FloatTensor|LongTensor|BoolTensor|jnp\.ndarray|jax\.Array"
    r"|Array|Float|Int|Bool|chex\.Array|JTensor|ArrayLike)(\W|$)"
)


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


def annotated(annotation: ast.expr | None) -> str:
    """The kind an annotation states; UNKNOWN when it states none we know."""
    if annotation is None:
        return UNKNOWN
    written = ast.unparse(annotation)
    if TENSOR_TYPES.search(written):
        if re.search(r"(list|List|tuple|Tuple|Sequence|dict|Dict)\[", written):
            return DICT if re.search(r"(dict|Dict)\[", written) else TENSORS
        return TENSOR
    base = written.split("[")[0].split("|")[0].strip().split(".")[-1]
    inner = written.replace("Optional[", "").rstrip("]").split("|")[0].strip()
    if base in NUMBER_TYPES or inner in NUMBER_TYPES:
        return STRING if inner in ("str", "Path", "bytes") else NUMBER
    if "np.ndarray" in written or "NDArray" in written:
        return NUMPY
    if base in ("Module",) or written.endswith("nn.Module"):
        return MODULE
    if base == "device":
        return DEVICE
    if base == "dtype":
        return DTYPE
    if base.endswith(("Config", "Args", "Namespace")):
        return CONFIG
    return UNKNOWN


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
        from chipshift.audit.calls import call_kind

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
