"""How a source counts the FLOPs of a token, and the TFLOP/s that it states or its MFU means.

Sources count attention whole or half, the input embedding or not, fine-tuning by their own rules:
rates in TFLOP/s compare only within one convention (the data's notes, ``flop_convention``).
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from chipshift.models.count import params_active
from chipshift.models.model import Attention, Layer, Model, MoeMlp
from chipshift.models.ops import attention_flops, forward_flops_per_token

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Convention:
    """What a source counts as the FLOPs of training on one token.

    Attributes:
        attention: share of a sequence that a query is taken to meet: 1 (the whole square), 0.5
            (the causal half), 0 (attention is not counted).
        windows: layers with a window count their window in place of the sequence.
        all_parameters: 6 × every active parameter in place of 6 × what is multiplied.
        input_embedding: the embedding counts as one more matmul.
        multi_head: keys and values are counted as if each query head had its own.
        expert_matrices: matrices of an expert where it is not the model's own number.
        predicted_layers: layers for multi-token prediction that are counted, each with a head.
        share: of full training's FLOPs (2/3 without gradients of the base weights).
    """

    attention: float
    windows: bool = False
    all_parameters: bool = False
    input_embedding: bool = False
    multi_head: bool = False
    expert_matrices: int | None = None
    predicted_layers: int = 0
    share: float = 1.0

    def __str__(self) -> str:
        kinds = {1.0: "whole attention", 0.5: "half attention", 0.0: "no attention"}
        said = {
            "windows": self.windows,
            "all parameters": self.all_parameters,
            "input embedding": self.input_embedding,
            "keys and values of every head": self.multi_head,
            f"{self.expert_matrices} matrices an expert": self.expert_matrices is not None,
            f"{self.predicted_layers} multi-token-prediction layer": self.predicted_layers > 0,
            f"{self.share:.3g} of full training": self.share < 1,
        }
        return ", ".join([kinds[self.attention], *(what for what, true in said.items() if true)])


UNKNOWN = re.compile(r"not (applicable|stated|verif|in the text)|not re-derived(?! for this model)")
"""Sources whose formula nobody read; the formula of MaxText after its pull request 1988 is known,
though it was not worked for every model."""


def convention_of(row: Row) -> Convention | None:
    """The convention of a record, or None where its text names none that can be worked out.

    Fine-tuning goes by rules of its own (the data's notes, 3.8): NVIDIA's NeMo and DGX Cloud count
    no attention, LoRA two thirds of full training.
    """
    said = str(row.get("flop_convention") or "").lower()
    task = row.get("task")
    if task == "lora":
        return _of_lora(said)
    if not said or "not identified" in said or UNKNOWN.search(said):
        return None
    if re.search(r"full (non-causal )?attention", said):
        attention = 1.0
    elif "half attention" in said:
        attention = 0.5
    else:
        return None
    if task == "sft" and "derived from source numbers" not in said:
        attention = 0.0
    return Convention(
        attention,
        windows="sliding layers" in said or "pr 1988" in said,
        all_parameters=bool(re.search(r"6\*(n\b|all params)", said)),
        input_embedding="input embedding also counted" in said,
        multi_head="counted as multi-head" in said,
        expert_matrices=2 if "2 expert matrices" in said else None,
        predicted_layers=1 if "plus one mtp layer" in said else 0,
    )


def _of_lora(said: str) -> Convention | None:
    if "automodel lora rows count 2/3" in said:
        return Convention(0.5, share=2 / 3)
    return Convention(0.0, share=2 / 3) if said.startswith("lora: 2/3") else None


def flops_per_token(model: Model, seq_len: int, convention: Convention) -> float:
    """Forward and backward FLOPs of a token as the convention counts them."""
    counted = replace(
        model, layers=tuple((_layer(layer, convention), n) for layer, n in model.layers)
    )
    attention = _attention(counted, seq_len, convention.attention, windows=convention.windows)
    if convention.all_parameters:
        return 6.0 * params_active(counted) + 3 * attention
    true = _attention(counted, seq_len, 0.5, windows=False)
    without = replace(counted, layers=tuple((_unwindowed(ly), n) for ly, n in counted.layers))
    forward = float(forward_flops_per_token(without, float(seq_len))) - true + attention
    embedding = 2.0 * model.d_model * model.vocab
    forward += embedding * convention.input_embedding
    if convention.predicted_layers:
        last, _ = counted.layers[-1]
        one = replace(counted, layers=((last, 1),), layer_order=(0,))
        each = float(forward_flops_per_token(one, float(seq_len)))
        forward += convention.predicted_layers * (each + 4.0 * model.d_model**2)
    return 3 * forward * convention.share


def _layer(layer: Layer, convention: Convention) -> Layer:
    """A layer with the keys, values and experts that the convention counts."""
    a, mlp = layer.attention, layer.mlp
    if a and convention.multi_head:
        a = replace(a, kv_heads=a.heads)
    if isinstance(mlp, MoeMlp) and convention.expert_matrices:
        mlp = replace(mlp, matrices=convention.expert_matrices)
    return replace(layer, attention=a, mlp=mlp)


def _unwindowed(layer: Layer) -> Layer:
    whole = layer.attention and replace(layer.attention, window=None)
    return replace(layer, attention=whole)


def _attention(model: Model, seq_len: int, share: float, *, windows: bool) -> float:
    """Forward FLOPs of attention for a token whose query meets a share of what it can reach."""

    def of(a: Attention | None) -> float:
        if a is None:
            return 0.0
        reach = min(seq_len, a.window) if windows and a.window else seq_len
        return float(attention_flops(1.0, share * reach, a.heads, a.head_dim, a.v_head_dim))

    return sum(of(layer.attention) * n for layer, n in model.layers)


def stated_tflops(row: Row) -> float | None:
    """TFLOP/s a chip as the source states it, or as its MFU means by the peak that it divides by.

    None where it gives neither or its peak is not known.
    """
    measured = row["measured"]
    if measured.get("tflops_per_chip"):
        return float(measured["tflops_per_chip"])
    peaks = _peaks().get(str(row["chip_key"]), {})
    peak = peaks.get("bf16" if row["dtype_class"] == "bf16" else "fp8")
    mfu = measured.get("mfu")
    return float(mfu) * float(peak["tflops"]) if mfu and peak and mfu < 1 else None


@functools.cache
def _peaks() -> dict[str, Any]:
    """Peaks that the sources divide by (data/mfu_peaks.toml), TFLOP/s a chip."""
    file = resources.files("chipshift.validate") / "data" / "mfu_peaks.toml"
    return tomllib.loads(file.read_text("utf8"))
