"""JAX code: GPU implementations chosen by name, jit caches, donation."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import Target
from chipshift.audit.names import tail, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.syntax import DEFS

JAX: tuple[Target, ...] = ("jax",)
ATTENTION = re.compile(
    r"implementation|attention_impl|attn_impl|attention_kernel|attn_backend|backend"
)


def implementation(reader: Reader, node: ast.Constant, value: str) -> None:
    """implementation="cudnn"|"triton" as an argument, a field's or a flag's default."""
    if reader.within(ast.Compare):
        return
    parent = reader.parent()
    name = ""
    here: ast.AST = node
    if isinstance(parent, ast.keyword):
        name = parent.arg or ""
        here = parent if name != "default" else node
        outer = reader.parent(2)
        if name == "default" and isinstance(outer, ast.Call):
            name = " ".join(str(one.value) for one in outer.args if isinstance(one, ast.Constant))
    elif isinstance(parent, ast.Call) and tail(parent.func).startswith("DEFINE_"):
        if (
            len(parent.args) > 1
            and parent.args[1] is node
            and isinstance(parent.args[0], ast.Constant)
        ):
            name = str(parent.args[0].value)
    elif isinstance(parent, ast.AnnAssign | ast.Assign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        name = " ".join(tail(one) for one in targets)
    elif isinstance(parent, DEFS):
        for argument, default in zip(
            reversed([*parent.args.posonlyargs, *parent.args.args]),
            reversed(parent.args.defaults),
            strict=False,
        ):
            if default is node:
                name = argument.arg
        for argument, keyword in zip(parent.args.kwonlyargs, parent.args.kw_defaults, strict=True):
            if keyword is node:
                name = argument.arg
    if not ATTENTION.search(name):
        return
    if not (reader.facts.uses_jax or "tokamax" in reader.source):
        return
    reader.hit("jax-gpu-kernel", here, f"{value!r} is an implementation for GPUs", targets=JAX)


def in_loop(reader: Reader, node: ast.Call, full: str) -> None:
    """jax.jit made anew at every turn, or of a new function each time."""
    if full not in ("jax.jit", "jax.pmap", "equinox.filter_jit"):
        return
    if reader.loops and any(one.role.value in ("step", "epoch", "micro") for one in reader.loops):
        reader.hit("jit-cache-miss", node, "a new jitted function at every turn", targets=JAX)
        return
    donation(reader, node, full)


STATE = re.compile(
    r"^(p_|jit_|jitted_|pjit_|_)?(train_step|update|update_step|train_one_step|step"
    r"|training_step|update_fn|train_fn|train_update|apply_updates|train_step_fn)$"
)


def donation(reader: Reader, node: ast.Call, full: str) -> None:
    """jax.jit(train_step) whose state is replaced by the result, without donation."""
    if not node.args:
        return
    given = {one.arg for one in node.keywords}
    if given & {"donate_argnums", "donate_argnames", "donate"} or None in given:
        return
    target = tail(node.args[0])
    if isinstance(node.args[0], ast.Call) and tail(node.args[0].func) == "partial":
        inner = node.args[0].args
        target = tail(inner[0]) if inner else ""
    if STATE.match(target):
        reader.hit(
            "no-buffer-donation",
            node,
            f"{target} keeps the old state beside the new one",
            targets=JAX,
        )


def decorated(reader: Reader, node: ast.FunctionDef) -> None:
    """@jax.jit on a train step whose state comes back, without donation."""
    if not STATE.match(node.name):
        return
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    for one in node.decorator_list:
        inner = one
        keywords: set[str | None] = set()
        if isinstance(one, ast.Call):
            inner = one.func
            keywords = {keyword.arg for keyword in one.keywords}
            if tail(one.func) == "partial" and one.args:
                inner = one.args[0]
        full = reader.full(inner)
        if full not in ("jax.jit", "jax.pmap"):
            continue
        if keywords & {"donate_argnums", "donate_argnames"}:
            return
        returned = {
            part.id
            for statement in walk(node)
            if isinstance(statement, ast.Return) and statement.value is not None
            for part in walk(statement.value)
            if isinstance(part, ast.Name)
        }
        carried = [name for name in names if name in returned or f"new_{name}" in returned]
        if carried or any(re.search(r"state|params", name) for name in names):
            reader.hit(
                "no-buffer-donation",
                one,
                f"{node.name} keeps the old state beside the new one",
                targets=JAX,
            )
        return


def fused_layer(reader: Reader, node: ast.Attribute, full: str) -> None:
    """A layer of praxis that is a GPU kernel, named in a configuration."""
    if "gpu_fast_attention" in full:
        reader.hit(
            "jax-gpu-kernel",
            node,
            f"{node.attr} is a GPU kernel",
            targets=JAX,
            cause="import praxis",
        )


def register(found: Detectors) -> None:
    found.on_attribute(
        "GpuTritonFusedDotProductAttention GpuTritonFusedLayerNorm GpuCudnnFusedDotProductAttention"
        " GpuCudnnFusedDotProductAttentionWithLPB"
    )(fused_layer)
    found.on_string("cudnn triton mosaic_gpu cudnn_flash_te")(implementation)
    found.on_call("jit pmap filter_jit")(in_loop)
    found.on_statement(ast.FunctionDef)(decorated)
