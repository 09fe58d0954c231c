"""Number formats: fp16 and its loss scaler, autocast bound to CUDA, TF32, 64-bit floats."""

from __future__ import annotations

import ast
import re

from chipshift.audit import guards as g
from chipshift.audit.finding import TORCH
from chipshift.audit.kinds import HOST, HOST_MASK, NUMPY
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.syntax import DEFS

FP16 = "fp16-cast"


def half_call(reader: Reader, node: ast.Call, full: str) -> None:
    """``x.half()`` and ``model.half()``."""
    if not isinstance(node.func, ast.Attribute) or full or node.args or node.keywords:
        return
    if reader.kind(node.func.value) in (HOST, HOST_MASK, NUMPY) and reader.func.role == "host":
        return
    if reader.within(ast.Dict) or any(
        isinstance(one, ast.Call) and tail(one.func) in ("save", "savez") for one in reader.parents
    ):
        return
    reader.hit(FP16, node, ".half() casts to fp16", flag=_flag(reader))


def _flag(reader: Reader) -> str:
    """fp16 chosen by an option that is something else by default: that option's name."""
    if not reader.has(g.FP16):
        return ""
    return "" if reader.notes.get("fp16 default") else "fp16"


def half_type(reader: Reader, node: ast.Attribute, full: str) -> None:
    """torch.float16 as a value: a cast or a dtype; comparisons and tables of names are fine."""
    if not full.startswith(("torch.", "jax.numpy.")) or full.count(".") > 2:
        return
    parent = reader.parent()
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    if reader.within(ast.Compare) or isinstance(parent, ast.Subscript):
        return
    if isinstance(parent, ast.List | ast.Tuple | ast.Set) and len(parent.elts) > 1:
        return
    if isinstance(parent, ast.Dict):
        if node in parent.keys:
            return
        if not reader.notes.get("fp16 default"):
            reader.notes.setdefault("fp16 tables", []).append(node)
            return
    if isinstance(parent, ast.Call) and tail(parent.func) in ("finfo", "isinstance", "append"):
        return
    if reader.func.role == "host":
        return
    if reader.within(ast.IfExp) and _picked_dtype(reader):
        return
    reader.hit(FP16, node, f"{full} is fp16", flag=_flag(reader), cause=_cause(reader))


def _cause(reader: Reader) -> str:
    return "fp16 dtype" if reader.notes.get("fp16 default") else ""


def _picked_dtype(reader: Reader) -> bool:
    """Inside a dtype choice that is reported as a whole (bf16 supported or not)."""
    return any(
        isinstance(one, ast.IfExp)
        and "bf16" in ast.unparse(one.test)
        and "cuda" in ast.unparse(one.test)
        for one in reader.parents
    )


def half_word(reader: Reader, node: ast.Constant, value: str) -> None:
    """ "fp16" as a default or an argument that chooses a precision."""
    parent = reader.parent()
    if reader.within(ast.Compare) or isinstance(
        parent, ast.List | ast.Set | ast.Subscript | ast.JoinedStr | ast.Expr | ast.Tuple
    ):
        return
    if isinstance(parent, ast.IfExp) and _picked_dtype(reader):
        if parent.orelse is node:
            reader.notes.setdefault("fp16 default", []).append(node)
        return
    if isinstance(parent, ast.keyword):
        outer = reader.parent(2)
        called = tail(outer.func) if isinstance(outer, ast.Call) else ""
        if parent.arg == "default":
            if not (isinstance(outer, ast.Call) and called in ("add_argument", "field", "Field")):
                return
            named = " ".join(str(one.value) for one in outer.args if isinstance(one, ast.Constant))
            if not re.search(r"precision|dtype|amp|type|fp16", named) and called == "add_argument":
                return
        elif not re.search(r"precision|dtype", parent.arg or ""):
            return
        reader.notes.setdefault("fp16 default", []).append(node)
        reader.hit(FP16, node, f"the precision is {value!r}", cause="fp16 dtype")
    elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.Dict):
        names = _names(parent)
        if isinstance(parent, ast.Dict):
            index = next((i for i, v in enumerate(parent.values) if v is node), -1)
            key = parent.keys[index] if index >= 0 else None
            names = str(key.value) if isinstance(key, ast.Constant) else ""
        if re.search(r"precision|dtype", names) and not re.search(r"choices|map|names", names):
            reader.notes.setdefault("fp16 default", []).append(node)
            reader.hit(FP16, node, f"the precision is {value!r}", cause="fp16 dtype")
    elif isinstance(parent, DEFS):
        reader.hit(FP16, node, f"the default precision is {value!r}", cause="fp16 dtype")


def _names(node: ast.Assign | ast.AnnAssign | ast.Dict) -> str:
    if isinstance(node, ast.Dict):
        return ""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return " ".join(text(one) for one in targets)


def precision_keyword(reader: Reader, node: ast.Call, full: str) -> None:
    """Trainer(precision=16), TrainingArguments(fp16=True)."""
    for keyword in node.keywords:
        value = keyword.value
        if not isinstance(value, ast.Constant):
            continue
        if keyword.arg == "precision" and value.value in (16, "16", "16-mixed", "16-true"):
            reader.hit(FP16, keyword, "precision=16 trains in fp16", cause="fp16 dtype")
        elif keyword.arg == "fp16" and value.value is True:
            reader.hit(FP16, keyword, "fp16=True trains in fp16", cause="fp16 dtype")


def tables(reader: Reader) -> None:
    """Tables that give fp16 for a name are places of the default that picks fp16."""
    if not reader.notes.get("fp16 default"):
        return
    for node in reader.notes.get("fp16 tables", []):
        if any(h.rule in (FP16, "cuda-available-fallback") for h in reader.facts.hazards):
            reader.hit(FP16, node, "the default picks fp16 from this table", cause="fp16 dtype")


def config_block(reader: Reader, node: ast.Assign | ast.Return) -> None:
    """The fp16 block of a DeepSpeed configuration written as a dictionary."""
    value = node.value
    if not isinstance(value, ast.Dict):
        return
    keys = {
        key.value: item
        for key, item in zip(value.keys, value.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    block = keys.get("fp16")
    if not isinstance(block, ast.Dict) or not (
        {"bf16", "zero_optimization", "optimizer"} & set(keys)
    ):
        return
    fields = {
        key.value: (key, item)
        for key, item in zip(block.keys, block.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    enabled = fields.get("enabled")
    if enabled and isinstance(enabled[1], ast.Constant) and enabled[1].value is False:
        return
    line = next(k for k in value.keys if isinstance(k, ast.Constant) and k.value == "fp16")
    assert line is not None
    places = [
        fields[name][0].lineno
        for name in ("enabled", "loss_scale", "loss_scale_window", "initial_scale_power")
        if name in fields
    ]
    reader.hit(
        "fp16-gradscaler",
        line,
        "dynamic loss scaling for fp16",
        cause="ds fp16",
        places=[one for one in places if one != line.lineno],
    )


def autocast(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    known = full.startswith("torch.") and full.endswith(("autocast", "custom_fwd", "custom_bwd"))
    if not known:
        return
    if full in ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"):
        for keyword in node.keywords:
            off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg == "enabled" and off and not node.args:
                reader.hit(
                    "cuda-autocast",
                    node,
                    "autocast bound to CUDA, here switched off",
                    severity="low",
                    targets=TORCH,
                )
                return
        reader.hit("cuda-autocast", node, "autocast bound to CUDA", targets=TORCH)
        return
    arguments = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "device_type")]
    if full.startswith("torch.cuda.amp.custom_"):
        reader.hit("cuda-autocast", node, f"{name} is bound to CUDA", targets=TORCH)
        return
    for argument in arguments:
        if isinstance(argument, ast.Constant) and argument.value == "cuda":
            reader.hit(
                "cuda-autocast",
                node,
                'autocast("cuda") raises without CUDA',
                targets=TORCH,
                severity=None,
            )
        elif isinstance(argument, ast.Name):
            bound = reader.value(argument)
            if isinstance(bound, ast.IfExp) and "cuda" in ast.unparse(bound):
                reader.hit(
                    "cuda-autocast",
                    node,
                    "the autocast device is CUDA or the CPU",
                    cause="autocast",
                    targets=TORCH,
                )
            elif isinstance(bound, ast.Constant) and bound.value == "cuda":
                reader.hit(
                    "cuda-autocast", node, 'autocast("cuda") raises without CUDA', targets=TORCH
                )


def custom_decorator(reader: Reader, node: ast.FunctionDef) -> None:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            continue
        if reader.full(decorator) in (
            "torch.cuda.amp.custom_fwd",
            "torch.cuda.amp.custom_bwd",
            "torch.cuda.amp.autocast",
        ):
            reader.hit(
                "cuda-autocast", decorator, f"{text(decorator)} is bound to CUDA", targets=TORCH
            )


def gpu_dtype(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith("torch."):
        reader.hit("cuda-autocast", node, "asks for CUDA's autocast dtype", targets=TORCH)


def tf32(reader: Reader, node: ast.Assign) -> None:
    for target in node.targets:
        written = text(target)
        if written.endswith((".allow_tf32", "fp32_precision")):
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            reader.hit(
                "tf32-flag",
                target,
                f"{written} does nothing on a TPU",
                severity="medium" if off else None,
                confidence="sure",
            )


def matmul_precision(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith("torch.") or not full:
        reader.hit("tf32-flag", node, "the precision of fp32 matmuls is another on a TPU")


def parity(reader: Reader, node: ast.Assert) -> None:
    """An fp32 comparison tighter than the default matmul precision of a TPU."""
    if not reader.mentions("allclose"):
        return
    for one in walk(node.test):
        if not isinstance(one, ast.Call) or tail(one.func) not in ("allclose",):
            continue
        if not reader.full(one.func).startswith("jax.numpy."):
            continue
        tolerance = [k.value for k in one.keywords if k.arg in ("atol", "rtol")]
        tight = any(
            isinstance(t, ast.Constant) and isinstance(t.value, float) and t.value <= 1e-3
            for t in tolerance
        )
        body = reader.func.node
        multiplied = body is not None and any(
            (isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult))
            or (isinstance(part, ast.Call) and tail(part.func) in ("dot", "matmul", "einsum"))
            for part in walk(body)
        )
        written = ast.unparse(body) if body is not None else ""
        if tight and multiplied and "precision" not in written:
            reader.hit(
                "tf32-flag",
                one,
                "fp32 matmuls run in bf16 passes on a TPU by default",
                severity="medium",
            )
            return


def double(reader: Reader, node: ast.Call, full: str) -> None:
    if not isinstance(node.func, ast.Attribute) or full or node.args:
        return
    if reader.kind(node.func.value) in (HOST, HOST_MASK, NUMPY) or reader.func.role == "host":
        return
    reader.hit("float64", node, ".double() is emulated on a TPU", confidence="likely")


def double_type(reader: Reader, node: ast.Attribute, full: str) -> None:
    wide = full in (
        "torch.float64",
        "torch.double",
        "torch.complex128",
        "torch.cuda.DoubleTensor",
        "jax.numpy.float64",
        "jax.numpy.complex128",
    )
    if not wide or reader.within(ast.Compare) or reader.func.role == "host":
        return
    parent = reader.parent()
    if isinstance(parent, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.Subscript):
        return
    if isinstance(parent, ast.Call) and tail(parent.func) in ("finfo", "isinstance"):
        return
    outer = reader.parent(2)
    if isinstance(outer, ast.Call) and reader.kind(outer) == HOST:
        return  # made on the host: a schedule or a table
    if full.startswith("jax.") and "x64" not in reader.source:
        return
    reader.hit(
        "float64",
        node,
        f"{full} is emulated on a TPU",
        severity="blocker" if "complex" in full else None,
        needs_step=False,
    )


def x64(reader: Reader, node: ast.Constant, value: str) -> None:
    parent = reader.parent()
    if isinstance(parent, ast.Call) and tail(parent.func) == "update" and len(parent.args) == 2:
        setting = parent.args[1]
        if isinstance(setting, ast.Constant) and setting.value is False:
            return
        reader.hit(
            "float64", parent, "jax_enable_x64 makes 64-bit floats, emulated on a TPU", cause="x64"
        )


def register(found: Detectors) -> None:
    found.on_call("half")(half_call)
    found.on_attribute("float16 half")(half_type)
    found.on_string("fp16 float16 16-mixed 16-true")(half_word)
    found.on_call(
        "Trainer TrainingArguments Seq2SeqTrainingArguments Accelerator Fabric SFTConfig "
        "Seq2SeqTrainer DPOConfig PPOConfig GRPOConfig"
    )(precision_keyword)
    found.finish.append(tables)
    found.on_statement(ast.Assign, ast.Return)(config_block)
    found.on_call("autocast custom_fwd custom_bwd")(autocast)
    found.on_statement(ast.FunctionDef)(custom_decorator)
    found.on_call("get_autocast_gpu_dtype")(gpu_dtype)
    found.on_statement(ast.Assign)(tf32)
    found.on_call("set_float32_matmul_precision")(matmul_precision)
    found.on_statement(ast.Assert)(parity)
    found.on_call("double")(double)
    found.on_attribute("float64 double complex128")(double_type)
    found.on_string("jax_enable_x64")(x64)
