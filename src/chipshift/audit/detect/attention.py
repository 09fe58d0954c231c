"""Attention: GPU implementations asked for by name, and forms that build the score matrix."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import TORCH
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors


def flash_name(reader: Reader, node: ast.Constant, value: str) -> None:
    """``attn_implementation="flash_attention_2"`` as a value or default, not in a comparison."""
    parent = reader.parent()
    if isinstance(parent, ast.Compare | ast.List | ast.Set) or reader.within(ast.Compare):
        return
    if isinstance(parent, ast.Dict) and node in parent.keys:
        return
    if isinstance(parent, ast.Tuple | ast.Subscript | ast.Expr | ast.JoinedStr):
        return
    if (
        isinstance(parent, ast.Call)
        and not re.search(r"attn|attention", text(parent.func))
        and tail(parent.func) != "getattr"
    ):
        return
    reader.hit("flash-attn-kernel", node, f"asks for {value!r}, a CUDA package")


def sdpa_kernel(reader: Reader, node: ast.Call, full: str) -> None:
    for one in walk(node):
        if isinstance(one, ast.Attribute) and one.attr in (
            "FLASH_ATTENTION",
            "CUDNN_ATTENTION",
            "EFFICIENT_ATTENTION",
        ):
            reader.hit("flash-attn-kernel", node, f"pins SDPA to {one.attr}, a CUDA kernel")
            return


def is_cuda_assert(reader: Reader, node: ast.Assert) -> None:
    if not reader.mentions("is_cuda"):
        return
    for one in walk(node.test):
        if isinstance(one, ast.Attribute) and one.attr == "is_cuda":
            flash = any(root.startswith("flash_attn") for root in reader.aliases.values())
            rule = "flash-attn-kernel" if flash else "cuda-device-pin"
            reader.hit(rule, node, "asserts that a tensor is on CUDA", raises=False)
            return


def sdpa(reader: Reader, node: ast.Call, full: str) -> None:
    """scaled_dot_product_attention: lowered to the form that builds the scores."""
    if full and not full.startswith("torch."):
        return
    if not full and not text(node.func).startswith(("F.", "torch.")):
        return
    reader.hit(
        "sdpa-math-fallback",
        node,
        "scaled_dot_product_attention is computed with the whole score matrix in memory",
        targets=TORCH,
        needs_step=True,
    )


def flex(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith("torch.nn.attention.flex_attention") and tail(node.func) == "flex_attention":
        reader.hit(
            "sdpa-math-fallback",
            node,
            "flex_attention is a Triton template; elsewhere it builds the score matrix",
            targets=TORCH,
            needs_step=True,
        )


def softmax(reader: Reader, node: ast.Call, full: str) -> None:
    """softmax of q @ k^T written out; reported where the scores are made."""
    scores: ast.expr | None = None
    if isinstance(node.func, ast.Attribute) and not full:
        scores = node.func.value
    elif node.args:
        scores = node.args[0]
    made = _scores(reader, scores, 0)
    if made is not None:
        reader.hit(
            "sdpa-math-fallback",
            made,
            "the scores of every query against every key are built in memory",
            needs_step=True,
            confidence="likely",
        )


def _scores(reader: Reader, node: ast.expr | None, depth: int) -> ast.expr | None:
    """The matmul of queries with transposed keys that ``node`` comes from."""
    if node is None or depth > 7:
        return None
    if isinstance(node, ast.Name):
        binding = reader.func.scope.find(node.id)
        while binding is not None:
            if binding.how == "value" and isinstance(binding.node, ast.expr):
                mentions = any(
                    isinstance(one, ast.Name) and one.id == node.id for one in walk(binding.node)
                )
                found = _scores(reader, binding.node, depth + 1) if not mentions else None
                found = found or _direct(reader, binding.node)
                if found is not None:
                    return found
            binding = binding.previous
        return None
    direct = _direct(reader, node)
    if direct is not None:
        return direct
    if isinstance(node, ast.BinOp):
        return _scores(reader, node.left, depth + 1) or _scores(reader, node.right, depth + 1)
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        found = _scores(reader, inner, depth + 1) if inner is not None else None
        if found is None and node.args:
            found = _scores(reader, node.args[0], depth + 1)
        return found
    return None


def _direct(reader: Reader, node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node if _transposed(node.right) or _is_key(node.right) else None
    if isinstance(node, ast.BinOp):
        return _direct(reader, node.left) or _direct(reader, node.right)
    if isinstance(node, ast.Call):
        name = tail(node.func)
        if name in ("matmul", "bmm", "baddbmm") and node.args:
            last = node.args[-1]
            return node if _transposed(last) or _is_key(last) else None
        if name == "einsum" and node.args and isinstance(node.args[0], ast.Constant):
            return node if _attention_einsum(str(node.args[0].value)) else None
        if isinstance(node.func, ast.Attribute) and name in ("masked_fill", "float", "to", "mul_"):
            return _direct(reader, node.func.value)
    return None


def _transposed(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and tail(node.func) in ("transpose", "permute", "swapaxes", "t"):
        return True
    return isinstance(node, ast.Attribute) and node.attr in ("T", "mT")


def _is_key(node: ast.expr) -> bool:
    return bool(
        re.match(r"^(k|key|keys|k_t|key_t|kT|key_states|key_layer|key_transposed)$", tail(node))
    )


def _attention_einsum(spec: str) -> bool:
    """``bhqd,bhkd->bhqk`` and its permutations: one letter contracted, two long ones kept."""
    spec = spec.replace(" ", "").replace("...", "")
    if "->" not in spec or spec.count(",") != 1:
        return False
    inputs, out = spec.split("->")
    left, right = inputs.split(",")
    shared = set(left) & set(right)
    contracted = shared - set(out)
    only_left, only_right = set(left) - set(right), set(right) - set(left)
    return (
        len(contracted) == 1
        and len(only_left) == 1
        and len(only_right) == 1
        and len(left) >= 3
        and len(right) >= 3
        and (only_left | only_right) <= set(out)
        and {left[-1]} | {right[-1]} == contracted
    )


def enabled(reader: Reader, node: ast.Call, full: str) -> None:
    if isinstance(node.func, ast.Attribute):
        reader.hit("xformers-op", node, "switches xFormers attention on")


def register(found: Detectors) -> None:
    found.on_call("enable_xformers_memory_efficient_attention")(enabled)
    found.on_string("flash_attention_2 flash_attention_3 flash_attention_4")(flash_name)
    found.on_call("sdpa_kernel")(sdpa_kernel)
    found.on_statement(ast.Assert)(is_cuda_assert)
    found.on_call("scaled_dot_product_attention")(sdpa)
    found.on_call("flex_attention")(flex)
    found.on_call("softmax softmax_ log_softmax_")(softmax)
