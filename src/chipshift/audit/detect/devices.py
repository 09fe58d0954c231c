"""Which device code asks for: CUDA pinned by hand, or the CPU picked in silence."""

from __future__ import annotations

import ast
import re

from chipshift.audit import guards as g
from chipshift.audit.finding import TORCH, Target
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.syntax import DEFS

STRINGS: tuple[Target, ...] = ("torchtpu", "torch_xla", "neuron")
"""torchax alone takes the strings for its own device."""
PIN = "cuda-device-pin"
FALLBACK = "cuda-available-fallback"


def moved(reader: Reader, node: ast.Call, full: str) -> None:
    """``x.cuda()``."""
    if not isinstance(node.func, ast.Attribute) or full.startswith(("torch.version", "jax")):
        return
    if text(node.func.value) in ("torch.version", "numba"):
        return
    if reader.has(g.CUDA):
        return
    reader.hit(PIN, node, ".cuda() needs an NVIDIA driver", targets=TORCH, raises=True)


def cuda_call(reader: Reader, node: ast.Call, full: str) -> None:
    """torch.cuda.set_device and its like."""
    if not full.startswith("torch.cuda."):
        return
    name = tail(node.func)
    if name == "current_device":
        parent = reader.parent()
        if isinstance(parent, ast.keyword) and parent.arg == "device_id":
            return
    cause, places = _rank_cause(reader, node.args[0] if node.args else None)
    del cause
    reader.hit(
        PIN,
        node,
        f"torch.cuda.{name}() raises without an NVIDIA driver",
        targets=TORCH,
        raises=True,
        places=places if name == "set_device" else (),
    )


def typed_tensor(reader: Reader, node: ast.Attribute, full: str) -> None:
    if full.startswith("torch.cuda.") and full.endswith("Tensor"):
        reader.hit(PIN, node, f"{full} lives on CUDA", targets=TORCH, raises=True)


def _rank_cause(reader: Reader, node: ast.expr | None) -> tuple[str, list[int]]:
    """The line that reads the local rank which a device string is built from."""
    places: list[int] = []
    for one in walk(node) if node is not None else ():
        if isinstance(one, ast.Name):
            binding = reader.func.scope.find(one.id)
            if binding is None or binding.how != "value" or binding.node is None:
                continue
            source = binding.node
            if any(
                isinstance(part, ast.Constant) and part.value == "LOCAL_RANK"
                for part in walk(source)
            ):
                places.append(source.lineno)
    return "rank", places


def formatted(reader: Reader, node: ast.JoinedStr) -> None:
    """``f"cuda:{rank}"`` (called from the string detector through its first part)."""
    _, places = _rank_cause(reader, node)
    reader.hit(
        PIN, node, "a device string built for CUDA", targets=STRINGS, places=places, raises=True
    )


def word(reader: Reader, node: ast.Constant, value: str) -> None:
    """The string ``"cuda"`` as an argument, a default or an assigned value."""
    if value not in ("cuda", "cuda:0") and not re.match(r"^cuda:\d*$", value):
        return
    parent = reader.parent()
    if isinstance(parent, ast.JoinedStr):
        if parent.values and parent.values[0] is node and value.startswith("cuda"):
            formatted(reader, parent)
        return
    if isinstance(parent, ast.BinOp):
        if isinstance(parent.op, ast.Add) and parent.left is node:
            _, places = _rank_cause(reader, parent)
            reader.hit(
                PIN,
                parent,
                "a device string built for CUDA",
                targets=STRINGS,
                places=places,
                raises=True,
            )
        return
    if reader.within(ast.Compare) or isinstance(parent, ast.List | ast.Set | ast.Subscript):
        return
    if isinstance(parent, ast.IfExp):
        return
    if isinstance(parent, ast.Dict | ast.Expr):
        return
    _word_in(reader, node, value, parent)


DEVICE_ARGUMENT = re.compile(r"(^|_)(device|dev|map_location|device_type|accelerator|backend)s?$")


def _word_in(reader: Reader, node: ast.Constant, value: str, parent: ast.AST | None) -> None:
    if isinstance(parent, ast.keyword):
        outer = reader.parent(2)
        called = tail(outer.func) if isinstance(outer, ast.Call) else ""
        if parent.arg in ("device_type", "device_types") or called in ("custom_fwd", "custom_bwd"):
            return
        if parent.arg == "map_location" or called == "autocast":
            return
        if parent.arg == "device" and called == "Generator":
            return
        if parent.arg == "default":
            if not isinstance(outer, ast.Call) or not _device_option(outer):
                return
        elif not (parent.arg and DEVICE_ARGUMENT.search(parent.arg)):
            return
        _report(reader, node if called in ("add_argument", "field", "Field") else parent, value)
        return
    if isinstance(parent, ast.Call):
        called = tail(parent.func)
        if called in (
            "to",
            "device",
            "set_default_device",
            "init_device_mesh",
            "DeviceMesh",
            "Device",
            "set_default_tensor_type",
            "empty_like",
        ):
            _report(reader, parent, value)
        elif called in ("get", "getattr", "pop", "setdefault") and len(parent.args) > 1:
            first = parent.args[0] if called != "getattr" else parent.args[1]
            if isinstance(first, ast.Constant) and "device" in str(first.value):
                _report(reader, node, value)
        return
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        if any(DEVICE_ARGUMENT.search(tail(one).lower()) for one in targets):
            _report(reader, node, value)
        return
    if isinstance(parent, DEFS) and not reader.dead:
        names = _default_of(parent, node)
        if names and DEVICE_ARGUMENT.search(names):
            reader.hit(PIN, node, f"the default device is {value!r}", targets=STRINGS, raises=True)


def _default_of(function: ast.AST, node: ast.expr) -> str:
    assert isinstance(function, DEFS)
    arguments = [*function.args.posonlyargs, *function.args.args]
    for argument, value in zip(
        arguments[len(arguments) - len(function.args.defaults) :],
        function.args.defaults,
        strict=True,
    ):
        if value is node:
            return argument.arg
    for argument, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if given is node:
            return argument.arg
    return ""


def _device_option(node: ast.Call) -> bool:
    for one in node.args:
        if isinstance(one, ast.Constant) and "device" in str(one.value):
            return True
    return tail(node.func) in ("field", "Field")


def _report(reader: Reader, node: ast.AST, value: str) -> None:
    reader.hit(PIN, node, f"the device is {value!r}", targets=STRINGS, raises=True)


def auto_map(reader: Reader, node: ast.Constant, value: str) -> None:
    parent = reader.parent()
    if isinstance(parent, ast.keyword) and parent.arg == "device_map":
        reader.hit(PIN, parent, 'device_map="auto" places layers on GPUs', targets=TORCH)


def _asks_cuda(reader: Reader, test: ast.expr) -> bool:
    return g.CUDA in reader.branches.read(test)


def _words(node: ast.expr) -> set[str]:
    return {
        str(one.value).split(":")[0]
        for one in walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def picked(reader: Reader, node: ast.IfExp) -> None:
    """``"cuda" if torch.cuda.is_available() else "cpu"`` and the dtype picked the same way."""
    guards = reader.branches.read(node.test)
    test = ast.unparse(node.test)
    body, orelse = node.body, node.orelse
    if f"-{g.CUDA}" in guards:
        body, orelse = orelse, body
    elif g.CUDA not in guards:
        return
    words, others = _words(body), _words(orelse)
    if "bf16" in test:
        if reader.within(ast.Assert):
            return
        reader.hit(
            FALLBACK, node, "the dtype falls back to fp16 where CUDA is not there", targets=TORCH
        )
        return
    if words & {"cuda", "gpu"} and ("cpu" in others or "mps" in others):
        if "available" not in test and re.search(r"in |startswith|==", test):
            reader.hit(
                "cuda-autocast",
                node,
                "every device that is not CUDA becomes 'cpu', and autocast does nothing",
                cause="autocast",
                targets=TORCH,
            )
            return
        reader.hit(FALLBACK, node, "without CUDA the job runs on the host CPU", targets=TORCH)
    elif "nccl" in words:
        return
    elif isinstance(orelse, ast.Call) and tail(body) in ("FloatTensor", "LongTensor"):
        reader.hit(FALLBACK, node, "without CUDA tensors are made on the host", targets=TORCH)


def branch(reader: Reader, node: ast.If) -> None:
    """An ``if`` on CUDA whose other branch is the CPU, or that has none."""
    guards = reader.branches.read(node.test)
    if g.CUDA not in guards and f"-{g.CUDA}" not in guards:
        return
    if "available" not in ast.unparse(node.test) and not reader.has("choice"):
        written = ast.unparse(node.test)
        if not re.search(r"cuda|gpu", written):
            return
    yes, no = (node.body, node.orelse) if g.CUDA in guards else (node.orelse, node.body)
    cpu = any(_sets_device(one, "cpu") for one in no)
    cuda = any(_sets_device(one, "cuda") for one in yes)
    if cpu and cuda:
        reader.hit(FALLBACK, node.test, "without CUDA the job runs on the host CPU", targets=TORCH)
        return
    if not no and any(_moves(one) for one in yes):
        reader.hit(
            FALLBACK,
            node.test,
            "without CUDA nothing is moved: it stays on the host CPU",
            targets=TORCH,
        )
    elif no and g.CUDA not in guards and any(isinstance(one, ast.Raise) for one in no):
        if reader.mentions(".is_cuda") and ".is_cuda" in ast.unparse(node.test):
            flash = any(root.startswith("flash_attn") for root in reader.aliases.values())
            rule = "flash-attn-kernel" if flash else PIN
            reader.hit(rule, node.test, "refuses tensors that are not on CUDA", targets=TORCH)
            return
        reader.hit(FALLBACK, node.test, "stops where there is no CUDA", targets=TORCH, raises=True)


def _sets_device(node: ast.stmt, wanted: str) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    return wanted in _words(node.value) and not isinstance(node.value, ast.IfExp)


def _moves(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.Expr):
        return False
    for one in walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            if one.func.attr == "cuda" and "torch" not in text(one.func.value):
                return True
            if one.func.attr == "to" and one.args and _words(one.args[0]) & {"cuda"}:
                return True
    return False


def asserted(reader: Reader, node: ast.Assert) -> None:
    if reader.mentions("cuda.device_count") and "cuda.device_count" in ast.unparse(node.test):
        reader.hit(
            FALLBACK, node.test, "asserts that there are CUDA devices", targets=TORCH, raises=True
        )
        return
    if _asks_cuda(reader, node.test) and "available" in ast.unparse(node.test):
        reader.hit(FALLBACK, node.test, "asserts that CUDA is there", targets=TORCH, raises=True)


def flagged(reader: Reader, node: ast.Assign) -> None:
    """``args.cuda = not args.no_cuda and torch.cuda.is_available()``."""
    value = node.value
    if isinstance(value, ast.BoolOp | ast.Call) and _asks_cuda(reader, value):
        written = ast.unparse(value)
        if "cuda.is_available" not in written:
            return
        names = " ".join(text(one) for one in node.targets)
        about = re.search(r"(^|\.|_)(cuda|use_cuda|use_gpu|gpu|on_gpu)$", names)
        if isinstance(value, ast.BoolOp) and about and "type" not in written:
            reader.hit(FALLBACK, value, "without CUDA the job runs on the host CPU", targets=TORCH)


def accelerator(reader: Reader, node: ast.Call, full: str) -> None:
    """``Accelerator()`` at module level, run without a launcher that starts the TPU."""
    if (
        full == "accelerate.Accelerator"
        and reader.func.node is None
        and not reader.guards
        and not node.args
        and not node.keywords
    ):
        reader.hit(
            FALLBACK,
            node,
            "Accelerator() takes the CPU unless it is launched for the TPU",
            targets=TORCH,
            confidence="likely",
        )


def jax_gpu(reader: Reader, node: ast.Call, full: str) -> None:
    """jax.devices("gpu") raises where there is none."""
    if full not in ("jax.devices", "jax.local_devices", "jax.device_count"):
        return
    for value in [*node.args, *(k.value for k in node.keywords if k.arg == "backend")]:
        if isinstance(value, ast.Constant) and value.value in ("gpu", "cuda"):
            reader.hit(PIN, node, f"{full}({value.value!r}) raises without a GPU", raises=True)


def open_clip_device(reader: Reader, node: ast.Call, full: str) -> None:
    """A helper known for choosing between CUDA and the CPU only, when it is not in the tree."""
    if not full and "init_distributed_device" not in reader.outline.functions:
        reader.hit(PIN, node, "gives cuda:<rank> or the CPU", targets=TORCH, confidence="possible")


def register(found: Detectors) -> None:
    found.on_call("devices local_devices device_count")(jax_gpu)
    found.on_call("init_distributed_device")(open_clip_device)
    found.on_call("cuda")(moved)
    found.on_call("set_device current_device device")(cuda_call)
    found.on_attribute(
        "FloatTensor LongTensor HalfTensor BoolTensor IntTensor ByteTensor DoubleTensor"
    )(typed_tensor)
    found.on_string("cuda")(word)
    found.on_string("auto")(auto_map)
    found.conditional.append(picked)
    found.on_statement(ast.If)(branch)
    found.on_statement(ast.Assert)(asserted)
    found.on_statement(ast.Assign)(flagged)
    found.on_call("Accelerator")(accelerator)
