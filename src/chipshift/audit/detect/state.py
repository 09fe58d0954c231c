"""State: tied weights, checkpoints, aliases, fused optimizers, sparse tensors, recomputation."""

from __future__ import annotations

import ast
import re

from chipshift.audit import guards as g
from chipshift.audit.finding import LAZY, TORCH, Target
from chipshift.audit.kinds import ON_DEVICE
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import OPTIMIZER, LoopRole

SAVE = "checkpoint-device-tensors"


def tied(reader: Reader, node: ast.Assign) -> None:
    """self.head.weight = self.emb.weight: separated when the module moves."""
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Attribute) and target.attr in ("weight", "bias")):
        return
    if reader.func.role not in ("startup", "") or reader.func.owner is None:
        return
    if isinstance(value, ast.Attribute):
        mine, other = text(target), text(value)
        if not (mine.startswith("self.") and other.startswith("self.")):
            return
        if (
            other.split(".")[-1] in ("weight", "bias")
            and (other.count(".") > 1 or mine.count(".") > 1)
            and mine != other
        ):
            reader.hit(
                "weight-tying",
                node,
                "tied parameters, which .to() makes two of",
                targets=LAZY,
                severity="high",
            )


def saved(reader: Reader, node: ast.Call, full: str) -> None:
    """torch.save of device tensors; the entries that are state dicts are places."""
    name = tail(node.func)
    if full == "torch_xla.core.xla_model.save":
        if reader.has(g.RANK0):
            reader.hit(SAVE, node, "xm.save under a rank test hangs", severity="high")
        return
    known = full in ("torch.save", "pickle.dump", "accelerate.save") or name == "save_on_master"
    if not known or not node.args:
        return
    places: list[int] = []
    found = _state(reader, node.args[0], places, 0)
    if not found and not (
        full == "pickle.dump" and re.search(r"snapshot|model|state", ast.unparse(node.args[0]))
    ):
        return
    if ".cpu()" in ast.unparse(node.args[0]) or "cpu_state" in ast.unparse(node.args[0]):
        return
    reader.hit(
        SAVE,
        node,
        "device tensors are written as they are",
        places=sorted({one for one in places if one != node.lineno}),
        confidence="sure" if found else "possible",
        cause=f"save {reader.func.name} {ast.unparse(node.args[0])[:60]}",
    )


def _state(reader: Reader, node: ast.expr, places: list[int], depth: int) -> bool:
    """Whether an object holds state dicts; collects the lines of the entries that do."""
    if depth > 2:
        return False
    if isinstance(node, ast.Name):
        binding = reader.func.scope.find(node.id)
        while binding is not None:
            bound = binding.node
            if isinstance(bound, ast.expr) and binding.how == "value":
                if ".cpu()" in ast.unparse(bound)[:2000]:
                    return False
                if _state(reader, bound, places, depth + 1):
                    return True
            binding = binding.previous
        return node.id in ("state_dict", "model_state", "model_state_dict")
    if isinstance(node, ast.Call):
        if tail(node.func) in ("state_dict", "get_state_dict", "_state_dict"):
            if depth:
                places.append(node.lineno)
            return True
        if tail(node.func) == "dict":
            return any(_state(reader, k.value, places, depth + 1) for k in node.keywords)
        return False
    if isinstance(node, ast.Dict):
        return any(_state(reader, one, places, depth + 1) for one in node.values if one is not None)
    if isinstance(node, ast.IfExp):
        return _state(reader, node.body, places, depth) or _state(
            reader, node.orelse, places, depth
        )
    if isinstance(node, ast.Attribute):
        return node.attr in ("params", "opt_state", "state_dict")
    return False


def hyperparameters(reader: Reader, node: ast.Call, full: str) -> None:
    """save_hyperparameters() of a constructor that is given a module class."""
    func = reader.func.node
    if func is None or not isinstance(node.func, ast.Attribute):
        return
    for value in func.args.defaults:
        if reader.full(value).startswith("torch.nn."):
            reader.hit(SAVE, node, "hyperparameters that hold a module hang the save")
            return


def loaded(reader: Reader, node: ast.Call, full: str) -> None:
    """torch.load without map_location, or onto CUDA."""
    if full != "torch.load":
        return
    where = node.args[1] if len(node.args) > 1 else None
    for keyword in node.keywords:
        if keyword.arg == "map_location":
            where = keyword.value
        if keyword.arg is None:
            return
    if isinstance(where, ast.Constant) and where.value == "cpu":
        return
    if where is not None:
        written = ast.unparse(where)
        if "cpu" in written and "cuda" not in written:
            return
        sure = "cuda" in written
        reader.hit(
            "torch-load-map-location",
            node,
            "the checkpoint is loaded onto the device",
            severity=None if sure else "low",
            targets=TORCH,
            confidence="sure" if sure else "possible",
        )
        return
    reader.hit(
        "torch-load-map-location",
        node,
        "a checkpoint of CUDA tensors does not load",
        targets=TORCH,
        confidence="likely",
    )


def fused(reader: Reader, node: ast.Call, full: str) -> None:
    """fused=True given to an optimizer."""
    for keyword in node.keywords:
        if keyword.arg != "fused":
            continue
        value: ast.expr | None = keyword.value
        if not isinstance(value, ast.Constant):
            value = reader.default(keyword.value)
        if isinstance(value, ast.Constant) and value.value is True:
            name = tail(node.func)
            if full.startswith("torch.optim") or re.search(r"Adam|SGD|optim|dict|Adagrad", name):
                reader.hit(
                    "fused-optimizer",
                    keyword,
                    "fused=True: step() is refused off CUDA",
                    targets=TORCH,
                )


def vendor(reader: Reader, node: ast.Call, full: str) -> None:
    if full.startswith(("apex", "deepspeed")):
        return
    if full.startswith("torch.optim._multi_tensor") or tail(node.func) in ("FusedLAMB", "FusedSGD"):
        reader.hit("fused-optimizer", node, f"{tail(node.func)} is a CUDA optimizer", targets=TORCH)


def ds_optimizer(reader: Reader, node: ast.Assign | ast.Return) -> None:
    """DeepSpeed's "Adam" is its CUDA FusedAdam."""
    value = node.value
    if not isinstance(value, ast.Dict):
        return
    for key, item in zip(value.keys, value.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(item, ast.Dict)):
            continue
        if key.value == "optimizer":
            for inner, kind in zip(item.keys, item.values, strict=True):
                if (
                    isinstance(inner, ast.Constant)
                    and inner.value == "type"
                    and isinstance(kind, ast.Constant)
                    and kind.value in ("Adam", "AdamW")
                ):
                    reader.hit(
                        "fused-optimizer",
                        inner,
                        "DeepSpeed maps it to FusedAdam",
                        targets=TORCH,
                        confidence="likely",
                    )
        elif key.value == "zero_optimization":
            places = [
                inner.lineno
                for inner in item.keys
                if isinstance(inner, ast.Constant) and inner.value == "overlap_comm"
            ]
            reader.hit(
                "deepspeed-runtime",
                key,
                "ZeRO is DeepSpeed's own sharding",
                places=places,
                cause="import deepspeed",
            )


def data_written(reader: Reader, node: ast.Assign) -> None:
    """x.data = ..., and x[...] = in JAX code."""
    for target in node.targets:
        if isinstance(target, ast.Attribute) and target.attr == "data":
            if reader.func.role in ("startup", "host") or reader.func.node is None:
                continue
            if not reader.facts.uses_torch or text(target.value) in ("self", "cls", "args"):
                continue
            reader.hit(
                "inplace-alias",
                target,
                "writes through .data",
                needs_step=True,
                confidence="possible",
                severity="low",
            )
        elif (
            isinstance(target, ast.Subscript)
            and reader.facts.uses_jax
            and not reader.facts.uses_torch
        ) and _immutable(reader, target):
            reader.hit(
                "inplace-alias",
                target,
                "JAX arrays cannot be written in place",
                needs_step=True,
                severity="blocker",
                targets=("jax",),
            )


def _immutable(reader: Reader, target: ast.Subscript) -> bool:
    """Whether an item is set on a JAX array: not on a mapping, nor on a mutable reference."""
    index = target.slice
    if isinstance(index, ast.Constant) and isinstance(index.value, str):
        return False
    if re.search(r"(^|_)refs?$", tail(target.value)) or "Ref" in reader.source:
        return False
    return reader.kind(target.value) in ON_DEVICE


def aliased(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if full or not isinstance(node.func, ast.Attribute) or reader.func.role in ("startup", "host"):
        return
    if name == "copy_" and not (
        isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "data"
    ):
        return
    if name == "data_ptr" and any(isinstance(one, ast.Subscript) for one in reader.parents[-1:]):
        return
    reader.hit(
        "inplace-alias",
        node,
        f".{name}() works on shared storage",
        needs_step=True,
        confidence="possible",
        severity="low",
    )


def recomputed(reader: Reader, node: ast.Call, full: str) -> None:
    where: tuple[Target, ...] = ("torch_xla", "torchax", "torchtpu")
    name = tail(node.func)
    if full in (
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint_sequential",
    ):
        reader.hit(
            "activation-checkpoint",
            node,
            "recomputation by torch.utils.checkpoint",
            targets=where,
            cause="checkpoint",
        )
    elif name in ("gradient_checkpointing_enable", "enable_gradient_checkpointing") and not full:
        reader.hit("activation-checkpoint", node, "switches recomputation on", targets=where)
    elif (
        name == "apply"
        and isinstance(node.func, ast.Attribute)
        and text(node.func.value).endswith("CheckpointFunction")
    ):
        reader.hit(
            "activation-checkpoint",
            node,
            "recomputation by CheckpointFunction",
            targets=where,
            cause="checkpoint",
        )
    for keyword in node.keywords:
        if (
            keyword.arg == "gradient_checkpointing"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
        ):
            reader.hit("activation-checkpoint", keyword, "switches recomputation on", targets=where)


def unsynced(reader: Reader, node: ast.For | ast.While) -> None:
    """A torch_xla training loop that nothing cuts."""
    if reader.upcoming(node) is not LoopRole.STEP or not reader.facts.uses_torch:
        return
    if re.search(
        r"mark_step|torch_xla\.sync|xm\.optimizer_step|MpDeviceLoader|ParallelLoader|torch_xla\.step"
        r"|accelerator\.|Accelerator|lightning|deepspeed|torch_xla\.compile|model_engine",
        reader.source,
    ):
        return
    for one in walk(node):
        if isinstance(one, ast.Call) and tail(one.func) == "step":
            owner = text(one.func.value) if isinstance(one.func, ast.Attribute) else ""
            if OPTIMIZER.search(owner) and not owner.endswith("engine"):
                reader.hit(
                    "missing-step-sync",
                    one,
                    "nothing in the loop cuts the lazy graph",
                    targets=LAZY,
                )
                return


def register(found: Detectors) -> None:
    found.on_statement(ast.Assign)(tied)
    found.on_call("save dump save_on_master")(saved)
    found.on_call("save_hyperparameters")(hyperparameters)
    found.on_call("load")(loaded)
    found.any_call.append(lambda reader, node, callee: fused(reader, node, callee))
    found.on_call("FusedLAMB FusedSGD Adam AdamW SGD")(vendor)
    found.on_statement(ast.Assign, ast.Return)(ds_optimizer)
    found.on_statement(ast.Assign)(data_written)
    found.on_call("data_ptr as_strided as_strided_ resize_ set_ copy_")(aliased)
    found.on_call(
        "checkpoint checkpoint_sequential gradient_checkpointing_enable apply SFTConfig "
        "enable_gradient_checkpointing "
        "TrainingArguments DPOConfig GRPOConfig PPOConfig Seq2SeqTrainingArguments"
    )(recomputed)
    found.on_statement(ast.For, ast.While)(unsynced)
