"""What a test of an ``if`` says about the machine: CUDA only, not on TPU, rank 0, every N steps.

A guard is a short string; ``-`` in front means that its opposite holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from chipshift.audit.names import dotted, tail, text, walk

CUDA, XLA, RANK0, CADENCE, NEVER, CPU = "cuda", "xla", "rank0", "cadence", "never", "cpu"
DIST = "distributed"
CHOICE = frozenset({"choice"})
"""Marks a branch that has an alternative."""
OLD_TORCH, PACKAGE, FLAG, FIRST, FP16, NAN = "old", "package", "flag", "first", "fp16", "nan"

NAME_CUDA = re.compile(
    r"(^|\.|_)(use_cuda|is_cuda|cuda_available|has_cuda|on_cuda|with_cuda|on_gpu|cuda"
    r"|HAS_CUDA|CUDA|IS_CUDA|use_gpu|is_gpu)$"
)
NAME_XLA = re.compile(
    r"(^|\.|_)(use_xla|is_xla|xla|tpu|use_tpu|is_tpu|on_tpu|XLA|TPU|is_xla_available"
    r"|is_torch_xla_available|is_torch_tpu_available|has_xla|_?HAS_XLA|XLA_AVAILABLE)$"
)
NAME_RANK0 = re.compile(
    r"(^|\.|_)(is_main_process|is_master|master_process|is_rank_zero|is_rank0|is_chief|is_main"
    r"|is_local_main_process|is_primary|is_global_zero|is_master_process|main_process|is_root"
    r"|is_data_parallel_master|is_rank_0|rank_zero|is_local_master|is_last_rank)$"
)
NAME_RANK = re.compile(
    r"(^|\.)_?((local|global|node|ddp|dp|data_parallel|world|dist|process|proc|my|trainer)_)?(rank|RANK)$"
    r"|(^|\.)(LOCAL_RANK|GLOBAL_RANK|NODE_RANK)$"
)
"""Ranks of the whole job; those of a tensor, pipeline or expert group choose parts of the model."""
COUNTER = re.compile(
    r"(^|_|\.)(step|steps|batch_idx|batch_id|batch_index|i|it|iter|iteration|idx|n_iter|epoch)$"
)
NAME_CADENCE = re.compile(
    r"(^|_)(log|print|eval|save|val|valid|test|report|display|summary|vis|sample|checkpoint|ckpt"
    r"|should_log|do_eval|is_log|is_eval|should_save|logging|update|sync_gradients|do_log|snapshot)"
    r"(_|$)"
)
INTERVAL = re.compile(
    r"(interval|freq|every|steps|step|period|cadence|epochs?|_n|iters?|num_batches|ticks?)", re.I
)
GPU_PACKAGE = re.compile(
    r"flash|apex|xformers|triton|bitsandbytes|bnb|deepspeed|cuda|gpu|liger|causal_conv|grouped_gemm"
    r"|torchao|transformer_engine|megablocks|fbgemm|natten|cupy|mamba|^fla$|^te$|^k2$|^kernels$"
)
"""Packages that an ``is_<package>_available()`` may ask for and that need a GPU."""
GPU_WORD = re.compile(r"^(cuda|gpu)(:.*)?$")


def negate(guard: str) -> str:
    return guard[1:] if guard.startswith("-") else f"-{guard}"


class GuardReader:
    """Reads tests; ``value`` gives the expression a name was bound to, ``packages`` the names that
    are None or False without a GPU package, ``off_flag`` the off option a test asks."""

    def __init__(
        self,
        aliases: dict[str, str],
        value: Callable[[ast.expr], ast.expr | None],
        packages: set[str],
        off_flag: Callable[[ast.expr], str],
    ) -> None:
        self.aliases = aliases
        self.value = value
        self.packages = packages
        self.off_flag = off_flag

    def read(self, test: ast.expr, depth: int = 0) -> frozenset[str]:
        """All guards that hold inside the branch taken when ``test`` is true."""
        if depth > 5:
            return frozenset()
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.read(test.operand, depth + 1)
            if len(inner) == 1 or not isinstance(test.operand, ast.BoolOp):
                return frozenset(negate(one) for one in inner)
            return frozenset()
        if isinstance(test, ast.BoolOp):
            parts = [self.read(value, depth + 1) for value in test.values]
            if isinstance(test.op, ast.And):
                return frozenset().union(*parts)
            common = parts[0]
            for part in parts[1:]:
                common = common & part
            return common
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compare(test, depth)
        if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
            return frozenset({f"-{CADENCE}"}) if self.interval(test) != 1 else frozenset()
        if isinstance(test, ast.Constant):
            return frozenset({NEVER}) if not test.value else frozenset()
        if isinstance(test, ast.Call):
            return self._call(test, depth)
        if isinstance(test, ast.Name | ast.Attribute):
            return self._name(test, depth)
        return frozenset()

    def opposite(self, test: ast.expr) -> frozenset[str]:
        """All guards that hold in the other branch."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
            parts = [self.opposite(value) for value in test.values]
            return frozenset().union(*parts)
        guards = self.read(test)
        if isinstance(test, ast.BoolOp) and len(guards) > 1:
            return frozenset()
        if isinstance(test, ast.BoolOp):
            # Not (cuda and something): CUDA may still be there.
            return frozenset(negate(one) for one in guards if one in (CUDA, PACKAGE, NEVER))
        return frozenset(negate(one) for one in guards)

    def _name(self, test: ast.Name | ast.Attribute, depth: int) -> frozenset[str]:
        written = text(test)
        last = written.rsplit(".", 1)[-1]
        if last == "TYPE_CHECKING":
            return frozenset({NEVER})
        if written in self.packages or last in self.packages:
            return frozenset({PACKAGE})
        if NAME_XLA.search(written):
            return frozenset({XLA})
        if NAME_RANK0.search(written):
            return frozenset({RANK0})
        bound = self.value(test)
        if bound is not None and not isinstance(bound, ast.Constant):
            found = self.read(bound, depth + 1)
            if found:
                return found
        flag = self.off_flag(test)
        if flag:
            return frozenset({f"{FLAG}:{flag}"})
        if NAME_CUDA.search(written):
            return frozenset({CUDA})
        if NAME_CADENCE.search(last) and bound is None and not last.startswith("update"):
            return frozenset()
        return frozenset()

    def _call(self, test: ast.Call, depth: int) -> frozenset[str]:
        full = dotted(test.func, self.aliases) or text(test.func)
        name = tail(test.func)
        if full.endswith("cuda.is_available") or name in ("is_cuda", "is_cuda_available"):
            return frozenset({CUDA})
        if NAME_XLA.search(full):
            return frozenset({XLA})
        if NAME_RANK0.search(full) or name in ("is_main_process", "is_master"):
            return frozenset({RANK0})
        if name in ("is_bf16_supported", "is_nccl_available", "device_count"):
            return frozenset({CUDA})
        if name == "is_initialized" and "distributed" in full:
            return frozenset({DIST})
        if name in ("get_rank", "process_index", "get_local_rank"):
            return frozenset({f"-{RANK0}"})
        if re.match(r"is_\w+_available$", name) and name != "is_available":
            package = name.removeprefix("is_").removesuffix("_available")
            return frozenset({PACKAGE}) if GPU_PACKAGE.search(package) else frozenset()
        if name == "hasattr" and len(test.args) == 2 and isinstance(test.args[1], ast.Constant):
            if test.args[1].value == "scaled_dot_product_attention":
                return frozenset({f"-{OLD_TORCH}"})
            return frozenset()
        if name == "startswith" and isinstance(test.func, ast.Attribute) and test.args:
            first = test.args[0]
            if (
                isinstance(first, ast.Constant)
                and isinstance(first.value, str)
                and GPU_WORD.match(first.value)
                and "devic" in text(test.func.value).lower()
            ):
                return frozenset({CUDA})
        if name in ("any", "all", "isnan", "isinf"):
            return self._nan(test)
        if name == "bool" and test.args:
            return self.read(test.args[0], depth + 1)
        if name == "itstime" or (
            NAME_CADENCE.search(name) and re.match(r"(should|is|do|time_to)_", name)
        ):
            return frozenset({CADENCE})
        flag = self.off_flag(test)
        return frozenset({f"{FLAG}:{flag}"}) if flag else frozenset()

    def _nan(self, test: ast.Call) -> frozenset[str]:
        for part in walk(test):
            if isinstance(part, ast.Attribute | ast.Name) and tail(part) in ("isnan", "isinf"):
                return frozenset({NAN})
        return frozenset()

    def _compare(self, test: ast.Compare, depth: int) -> frozenset[str]:
        left, op, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        flip = isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
        guard = self._compared(left, op, right, depth)
        if not guard:
            return frozenset()
        return frozenset({negate(guard) if flip else guard})

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> str:
        value = right.value if isinstance(right, ast.Constant) else ...
        written = text(left)
        if isinstance(left, ast.Call):
            written = text(left.func)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Set | ast.Tuple | ast.List):
            members = {one.value if isinstance(one, ast.Constant) else None for one in right.elts}
            return RANK0 if NAME_RANK.search(written) and members <= {0, -1, None} else ""
        if isinstance(value, str):
            return self._compared_string(value, written, op)
        if value is None and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            if written in self.packages or written.rsplit(".", 1)[-1] in self.packages:
                return f"-{PACKAGE}"
            return ""
        if isinstance(value, int):
            return self._compared_number(left, op, value, written, depth)
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
            # (i % n) == (n - 1)
            return CADENCE if self.interval(left) != 1 else ""
        return ""

    def _compared_string(self, value: str, written: str, op: ast.cmpop) -> str:
        about_device = re.search(r"devic|accelerator|backend|platform|type", written, re.I)
        if GPU_WORD.match(value) and (about_device or isinstance(op, ast.In | ast.NotIn)):
            return CUDA
        if value == "cpu" and about_device:
            return CPU
        if value in ("tpu", "xla") and about_device:
            return XLA
        if value in ("fp16", "float16", "16", "half"):
            return FP16
        if value == "scaled_dot_product_attention":
            return f"-{OLD_TORCH}"
        return ""

    def _compared_number(
        self, left: ast.expr, op: ast.cmpop, value: int, written: str, depth: int
    ) -> str:
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
            if isinstance(op, ast.Eq):
                return CADENCE if self.interval(left) != 1 else ""
            return ""
        if isinstance(op, ast.Eq) and COUNTER.search(written):
            return CADENCE
        rank = NAME_RANK.search(written) or written.rsplit(".", 1)[-1] in (
            "get_rank",
            "process_index",
            "get_local_rank",
        )
        if rank and value == 0 and isinstance(op, ast.Eq | ast.NotEq):
            return RANK0
        if rank and value in (-1, 0) and isinstance(op, ast.LtE):
            return RANK0
        if written.endswith("device_count") and isinstance(op, ast.Gt | ast.GtE):
            return CUDA
        return ""

    def interval(self, node: ast.BinOp) -> int:
        """The N of ``step % N``: its value when a constant says it, else 2 (some interval)."""
        bound: ast.expr | None = node.right
        if isinstance(bound, ast.Name | ast.Attribute):
            bound = self.value(bound)
        if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
            return bound.value
        return 2
