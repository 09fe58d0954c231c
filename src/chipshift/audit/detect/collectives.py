"""Process groups, eager collectives, wrappers and point-to-point traffic."""

from __future__ import annotations

import ast
import re

from chipshift.audit import guards as g
from chipshift.audit.finding import TORCH
from chipshift.audit.names import tail, text, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

NCCL = "nccl-backend"


def nccl_word(reader: Reader, node: ast.Constant, value: str) -> None:
    """ "nccl" as a backend: assigned, given, a default, or a value of a table."""
    if reader.within(ast.Compare):
        return
    parent = reader.parent()
    if isinstance(
        parent, ast.List | ast.Set | ast.Tuple | ast.JoinedStr | ast.Expr | ast.Subscript
    ):
        return
    if isinstance(parent, ast.Dict) and node in parent.keys:
        return
    if isinstance(parent, ast.keyword) and not _backend_keyword(parent.arg or ""):
        return
    here: ast.AST = node
    if isinstance(parent, ast.keyword) and parent.arg != "default":
        here = parent
    choice = isinstance(parent, ast.IfExp)
    if "default_device_backend_map" in reader.source and isinstance(parent, ast.Assign):
        return
    if isinstance(parent, ast.Call) and tail(parent.func) == "init_process_group":
        here = parent
    if isinstance(parent, ast.keyword):
        outer = reader.parent(2)
        if isinstance(outer, ast.Call) and tail(outer.func) == "init_process_group":
            here = outer
    reader.hit(
        NCCL,
        here,
        "the process group is NCCL",
        cause="nccl",
        targets=TORCH,
        raises=True,
        severity="medium" if choice else None,
        anyway=choice and not reader.has(g.NEVER),
    )
    reader.notes.setdefault("nccl", []).append(here)


def _backend_keyword(name: str) -> bool:
    """Whether a keyword of this name carries a backend: ``default`` is an option's own value."""
    return name in ("default", "value") or "backend" in name


def started(reader: Reader, node: ast.Call, full: str) -> None:
    """init_process_group whose backend is NCCL by default or through a name."""
    if full and not full.startswith(("torch.distributed", "torch.distributed.")):
        return
    backend = node.args[0] if node.args else None
    for keyword in node.keywords:
        if keyword.arg == "backend":
            backend = keyword.value
    if backend is None and any(keyword.arg is None for keyword in node.keywords):
        return
    if isinstance(backend, ast.Constant):
        if isinstance(backend.value, str):
            return
        backend = None
    bound = reader.default(backend) if backend is not None else None
    if isinstance(backend, ast.Call):
        return
    if isinstance(bound, ast.Constant) and bound.value not in ("nccl", None):
        return
    if isinstance(bound, ast.IfExp) and "nccl" not in ast.unparse(bound):
        return
    unknown = backend is not None and bound is None
    if unknown and not reader.notes.get("nccl"):
        reader.hit(
            NCCL,
            node,
            "the backend comes from an option; it must name the target's",
            cause="nccl",
            targets=TORCH,
            raises=True,
            confidence="possible",
            severity="medium",
        )
        return
    reader.hit(
        NCCL, node, "init_process_group takes NCCL", cause="nccl", targets=TORCH, raises=True
    )


IMPORTED = frozenset(
    {"nccl-backend", "ddp-wrapper", "fp16-gradscaler", "cuda-autocast", "activation-checkpoint"}
)
"""Rules whose edit includes the import of the name that is called."""


def attach_imports(reader: Reader) -> None:
    """The line that imports a name is a place of the finding on its calls."""
    lines = {one.local: one for one in reader.outline.imports}
    seen: set[tuple[str, str, int]] = set()
    for note in reader.notes.get("named calls", []):
        if not (isinstance(note, ast.Call) and isinstance(note.func, ast.Name)):
            continue
        one = lines.get(note.func.id)
        if one is None or not one.dotted.startswith(("torch.", "torch_xla.")):
            continue
        for hazard in list(reader.facts.hazards):
            if hazard.line != note.lineno or hazard.rule not in IMPORTED:
                continue
            key = (hazard.rule, hazard.cause, one.line)
            if key not in seen and one.line != hazard.line:
                seen.add(key)
                hazard.places.append(one.line)


def note_call(reader: Reader, node: ast.Call, full: str) -> None:
    if isinstance(node.func, ast.Name):
        reader.notes.setdefault("named calls", []).append(node)


def options(reader: Reader, node: ast.Attribute, full: str) -> None:
    if full.endswith(("ProcessGroupNCCL.Options", "distributed.ProcessGroupNCCL")):
        reader.hit(NCCL, node, "options of an NCCL group", cause="nccl", targets=TORCH)


def gloo_default(reader: Reader, node: ast.Call, full: str) -> None:
    """A device table whose default is gloo: another device gets gloo in silence."""
    if not isinstance(node.func, ast.Attribute) or len(node.args) != 2:
        return
    last = node.args[1]
    if isinstance(last, ast.Constant) and last.value == "gloo":
        bound = reader.value(node.func.value)
        if isinstance(bound, ast.Dict) and "nccl" in ast.unparse(bound):
            reader.hit(
                NCCL,
                node,
                "a device outside the table gets gloo",
                cause="nccl",
                targets=TORCH,
                severity="high",
            )


COLLECTIVES = (
    "all_reduce all_gather all_gather_into_tensor reduce broadcast gather scatter barrier "
    "reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single all_gather_object "
    "gather_object broadcast_object_list scatter_object_list monitored_barrier all_reduce_coalesced"
    " _all_gather_base _reduce_scatter_base"
)
OBJECTS = words("""all_gather_object gather_object broadcast_object_list scatter_object_list""")


def collective(reader: Reader, node: ast.Call, full: str) -> None:
    if not full.startswith("torch.distributed.") or full.count(".") > 3:
        return
    if reader.has(g.DIST):
        return
    name = tail(node.func)
    splits = name in ("all_to_all_single", "all_to_all") and (
        len(node.args) > 2 or any("split" in (keyword.arg or "") for keyword in node.keywords)
    )
    if name == "barrier" and reader.has(g.RANK0, f"-{g.RANK0}") and reader.func.role != "step":
        severity = "low"
    elif name in OBJECTS or splits:
        severity = "high"
    else:
        severity = "low" if name == "barrier" else ""
    reader.hit(
        "eager-collective",
        node,
        f"torch.distributed.{name} outside the compiled step",
        targets=TORCH,
        severity=severity or None,  # type: ignore[arg-type]
    )


def accelerate_gather(reader: Reader, node: ast.Call, full: str) -> None:
    if isinstance(node.func, ast.Attribute) and not full:
        owner = text(node.func.value)
        if re.search(r"(^|\.)accelerator$", owner):
            reader.hit(
                "eager-collective",
                node,
                f"accelerator.{node.func.attr}() is a collective",
                needs_step=True,
                targets=TORCH,
            )
        elif re.search(r"fabric$", owner) and node.func.attr in ("all_reduce", "all_gather"):
            reader.hit(
                "eager-collective",
                node,
                f"fabric.{node.func.attr}() is a collective",
                needs_step=True,
                targets=TORCH,
            )


def sync_norm(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith("torch.") or not full:
        reader.hit(
            "eager-collective",
            node,
            "SyncBatchNorm runs CUDA collectives in the forward",
            targets=TORCH,
        )


def no_sync(reader: Reader, node: ast.Call, full: str) -> None:
    if isinstance(node.func, ast.Attribute) and not full:
        reader.hit(
            "eager-collective",
            node,
            "no_sync() belongs to the DDP wrapper",
            targets=TORCH,
            confidence="likely",
        )


def wrapper(reader: Reader, node: ast.Call, full: str) -> None:
    """DDP, DataParallel and FSDP with arguments that name CUDA devices."""
    name = full.rsplit(".", 1)[-1] if full else tail(node.func)
    keywords = {one.arg: one for one in node.keywords}
    if name in ("DistributedDataParallel", "DDP"):
        if full and "torch" not in full:
            return
        ids = keywords.get("device_ids")
        none = ids is not None and isinstance(ids.value, ast.Constant) and ids.value.value is None
        if (ids is not None and not none) or "output_device" in keywords:
            reader.hit(
                "ddp-wrapper",
                node,
                "DDP with device_ids is refused off CUDA",
                cause="ddp",
                targets=TORCH,
                raises=True,
            )
        elif "find_unused_parameters" in keywords or "broadcast_buffers" in keywords or ids is None:
            reader.hit(
                "ddp-wrapper",
                node,
                "DDP's hooks and buckets are not the target's way",
                cause="ddp",
                targets=TORCH,
                severity="medium",
                confidence="likely",
            )
        _ungrouped(reader, node)
    elif name == "DataParallel" and (not full or full.startswith("torch.nn")):
        reader.hit(
            "ddp-wrapper",
            node,
            "DataParallel splits nothing without CUDA",
            targets=TORCH,
            severity="high",
        )
    elif name in ("FullyShardedDataParallel", "FSDP") and "device_id" in keywords:
        if full and not full.startswith("torch.distributed"):
            return
        reader.hit(
            "ddp-wrapper",
            node,
            "FSDP pinned to a CUDA device",
            cause="fsdp",
            targets=TORCH,
            raises=True,
        )


def _ungrouped(reader: Reader, node: ast.Call) -> None:
    """DDP in a program launched by torch_xla that never starts a process group."""
    if (
        reader.facts.uses_xla
        and "init_process_group" not in reader.source
        and re.search(r"\.launch\(|xmp\.spawn|xla_multiprocessing", reader.source)
    ):
        reader.hit(
            NCCL,
            node,
            "DDP without a process group of the device's backend",
            cause="nccl",
            targets=TORCH,
            raises=True,
        )


def grad_sync(reader: Reader, node: ast.Assign) -> None:
    for target in node.targets:
        if isinstance(target, ast.Attribute) and target.attr == "require_backward_grad_sync":
            reader.hit(
                "ddp-wrapper", node, "pokes a flag inside DDP", severity="low", targets=TORCH
            )


def send(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if full.startswith(("torch.distributed.", "torch_xla.")) or (
        name in ("batch_isend_irecv", "P2POp") and not full
    ):
        reader.hit(
            "async-p2p",
            node,
            f"{name}: point-to-point between separate programs",
            targets=TORCH,
            cause=f"p2p {reader.func.name}",
        )
    elif full.startswith("deepspeed.pipe") or full.endswith(
        ("Schedule1F1B", "ScheduleGPipe", "PipelineStage", "ScheduleInterleaved1F1B")
    ):
        reader.hit("async-p2p", node, f"{name}: a pipeline of separate programs", targets=TORCH)


def register(found: Detectors) -> None:
    found.on_string("nccl cpu:gloo,cuda:nccl")(nccl_word)
    found.on_call("init_process_group")(started)
    found.on_call(
        "init_process_group DistributedDataParallel DataParallel GradScaler autocast checkpoint "
        "FullyShardedDataParallel checkpoint_sequential"
    )(note_call)
    found.finish.append(attach_imports)
    found.on_attribute("Options")(options)
    found.on_call("get")(gloo_default)
    found.on_call(COLLECTIVES)(collective)
    found.on_call("gather gather_for_metrics reduce all_reduce all_gather")(accelerate_gather)
    found.on_call("SyncBatchNorm convert_sync_batchnorm")(sync_norm)
    found.on_call("no_sync")(no_sync)
    found.on_call("DistributedDataParallel DDP DataParallel FullyShardedDataParallel FSDP")(wrapper)
    found.on_statement(ast.Assign)(grad_sync)
    found.on_call(
        "isend irecv P2POp batch_isend_irecv send recv PipelineModule Schedule1F1B ScheduleGPipe "
        "PipelineStage ScheduleInterleaved1F1B"
    )(send)
