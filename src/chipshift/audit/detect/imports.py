"""Imports of GPU packages and each use of what they give."""

from __future__ import annotations

import ast

from chipshift.audit.finding import TARGETS
from chipshift.audit.names import imported, tail, text, words
from chipshift.audit.packages import compiled_module, package_rule
from chipshift.audit.prepass import guards_import
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

SAYS = {
    "flash-attn-kernel": "CUDA attention package",
    "triton-kernel": "Triton, which has no TPU target",
    "cuda-extension": "compiled CUDA extension",
    "third-party-gpu-kernel": "GPU kernel library",
    "transformer-engine": "NVIDIA Transformer Engine",
    "bitsandbytes": "bitsandbytes, which has no TPU backend",
    "deepspeed-runtime": "DeepSpeed, which has no TPU accelerator",
    "apex-fused": "NVIDIA Apex",
    "xformers-op": "xFormers, whose kernels are CUDA",
    "jax-gpu-kernel": "GPU-only kernel package for JAX",
}
PURE = words(
    """deepspeed.is_deepspeed_available xformers.__version__ deepspeed.__version__ triton.cdiv
    triton.next_power_of_2 triton.__version__ flash_attn.__version__
    torch.utils.cpp_extension.IS_HIP_EXTENSION flash_attn.bert_padding
    deepspeed.comm.is_initialized"""
)
PADDING = frozenset(["unpad_input", "pad_input", "index_first_axis"])


def _rule(package: str, dotted: str) -> str:
    rule = package_rule(dotted) or package_rule(package)
    if rule:
        return rule
    return "cuda-extension" if compiled_module(package, dotted) else ""


def import_(reader: Reader, node: ast.Import | ast.ImportFrom) -> None:
    """An import of a GPU package that is not guarded by a handler with a way out."""
    facts = reader.facts
    guarded = any(guards_import(one) for one in reader.tries)
    done: set[str] = set()
    for one in imported(node, facts.module, facts.file.endswith("__init__.py")):
        rule = _rule(one.package, one.dotted)
        facts.import_lines.append((one.dotted, one.line, one.end_line, guarded or reader.dead))
        if not rule or one.dotted in PURE:
            continue
        root = one.package.split(".")[0]
        if rule in done or (guarded and not reader.has("reported")):
            continue
        done.add(rule)
        if rule == "triton-kernel" and "testing" in one.dotted:
            continue
        if reader.flag and rule == "bitsandbytes":
            continue
        reader.hit(
            rule,
            node,
            f"imports {one.package}: {SAYS[rule]}",
            cause=f"import {root}" if root else rule,
            raises=True,
            confidence="sure" if not rule.startswith("cuda-ext") else "likely",
        )


def _resolved(reader: Reader, callee: str) -> tuple[str, str]:
    """(rule, root package) of a dotted callee outside the tree."""
    rule = package_rule(callee)
    if rule:
        return rule, callee.split(".", 1)[0]
    head = callee.rsplit(".", 1)[0]
    if "." in callee and compiled_module(head, head):
        return "cuda-extension", head.split(".")[0]
    return "", ""


def use(reader: Reader, node: ast.Call, callee: str) -> None:
    """A call of something that a GPU package gives."""
    if "." not in callee or callee.startswith((".", "self.")):
        engine(reader, node, callee)
        return
    rule, root = _resolved(reader, callee)
    if not rule or callee in PURE or tail(node.func) in PADDING:
        return
    if rule == "triton-kernel":
        if reader.func.node is not None and _in_kernel(reader):
            return
        if tail(node.func) not in ("jit", "autotune", "heuristics", "get_kernel"):
            return
        if tail(node.func) == "get_kernel":
            reader.hit(
                rule, node, f"{callee}() loads a CUDA build from the kernels hub", raises=True
            )
        return
    if callee == "deepspeed.init_distributed":
        reader.hit(
            "nccl-backend",
            node,
            "deepspeed.init_distributed() starts NCCL",
            cause="nccl",
            raises=True,
            targets=TARGETS,
        )
        return
    if rule == "cuda-extension" and root == "torch":
        return
    local = node.func
    while isinstance(local, ast.Attribute):
        local = local.value
    optional = isinstance(local, ast.Name) and local.id in reader.outline.packages
    if optional and (reader.has("choice") or reader.enclosing):
        return  # the package is optional, and some test chose it
    if reader.within(ast.FunctionDef) and tail(node.func) in ("jit",):
        return
    reader.hit(
        rule,
        node,
        f"calls {callee.split('.', 1)[1] if '.' in callee else callee}() of {root}: {SAYS[rule]}",
        cause=f"import {root}",
        raises=reader.func.node is None,
    )


def _in_kernel(reader: Reader) -> bool:
    node = reader.func.node
    return node is not None and any(
        text(one.func if isinstance(one, ast.Call) else one).startswith("triton")
        for one in node.decorator_list
    )


ENGINE = words("backward step save_checkpoint load_checkpoint train_batch eval_batch")


def engine(reader: Reader, node: ast.Call, callee: str) -> None:
    """backward() and step() of what deepspeed.initialize gave back."""
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in ENGINE:
        return
    owner = func.value
    written = text(owner)
    made = reader.func.scope.find(written) if isinstance(owner, ast.Name) else None
    if made is None and isinstance(owner, ast.Attribute):
        made = reader.func.attributes.get(owner.attr)
    source = made.node if made is not None else None
    if isinstance(source, ast.Call) and reader.full(source.func) == "deepspeed.initialize":
        reader.hit(
            "deepspeed-runtime",
            node,
            f"{written}.{func.attr}() is DeepSpeed's engine",
            cause="import deepspeed",
        )


def base_class(reader: Reader, node: ast.ClassDef) -> None:
    """A class built on a GPU package's class."""
    for base in node.bases:
        full = reader.full(base)
        rule, root = _resolved(reader, full) if full else ("", "")
        if rule and rule not in ("triton-kernel", "cuda-extension"):
            reader.hit(rule, base, f"{node.name} derives from {full}", cause=f"import {root}")


def register(found: Detectors) -> None:
    found.on_statement(ast.Import, ast.ImportFrom)(import_)
    found.on_statement(ast.ClassDef)(base_class)
    found.any_call.append(use)
