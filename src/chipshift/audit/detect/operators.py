"""Operators that have no lowering or a slow one: sparse tensors, sorts, a few modules."""

from __future__ import annotations

import ast

from chipshift.audit.finding import LAZY, Target
from chipshift.audit.kinds import HOST, NUMPY, ON_DEVICE
from chipshift.audit.names import tail, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors


def sparse(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if full.startswith(("torch.sparse", "jax.experimental.sparse")) and name != "softmax":
        reader.hit("sparse-tensor", node, f"{full} makes a sparse tensor")
    elif name in ("to_sparse", "to_sparse_coo", "to_sparse_csr") and not full:
        reader.hit("sparse-tensor", node, f".{name}() makes a sparse tensor")
    elif name in ("Embedding", "EmbeddingBag"):
        for keyword in node.keywords:
            if (
                keyword.arg == "sparse"
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value is True
            ):
                reader.hit("sparse-tensor", keyword, "sparse gradients of an embedding")
    elif name == "SparseAdam":
        reader.hit("sparse-tensor", node, "SparseAdam wants sparse gradients")


def lowered(reader: Reader, node: ast.Call, full: str) -> None:
    """Ops that torch_xla hands to the CPU (measured), and what JAX has no rule for."""
    name = tail(node.func)
    if full == "jax.numpy.linalg.eig":
        reader.hit(
            "op-not-lowered",
            node,
            "jnp.linalg.eig has no rule on a TPU",
            needs_step=True,
            targets=("jax",),
        )
        return
    torch = full.startswith("torch.")
    if full and not torch:
        return
    if name in ONLY_TORCH and not torch:
        return
    if (
        name in METHODS
        and not torch
        and reader.kind(node.func.value if isinstance(node.func, ast.Attribute) else None)
        not in ON_DEVICE
    ):
        return
    if not torch and name not in METHODS:
        return
    if name in ("interpolate", "Upsample"):
        mode = [k.value for k in node.keywords if k.arg == "mode"]
        if not any(isinstance(one, ast.Constant) and one.value == "bicubic" for one in mode):
            return
    if name in ("scatter_reduce", "argsort"):
        neuron: tuple[Target, ...] = ("torch_xla",) if name == "scatter_reduce" else ("neuron",)
        reader.hit(
            "op-not-lowered",
            node,
            f"{name}: slow or missing in older compilers",
            targets=neuron,
            severity="medium",
            needs_step=True,
            confidence="likely",
        )
        return
    if reader.kind(node.args[0] if torch and node.args else None) in (HOST, NUMPY):
        return
    reader.hit(
        "op-not-lowered",
        node,
        f"{name} has no lowering: it runs on the host",
        targets=LAZY,
        needs_step=name not in MODULES,
    )


MODULES = words("EmbeddingBag PReLU CTCLoss weight_norm Unfold Upsample")

ONLY_TORCH = words(
    """ctc_loss CTCLoss grid_sample embedding_bag EmbeddingBag stft istft searchsorted bucketize
    isin unfold Unfold interpolate Upsample weight_norm triu_indices tril_indices rfft irfft
    fft fft2 qr cholesky solve"""
)

METHODS = words("median scatter_reduce argsort nanmedian")

LOWERED = " ".join(sorted(ONLY_TORCH | METHODS)) + " eig"


def register(found: Detectors) -> None:
    found.on_call(
        "sparse_coo_tensor sparse_csr_tensor to_sparse to_sparse_coo to_sparse_csr Embedding "
        "EmbeddingBag SparseAdam mm addmm sparse_tensor sum fromdense BCOO"
    )(sparse)
    found.on_call(LOWERED)(lowered)
