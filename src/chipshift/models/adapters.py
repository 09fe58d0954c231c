"""Low-rank adapters beside frozen maps: which ops have them, and what they move through memory.

Two thin matmuls, far below the ridge at any usual rank, so that they cost what their inputs and
outputs take to stream; each is a kernel of its own, and its result is added to the frozen map's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.models.lora import Lora, adapted
from chipshift.models.model import Model
from chipshift.models.modules import LinearModule, naming
from chipshift.worked import formula

Number = Any

LAUNCHES = 4
"""Kernels that an adapter adds to a forward pass: down, up, scale, add."""
DORA_LAUNCHES = 12
"""Kernels that magnitudes add to those: the update multiplied out (4), scaled, added to the
weights, their norm, the magnitude over it, and what scaling the outputs takes (4)."""

_OPS = (
    (("compressor.", "indexer.", "altup.", "laurel.", "per_layer_"), ""),
    (("experts.gate_up_proj",), "experts_up"),
    (("experts.down_proj",), "experts_down"),
    (("shared_expert.down_proj", "shared_experts.down_proj"), "shared_down"),
    (("mlp.shared_mlp.down_proj", "shared_mlp.output_linear"), "shared_down"),
    (("shared_expert.", "shared_experts.", "shared_mlp."), "shared_up"),
    (("q_a_proj",), "q_down"),
    (("q_b_proj",), "q_up"),
    (("kv_a_proj_with_mqa", "self_attn.kv_proj"), "kv_down"),
    (("kv_b_proj",), "kv_up"),
    (("mlp.c_proj", "down_proj", "dense_4h_to_h", "fc_out", "fc2"), "mlp_down"),
    (("feed_forward.w2",), "mlp_down"),
    (("gate_proj", "up_proj", "gate_up_proj", "dense_h_to_4h", "c_fc", "fc_in", "fc1"), "mlp_up"),
    (("feed_forward.w1", "feed_forward.w3", "mlp.w1", "mlp.w2"), "mlp_up"),
    (
        ("o_proj", "c_proj", "out_proj", "dense", "wo", "linear_out", "o_a_proj", "o_b_proj"),
        "out_proj",
    ),
    (("q_proj", "k_proj", "v_proj", "qkv_proj", "c_attn", "query_key_value"), "qkv_proj"),
    (("W_pack", "Wqkv", "wqkv"), "qkv_proj"),
    # of a recurrent mixer's several maps inward the widest: each of them is an op of that name
    (("mamba.in_proj", "mixer.in_proj", "conv.in_proj", "in_proj_qkv", "linear_x"), "qkv_proj"),
)
"""Parts of a module's path, the more special first, and the op that the map is part of."""


@dataclass(frozen=True)
class Adapters:
    """Adapters of one layer: ``(op, maps)`` pairs, the maps that have one in that op.

    Queries, keys and values are one op: three maps where they are modules of their own, one where
    they are fused. A fraction says that not every layer has them.

    Attributes:
        dora: the outputs' magnitudes are trained apart (Liu et al. 2024): each forward pass makes
            the update whole and takes the norm of every row of the adapted weights.
    """

    maps: tuple[tuple[str, float], ...] = ()
    dora: bool = False

    def on(self, op: str) -> float:
        """Adapters in an op; 0 where it has none."""
        return next((maps for name, maps in self.maps if name == op), 0.0)

    @property
    def launches(self) -> float:
        """Kernels that a layer's forward pass launches for them."""
        each = LAUNCHES + (DORA_LAUNCHES if self.dora else 0)
        return each * self.each_layer

    @property
    def each_layer(self) -> float:
        return sum(maps for _, maps in self.maps)


def adapters_of(model: Model, lora: Lora) -> Adapters:
    """The adapters of a mean layer.

    Raises:
        InputError: a target names no module of the model, or its modules are not known.
    """
    found = Counter(op for m in adapted(model, lora) if m.layer >= 0 if (op := _op_in(model, m)))
    maps = tuple((op, count / model.n_layers) for op, count in sorted(found.items()))
    return Adapters(maps, lora.dora)


def _op_in(model: Model, module: LinearModule) -> str:
    """``op_of``; what is shared by all tokens is a plain feed-forward where no expert is routed."""
    names, op = naming(model), op_of(module.name)
    if not model.routed:
        return op.replace("shared_", "mlp_")
    if f".{names.shared}." in module.name:
        return op.replace("mlp_", "shared_")
    return op


def op_of(module: str) -> str:
    """The op of models/ops.py that a module's map is part of; '' for a router and the like."""
    ends = (op for parts, op in _OPS if any(f".{p}" in f".{module}" for p in parts))
    return next(ends, "")


@formula(unit="B", source="input read for each map; output written, then added: 2 read, 1 written")
def adapter_forward_bytes(rows: Number, inputs: Number, outputs: Number, maps: Number) -> Number:
    """HBM bytes of an op's adapters in a forward pass, bf16."""
    return 2 * rows * (maps * inputs + 4 * outputs)


@formula(unit="B", source="output's gradient read twice; input's written, added, input read again")
def adapter_backward_bytes(rows: Number, inputs: Number, outputs: Number, maps: Number) -> Number:
    """HBM bytes of an op's adapters in a backward pass, bf16."""
    return 2 * rows * (5 * maps * inputs + 2 * outputs)


@formula(unit="B", source="PEFT 0.21, tuners/lora/dora.py, op by op")
def dora_forward_bytes(rows: Number, inputs: Number, outputs: Number, groups: Number) -> Number:
    """HBM bytes that magnitudes add to an op's adapters in a forward pass, bf16.

    The update is written, scaled (read, written), added to the weights (two read, one written) and
    the sum read for its norm: 7 passes over the weights. The outputs are scaled and added in 13
    passes where an adapter without magnitudes takes 6.
    """
    return 2 * (7 * inputs * outputs * groups + 7 * rows * outputs)


@formula(unit="B", source="PEFT 0.21, tuners/lora/dora.py, op by op: the norm has no gradient")
def dora_backward_bytes(rows: Number, outputs: Number) -> Number:
    """HBM bytes that magnitudes add to an op's adapters in a backward pass, bf16.

    The outputs' gradient by each of two scales (2 and 4 passes), by each of two outputs and summed
    for the magnitude's own (4 each), and added up (3): 17 where an adapter without takes 2.
    """
    return 2 * 15 * rows * outputs


DORA_KEPT = 2.0
"""Outputs of an adapted map that PEFT keeps for its magnitudes' gradient: the frozen map's and the
adapter's, each of which it multiplies by the scale (tuners/lora/dora.py, PEFT 0.21; torchtune and
axolotl likewise)."""
DORA_KEPT_SUMMED = 1.0
"""Their sum alone, which NeMo and Megatron-Bridge scale (peft/dora_layers.py, 2026-08)."""


@formula(unit="elements", source="the gradient of a scale reads what the forward pass scaled")
def dora_kept_elements(rows: Number, outputs: Number, maps: Number, kept: Number) -> Number:
    """Outputs that magnitudes keep of an op's adapted maps, beside what adapters keep.

    ``maps`` below one: adapters in that share of the layers; an op of several maps keeps its whole
    width where one of them has an adapter, as its traffic is counted.
    """
    return rows * outputs * np.minimum(maps, 1.0) * kept
