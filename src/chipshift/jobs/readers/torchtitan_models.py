"""A fork's own flavours: the table of its models, in a Python file given beside the job file.

Classes and defaults: PyTorch, torchtitan, torchtitan/models/llama3/model/args.py,
deepseek_v3/model/args.py and experiments/qwen3/model/args.py, 2025-06 to 2026-01. Of two classes
of one name the fields that are written tell which it is.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.models.model import Model

KINDS = ("TransformerModelArgs", "ModelArgs", "DeepSeekV3ModelArgs", "Qwen3ModelArgs")
QWEN3 = {"dim": 1024, "n_layers": 28, "n_heads": 16, "n_kv_heads": 8, "vocab_size": 151936}
LLAMA = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 128256, "multiple_of": 256}
DEEPSEEK = {
    "vocab_size": 102400,
    "dim": 2048,
    "inter_dim": 10944,
    "moe_inter_dim": 1408,
    "n_layers": 27,
    "n_dense_layers": 1,
    "n_heads": 16,
    "q_lora_rank": 0,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
MOST = 10**9
EXPERTS = {"num_experts": 8, "num_shared_experts": 1, "top_k": 1}


def model_beside(context: Context, family: str, flavor: str) -> Model | None:
    """The model of a flavour by a table given beside; None where none has it.

    Raises:
        InputError: the table's numbers are those of no model.
    """
    for base, source in context.beside.items():
        if not base.endswith(".py"):
            continue
        for call, fields in _entries(source.text, flavor):
            config = _config(call, fields, family)
            if config is None:
                continue
            context.consumed.add(base)
            return _built(config, f"{family}-{flavor}", source.path)
    return None


def _built(config: Mapping[str, Any], name: str, file: str) -> Model:
    from chipshift.models.hf import read_config

    try:
        return read_config(config, name, file)
    except InputError as error:
        raise InputError(f"{file}: the flavour {name}: {error}") from None


def _entries(text: str, flavor: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """``"8B": TransformerModelArgs(dim=4096, ...)`` of every table that has the flavour."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return
    for node in ast.walk(tree):
        for key, value in (
            zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        ):
            named = isinstance(key, ast.Constant) and str(key.value).lower() == flavor.lower()
            if named and isinstance(value, ast.Call):
                yield _name(value.func), _fields(value)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _fields(call: ast.Call) -> dict[str, Any]:
    """Keywords that are plain numbers, or calls of such keywords in their turn."""
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Call):
            found |= {f"{keyword.arg}.{k}": v for k, v in _fields(keyword.value).items()}
            continue
        try:
            found[keyword.arg or ""] = _number(keyword.value)
        except ValueError:
            continue  # a name or a computation: what it holds is not taken
    return found


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def _number(node: ast.expr) -> Any:
    """What a literal holds, or arithmetic of numbers.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(node, ast.BinOp):
        return ast.literal_eval(node)
    left, right, by = _number(node.left), _number(node.right), _OPERATORS.get(type(node.op))
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if by is None or not numbers or abs(left) > MOST or not 0 < abs(right) < MOST:
        raise ValueError
    return by(left, right)


def _config(kind: str, own: dict[str, Any], family: str) -> dict[str, Any] | None:
    """A Hugging Face config of the same numbers; None for a class that is not known."""
    if kind not in KINDS:
        return None
    if "deepseek" in family.lower() or kind.startswith("DeepSeek"):
        return _deepseek(own)
    if "qwen3" in family.lower() or kind.startswith("Qwen3"):
        return _qwen3(own)
    if any(key.startswith(("moe_args", "interleave_moe")) for key in own):
        return None  # llama 4's
    return _llama(own)


def _llama(own: dict[str, Any]) -> dict[str, Any]:
    numbers = {**LLAMA, **own}
    width = int(8 * numbers["dim"] / 3)
    if numbers.get("ffn_dim_multiplier") is not None:
        width = int(numbers["ffn_dim_multiplier"] * width)
    step = numbers["multiple_of"]
    return {
        "model_type": "llama",
        "hidden_size": numbers["dim"],
        "num_hidden_layers": numbers["n_layers"],
        "num_attention_heads": numbers["n_heads"],
        "num_key_value_heads": numbers.get("n_kv_heads") or numbers["n_heads"],
        "intermediate_size": numbers.get("hidden_dim") or -(-width // step) * step,
        "vocab_size": numbers["vocab_size"],
        "tie_word_embeddings": bool(numbers.get("enable_weight_tying", False)),
    }


def _qwen3(own: dict[str, Any]) -> dict[str, Any]:
    numbers = {**QWEN3, **own}
    config = {
        "model_type": "qwen3",
        "hidden_size": numbers["dim"],
        "num_hidden_layers": numbers["n_layers"],
        "num_attention_heads": numbers["n_heads"],
        "num_key_value_heads": numbers["n_kv_heads"],
        "head_dim": numbers.get("head_dim", 128),
        "intermediate_size": numbers.get("hidden_dim", 3072),
        "vocab_size": numbers["vocab_size"],
        "tie_word_embeddings": bool(numbers.get("enable_weight_tying", False)),
    }
    if numbers.get("moe_enabled"):
        experts = _experts(numbers)
        config |= {
            "model_type": "qwen3_moe",
            "num_experts": experts["num_experts"],
            "num_experts_per_tok": experts["top_k"],
            "moe_intermediate_size": numbers.get("moe_inter_dim", 768),
        }
    return config


def _deepseek(own: dict[str, Any]) -> dict[str, Any]:
    numbers = {**DEEPSEEK, **own}
    experts = _experts(numbers)
    return {
        "model_type": "deepseek_v3",
        "hidden_size": numbers["dim"],
        "num_hidden_layers": numbers["n_layers"],
        "num_attention_heads": numbers["n_heads"],
        "num_key_value_heads": numbers["n_heads"],
        "intermediate_size": numbers["inter_dim"],
        "moe_intermediate_size": numbers["moe_inter_dim"],
        "first_k_dense_replace": numbers["n_dense_layers"],
        "n_routed_experts": experts["num_experts"],
        "n_shared_experts": experts["num_shared_experts"],
        "num_experts_per_tok": experts["top_k"],
        "q_lora_rank": numbers["q_lora_rank"] or None,
        "kv_lora_rank": numbers["kv_lora_rank"],
        "qk_nope_head_dim": numbers["qk_nope_head_dim"],
        "qk_rope_head_dim": numbers["qk_rope_head_dim"],
        "v_head_dim": numbers["v_head_dim"],
        "vocab_size": numbers["vocab_size"],
        "num_nextn_predict_layers": 0,
        "tie_word_embeddings": False,
    }


def _experts(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """``moe_args=MoEArgs(...)``, or the same fields beside the others (2025-08 and before)."""
    named = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
    named["top_k"] = "n_activated_experts"
    return {
        key: numbers.get(f"moe_args.{key}", numbers.get(named[key], default))
        for key, default in EXPERTS.items()
    }
