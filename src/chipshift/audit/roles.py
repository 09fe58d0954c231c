"""Where code runs, from its shape: which loops are the training loop, what a function is for."""

from __future__ import annotations

import ast
import re
from enum import Enum

from chipshift.audit.facts import EVAL, HOST, STARTUP, STEP
from chipshift.audit.names import children, tail, text, walk, words
from chipshift.audit.prepass import Outline


class LoopRole(Enum):
    """What a loop repeats."""

    STEP = "step"
    MICRO = "micro"
    EPOCH = "epoch"
    EVAL = "eval"
    OTHER = "other"


OPTIMIZER = re.compile(r"(opt|optim|optimizer|optimizers|scaler|engine|adam|sgd|solver)\w*$", re.I)
STEP_CALLS = re.compile(
    r"^(p_|jit_|jitted_|pjit_|_)?(train_step|train_on_batch|train_batch|training_step|update_step"
    r"|update_fn|train_iter|train_one_step|update_model|train_step_fn|optimize_parameters"
    r"|optimize_step|run_step|train_epoch_step|optimizer_step|minimize|accumulate_gradients"
    r"|update_params|p_step|fit_batch|step_fn|trainstep|train_mini_batch)$"
)
EVAL_NAME = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|test|infer|inference|generate|sample"
    r"|sampling|predict|decode|decoding|metrics?|estimate_loss|beam_search|visualize|translate"
    r"|demo|inpaint|rollout|score|benchmark|profile|compute_fid|log_validation)(_|$)"
)
START_NAME = re.compile(
    r"^_?_?(init|setup|build|create|make|load|save|parse|get_args|prepare|configure|main|register"
    r"|init_weights|reset_parameters|from_pretrained|export|convert|download|dump|write|print|add"
    r"|launch|spawn|worker|restore|resume|read|cleanup|install|reset|wrap|get_parser|get_model"
    r"|get_optimizer|get_dataset|get_dataloader|get_data|get_config|get_device|instantiate|new"
    r"|import|run_command|plot|state_dict|extra_repr|repr|str|conf|broadcast_buffers|warmup)(_|$)"
)
STEP_NAME = words(
    """forward training_step __call__ train_step compute_loss loss_fn loss backward call
    train_on_batch train_batch apply_model step_fn _forward update_step forward_train get_loss"""
)
HOST_NAME = re.compile(
    r"(collat|__getitem__|tokenize|preprocess|augment|transform|load_image|read_|parse_|_to_numpy"
    r"|batchify|pad_batch|prepare_sample|make_batch|process_example)"
)


STEPS = frozenset({"optimizer_step", "apply_gradients", "loss_scaler", "amp_scaler"})
EVAL_FIRST = re.compile(
    r"_?(run_|do_)?(eval|evaluate|evaluation|validate|validation|inference|test|log_validation"
    r"|estimate_loss)(_epoch|_model|_one_epoch|_loop|_step|_dataset)?$"
)
"""Names that say evaluation whoever calls them."""
LOADER = re.compile(r"loader|data_iter|val_data|eval_data|test_data")
NOT_STEP = re.compile(
    r"(Transform|Aug|Collat|Token|Process|Crop|Resize|Normaliz|ToTensor|Pad|Flip|Callback|Logger"
    r"|Schedul|LR|Reader|Writer|Filter|Compose|Pipeline|Metric|Parser|Action|Saver|Stopping)"
)


def _calls(node: ast.AST, outline: Outline) -> tuple[bool, bool]:
    """``_direct`` of a loop, looked up once."""
    known = outline.loops.get(id(node))
    if known is None:
        known = outline.loops[id(node)] = _direct(node)
    return known


def _direct(node: ast.AST) -> tuple[bool, bool]:
    """(has backward, has optimizer step) among the calls directly in a loop's body, nested loops
    and functions apart."""
    backward = step = False
    stack: list[ast.AST] = [*getattr(node, "body", ())]
    while stack:
        one = stack.pop()
        if isinstance(one, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(one, ast.Call):
            name = tail(one.func)
            if name in ("backward", "manual_backward"):
                backward = True
            elif name == "step" and isinstance(one.func, ast.Attribute):
                owner = text(one.func.value) or tail(one.func.value)
                step = step or bool(OPTIMIZER.search(owner))
            elif STEP_CALLS.match(name) or name in STEPS:
                step = True
        stack.extend(children(one))
    return backward, step


CARRIED = re.compile(r"(state|params|opt_state|carry|train_state|optimizer|weights)$")


def _carries(node: ast.AST) -> bool:
    """A JAX step: a call that takes a state and gives the next one back."""
    for one in getattr(node, "body", ()):
        blocks = [one]
        if isinstance(one, ast.With | ast.If):
            blocks = list(one.body)
        for statement in blocks:
            if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
                continue
            targets = {
                text(part)
                for target in statement.targets
                for part in (target.elts if isinstance(target, ast.Tuple) else [target])
            }
            given = {text(argument) for argument in statement.value.args}
            name = tail(statement.value.func)
            carried = {name for name in targets & given if name and CARRIED.search(name)}
            if carried and not re.search(r"(init|restore|load|replicate|shard|put)", name):
                return True
    return False


def _fetches(node: ast.AST) -> bool:
    """Whether a loop's own statements take the next batch (``next(iterator)``)."""
    stack: list[ast.AST] = [*getattr(node, "body", ())]
    while stack:
        one = stack.pop()
        if isinstance(one, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef):
            continue
        if isinstance(one, ast.Call) and tail(one.func) in ("next", "next_batch", "get_batch"):
            return True
        stack.extend(children(one))
    return False


def _nested(node: ast.AST, outline: Outline) -> bool:
    """Whether a loop inside (not in functions) has a backward or an optimizer step."""
    stack: list[ast.AST] = [*getattr(node, "body", ())]
    while stack:
        one = stack.pop()
        if isinstance(one, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(one, ast.For | ast.AsyncFor | ast.While) and any(_calls(one, outline)):
            return True
        stack.extend(child for child in children(one) if not isinstance(child, ast.expr))
    return False


def loop_role(
    node: ast.For | ast.AsyncFor | ast.While,
    outline: Outline,
    outer: list[LoopRole],
    function: str,
    over: str = "",
    name: str = "",
) -> LoopRole:
    """What a loop repeats, from the calls in its body and the loops around it; ``over`` is the
    source of what a ``for`` iterates over."""
    inside = LoopRole.STEP in outer or LoopRole.MICRO in outer
    if outline.has_backward or outline.has_step:
        backward, step = _calls(node, outline)
        if step and not inside:
            return LoopRole.STEP
        if step or backward:
            if inside:
                return LoopRole.MICRO
            micro = "micro" in over or _follows(node, outline)
            return LoopRole.MICRO if micro and not step else LoopRole.STEP
        if not inside and _nested(node, outline):
            return LoopRole.STEP if _fetches(node) else LoopRole.EPOCH
    if not inside and not outline.has_backward and outline.is_jax:
        if _carries(node):
            return LoopRole.STEP
        if any(isinstance(one, ast.For | ast.While) and _carries(one) for one in walk(node)):
            return LoopRole.EPOCH
        if _direct_step_call(node):
            return LoopRole.STEP
    elif not inside and _direct_step_call(node):
        return LoopRole.STEP
    if not inside and LOADER.search(over) and re.match(r"(train|pretrain|fit)", name):
        return LoopRole.STEP
    reads = not inside and function != HOST and LOADER.search(over)
    return LoopRole.EVAL if reads else LoopRole.OTHER


def _direct_step_call(node: ast.AST) -> bool:
    for one in getattr(node, "body", ()):
        value = getattr(one, "value", None)
        if isinstance(value, ast.Call) and STEP_CALLS.match(tail(value.func)):
            return True
        if isinstance(one, ast.With) and _direct_step_call(one):
            return True
    return False


def _follows(node: ast.AST, outline: Outline) -> bool:
    """Whether the function that holds the loop steps an optimizer outside it (accumulation)."""
    for function in outline.functions.values():
        if function.lineno <= node.lineno <= (function.end_lineno or 0):  # type: ignore[attr-defined]
            for one in function.body:
                if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
                    called = one.value.func
                    if (
                        isinstance(called, ast.Attribute)
                        and called.attr == "step"
                        and OPTIMIZER.search(text(called.value))
                    ):
                        return True
    return False


def function_role(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    owner: ast.ClassDef | None,
    outline: Outline,
    aliases: dict[str, str],
) -> tuple[str, bool]:
    """(role, sure): step, eval, startup, host (data preparation) or "" when callers decide."""
    name = node.name
    decorators = {
        tail(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list
    }
    if owner is not None and owner.name in outline.hosts and not name.startswith("__init__"):
        return HOST, True
    if HOST_NAME.search(name) and owner is None:
        return HOST, False
    if (
        name in ("__getitem__", "collate_fn", "collate", "collater")
        or name in outline.host_functions
    ):
        return HOST, True
    if decorators & {"no_grad", "inference_mode"}:
        return EVAL, name in ("generate", "sample")
    if "jit" in decorators and "triton" in {
        text(one.func if isinstance(one, ast.Call) else one).split(".")[0]
        for one in node.decorator_list
    }:
        return STEP, True
    if name in ("validation_step", "test_step", "predict_step", "evaluate", "validate"):
        return EVAL, True
    if EVAL_NAME.search(name) and not name.startswith("train"):
        return EVAL, name in ("generate", "sample") or bool(EVAL_FIRST.match(name))
    if name in outline.jitted or name in outline.compact:
        return STEP, True
    if owner is not None and owner.name in outline.modules and name in ("forward", "__call__"):
        return STEP, True
    if name == "__call__" and owner is not None:
        if NOT_STEP.search(owner.name):
            return HOST, False
        return STEP, owner.name in outline.modules
    if name in STEP_NAME and (name in ("forward", "training_step") or owner is None):
        return STEP, name in ("forward", "training_step")
    if name in ("__init__", "__new__", "__post_init__", "setup", "__repr__", "__len__"):
        return STARTUP, True
    if START_NAME.match(name):
        return STARTUP, False
    return "", False
