"""Hand-written kernels: Triton, compiled extensions, autograd functions around them."""

from __future__ import annotations

import ast
import re

from chipshift.audit.names import tail, text, walk, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.syntax import DEFS

TRITON_DECORATORS = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})
PUBLIC_OPS = words(
    """aten prim torchvision quantized inductor c10d c10d_functional _c10d_functional prims
    higher_order torch_xla xla profiler load_library load_libraries loaded_libraries
    import_module fsdp tpu mkldnn mkldnn_prepacked rngprims _inductor_test script_ops
    debugprims"""
)


def triton_kernel(reader: Reader, node: ast.FunctionDef) -> None:
    """A kernel is reported at its first decorator; its def line is a place."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if reader.full(called) in TRITON_DECORATORS or text(called) in TRITON_DECORATORS:
            places = [one.lineno for one in node.decorator_list[1:]]
            places.append(node.lineno)
            reader.hit(
                "triton-kernel",
                node.decorator_list[0],
                f"{node.name} is a Triton kernel",
                cause=f"kernel {node.name}",
                places=[line for line in places if line != node.decorator_list[0].lineno],
            )
            reader.notes.setdefault("kernels", []).append(node)
            return
        if reader.full(called) == "numba.cuda.jit":
            reader.hit("cuda-extension", decorator, f"{node.name} is a numba CUDA kernel")
            return


def launched(reader: Reader, node: ast.Subscript) -> None:
    parent = reader.parent()
    if not (isinstance(parent, ast.Call) and parent.func is node):
        return
    name = tail(node.value)
    kernel = name in {one.name for one in reader.notes.get("kernels", []) if isinstance(one, DEFS)}
    if kernel or (reader.facts.imports.get("triton") and name.endswith("kernel")):
        cause = f"kernel {name}"
        reader.hit("triton-kernel", node, f"launches the Triton kernel {name}", cause=cause)
    reader.func.fact.kernel = reader.func.fact.kernel or ("triton-kernel" if kernel else "")


def extension(reader: Reader, node: ast.Call, full: str) -> None:
    """load, load_inline, CUDAExtension and the like."""
    name = tail(node.func)
    if full.startswith("torch.utils.cpp_extension.") or (
        name in ("load_inline", "CUDAExtension") and not full
    ):
        reader.hit(
            "cuda-extension",
            node,
            f"{name}() builds a CUDA extension",
            cause="cpp_extension",
            raises=reader.func.node is None,
        )
    elif name == "get_plugin" and "custom_ops" in text(node.func):
        reader.hit("cuda-extension", node, "get_plugin() compiles a CUDA plugin", cause="plugin")
    elif name == "RawKernel":
        reader.hit("cuda-extension", node, "a CUDA kernel given as text", cause="raw")
    elif name == "CDLL" and node.args and _shared_object(node.args[0]):
        reader.hit("cuda-extension", node, "loads a compiled library", confidence="possible")
    elif name == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
        module = node.args[0].value
        if isinstance(module, str) and re.search(r"(_cuda|_cuda_ext)$", module):
            reader.hit("cuda-extension", node, f"imports the extension {module}", raises=True)
    elif name == "custom_op" and full == "torch.library.custom_op":
        for keyword in node.keywords:
            if keyword.arg == "device_types" and _is_cuda(keyword.value):
                reader.hit("cuda-extension", keyword, "the op is registered for CUDA only")


def _is_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _shared_object(node: ast.expr) -> bool:
    return any(
        isinstance(one, ast.Constant)
        and isinstance(one.value, str)
        and re.search(r"(cuda|gpu).*\.so", one.value)
        for one in walk(node)
    )


def private_op(reader: Reader, node: ast.Call, callee: str) -> None:
    """torch.ops.<namespace>.<op>(...) of a private namespace."""
    if not callee.startswith("torch.ops."):
        return
    parts = callee.split(".")
    if len(parts) < 4 or parts[2] in PUBLIC_OPS:
        return
    rule = (
        "third-party-gpu-kernel"
        if parts[2] in ("symm_mem", "fbgemm", "torchao")
        else ("cuda-extension")
    )
    reader.hit(
        rule,
        node,
        f"torch.ops.{parts[2]}.{parts[3]} is a custom op of a private library",
        cause=f"ops {parts[2]}",
        confidence="likely",
    )


def cuda_apply(reader: Reader, node: ast.Call, full: str) -> None:
    """``UpFirDn2dCuda.apply(...)``: an autograd function named for CUDA."""
    if not isinstance(node.func, ast.Attribute):
        return
    owner = text(node.func.value).rsplit(".", 1)[-1]
    if re.search(r"(Cuda|CUDA)$", owner) and not reader.has("cuda"):
        reader.hit(
            "cuda-extension",
            node,
            f"{owner}.apply() takes the CUDA path for every device that is not the CPU",
        )


def autograd(reader: Reader) -> None:
    """The class line of an autograd.Function whose forward or backward calls a kernel."""
    found = {hazard.func: hazard.rule for hazard in reader.facts.hazards}
    kernels = {
        "flash-attn-kernel",
        "triton-kernel",
        "cuda-extension",
        "third-party-gpu-kernel",
        "transformer-engine",
        "xformers-op",
    }
    for name, node in reader.outline.classes.items():
        bases = {reader.full(base) or text(base) for base in node.bases}
        if not any(base.endswith("autograd.Function") or base == "Function" for base in bases):
            continue
        inside = {found.get(f"{name}.{method}", "") for method in ("forward", "backward", "setup")}
        custom = any(
            isinstance(one, DEFS)
            and any(
                isinstance(decorator, ast.Call)
                and tail(decorator.func) in ("custom_fwd", "custom_bwd")
                and any(_is_cuda(keyword.value) for keyword in decorator.keywords)
                for decorator in one.decorator_list
            )
            for one in node.body
        )
        if inside & kernels or custom:
            reader.hit(
                "custom-autograd-kernel",
                node,
                f"{name} wraps a device kernel in autograd by hand",
            )
            reader.facts.hazards[-1].end_line = node.lineno


def register(found: Detectors) -> None:
    found.on_statement(ast.FunctionDef)(triton_kernel)
    found.subscripts.append(launched)
    found.on_call(
        "load load_inline CUDAExtension get_plugin RawKernel CDLL import_module custom_op "
        "BuildExtension_"
    )(extension)
    found.any_call.append(private_op)
    found.on_call("apply")(cuda_apply)
    found.finish.append(autograd)
