"""Assumptions about ranks, hosts and nodes: eight GPUs, one host, work on rank 0 alone."""

from __future__ import annotations

import ast
import re

from chipshift.audit import guards as g
from chipshift.audit.finding import TORCH
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import EVAL_NAME

NODE8 = "node8-topology"
SIZE_NAME = re.compile(
    r"(^|_)(n_?gpus?(_per_node)?|num_gpus?(_per_node)?|gpus(_per_(node|host|machine))?|nproc_per_node"
    r"|n?gpu_per_node|devices_per_(node|host)|tp|tp_size|tensor_parallel(_size)?|ep_size"
    r"|tensor_model_parallel_size|expert_parallel(_size|_degree)?|tensor_parallel_degree"
    r"|local_world_size|num_devices|n_devices|ngpu|world_size|procs_per_node)$",
    re.I,
)
MESH_NAME = re.compile(r"(mesh|ici|dcn)_?(shape|dims|size|axes_size)?$", re.I)


def accumulation(reader: Reader, node: ast.Assign | ast.AnnAssign) -> None:
    """gradient_accumulation_steps = 5 * 8 and sizes of nodes given as a number."""
    value = node.value
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        name = tail(target)
        if not name or value is None:
            continue
        if re.search(r"accum", name, re.I) and isinstance(value, ast.BinOp):
            if _eight(value.right) or _eight(value.left):
                places = _divisions(reader, name)
                reader.hit(
                    NODE8,
                    value,
                    "accumulation written for eight GPUs",
                    cause=f"accum {name}",
                    places=places,
                )
        elif SIZE_NAME.search(name) and _eight(value):
            reader.hit(NODE8, value, f"{name} is 8, a GPU node", cause=f"size {name}")
        elif MESH_NAME.search(name) and isinstance(value, ast.Tuple | ast.List):
            _mesh(reader, value, name)
        elif (
            isinstance(value, ast.Call)
            and tail(value.func) == "device_count"
            and (re.search(r"per_node|world_size|n_?gpus?|num_devices|nproc", name))
        ):
            _counted(reader, value, name)


def _counted(reader: Reader, value: ast.Call, name: str) -> None:
    full = reader.full(value.func)
    if full != "torch.cuda.device_count":
        return
    if "per_node" in name:
        reader.hit(NODE8, value, "GPUs of a node, counted by CUDA", targets=TORCH)
    else:
        reader.hit(
            "single-host-assumption",
            value,
            "the devices of one host are taken as all",
            targets=TORCH,
        )


def _eight(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 8 and type(node.value) is int


def _divisions(reader: Reader, name: str) -> list[int]:
    """Lines that ask whether the number divides by the world size."""
    return [
        one.lineno
        for one in walk(reader.tree)
        if isinstance(one, ast.Assert)
        and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mod)
            and tail(part.left) == name
            and "world" in text(part.right)
            for part in walk(one.test)
        )
    ]


def _mesh(reader: Reader, value: ast.Tuple | ast.List, name: str) -> None:
    numbers = [one.value for one in value.elts if isinstance(one, ast.Constant)]
    if len(numbers) != len(value.elts) or len(numbers) < 2 or -1 in numbers:
        return
    product = 1
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            return
        product *= number
    if product > 1:
        reader.hit(NODE8, value, f"{name} fixes {product} devices", cause=f"mesh {name}")


def size_keyword(reader: Reader, node: ast.Call, callee: str) -> None:
    """gpus_per_node=8, --nproc_per_node defaults, mesh shapes given as numbers."""
    for keyword in node.keywords:
        if keyword.arg and SIZE_NAME.search(keyword.arg) and _eight(keyword.value):
            reader.hit(NODE8, keyword, f"{keyword.arg} is 8, a GPU node")
    if tail(node.func) == "add_argument" and node.args and isinstance(node.args[0], ast.Constant):
        option = str(node.args[0].value).lstrip("-").replace("-", "_")
        for keyword in node.keywords:
            if keyword.arg == "default" and _eight(keyword.value) and SIZE_NAME.search(option):
                reader.hit(NODE8, keyword, f"--{option} is 8 by default, a GPU node")
    if tail(node.func) == "reshape" and isinstance(node.func, ast.Attribute):
        written = ast.unparse(node.func.value)
        if "jax.devices()" in written or "jax.local_devices()" in written:
            for argument in node.args:
                bound = reader.value(argument) if isinstance(argument, ast.Name) else argument
                if isinstance(bound, ast.Tuple) and all(
                    isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value > 0
                    for one in bound.elts
                ):
                    reader.hit(
                        NODE8,
                        node,
                        "the mesh is fixed for one number of devices",
                        cause="mesh MESH",
                    )


def modulo(reader: Reader, node: ast.BinOp) -> None:
    """rank // 8, rank % 8, world_size % 8."""
    if _eight(node.right) and re.search(
        r"(^|_|\.)(rank|world_size|RANK|WORLD_SIZE|global_rank)$", text(node.left)
    ):
        reader.hit(NODE8, node, "ranks are grouped by nodes of eight")


def make_mesh(reader: Reader, node: ast.Call, full: str) -> None:
    if not full.startswith("jax"):
        return
    shape = node.args[0] if node.args else None
    if (
        isinstance(shape, ast.Tuple)
        and any(_eight(one) for one in shape.elts)
        and not all(isinstance(one, ast.Constant) for one in shape.elts)
    ):
        reader.notes.setdefault("mesh8", []).append(node)


def hybrid(reader: Reader, node: ast.Attribute, full: str) -> None:
    if full.startswith("torch.distributed") and "Sharding" in full:
        reader.hit(
            NODE8, node, "sharding by node: the host is no boundary on a torus", targets=TORCH
        )


def hybrid_word(reader: Reader, node: ast.Constant, value: str) -> None:
    parent = reader.parent()
    if isinstance(parent, ast.keyword) and "shard" in (parent.arg or ""):
        reader.hit(
            NODE8, parent, "sharding by node: the host is no boundary on a torus", targets=TORCH
        )


def spawn(reader: Reader, node: ast.Call, full: str) -> None:
    if not (
        full.startswith("torch.multiprocessing") or text(node.func).startswith(("mp.", "xmp."))
    ):
        return
    for keyword in node.keywords:
        if keyword.arg != "nprocs":
            continue
        value: ast.expr | None = keyword.value
        if isinstance(value, ast.Name | ast.Attribute):
            value = reader.default(value)
        written = ast.unparse(value) if value is not None else ast.unparse(keyword.value)
        if "device_count" in written or re.search(r"gpu|world_size|nprocs|num_proc", written):
            reader.hit(
                "single-host-assumption",
                node,
                "spawns one process for each GPU of this host",
                targets=TORCH,
            )
        elif _eight(keyword.value):
            reader.hit(NODE8, keyword, "spawns eight processes")


def file_rendezvous(reader: Reader, node: ast.Call, full: str) -> None:
    for keyword in node.keywords:
        if keyword.arg == "init_method":
            bound = keyword.value
            if isinstance(bound, ast.Name):
                bound = reader.value(bound) or bound
            if "file://" in ast.unparse(bound):
                reader.hit(
                    "single-host-assumption",
                    keyword,
                    "a file rendezvous is for one host",
                    targets=TORCH,
                )


def pmap(reader: Reader, node: ast.AST, full: str) -> None:
    if full == "jax.pmap":
        reader.hit(
            "single-host-assumption",
            node,
            "pmap maps over this host's devices",
            severity="low",
            targets=("jax",),
            cause="pmap",
        )


def all_devices(reader: Reader, node: ast.Call, full: str) -> None:
    """jax.devices()[0] and batches divided by jax.device_count() on a host."""
    if full == "jax.devices" and isinstance(reader.parent(), ast.Subscript):
        parent = reader.parent()
        assert isinstance(parent, ast.Subscript)
        if isinstance(parent.slice, ast.Constant) and not node.args:
            return
    if full == "jax.device_count":
        for one in reader.parents[-2:]:
            if (
                isinstance(one, ast.BinOp)
                and isinstance(one.op, ast.FloorDiv)
                and "batch" in ast.unparse(one.left)
                and "process" not in reader.source
            ):
                reader.hit(
                    "single-host-assumption",
                    one,
                    "the batch of a host is worked from all devices",
                    targets=("jax",),
                )
                return


COMPUTE = re.compile(r"^(estimate_loss|forward|model|net|generate|sample|ema_model|net_ema)$")


def alone(reader: Reader, node: ast.If) -> None:
    """Device work under a test that only one rank passes."""
    if reader.has(g.RANK0) or g.RANK0 not in reader.branches.read(node.test):
        return
    if reader.func.role == "host":
        return
    first = _device_work(reader, node.body)
    if first is None:
        return
    evaluated, line = first
    places = [line] if evaluated and line != node.lineno else []
    reader.hit(
        "rank-divergent-compute",
        node.test,
        "only one rank runs this device work",
        severity=None if evaluated else "medium",
        confidence="sure" if evaluated else "likely",
        places=places,
        needs_step=not evaluated,
    )


def _device_work(reader: Reader, body: list[ast.stmt]) -> tuple[bool, int] | None:
    read: int | None = None
    for statement in body:
        for one in walk(statement):
            if not isinstance(one, ast.Call):
                continue
            name = tail(one.func)
            module = isinstance(one.func, ast.Name | ast.Attribute) and (
                reader.kind(one.func) == "module" and name not in ("eval", "train")
            )
            if COMPUTE.match(name) or module:
                return True, one.lineno
            full = reader.full(one.func)
            runs = re.search(r"(^|\.)(val|validate|evaluator|validator|tester)\.", text(one.func))
            if runs and name in ("run", "evaluate", "validate", "test"):
                return True, one.lineno
            evaluates = re.match(
                r"(run_|do_|_)?(evaluate?|validate?|validation|eval_model|sample_images|generate"
                r"|log_validation|test)(_|$)",
                name,
            )
            if (
                evaluates
                and EVAL_NAME.search(name)
                and not full.startswith(("os.", "numpy"))
                and (one.args or one.keywords or isinstance(one.func, ast.Name))
            ):
                return True, one.lineno
            if (
                name == "item"
                and isinstance(one.func, ast.Attribute)
                and read is None
                and reader.kind(one.func.value) not in ("numpy", "host", "hostmask")
            ):
                read = one.lineno
    return (False, read) if read is not None else None


def register(found: Detectors) -> None:
    found.on_statement(ast.Assign, ast.AnnAssign)(accumulation)
    found.any_call.append(size_keyword)
    found.on_call("add_argument reshape")(
        lambda reader, node, full: size_keyword(reader, node, full)
    )
    found.operators.setdefault(ast.Mod, []).append(modulo)
    found.operators.setdefault(ast.FloorDiv, []).append(modulo)
    found.on_call("make_mesh")(make_mesh)
    found.on_attribute("HYBRID_SHARD _HYBRID_SHARD_ZERO2")(hybrid)
    found.on_string("hybrid_shard")(hybrid_word)
    found.on_call("spawn")(spawn)
    found.on_call("init_process_group")(file_rendezvous)
    found.on_call("pmap")(pmap)
    found.on_attribute("pmap")(lambda reader, node, full: _decorator_pmap(reader, node, full))
    found.on_call("devices device_count")(all_devices)
    found.on_statement(ast.If)(alone)


def _decorator_pmap(reader: Reader, node: ast.Attribute, full: str) -> None:
    parent = reader.parent()
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    pmap(reader, node, full)
