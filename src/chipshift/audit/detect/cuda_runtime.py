"""The CUDA runtime: streams, graphs, memory, device facts, environment, random state."""

from __future__ import annotations

import ast
import re

from chipshift.audit.finding import TORCH
from chipshift.audit.kinds import ARRAY
from chipshift.audit.names import tail, text, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

RAISING_MEMORY = words(
    """reset_peak_memory_stats mem_get_info set_per_process_memory_fraction memory_snapshot
    reset_max_memory_allocated"""
)
PEAKS = frozenset(
    {
        312e12,
        624e12,
        989e12,
        989.4e12,
        989.5e12,
        1979e12,
        19.5e12,
        125e12,
        156e12,
        67e12,
        835e12,
        494.5e12,
        2250e12,
        4500e12,
        1.307e15,
        142e12,
        82.58e12,
        165.2e12,
        71e12,
        149.7e12,
        362e12,
        378e12,
        756e12,
        1513e12,
        148e12,
        31.2e12,
    }
)


def stream(reader: Reader, node: ast.Call, full: str) -> None:
    if not full.startswith("torch.cuda."):
        return
    name = tail(node.func)
    if name == "Event":
        for one in getattr(reader.parent(), "targets", ()):
            reader.notes.setdefault("events", []).append(ast.Name(tail(one), ast.Load()))
        reader.hit(
            "cuda-stream-event",
            node,
            "a CUDA event: recording it raises",
            severity="medium",
            targets=TORCH,
            cause="events",
        )
        return
    reader.hit(
        "cuda-stream-event",
        node,
        f"torch.cuda.{name}() raises without an NVIDIA driver",
        targets=TORCH,
        raises=True,
    )


def stream_method(reader: Reader, node: ast.Call, full: str) -> None:
    if full or not isinstance(node.func, ast.Attribute):
        return
    if re.search(r"\b(npu|xpu|hpu|mlu|musa|xm)\b", ast.unparse(node.func.value)):
        return
    reader.hit(
        "cuda-stream-event", node, f".{node.func.attr}() belongs to CUDA streams", targets=TORCH
    )


def recorded(reader: Reader, node: ast.Call, full: str) -> None:
    """``event.record()`` of an event made by torch.cuda.Event."""
    if not isinstance(node.func, ast.Attribute):
        return
    bound = reader.value(node.func.value)
    named = tail(node.func.value) in {
        one.id for one in reader.notes.get("events", []) if isinstance(one, ast.Name)
    }
    if named or (isinstance(bound, ast.Call) and reader.full(bound.func) == "torch.cuda.Event"):
        reader.hit(
            "cuda-stream-event",
            node,
            f"event.{node.func.attr}() raises without a driver",
            targets=TORCH,
            cause="events",
            raises=True,
        )


def graph(reader: Reader, node: ast.Call, full: str) -> None:
    if full in ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"):
        reader.hit(
            "cuda-graph", node, f"{full} captures a CUDA graph", targets=TORCH, cause="graph"
        )


def memory(reader: Reader, node: ast.Call, full: str) -> None:
    if not full.startswith("torch.cuda."):
        return
    name = tail(node.func)
    raising = name in RAISING_MEMORY
    if not raising and (reader.within(ast.JoinedStr) or _printed(reader)):
        return
    reader.hit(
        "cuda-memory-api",
        node,
        f"torch.cuda.{name}() "
        + ("raises without a driver" if raising else "reads 0 or does nothing"),
        severity="blocker" if raising else None,
        targets=TORCH,
        raises=raising,
    )


def _printed(reader: Reader) -> bool:
    return any(
        isinstance(one, ast.Call) and tail(one.func) in ("print", "format", "info", "debug")
        for one in reader.parents
    )


def pinned_flag(reader: Reader, node: ast.Call, full: str) -> None:
    for keyword in node.keywords:
        if keyword.arg == "pin_memory":
            value: ast.expr | None = keyword.value
            if not isinstance(value, ast.Constant):
                value = reader.default(keyword.value)
            if isinstance(value, ast.Constant) and value.value is True:
                reader.hit(
                    "pin-memory", keyword, "pin_memory=True only warns without CUDA", targets=TORCH
                )


def pinned(reader: Reader, node: ast.Call, full: str) -> None:
    if not isinstance(node.func, ast.Attribute) or full.startswith("numba"):
        return
    guarded = reader.has("cuda")
    reader.hit(
        "pin-memory",
        node,
        "Tensor.pin_memory() raises without an NVIDIA driver",
        severity="low" if guarded else "blocker",
        targets=TORCH,
        raises=not guarded,
        anyway=guarded and reader.kind(node.func.value) in ARRAY and not reader.dead,
    )


def arch(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if not full.startswith("torch.cuda."):
        return
    if name == "is_bf16_supported":
        if any(isinstance(one, ast.IfExp) for one in reader.parents):
            return
        if isinstance(reader.parent(), ast.JoinedStr):
            return
        reader.hit(
            "gpu-arch-check", node, "is_bf16_supported() says False without CUDA", targets=TORCH
        )
        return
    if _printed(reader) and name == "get_device_name":
        reader.hit("gpu-arch-check", node, f"{name}() raises without a driver", targets=TORCH)
        return
    reader.hit(
        "gpu-arch-check",
        node,
        f"torch.cuda.{name}() raises without an NVIDIA driver",
        severity="blocker",
        targets=TORCH,
        raises=True,
    )


def capability(reader: Reader, node: ast.Attribute, full: str) -> None:
    """The compute capability of a JAX device."""
    if reader.facts.uses_jax and not full:
        reader.hit(
            "gpu-arch-check", node, "a TPU device has no compute capability", targets=("jax",)
        )


def peak_number(reader: Reader, node: ast.Constant, value: float) -> None:
    if value in PEAKS and "TPU" not in reader.source:
        reader.hit(
            "hardcoded-gpu-peak",
            node,
            f"{value:g} FLOP/s is a GPU's peak",
            cause=f"peaks {reader.func.name}",
        )


def peak_call(reader: Reader, node: ast.Call, full: str) -> None:
    reader.hit("hardcoded-gpu-peak", node, "the peak of a GPU is looked up")


def cudnn(reader: Reader, node: ast.Assign) -> None:
    for target in node.targets:
        full = reader.full(target) if isinstance(target, ast.Attribute) else ""
        written = full or text(target)
        if not full and not written.startswith("torch.backends."):
            continue
        if ".cudnn." in written or written.startswith("cudnn."):
            if written.endswith("allow_tf32"):
                continue
            reader.hit("cudnn-flag", target, f"{written} has no effect off CUDA", severity="low")


def deterministic(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith("torch."):
        reader.hit("cudnn-flag", node, "use_deterministic_algorithms is a CUDA matter")


def environment(reader: Reader, node: ast.Constant, value: str) -> None:
    """CUDA variables read or set through os.environ; XLA_FLAGS with GPU options."""
    parent = reader.parent()
    outer = reader.parent(2)
    used = isinstance(parent, ast.Subscript) and text(parent.value).endswith("environ")
    if isinstance(parent, ast.Call):
        called = text(parent.func)
        used = called.endswith(
            ("environ.get", "environ.setdefault", "getenv", "environ.pop", "putenv")
        )
    if isinstance(parent, ast.Dict) and node in parent.keys:
        used = "env" in text(getattr(outer, "func", None)) or "env" in "".join(
            text(one) for one in getattr(outer, "targets", ())
        )
    if not used:
        return
    rule = "cudnn-flag" if value == "CUBLAS_WORKSPACE_CONFIG" else "cuda-env"
    if value == "NVIDIA_TF32_OVERRIDE":
        rule = "tf32-flag"
    reader.hit(rule, node, f"{value} is ignored off CUDA")


def xla_flags(reader: Reader, node: ast.Constant, value: str) -> None:
    for one in reader.parents[-3:]:
        found = ast.unparse(one) if isinstance(one, ast.stmt | ast.Call) else ""
        if "xla_gpu" in found:
            reader.hit("jax-gpu-kernel", node, "XLA_FLAGS with GPU options do nothing on TPU")
            return


def seeded(reader: Reader, node: ast.Call, full: str) -> None:
    if not full.startswith("torch.cuda."):
        return
    name = tail(node.func)
    harmless = name in ("manual_seed", "manual_seed_all", "seed", "seed_all")
    reader.hit(
        "cuda-rng",
        node,
        f"torch.cuda.{name}() "
        + ("seeds nothing off CUDA" if harmless else "raises without a driver"),
        severity="low" if harmless else "blocker",
        targets=TORCH,
        raises=not harmless,
    )


def generator(reader: Reader, node: ast.Call, full: str) -> None:
    if full != "torch.Generator":
        return
    for value in [*node.args, *(k.value for k in node.keywords if k.arg == "device")]:
        if isinstance(value, ast.Constant) and str(value.value).startswith("cuda"):
            reader.hit(
                "cuda-rng",
                node,
                "a random generator on CUDA",
                severity="blocker",
                targets=TORCH,
                raises=True,
            )


def tracker(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    reader.hit("cuda-rng", node, f"{name} keeps CUDA random states", targets=TORCH)


def tracker_class(reader: Reader, node: ast.ClassDef) -> None:
    if re.match(r"Cuda\w*R(NG|ng)", node.name):
        reader.hit("cuda-rng", node, f"{node.name} keeps CUDA random states", targets=TORCH)
        reader.facts.hazards[-1].end_line = node.lineno


def register(found: Detectors) -> None:
    found.on_call("Stream stream current_stream default_stream synchronize Event ExternalStream")(
        stream
    )
    found.on_call("wait_stream record_stream")(stream_method)
    found.on_call("record wait elapsed_time synchronize")(recorded)
    found.on_call("CUDAGraph graph make_graphed_callables")(graph)
    found.on_call(
        "empty_cache memory_allocated memory_reserved max_memory_allocated max_memory_reserved "
        "reset_peak_memory_stats mem_get_info memory_summary memory_stats ipc_collect "
        "set_per_process_memory_fraction memory_cached max_memory_cached memory_snapshot "
        "reset_max_memory_allocated reset_accumulated_memory_stats"
    )(memory)
    found.on_call("DataLoader")(pinned_flag)
    found.on_call("pin_memory")(pinned)
    found.on_call("get_device_capability get_device_properties get_device_name is_bf16_supported")(
        arch
    )
    found.on_attribute("compute_capability")(capability)
    found.numbers.append(peak_number)
    found.on_call("get_gpu_peak_flops get_peak_flops_gpu")(peak_call)
    found.on_statement(ast.Assign)(cudnn)
    found.on_call("use_deterministic_algorithms")(deterministic)
    found.on_string(
        "cuda_visible_devices cuda_launch_blocking torch_cuda_arch_list nccl_p2p_disable "
        "pytorch_cuda_alloc_conf nccl_debug nccl_ib_disable nccl_socket_ifname nccl_blocking_wait "
        "nccl_async_error_handling torch_nccl_async_error_handling torch_nccl_blocking_wait "
        "cuda_device_max_connections cublas_workspace_config nvidia_tf32_override nccl_ib_timeout "
        "xla_python_client_mem_fraction xla_python_client_preallocate cuda_device_order "
        "nccl_timeout nccl_algo nccl_proto pytorch_alloc_conf tf_cudnn_deterministic"
    )(environment)
    found.on_string("xla_flags")(xla_flags)
    found.on_call(
        "manual_seed manual_seed_all seed_all get_rng_state set_rng_state get_rng_state_all "
        "set_rng_state_all"
    )(seeded)
    found.on_call("Generator")(generator)
    found.on_call("get_cuda_rng_tracker CudaRNGStatesTracker model_parallel_cuda_manual_seed")(
        tracker
    )
    found.on_statement(ast.ClassDef)(tracker_class)
