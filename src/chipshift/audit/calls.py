"""The kind of a call's result: library functions, tensor methods, functions of the module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from chipshift.audit.kinds import (
    ARRAY,
    BATCH,
    BOOL,
    CONFIG,
    DEVICE,
    DICT,
    HOST,
    HOST_MASK,
    LIST,
    LOADER,
    MASK,
    MODULE,
    NUMBER,
    NUMPY,
    ON_DEVICE,
    OPTIMIZER,
    RANK,
    SCALER,
    STRING,
    TENSOR,
    TENSORS,
    UNKNOWN,
    join,
)
from chipshift.audit.names import dotted, tail, text, walk, words
from chipshift.audit.vocabulary import (
    JAX_ARRAY_ROOTS,
    MASK_RESULTS,
    NOT_TENSOR_TORCH,
    NUMBER_RESULTS,
    TENSOR_RESULTS,
    TORCH_MAKERS,
)

if TYPE_CHECKING:
    from chipshift.audit.infer import Inference

BUILTINS = {
    "len": NUMBER,
    "int": NUMBER,
    "float": NUMBER,
    "round": NUMBER,
    "str": STRING,
    "bool": BOOL,
    "isinstance": BOOL,
    "hasattr": BOOL,
    "range": LIST,
    "list": LIST,
    "dict": DICT,
    "set": LIST,
}
RANK_CALLS = words(
    """get_rank get_local_rank process_index get_ordinal get_world_size process_count
    get_global_rank global_ordinal"""
)


def call_kind(infer: Inference, node: ast.Call) -> str:
    """The kind of ``node``'s value."""
    full = dotted(node.func, infer.aliases)
    if full is not None:
        kind = _library(infer, node, full)
        if kind is not None:
            return kind
    name = tail(node.func)
    if isinstance(node.func, ast.Name):
        return _plain(infer, node, name)
    if isinstance(node.func, ast.Attribute):
        return _method(infer, node, node.func, name)
    if isinstance(node.func, ast.Call) and tail(node.func.func) in ("jit", "vmap", "grad", "pmap"):
        return TENSOR
    return UNKNOWN


def _on_host(infer: Inference, node: ast.Call) -> bool:
    """Whether a torch constructor is called without a device (then it makes a host tensor)."""
    for keyword in node.keywords:
        if keyword.arg is None:
            return False
        if keyword.arg == "device":
            return isinstance(keyword.value, ast.Constant) and keyword.value.value == "cpu"
    return True


def _library(infer: Inference, node: ast.Call, full: str) -> str | None:
    root, _, rest = full.partition(".")
    if root == "torch":
        return _torch(infer, node, full, rest)
    if full.startswith(JAX_ARRAY_ROOTS):
        name = full.rsplit(".", 1)[1]
        if name in ("shape", "ndim", "size", "dtype", "PRNGKey", "finfo", "iinfo", "issubdtype"):
            return NUMBER if name in ("ndim", "size") else UNKNOWN
        if full.startswith("jax.random.") and name in ("split", "key", "fold_in"):
            return UNKNOWN
        return MASK if name in MASK_RESULTS else TENSOR
    if full == "jax.device_get":
        return NUMPY
    if root == "numpy":
        return NUMPY
    if root in ("math", "time", "os", "random"):
        return NUMBER if root in ("math", "time", "random") else UNKNOWN
    if full in ("copy.deepcopy", "copy.copy") and node.args:
        return infer.of(node.args[0])
    if root in ("einops",):
        kind = infer.of(node.args[0]) if node.args else UNKNOWN
        return kind if kind in ARRAY else TENSOR
    if root in ("PIL", "cv2", "scipy", "pandas", "sklearn"):
        return NUMPY
    if root == "optax":
        return TENSOR if "loss" in full or "cross_entropy" in full else UNKNOWN
    return None


def _torch(infer: Inference, node: ast.Call, full: str, rest: str) -> str | None:
    name = full.rsplit(".", 1)[1]
    if rest.startswith(("nn.functional.", "fft.", "linalg.", "special.")):
        kinds = {infer.of(one) for one in node.args[:3]}
        return HOST if HOST in kinds and not kinds & ON_DEVICE else TENSOR
    if rest.startswith("nn."):
        if name in ("Parameter", "Buffer"):
            return TENSOR
        if rest.startswith("nn.utils.clip_grad_norm"):
            return TENSOR
        return MODULE if name[:1].isupper() else UNKNOWN
    if rest.startswith("optim."):
        return OPTIMIZER if name[:1].isupper() else UNKNOWN
    if rest.startswith("utils.data"):
        return LOADER if name == "DataLoader" else UNKNOWN
    if rest.startswith("distributed"):
        return RANK if name in RANK_CALLS else UNKNOWN
    if name == "GradScaler":
        return SCALER
    if rest.startswith(("cuda.", "backends.", "distributed.", "utils.", "jit.", "autograd.")):
        return NUMBER if name.startswith("is_") else UNKNOWN
    if rest == "device":
        return DEVICE
    if "." in rest or name in NOT_TENSOR_TORCH:
        return UNKNOWN
    if name in TORCH_MAKERS or name == "from_numpy":
        return HOST if name == "from_numpy" or _on_host(infer, node) else TENSOR
    if name in MASK_RESULTS:
        return MASK
    shown = [infer.of(one) for one in node.args[:3]]
    if name in ("equal", "allclose"):
        return MASK if any(kind in ON_DEVICE for kind in shown) else UNKNOWN
    if any(kind in ON_DEVICE for kind in shown):
        return TENSOR
    if HOST in shown:
        return HOST
    if shown and all(kind == LIST for kind in shown[:1]) and name in ("stack", "cat"):
        return _stacked(infer, node)
    if shown and shown[0] == NUMPY:
        return HOST
    return TENSOR


def _stacked(infer: Inference, node: ast.Call) -> str:
    """torch.stack/cat of a list: host when its elements are."""
    first = node.args[0]
    elements = (
        [first.elt]
        if isinstance(first, ast.ListComp | ast.GeneratorExp)
        else first.elts
        if isinstance(first, ast.List | ast.Tuple)
        else []
    )
    kinds = {infer.of(one) for one in elements}
    return HOST if kinds and kinds <= {HOST, HOST_MASK, NUMPY} else TENSOR


def _plain(infer: Inference, node: ast.Call, name: str) -> str:
    kind = BUILTINS.get(name)
    if kind is not None:
        return kind
    if name in ("max", "min", "sum", "abs"):
        kinds = [infer.of(one) for one in node.args[:2]]
        if any(one in ON_DEVICE or one == TENSORS for one in kinds):
            return TENSOR
        return NUMBER if all(one == NUMBER for one in kinds) else UNKNOWN
    if name in infer.jitted:
        return TENSORS
    if name in infer.returns:
        return _returned(infer, name)
    binding = infer.scope.find(name)
    if binding is not None and binding.node is not None and not isinstance(binding.node, ast.arg):
        bound = binding.node
        if infer.of(bound) == MODULE:
            return TENSOR
    if name[:1].isupper() and infer.looks_like_module(name):
        return MODULE
    lower = name.lower()
    if lower.startswith(("criterion", "loss_fn", "loss_func", "compute_loss")) or lower == "crit":
        return TENSOR
    if lower in ("net", "model", "network", "module", "encoder", "decoder", "policy", "critic"):
        return TENSOR
    return UNKNOWN


def _returned(infer: Inference, name: str) -> str:
    """The kind a function of this module returns, where its return statements show it alone.

    Names in a return belong to the callee's scope and are not looked up in the caller's.
    """
    kind = UNKNOWN
    for value in infer.returns[name][:3]:
        if not any(
            isinstance(part, ast.Name) and part.id != "self" and part.id not in infer.aliases
            for part in walk(value)
        ):
            kind = join(kind, infer.of(value))
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in ("mean", "sum", "item")
        ):
            kind = join(kind, NUMBER if value.func.attr == "item" else TENSOR)
    return kind


def _moved(infer: Inference, node: ast.Call, owner: str) -> str:
    """``x.to(...)``: to the CPU, to a dtype, or to a device."""
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    for argument in arguments[:2]:
        if isinstance(argument, ast.Constant) and argument.value == "cpu":
            return HOST
        if (
            isinstance(argument, ast.Call)
            and tail(argument.func) == "device"
            and argument.args
            and isinstance(argument.args[0], ast.Constant)
            and argument.args[0].value == "cpu"
        ):
            return HOST
    first = arguments[0] if arguments else None
    written = text(first)
    if owner in (MODULE, OPTIMIZER):
        return owner
    if first is not None and (infer.of(first) == "dtype" or "dtype" in written):
        return owner
    if written.startswith("torch."):
        return owner
    return TENSOR


def _method(infer: Inference, node: ast.Call, func: ast.Attribute, name: str) -> str:
    if name in ("cpu",):
        kind = infer.of(func.value)
        return MODULE if kind == MODULE else HOST
    if name == "numpy":
        return NUMPY
    if name in ("item", "numel", "dim", "nelement"):
        return NUMBER
    if name == "size":
        return NUMBER if node.args or node.keywords else "shape"
    if name == "tolist":
        return LIST
    if name in ("get_rank", "get_local_rank", "get_world_size"):
        return RANK
    if name in ("format", "join", "strip", "split_", "lower", "upper", "replace", "startswith"):
        return STRING if name != "startswith" else BOOL
    owner = infer.of(func.value)
    if name in ("train", "eval", "requires_grad_") and owner == UNKNOWN:
        return MODULE
    if name == "to":
        return _moved(infer, node, owner)
    if owner in (TENSOR, MASK, HOST, HOST_MASK, NUMPY):
        if name in NUMBER_RESULTS:
            return NUMBER
        if owner == NUMPY:
            return NUMPY
        host = owner in (HOST, HOST_MASK)
        if name == "cuda":
            return TENSOR
        if name in MASK_RESULTS:
            return HOST_MASK if host else MASK
        if name in TENSOR_RESULTS or name.endswith("_"):
            if name in ("split", "chunk", "unbind", "topk", "sort"):
                return TENSORS if not host else LIST
            return HOST if host else TENSOR
        return UNKNOWN
    if owner == CONFIG:
        return CONFIG
    if owner == MODULE:
        return _of_module(infer, func, name)
    if owner in (DICT, BATCH):
        return HOST if owner == BATCH and name in ("get", "pop") else UNKNOWN
    if name == "cuda":
        return TENSOR
    if name in ("apply", "apply_fn") and text(func.value).split(".")[-1] in ("state", "model"):
        return TENSOR
    if name in ("forward", "masked_fill", "softmax", "log_softmax", "argmax", "detach"):
        return TENSOR
    return UNKNOWN


def _of_module(infer: Inference, func: ast.Attribute, name: str) -> str:
    if isinstance(func.value, ast.Name) and func.value.id == "self":
        binding = infer.attributes.get(name)
        if binding is not None:
            return TENSOR if infer.binding(binding, name) == MODULE else UNKNOWN
        if name in infer.returns:
            return _returned(infer, name)
        lower = name.lower()
        if lower.endswith(("_loss", "loss", "loss_fn", "criterion", "forward")):
            return TENSOR
        return UNKNOWN
    if name in ("to", "train", "eval", "cuda", "half", "requires_grad_", "bfloat16", "float"):
        return MODULE
    if name in ("parameters", "buffers", "modules"):
        return TENSORS if name != "modules" else LIST
    return UNKNOWN
